"""The same mistake is the same error: class and kind, from both implementations.

Messages are each one's own.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr
from tests.interop.both import ROOT, Side
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import frazil

pytestmark = [pytest.mark.deep, pytest.mark.interop]

UNKNOWN = "ZZZZZZZZZZZZZZZZZZZ0"


@dataclass
class Scene:
    """A repository of one implementation: two commits, a tag, a deleted tag, a group and an array."""

    side: Side
    path: Path

    def __post_init__(self) -> None:
        self.package = self.side.package
        self.repo = self.side.create(self.side.config()).repo
        with self.repo.transaction("main", message="first") as store:
            root = zarr.create_group(store)
            root.create_group("g")
            root.create_array("a", shape=(4, 4), chunks=(2, 2), dtype="i4", compressors=None)[:] = 1
        self.first = self.repo.lookup_branch("main")
        with self.repo.transaction("main", message="second") as store:
            zarr.open_array(store, path="a", mode="a")[:] = 2
        self.tip = self.repo.lookup_branch("main")
        self.repo.create_branch("dev", self.first)
        self.repo.create_tag("v1", self.first)
        self.repo.create_tag("gone", self.first)
        self.repo.delete_tag("gone")

    @property
    def session(self) -> Any:
        return self.repo.writable_session("main")

    @property
    def reading(self) -> Any:
        return self.repo.readonly_session("main")

    @property
    def moving(self) -> Any:
        return self.repo.rearrange_session("main")

    def without(self, feature: str) -> Any:
        """The repository, with a feature turned off."""
        self.repo.set_feature_flag(feature, False)
        return self.repo

    def elsewhere(self, name: str = "nothing") -> Any:
        return self.package.local_filesystem_storage(str(self.path / name))

    def closed(self) -> Any:
        """The repository, with a status that allows no changes."""
        status = self.package.RepoStatus(self.package.RepoAvailability.read_only, None, "closed")
        self.repo.set_status(status)
        return self.repo

    def set(self, key: str, value: bytes = b"12345678", session: Any = None) -> None:
        store = (session or self.session).store
        sync(store.set(key, default_buffer_prototype().buffer.from_bytes(value)))

    def virtual(self, key: str = "a/c/0/0", location: str | None = None, **more: Any) -> None:
        location = location or f"{self.side.prefix}data.bin"
        self.session.store.set_virtual_ref(key, location, **{"offset": 0, "length": 16, **more})

    def lost_snapshot(self) -> None:
        """Collect garbage while the file of the first version is not there."""
        (self.side.path / "snapshots" / self.first).unlink()
        repo = self.package.Repository.open(self.side.storage())
        repo.garbage_collect(datetime.now(UTC) + timedelta(days=1))

    def committed(self, branch: str = "main") -> Any:
        session = self.repo.writable_session(branch)
        self.set("g/x/zarr.json", b'{"zarr_format":3,"node_type":"group"}', session)
        session.commit("third")
        return session

    def changed(self, branch: str = "main") -> Any:
        session = self.repo.writable_session(branch)
        self.set("g/y/zarr.json", b'{"zarr_format":3,"node_type":"group"}', session)
        return session

    def flushed(self) -> Any:
        session = self.changed()
        session.flush("aside")
        return session

    def raced(self, end: str = "commit", **ours: Any) -> None:
        session = self.changed()
        self.committed()
        getattr(session, end)("late", **ours)

    @property
    def detector(self) -> Any:
        return self.package.ConflictDetector()

    def deserted(self, end: str) -> None:
        """The branch is gone when the session ends."""
        session = self.changed("dev")
        self.repo.delete_branch("dev")
        getattr(session, end)("where")

    def shut_out(self, end: str) -> None:
        """The repository is closed when the session ends."""
        session = self.changed()
        self.closed()
        getattr(session, end)("x")


def moved_meanwhile(scene: Scene) -> None:
    session = scene.moving
    session.move("/a", "/b")
    scene.without("move_node")
    session.commit("x")


def amended_first(scene: Scene) -> None:
    repo = scene.package.Repository.create(scene.package.in_memory_storage())
    session = repo.writable_session("main")
    zarr.create_group(session.store)
    session.amend("x")


def moved(scene: Scene) -> Scene:
    session = scene.moving
    session.move("/a", "/b")
    session.commit("moved")
    return scene


def modified(scene: Scene) -> None:
    session = scene.session
    before = datetime(2001, 1, 1, tzinfo=UTC)
    url = f"{scene.side.prefix}data.bin"
    session.store.set_virtual_ref("a/c/0/0", url, offset=0, length=16, checksum=before)
    zarr.open_array(session.store, path="a", mode="r")[0, 0]


def unauthorised(scene: Scene) -> None:
    repo = scene.package.Repository.open(scene.side.storage(), scene.side.config())
    session = repo.writable_session("main")
    session.store.set_virtual_ref("a/c/0/0", f"{scene.side.prefix}data.bin", offset=0, length=16)
    zarr.open_array(session.store, path="a", mode="r")[0, 0]


ARRAY = (
    b'{"zarr_format":3,"node_type":"array","shape":[4],"data_type":"int8","chunk_grid":{"name":"%s",'
    b'"configuration":{"chunk_shape":[2]}},"chunk_key_encoding":{"name":"default"},"fill_value":0,'
    b'"codecs":[{"name":"bytes"}]}'
)
GROUP = b'{"zarr_format":3,"node_type":"group"}'

Act = Callable[[Scene], Any]
CASES: dict[str, Act] = {
    # creating and opening
    "open nothing": lambda s: s.package.Repository.open(s.elsewhere()),
    "config of nothing": lambda s: s.package.Repository.fetch_config(s.elsewhere()),
    "create twice": lambda s: s.package.Repository.create(s.side.storage()),
    "version 3": lambda s: s.package.Repository.create(s.elsewhere(), spec_version=3),
    # refs
    "unknown branch": lambda s: s.repo.lookup_branch("nope"),
    "unknown tag": lambda s: s.repo.lookup_tag("nope"),
    "session of an unknown branch": lambda s: s.repo.writable_session("nope"),
    "read an unknown tag": lambda s: s.repo.readonly_session(tag="nope"),
    "delete an unknown branch": lambda s: s.repo.delete_branch("nope"),
    "delete an unknown tag": lambda s: s.repo.delete_tag("nope"),
    "reset an unknown branch": lambda s: s.repo.reset_branch("nope", s.first),
    "branch exists": lambda s: s.repo.create_branch("dev", s.tip),
    "tag exists": lambda s: s.repo.create_tag("v1", s.tip),
    "tag was deleted": lambda s: s.repo.create_tag("gone", s.tip),
    "delete a deleted tag": lambda s: s.repo.delete_tag("gone"),
    "delete main": lambda s: s.repo.delete_branch("main"),
    "reset from elsewhere": lambda s: s.repo.reset_branch("dev", s.tip, from_snapshot_id=s.tip),
    "reset an unknown branch from a version": lambda s: s.repo.reset_branch(
        "nope", s.first, from_snapshot_id=s.tip
    ),
    "reset to nothing": lambda s: s.repo.reset_branch("dev", UNKNOWN, from_snapshot_id=s.first),
    "branch on an unknown snapshot": lambda s: s.repo.create_branch("new", UNKNOWN),
    "tag on an unknown snapshot": lambda s: s.repo.create_tag("new", UNKNOWN),
    # snapshots
    "no id": lambda s: s.repo.readonly_session(snapshot_id="no id!"),
    "short id": lambda s: s.repo.create_branch("new", "ABC"),
    "unknown id": lambda s: s.repo.readonly_session(snapshot_id=UNKNOWN),
    "look up an unknown id": lambda s: s.repo.lookup_snapshot(UNKNOWN),
    "ancestry of an unknown id": lambda s: list(s.repo.ancestry(snapshot_id=UNKNOWN)),
    "before the first": lambda s: s.repo.readonly_session("main", as_of=datetime(2000, 1, 1, tzinfo=UTC)),
    "naive time": lambda s: s.repo.readonly_session("main", as_of=datetime(2000, 1, 1)),
    "neither branch nor tag": lambda s: s.repo.readonly_session(),
    "branch and tag": lambda s: s.repo.readonly_session("main", tag="v1"),
    "ancestry of two": lambda s: list(s.repo.ancestry(branch="main", tag="v1")),
    "ancestry of none": lambda s: list(s.repo.ancestry()),
    # sessions
    "nothing to commit": lambda s: s.session.commit("x"),
    "commit after a commit": lambda s: s.committed().commit("again"),
    "commit what only reads": lambda s: s.reading.commit("x"),
    "commit a fork": lambda s: s.session.fork().commit("x"),
    "flush a fork": lambda s: s.session.fork().flush("x"),
    "fork what only reads": lambda s: s.reading.fork(),
    "write after a commit": lambda s: s.set("a/c/0/0", session=s.committed()),
    "write what only reads": lambda s: s.set("a/c/0/0", session=s.reading),
    "too late": lambda s: s.raced(),
    "too late, and no tries": lambda s: s.raced(rebase_with=s.detector, rebase_tries=0),
    "rebase what reads": lambda s: s.reading.rebase(s.detector),
    "rebase a fork": lambda s: s.session.fork().rebase(s.detector),
    "discard what reads": lambda s: s.reading.discard_changes(),
    "rebase with nothing": lambda s: s.session.rebase(None),
    "pickle what writes": lambda s: pickle.dumps(s.session),
    "an empty transaction": lambda s: (
        s.repo.transaction("main", message="x").__enter__() and s.session.commit("x")
    ),
    # the store
    "no key": lambda s: s.set("what is this"),
    "a v2 group": lambda s: s.set(".zgroup"),
    "a v2 array": lambda s: s.set("a/.zarray"),
    "v2 attributes": lambda s: s.set("g/.zattrs"),
    "consolidated": lambda s: s.set(".zmetadata"),
    "is there a v2 group": lambda s: sync(s.session.store.exists(".zgroup")),
    "outside of the grid": lambda s: s.set("a/c/9/9"),
    "no bytes": lambda s: s.set("a/c/0/0", b""),
    "a chunk of a group": lambda s: s.set("g/c/0"),
    "a chunk of nothing": lambda s: s.set("none/c/0"),
    "no json": lambda s: s.set("x/zarr.json", b"{"),
    "unknown grid": lambda s: s.set("x/zarr.json", ARRAY % b"hexagonal"),
    "an array over a group": lambda s: s.set("g/zarr.json", ARRAY % b"regular"),
    "a group over an array": lambda s: s.set("a/zarr.json", GROUP),
    # virtual chunks
    "no container": lambda s: s.virtual(location="s3://nobody/x"),
    "unknown container": lambda s: s.virtual(location="vcc://nobody/x"),
    "virtual metadata": lambda s: s.virtual("a/zarr.json"),
    "no url": lambda s: s.virtual(location="just/a/path"),
    "virtual outside": lambda s: s.virtual("a/c/7/7"),
    "virtual of nothing": lambda s: s.virtual("none/c/0"),
    "modified since": modified,
    "not authorised": unauthorised,
    # moves
    "move in a writable session": lambda s: s.session.move("/a", "/b"),
    "move what only reads": lambda s: s.reading.move("/a", "/b"),
    "write while moving": lambda s: s.set("a/c/0/0", session=s.moving),
    "create while moving": lambda s: zarr.create_group(s.moving.store, path="new"),
    "delete while moving": lambda s: sync(s.moving.store.delete_dir("g")),
    "move from where": lambda s: s.moving.move("a", "/b"),
    "move to where": lambda s: s.moving.move("/a", "b"),
    "move up": lambda s: s.moving.move("/a", "/g/../b"),
    "move nothing": lambda s: s.moving.move("/none", "/b"),
    "move below itself": lambda s: s.moving.move("/g", "/g/b"),
    "move the root": lambda s: s.moving.move("/", "/b"),
    "move onto another": lambda s: s.moving.move("/a", "/g"),
    "move below nothing": lambda s: s.moving.move("/a", "/none/b"),
    "move below an array": lambda s: s.moving.move("/g", "/a/b"),
    "move in an unknown branch": lambda s: s.repo.rearrange_session("nope"),
    "nothing moved": lambda s: s.moving.commit("x"),
    "moves are disabled": lambda s: s.without("move_node").rearrange_session("main"),
    "moves were disabled": moved_meanwhile,
    "closed: rearrange": lambda s: s.closed().rearrange_session("main"),
    # chunks that change their place
    "shift nothing": lambda s: s.session.shift_array("/none", [1]),
    "shift a group": lambda s: s.session.shift_array("/g", [1]),
    "shift where": lambda s: s.session.shift_array("a", [1, 1]),
    "shift what only reads": lambda s: s.reading.shift_array("/a", [1, 1]),
    "shift while moving": lambda s: s.moving.shift_array("/a", [1, 1]),
    "shift by text": lambda s: s.session.shift_array("/a", ["1", "1"]),
    "shift by a number": lambda s: s.session.shift_array("/a", 1),
    "reindex nothing": lambda s: s.session.reindex_array("/none", lambda at: at),
    "reindex a group": lambda s: s.session.reindex_array("/g", lambda at: at),
    "reindex where": lambda s: s.session.reindex_array("a", lambda at: at),
    "reindex what only reads": lambda s: s.reading.reindex_array("/a", lambda at: at),
    "reindex while moving": lambda s: s.moving.reindex_array("/a", lambda at: at),
    "reindex out of the grid": lambda s: s.session.reindex_array("/a", lambda at: [at[0], 2]),
    "reindex by nothing": lambda s: s.session.reindex_array("/a", 3),
    "a rule that fails": lambda s: s.session.reindex_array("/a", lambda at: [][0]),
    # amend and flush
    "amend the first": amended_first,
    "nothing to amend": lambda s: s.session.amend("x"),
    "amend after a commit": lambda s: s.committed().amend("again"),
    "amend what only reads": lambda s: s.reading.amend("x"),
    "amend in a fork": lambda s: s.session.fork().amend("x"),
    "amend too late": lambda s: s.raced("amend"),
    "amend a move by a write": lambda s: moved(s).changed().amend("x"),
    "write after a flush": lambda s: s.set("a/c/0/0", session=s.flushed()),
    "commit after a flush": lambda s: s.flushed().commit("x", allow_empty=True),
    "commit to no branch": lambda s: s.deserted("commit"),
    "amend in no branch": lambda s: s.deserted("amend"),
    "closed: commit": lambda s: s.shut_out("commit"),
    "closed: amend": lambda s: s.shut_out("amend"),
    "closed: flush": lambda s: s.shut_out("flush"),
    "closed: delete a branch": lambda s: s.closed().delete_branch("dev"),
    "closed: delete a tag": lambda s: s.closed().delete_tag("v1"),
    "closed: flag": lambda s: s.closed().set_feature_flag("create_tag", False),
    "delete a tag, disabled": lambda s: s.without("delete_tag").delete_tag("v1"),
    # what changed
    "diff from nothing": lambda s: s.repo.diff(to_branch="main"),
    # settings and status
    "unknown flag": lambda s: s.repo.set_feature_flag("fly", True),
    "disabled feature": lambda s: s.without("create_tag").create_tag("new", s.tip),
    "closed: session": lambda s: s.closed().writable_session("main"),
    "closed: branch": lambda s: s.closed().create_branch("x", s.tip),
    "closed: reset": lambda s: s.closed().reset_branch("dev", s.tip),
    "closed: tag": lambda s: s.closed().create_tag("x", s.tip),
    "closed: metadata": lambda s: s.closed().set_metadata({}),
    "closed: config": lambda s: s.closed().save_config(),
    "closed: expire": lambda s: s.closed().expire_snapshots(datetime.now(UTC)),
    "closed: collect garbage": lambda s: s.closed().garbage_collect(datetime.now(UTC)),
    "closed: look for garbage": lambda s: s.closed().garbage_collect(datetime.now(UTC), dry_run=True),
    # upkeep and inspection
    "expire at a time of nowhere": lambda s: s.repo.expire_snapshots(datetime(2024, 1, 1)),
    "collect at a time of nowhere": lambda s: s.repo.garbage_collect(datetime(2024, 1, 1)),
    "collect with a lost snapshot": lambda s: s.lost_snapshot(),
    "rewrite an unknown branch": lambda s: s.repo.rewrite_manifests("x", branch="nope"),
    "rewrite in another way": lambda s: s.repo.rewrite_manifests("x", branch="main", commit_method="replace"),
    "bounds that are texts": lambda s: s.package.ManifestPreloadCondition.NumRefs("1", 2),
    "an expression that is a number": lambda s: s.package.ManifestSplitCondition.name_matches(3),
    "inspect no manifest": lambda s: s.repo.inspect_manifest(UNKNOWN),
    # chunks of a session
    "type of a chunk of nothing": lambda s: s.reading.chunk_type("/none", [0]),
    "type of a chunk of a group": lambda s: s.reading.chunk_type("/g", [0]),
    "id of nothing": lambda s: s.reading.get_node_id("/none"),
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


#: With spec version 1.
OF_VERSION_1: dict[str, Act] = {
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
CASES_OF_VERSION_1 = CASES | OF_VERSION_1
#: With version 1, the reference speaks of a conflict with a branch that is not there, and says of a snapshot
#: that the storage has no such object, which sounds as if another try could help.
CLEARER = {
    "reset an unknown branch from a version": ("RefNotFoundError", "ConflictError"),
    **dict.fromkeys(
        (
            *("a new branch from an unknown snapshot", "ancestry of an unknown id", "unknown id"),
            *("branch on an unknown snapshot", "look up an unknown id", "reset to nothing"),
            "tag on an unknown snapshot",
        ),
        ("SnapshotNotFoundError", "StorageError"),
    ),
}


@pytest.fixture
def spec() -> int:
    """The version of the format, where the parameters of a test do not say it."""
    return 2


@pytest.fixture
def scenes(spec: int, tmp_path: Path) -> dict[str, Scene]:
    virtual = tmp_path / "files"
    virtual.mkdir()
    (virtual / "data.bin").write_bytes(np.arange(16, dtype="i4").tobytes())
    return {
        package.__name__: Scene(
            Side(package.__name__, package, tmp_path / package.__name__, virtual, spec=spec), tmp_path
        )
        for package in (frazil, icechunk)
    }


def of_both_versions(two: Iterable[str], one: Iterable[str]) -> pytest.MarkDecorator:
    cases = [*((2, case) for case in two), *((1, case) for case in sorted(one))]
    return pytest.mark.parametrize(("spec", "case"), cases)


@pytest.mark.sample(54, 54)
@of_both_versions(CASES, CASES_OF_VERSION_1.keys() - CLEARER.keys())
def test_both_raise_the_same(case: str, scenes: dict[str, Scene]) -> None:
    raised = []
    for scene in scenes.values():
        with pytest.raises(Exception) as error:  # noqa: PT011  # which one is what is compared
            CASES_OF_VERSION_1[case](scene)
        raised.append((public(type(error.value)), getattr(error.value, "kind", None)))
    assert raised[0] == raised[1]


@of_both_versions((), CLEARER)
def test_what_is_not_there_is_not_found(case: str, scenes: dict[str, Scene]) -> None:
    for scene, name in zip(scenes.values(), CLEARER[case], strict=True):
        with pytest.raises(getattr(scene.package, name)):
            CASES_OF_VERSION_1[case](scene)


def public(error: type[BaseException]) -> str:
    """The class that a user can name: some of Frazil's are narrower, to please zarr as well."""
    return next(base.__name__ for base in error.__mro__ if base.__name__ in NAMES)


