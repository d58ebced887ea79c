"""Repositories that somebody has made to harm their readers: typed errors, no files or requests of others."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import random
import stat
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import zarr
import zstandard
from tests.hostile.generator import Breakage, breakages, keys, repository, with_file
from tests.hostile.reading import Group, ask
from tests.hostile.schema import KINDS
from tests.repository.version_1 import copy_of
from tests.support.examples import examples
from tests.support.patience import patience
from tests.support.tiers import deep

import frazil
from frazil.errors import FormatError, IcechunkError
from frazil.format.envelope import FileType, seal
from frazil.format.ids import REPO
from frazil.format.repo_info import OpsLog, RepoInfo, decode_repo_info, encode_repo_info
from frazil.repository.catalog.collection_guard import COLLECTIONS, LEASES, STAGING

#: Questions to which a valid repository of the generator has no answer, because the nodes moved.
_UNANSWERED = {f"coordinates {ref}" for ref in ("main s", "main scalar", "v1 moved")}
#: What a commit, and all that changes old versions, need.
_CHANGES = Group.COMMITS | Group.UPKEEP


@pytest.fixture(scope="module", params=[2, 1], ids=["version 2", "version 1"])
def valid(request: pytest.FixtureRequest) -> frazil.Storage:
    return repository(request.param)


def every_breakage(storage: frazil.Storage) -> list[Breakage]:
    """All breakages, in an order that is always the same and that mixes the files."""
    every = [
        each
        for kind in KINDS
        for key in keys(storage, kind)
        for each in breakages(bytes(storage.get(key)), key)
    ]
    random.Random(20261123).shuffle(every)
    return every


def test_a_valid_repository_answers_everything(valid: frazil.Storage) -> None:
    answers = ask(copy_of(valid))
    assert answers.offences == {}
    refused = {name for name, error in answers.errors.items() if "spec version" in str(error)}
    assert {*answers.errors} - refused <= _UNANSWERED | {"coordinates main moved"}, answers.errors


def broken_answers(valid: frazil.Storage, broken: list[Breakage], groups: Group) -> dict[str, str]:
    """What is no typed error, for some breakages."""
    out = {}
    for each in broken:
        start = time.process_time()
        answers = ask(with_file(valid, each), groups)
        for name, error in answers.offences.items():
            out[f"{each.label}: {name}"] = f"{type(error).__name__}: {error}"[:200]
        if time.process_time() - start > patience(20):
            out[each.label] = "too slow"
    return out


def test_one_broken_field(valid: frazil.Storage) -> None:
    every = every_breakage(valid)
    assert broken_answers(valid, every[1:8], Group.READS) == {}
    assert broken_answers(valid, every[:1], Group.ALL) == {}


@pytest.mark.sample(1, 1)
@pytest.mark.deep
@pytest.mark.hypothesis
@pytest.mark.timeout(7200)
def test_many_broken_fields(valid: frazil.Storage) -> None:
    count = None if examples(1) > 1 else 12  # `make fuzz` takes all of about 3,000
    assert broken_answers(valid, every_breakage(valid)[:count], Group.ALL) == {}


@pytest.mark.parametrize(
    ("key", "field", "change", "groups"),
    [
        ("manifests", "arrays[0].refs", "has 0 elements", Group.READS),
        ("manifests", "arrays[0].refs[0].index", "has 1 elements", Group.READS),
        (REPO, "latest_updates[0].updated_at", "= 18446744073709551615", Group.CHECKS),
    ],
)
def test_broken_fields_that_once_raised_other_errors(
    key: str, field: str, change: str, groups: Group
) -> None:
    valid = repository()
    broken = [
        each
        for name in keys(valid, key)
        for each in breakages(bytes(valid.get(name)), name)
        if (each.field, each.change) == (field, change)
    ]
    assert broken
    for each in broken:
        assert ask(with_file(valid, each), groups).offences == {}


#: A field, the beginning of a change, and a part of the error of a reader.
MUSTS: list[tuple[str, str, str, str]] = [
    (REPO, "spec_version", "= 3", "spec version"),
    (REPO, "branches", "is absent", "lacks the required field"),
    (REPO, "snapshots", "is absent", "lacks the required field"),
    (REPO, "status", "is absent", "lacks the required field"),
    (REPO, "branches[0].snapshot_index", "= 4294967295", "a ref is on snapshot"),
    (REPO, "branches", "has equal elements", "two refs have the same name"),
    (REPO, "status.availability", "= 127", "availability"),
    (REPO, "snapshots[0].parent_offset", "= 2147483647", "parent"),
    (REPO, "latest_updates[0].update_type", "= 255", "update"),
    ("snapshots", "id", "is another id", "must contain the snapshot"),
    ("snapshots", "nodes", "is absent", "lacks the required field"),
    ("snapshots", "nodes[0].user_data", "is absent", "lacks a required field"),
    ("snapshots", "nodes[0].node_data_type", "= 127", "kind"),
    ("manifests", "id", "is another id", "must contain the manifest"),
    ("manifests", "arrays", "is absent", "lacks the required field"),
    ("manifests", "arrays", "has equal elements", "must have different node ids"),
    ("manifests", "arrays[0].refs", "is absent", "lacks the required field"),
    ("manifests", "arrays[0].refs[0].index", "is absent", "lacks the required field"),
    ("transactions", "id", "is absent", "lacks the required field"),
    ("transactions", "updated_arrays", "is absent", "lacks the required field"),
    ("transactions", "updated_chunks[0].chunks", "is absent", "lacks the required field"),
]


@pytest.mark.sample(12)
@pytest.mark.parametrize(("file", "field", "change", "message"), MUSTS)
def test_a_broken_rule_is_refused(file: str, field: str, change: str, message: str) -> None:
    valid = repository()
    errors: list[str] = []
    for key in keys(
        valid, file
    ):  # not every file is needed for an answer: some belong to versions without a ref
        for each in breakages(bytes(valid.get(key)), key):
            if each.field == field and each.change.startswith(change):
                answers = ask(with_file(valid, each), Group.READS)
                assert answers.offences == {}
                errors += [str(error) for error in answers.errors.values() if isinstance(error, FormatError)]
        if any(message in text for text in errors):
            return
    pytest.fail(f"no reader refused it, but: {errors}")


# Names in files that lead elsewhere


def with_info(storage: frazil.Storage, change: Callable[[RepoInfo], RepoInfo]) -> frazil.Storage:
    info = decode_repo_info(storage.get(REPO), REPO)
    storage.put(REPO, encode_repo_info(change(info)))
    return storage


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "\0",
        *deep("/etc/passwd", "x/../../secret", "..\\secret", "%2e%2e/secret", "secret?x", "secret#x"),
    ],
)
def test_backups_lead_to_no_other_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret of the reader")
    storage = frazil.local_filesystem_storage(str(tmp_path / "repository"))
    repo = frazil.Repository.create(storage)
    repo.create_branch("b", repo.lookup_branch("main"))

    def other(info: RepoInfo) -> RepoInfo:
        entries = [info.ops.entry(row) for row in range(len(info.ops))]
        entries = [entries[0], *(dataclasses.replace(each, backup_path=name) for each in entries[1:])]
        return dataclasses.replace(info, ops=OpsLog.of(entries), repo_before_updates=name)

    storage = with_info(storage, other)
    answers = ask(storage, Group.HISTORY | Group.CHECKS | Group.UPKEEP)
    assert answers.offences == {}
    text = repr(answers.values) + repr(answers.errors)
    assert "secret of the reader" not in text
    assert (tmp_path / "secret").read_text() == "secret of the reader"
    assert {path.name for path in tmp_path.iterdir()} == {"secret", "repository"}


@pytest.mark.parametrize("name", ["../x", "..", "a/../../x", "\0", "\n", "é" * 3000, "*", "{}", "%s"])
@pytest.mark.parametrize("version", [1, 2])
def test_names_of_refs_lead_nowhere(name: str, version: int, tmp_path: Path) -> None:
    storage = frazil.local_filesystem_storage(str(tmp_path / "repository"))
    repo = frazil.Repository.create(storage, spec_version=version)
    try:
        repo.create_branch(name, repo.lookup_branch("main"))
        repo.create_tag(name, repo.lookup_branch("main"))
        assert name in repo.list_branches()
        repo.delete_branch(name)
    except IcechunkError:
        assert repo.list_branches() == {"main"}
    assert [path.name for path in tmp_path.iterdir()] == ["repository"]


def test_files_are_readable_by_their_owner_alone_with_such_a_mask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "r")))
        with repo.transaction("main", message="data") as store:
            zarr.create_array(store, name="a", shape=(1000,), dtype="f8")[:] = np.random.default_rng(
                1
            ).random(1000)
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "r").rglob("*") if path.is_file()}
    assert modes == {0o600}


def test_temporary_files_are_in_the_folder_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))  # a folder that others can write to
    sources: set[Path] = set()

    def recorded(call: Callable[..., None], source: Any, *rest: Any, **options: Any) -> None:
        sources.add(Path(os.fsdecode(source)))
        call(source, *rest, **options)

    for name in ("rename", "replace", "link"):
        monkeypatch.setattr(os, name, partial(recorded, getattr(os, name)))
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "r")))
    with repo.transaction("main", message="data") as store:
        zarr.create_array(store, name="a", shape=(1000,), dtype="i4")[:] = np.arange(1000)
    assert sources
    assert all(path.is_relative_to(tmp_path / "r") for path in sources if path.is_absolute()), sources
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


class Payload:
    """A pickle that calls a function when it is loaded."""

    calls: ClassVar[list[str]] = []

    def __reduce__(self) -> Any:
        return (Payload.calls.append, ("called",))


def test_no_object_of_a_repository_is_unpickled_as_it_is() -> None:
    data = pickle.dumps(Payload())
    sealed = [seal([data], kind, spec_version=2) for kind in FileType]
    for content in (data, zstandard.compress(data), *sealed):
        storage = repository()
        for info in storage.list(""):
            if info.key != REPO:
                storage.put(info.key, content)
        for key in (f"{LEASES}/x", f"{COLLECTIONS}/x", f"{COLLECTIONS}/x.garbage", f"{STAGING}/x/1"):
            storage.put(key, content)
        assert ask(storage, Group.READS | Group.COMMITS).offences == {}
    assert Payload.calls == []


# Objects beside the format: leases, records, configuration


MARKERS = (
    b"",
    b"\xff",
    b"[" * 60_000,
    b"9" * 10_000,
    b"null",
    json.dumps({"age": 10**30, "left": 10**30, "purpose": "x" * 1000}).encode(),
    json.dumps({"age": -(10**300), "left": -(10**300)}).encode(),
    json.dumps({"age": 1e308, "left": "soon", "purpose": 5}).encode(),
    json.dumps({"listed": [[]], "done": {}, "purpose": "\x1b[2J"}).encode(),
    b" " * (1 << 20),
)


@pytest.mark.sample(6, 6)
@pytest.mark.parametrize("markers", [MARKERS, *deep(*([each] for each in MARKERS))])
def test_markers_of_others_stop_nobody(markers: Sequence[bytes]) -> None:
    storage = repository()
    for number, content in enumerate(markers):
        storage.put(f"{LEASES}/{number}", content)
        storage.put(f"{COLLECTIONS}/{number}", content)
        storage.put(f"{COLLECTIONS}/{number}.garbage", content)
    answers = ask(storage)
    assert answers.offences == {}
    assert {*answers.errors} - _UNANSWERED <= {"commit", "rebase", "amend", "rewrite"}, answers.errors


ABSURD: list[dict[str, Any]] = [
    {"inline_chunk_threshold_bytes": 1 << 63},
    {"inline_chunk_threshold_bytes": -1},
    {"get_partial_values_concurrency": 0},
    {"get_partial_values_concurrency": 1 << 40},
    {"compression": {"level": 255, "algorithm": "zstd"}},
    {"compression": {"level": 3, "algorithm": "brotli"}},
    {"caching": dict.fromkeys(["num_bytes_chunks", "num_snapshot_nodes", "num_chunk_refs"], (1 << 64) - 1)},
    {"caching": {"num_bytes_chunks": -5}},
    {"max_concurrent_requests": 0},
    {"max_concurrent_requests": 1 << 60},
    {
        "storage": {
            "concurrency": {"max_concurrent_requests_for_object": 65535, "ideal_concurrent_request_size": 1}
        }
    },
    {"storage": {"retries": {"max_tries": 0, "initial_backoff_ms": 1 << 31, "max_backoff_ms": 1 << 31}}},
    {"manifest": {"splitting": {"split_sizes": [[{"AnyArray": None}, [[{"Any": None}, 1]]]] * 500}}},
    {"manifest": {"preload": {"max_total_refs": 1 << 31, "preload_if": {"true": None}}}},
    {"manifest": {"preload": {"preload_if": {"name_matches": {"regex": "(a+)+$" * 20}}}}},
    {"frazil": {"packing": {"enabled": True, "pack_size_bytes": 1 << 62, "threshold_bytes": 1 << 61}}},
    {"frazil": {"session_lifetime_seconds": 1e300}},
    {"virtual_chunk_containers": {"s3://x/": None}},
    {"virtual_chunk_containers": {"x": {"url_prefix": "\0", "store": {"s3": {}}, "name": "\0"}}},
    {"num_updates_per_repo_info_file": 0},
    {"num_updates_per_repo_info_file": -1},
    {"repo_update_retries": {"default": {"max_tries": 0, "initial_backoff_ms": 0, "max_backoff_ms": 0}}},
]


@pytest.mark.sample(14, 19)
@pytest.mark.parametrize("groups", [Group.VALUES | Group.COMMITS, *deep(Group.ALL)], ids=["some", "all"])
@pytest.mark.parametrize("config", ABSURD, ids=str)
def test_saved_configurations_with_absurd_values(config: dict[str, Any], groups: Group) -> None:
    storage = with_info(repository(), lambda info: dataclasses.replace(info, config=config))
    assert ask(storage, groups).offences == {}


@pytest.mark.parametrize("time_of_update", [(1 << 64) - 1, *deep((1 << 63) - 1, 1 << 63)])
def test_times_beyond_the_calendar(time_of_update: int) -> None:
    def late(info: RepoInfo) -> RepoInfo:
        return dataclasses.replace(info, ops=dataclasses.replace(info.ops, updated_at=times(info)))

    def times(info: RepoInfo) -> Any:
        updated_at = info.ops.updated_at.copy()
        updated_at[0] = time_of_update
        return updated_at

    answers = ask(with_info(repository(), late), Group.HISTORY | _CHANGES)
    assert answers.offences == {}
    assert "before the year 10000" in str(answers.errors["ops log"])
