"""Repositories of spec version 1, of both implementations: errors, configuration, names."""

from __future__ import annotations

import json
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr
from tests.interop.both import Side, check_same, sides, splitting
from tests.parity.test_errors import CASES, NOTHING_HAPPENS, ONLY_OURS, Act, Scene, public

import frazil

pytestmark = [pytest.mark.deep, pytest.mark.interop]

PACKAGES = (frazil, icechunk)


@pytest.fixture
def scenes(tmp_path: Path) -> dict[str, Scene]:
    virtual = tmp_path / "files"
    virtual.mkdir()
    (virtual / "data.bin").write_bytes(np.arange(16, dtype="i4").tobytes())
    return {
        package.__name__: Scene(
            Side(package.__name__, package, tmp_path / package.__name__, virtual, spec=1), tmp_path
        )
        for package in PACKAGES
    }


def commit_to_a_deleted_branch(scene: Scene) -> None:
    session = scene.repo.writable_session("dev")
    scene.set("g/x/zarr.json", b'{"zarr_format":3,"node_type":"group"}', session)
    scene.repo.delete_branch("dev")
    session.commit("late")


def save_over_another(scene: Scene) -> None:
    """Where nothing was saved before: on local files the reference replaces what it does not know."""
    storage = scene.elsewhere(f"plain-{scene.package.__name__}")
    scene.package.Repository.create(storage, spec_version=1)
    others = [
        scene.package.Repository.open(storage, scene.package.RepositoryConfig(number)) for number in range(2)
    ]
    for repo in others:
        repo.save_config()


#: Beyond the table of ``test_errors``.
MORE: dict[str, Act] = {
    "a branch with a slash": lambda s: s.repo.create_branch("a/b", s.tip),
    "a tag with a slash": lambda s: s.repo.create_tag("a/b", s.tip),
    "look up a branch with a slash": lambda s: s.repo.lookup_branch("a/b"),
    "look up a tag with a slash": lambda s: s.repo.lookup_tag("a/b"),
    "delete a branch with a slash": lambda s: s.repo.delete_branch("a/b"),
    "delete a tag with a slash": lambda s: s.repo.delete_tag("a/b"),
    "reset a branch with a slash": lambda s: s.repo.reset_branch("a/b", s.tip),
    "read a branch with a slash": lambda s: s.repo.readonly_session("a/b"),
    "read a tag with a slash": lambda s: s.repo.readonly_session(tag="a/b"),
    "a new branch from an unknown snapshot": lambda s: s.repo.reset_branch("dev", "ZZZZZZZZZZZZZZZZZZZ0"),
    "commit to a deleted branch": commit_to_a_deleted_branch,
    "save over another": save_over_another,
    "metadata": lambda s: s.repo.get_metadata(),
    "metadata too": lambda s: s.repo.metadata,
    "set metadata": lambda s: s.repo.set_metadata({}),
    "update metadata": lambda s: s.repo.update_metadata({"a": 1}),
    "status": lambda s: s.repo.get_status(),
    "status too": lambda s: s.repo.status,
    "set status": lambda s: s.closed(),
    "flags": lambda s: s.repo.feature_flags(),
    "enabled": lambda s: s.repo.enabled_feature_flags(),
    "disabled": lambda s: s.repo.disabled_feature_flags(),
    "operations": lambda s: list(s.repo.ops_log()),
    "rearrange": lambda s: s.repo.rearrange_session("main"),
    "create over it": lambda s: s.package.Repository.create(s.side.storage(), spec_version=1),
    "upgrade version 2": lambda s: s.package.upgrade_icechunk_repository(
        s.package.Repository.create(s.elsewhere(f"another-{s.side.name}")), dry_run=True
    ),
}
ACTS = CASES | MORE
#: Where the reference speaks of a conflict with a branch that is not there.
CLEARER = "reset an unknown branch from a version"


#: Where the reference says that the storage has no such object, which sounds as if another try could help.
UNKNOWN_SNAPSHOTS = {
    "a new branch from an unknown snapshot",
    "ancestry of an unknown id",
    "branch on an unknown snapshot",
    "look up an unknown id",
    "reset to nothing",
    "tag on an unknown snapshot",
    "unknown id",
}