NAMES = {*(name for name in dir(icechunk) if name.endswith("Error")), "ValueError", "TypeError"}

#: What the reference accepts and should not: coordinates of another rank end up where nobody finds them.
ONLY_OURS: dict[str, tuple[str, str, Act]] = {
    "too many coordinates": ("InvalidInputError", "invalid-chunk-index", lambda s: s.set("a/c/0/0/0")),
    "too few coordinates": ("InvalidInputError", "invalid-chunk-index", lambda s: s.set("a/c/0")),
    "no name": ("InvalidInputError", "invalid-ref-name", lambda s: s.repo.create_branch("", s.tip)),
}


@of_both_versions(ONLY_OURS, ["no name"])
def test_only_ours_refuses(case: str, scenes: dict[str, Scene]) -> None:
    name, kind, act = ONLY_OURS[case]
    act(scenes["icechunk"])
    with pytest.raises(frazil.IcechunkError) as error:
        act(scenes["frazil"])
    assert (public(type(error.value)), error.value.kind) == (name, kind)


#: What the reference refuses and Frazil does.
ONLY_THEIRS: dict[str, tuple[str, str, Act]] = {
    "diff backwards": (
        "InvalidInputError",
        "bad-snapshot-chain-for-diff",
        lambda s: s.repo.diff(from_snapshot_id=s.tip, to_snapshot_id=s.first),
    ),
    "diff with itself": (
        "InvalidInputError",
        "bad-snapshot-chain-for-diff",
        lambda s: s.repo.diff(from_snapshot_id=s.tip, to_snapshot_id=s.tip),
    ),
    "diff of two branches": (
        "InvalidInputError",
        "bad-snapshot-chain-for-diff",
        lambda s: s.committed("dev") and s.repo.diff(from_branch="main", to_branch="dev"),
    ),
    "reword a move": (
        "SessionStateError",
        "rearrange-session-only",
        lambda s: moved(s).session.amend("x", allow_empty=True),
    ),
}


@pytest.mark.parametrize("case", ONLY_THEIRS)
def test_only_theirs_refuses(case: str, scenes: dict[str, Scene]) -> None:
    name, kind, act = ONLY_THEIRS[case]
    act(scenes["frazil"])
    with pytest.raises(icechunk.IcechunkError) as error:
        act(scenes["icechunk"])
    assert (public(type(error.value)), error.value.kind) == (name, kind)


NOTHING_HAPPENS: dict[str, Act] = {
    "delete outside of the grid": lambda s: bool(sync(s.session.store.delete("a/c/9/9"))),
    "delete nothing": lambda s: bool(sync(s.session.store.delete("none/c/0"))),
    "is there nothing": lambda s: sync(s.session.store.exists("none/zarr.json")),
    "commit of nothing, if told so": lambda s: s.session.commit("x", allow_empty=True) and None,
    "read a closed repository": lambda s: s.closed().readonly_session("main") and None,
    "set_virtual_refs without container": lambda s: s.session.store.set_virtual_refs(
        "a", [s.package.VirtualChunkSpec([1, 1], "s3://nobody/x", 0, 16)]
    ),
    "a session of the future": lambda s: (
        s.repo.readonly_session("main", as_of=datetime.now(UTC) + timedelta(days=1)).read_only
    ),
    "same repository": lambda s: s.repo.lookup_branch("main") == s.tip and s.first != ROOT,
}