@pytest.mark.sample(37, 37)
@pytest.mark.parametrize("case", sorted(ACTS.keys() - {CLEARER} - UNKNOWN_SNAPSHOTS))
def test_both_raise_the_same(case: str, scenes: dict[str, Scene]) -> None:
    raised = []
    for scene in scenes.values():
        with pytest.raises(Exception) as error:  # noqa: PT011  # which one is what is compared
            ACTS[case](scene)
        raised.append((public(type(error.value)), getattr(error.value, "kind", None)))
    assert raised[0] == raised[1]


def test_a_branch_that_is_not_there_is_not_found(scenes: dict[str, Scene]) -> None:
    with pytest.raises(frazil.RefNotFoundError):
        ACTS[CLEARER](scenes["frazil"])
    with pytest.raises(icechunk.ConflictError):
        ACTS[CLEARER](scenes["icechunk"])


@pytest.mark.parametrize("case", sorted(UNKNOWN_SNAPSHOTS))
def test_a_snapshot_that_is_not_there_is_not_found(case: str, scenes: dict[str, Scene]) -> None:
    with pytest.raises(frazil.SnapshotNotFoundError):
        ACTS[case](scenes["frazil"])
    with pytest.raises(icechunk.StorageError):
        ACTS[case](scenes["icechunk"])


@pytest.mark.parametrize("case", sorted(set(NOTHING_HAPPENS) - {"read a closed repository"}))
def test_both_accept_the_same(case: str, scenes: dict[str, Scene]) -> None:
    answers = [NOTHING_HAPPENS[case](scene) for scene in scenes.values()]
    assert answers[0] == answers[1]


def test_only_ours_refuses_an_empty_name(scenes: dict[str, Scene]) -> None:
    name, kind, act = ONLY_OURS["no name"]
    act(scenes["icechunk"])
    with pytest.raises(frazil.IcechunkError) as error:
        act(scenes["frazil"])
    assert (public(type(error.value)), error.value.kind) == (name, kind)


# Configuration


# Names and files

NAMES = ["it works!", "a#b", "a%b", "é", "a?b", "a~b", "..", "a\\b", "a:b", "{x}", "a.b", "*", " ", "%41"]


@pytest.mark.parametrize("writer", [0, 1], ids=["frazil", "icechunk"])
def test_names_of_refs(writer: int, tmp_path: Path) -> None:
    """The reference finds them all, but lists some as they are spelt in paths."""
    both = sides(tmp_path / "r", spec=1)
    both[writer].create()
    both[1 - writer].open()
    root = both[writer].repo.lookup_branch("main")
    for name in NAMES:
        both[writer].repo.create_branch(name, root)
        both[writer].repo.create_tag(name, root)
    for side in both:
        for name in NAMES:
            assert side.repo.lookup_branch(name) == side.repo.lookup_tag(name) == root
    assert both[0].repo.list_branches() == {"main", *NAMES}
    assert both[0].repo.list_tags() == set(NAMES)
    for name in NAMES[::2]:
        both[1 - writer].repo.delete_branch(name)
        both[1 - writer].repo.delete_tag(name)
    assert both[0].repo.list_branches() == {"main", *NAMES[1::2]}
    assert both[0].repo.list_tags() == set(NAMES[1::2])


def test_what_is_in_the_files(tmp_path: Path) -> None:
    """Nothing of version 2, and refs that any reader of JSON understands."""
    ours, theirs = sides(tmp_path / "r", spec=1)
    ours.create(ours.config(manifest=splitting(frazil, 2)))
    theirs.open()
    with ours.repo.transaction("main", message="first", metadata={"é": [1, None, {"x": -1.5}]}) as store:
        root = zarr.create_group(store)
        shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
            ((9,), (4,)), ((), ()), ((0, 3), (2, 2)), ((7, 5), (2, 3)),
        ]  # fmt: skip
        for number, (shape, chunks) in enumerate(shapes):
            array = root.create_array(f"a{number}", shape=shape, chunks=chunks, dtype="i4")
            array[...] = number + 1
    ours.repo.create_tag("t", ours.repo.lookup_branch("main"))
    files = {str(path.relative_to(ours.path)): path for path in ours.path.rglob("*") if path.is_file()}
    assert "repo" not in files
    for name, path in files.items():
        if name.startswith(("snapshots", "manifests", "transactions")):
            assert path.read_bytes()[36] == 1, name
        if name.endswith("ref.json"):
            text = path.read_text()
            assert json.loads(text) == {"snapshot": ours.repo.lookup_branch("main")}
    assert len([name for name in files if name.startswith("transactions")]) == 1
    check_same(ours, theirs)