@of_both_versions(NOTHING_HAPPENS, NOTHING_HAPPENS.keys() - {"read a closed repository"})
def test_both_accept_the_same(case: str, scenes: dict[str, Scene]) -> None:
    answers = {package: NOTHING_HAPPENS[case](scene) for package, scene in scenes.items()}
    assert answers["frazil"] == answers["icechunk"]


def test_conflicts_name_both_parents(scenes: dict[str, Scene]) -> None:
    for scene in scenes.values():
        with pytest.raises(scene.package.ConflictError) as error:
            scene.raced()
        assert error.value.expected_parent == scene.tip
        assert error.value.actual_parent == scene.repo.lookup_branch("main")
        assert error.value.args == (error.value.expected_parent, error.value.actual_parent)
        again = pickle.loads(pickle.dumps(error.value))
        assert (again.kind, again.actual_parent) == (error.value.kind, error.value.actual_parent)


def test_a_reset_names_where_the_branch_is(scenes: dict[str, Scene]) -> None:
    for scene in scenes.values():
        with pytest.raises(scene.package.ConflictError) as error:
            scene.repo.reset_branch("dev", scene.tip, from_snapshot_id=scene.tip)
        assert (error.value.expected_parent, error.value.actual_parent) == (scene.tip, scene.first)
        scene.repo.reset_branch("dev", scene.tip, from_snapshot_id=scene.first)
        assert scene.repo.lookup_branch("dev") == scene.tip
