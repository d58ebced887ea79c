"""Merges of detached snapshots: workers that pass a text, and a coordinator that commits once."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.counting import keys_read
from tests.support.errors import of_kind
from tests.support.examples import examples

import frazil
from frazil import ConflictType, ErrorKind, MergeConflictError
from frazil.changes.diff import change_set_between
from frazil.format.joined_files import MOST_JOINED
from frazil.handle import detached
from frazil.handle import repository as handles
from frazil.repository.catalog.context import CatalogV2
from frazil.storage.local import LocalStorage

TOMORROW = datetime.now(UTC) + timedelta(days=1)
#: Every chunk has a file or a part of a pack.
CONFIG = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
CHUNKS = 6


def make(group: Any, name: str, fill: int = 0) -> Any:
    array = group.create_array(
        name, shape=(2 * CHUNKS,), chunks=(2,), dtype="i4", compressors=None, fill_value=-1
    )
    array[:] = fill
    return array


@pytest.fixture
def repo() -> frazil.Repository:
    return create(frazil.in_memory_storage())


def create(storage: Any) -> frazil.Repository:
    repo = frazil.Repository.create(storage, CONFIG)
    with repo.transaction("main", message="base") as store:
        root = zarr.create_group(store)
        make(root, "a")
        make(root.create_group("g"), "b")
        make(root, "o")
    return repo


type Step = Callable[[Any], Any]


def worker(repo: Any, *steps: Step, branch: str = "main") -> str:
    """One worker of either library, which returns a text."""
    session = repo.writable_session(branch)
    for step in steps:
        step(zarr.open_group(session.store, mode="r+"))
    return str(session.flush("a part"))


def edit(repo: Any, *steps: Step) -> str:
    session = repo.writable_session("main")
    for step in steps:
        step(zarr.open_group(session.store, mode="r+"))
    return str(session.commit("an edit"))


def put(path: str, chunk: int, value: int) -> Step:
    def step(root: Any) -> None:
        root[path][2 * chunk : 2 * chunk + 2] = value

    return step


def half(path: str, element: int, value: int) -> Step:
    def step(root: Any) -> None:
        root[path][element] = value

    return step


def new(path: str, fill: int = 0) -> Step:
    parent, _, name = path.rpartition("/")
    return lambda root: make(root[parent] if parent else root, name, fill)


def group(path: str) -> Step:
    return lambda root: root.require_group(path)


def drop(path: str) -> Step:
    return lambda root: root.__delitem__(path)


def note(path: str, **attributes: object) -> Step:
    return lambda root: root[path].attrs.update(attributes)


def resize(path: str, chunks: int) -> Step:
    return lambda root: root[path].resize((2 * chunks,))


def content(repo: Any, branch: str = "main") -> dict[str, Any]:
    """By path: attributes, and the first value of each chunk."""
    root = zarr.open_group(repo.readonly_session(branch).store, mode="r")
    return {
        path: (
            dict(node.attrs),
            np.asarray(node[::2] if node.ndim else node[...]).reshape(-1).tolist()
            if isinstance(node, zarr.Array)
            else None,
        )
        for path, node in root.members(max_depth=None)
    }


def chunks(repo: Any, path: str = "a") -> list[int]:
    numbers: list[int] = content(repo)[path][1]
    return numbers


def listed(repo: frazil.Repository) -> list[str]:
    return [entry.message for entry in repo.ancestry(branch="main")]


def damage(repo: frazil.Repository) -> list[Any]:
    return [each for each in repo.upkeep.verify().findings if each.check != "unreferenced"]


def assert_clean(repo: frazil.Repository, versions: int) -> None:
    """No detached snapshot and no lease is left, and nothing is damaged."""
    info = handles.context_of(repo).catalog.repo_info()
    assert len(info.snapshots) == versions
    assert repo.upkeep.leases() == []
    assert not damage(repo)


def test_one_commit_has_the_parts_of_all_workers(repo: frazil.Repository) -> None:
    ids = [worker(repo, put("a", number, number + 1)) for number in range(CHUNKS)]
    ids.append(worker(repo, note("g", by="ada"), new("g/c", 7)))
    assert len(repo.upkeep.leases()) == len(ids)
    commit = repo.merge_snapshots("main", ids, "all parts", metadata={"why": "x"})
    assert repo.lookup_branch("main") == commit
    assert repo.lookup_snapshot(commit).metadata["why"] == "x"
    assert chunks(repo) == [1, 2, 3, 4, 5, 6]
    assert content(repo)["g"] == ({"by": "ada"}, None)
    assert content(repo)["g/c"][1] == [7] * CHUNKS
    assert listed(repo) == ["all parts", "base", "Repository initialized"]
    assert_clean(repo, 3)


def test_a_second_call_finds_the_commit(repo: frazil.Repository) -> None:
    ids = [worker(repo, put("a", number, 1)) for number in range(3)]
    commit = repo.merge_snapshots("main", ids, "once")
    edit(repo, put("a", 5, 9))
    assert repo.merge_snapshots("main", [*reversed(ids), ids[0], ids[0].lower()], "again") == commit
    assert listed(repo)[:2] == ["an edit", "once"]
    with pytest.raises(frazil.SnapshotNotFoundError, match="2 of 3 snapshots are not listed"):
        repo.merge_snapshots("main", [*ids[:2], worker(repo, put("a", 4, 1))], "other ids")
    assert asyncio.run(repo.merge_snapshots_async("main", ids, "again")) == commit


def test_an_amended_commit_is_found(repo: frazil.Repository) -> None:
    ids = [worker(repo, put("a", 0, 1))]
    repo.merge_snapshots("main", ids, "once")
    amended = repo.writable_session("main").amend("a better message", allow_empty=True)
    assert repo.merge_snapshots("main", ids, "again") == amended


@contextmanager
def killed(after: bool) -> Iterator[None]:
    """A coordinator that dies just before its update, or just after it."""
    original = CatalogV2.finish_commit

    def finish(self: CatalogV2, *args: Any) -> Any:
        if after:
            original(self, *args)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CatalogV2, "finish_commit", finish)
        with pytest.raises(KeyboardInterrupt):
            yield


@pytest.mark.parametrize("after", [False, True])
def test_a_coordinator_that_dies(after: bool, tmp_path: Path) -> None:
    repo = create(frazil.local_filesystem_storage(tmp_path / "repo"))
    ids = [worker(repo, put("a", number, 3)) for number in range(4)]
    with killed(after):
        repo.merge_snapshots("main", ids, "first")
    other = frazil.Repository.open(frazil.local_filesystem_storage(tmp_path / "repo"))
    commit = other.merge_snapshots("main", ids, "second")
    assert listed(other) == ["first" if after else "second", "base", "Repository initialized"]
    assert other.lookup_branch("main") == commit
    assert chunks(other) == [3, 3, 3, 3, 0, 0]
    assert_clean(other, 3)


def test_two_coordinators(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one commits while the first one is about to: there is one commit."""
    ids = [worker(repo, put("a", number, 3)) for number in range(3)]
    original = CatalogV2.finish_commit
    commits: list[str] = []

    def finish(self: CatalogV2, *args: Any) -> Any:
        if not commits:
            commits.append("")
            commits.append(repo.merge_snapshots("main", ids, "second"))
        return original(self, *args)

    monkeypatch.setattr(CatalogV2, "finish_commit", finish)
    assert repo.merge_snapshots("main", ids, "first") == commits[1]
    assert listed(repo)[0] == "second"
    assert_clean(repo, 3)


CONFLICTS = [
    pytest.param([put("a", 1, 1)], [put("a", 1, 2)], ConflictType.ChunkDoubleUpdate, id="chunk"),
    pytest.param([half("a", 2, 1)], [half("a", 3, 1)], ConflictType.ChunkDoubleUpdate, id="halves"),
    pytest.param([note("g", x=1)], [note("g", x=2)], ConflictType.ZarrMetadataDoubleUpdate, id="attributes"),
    pytest.param([put("a", 1, 1)], [drop("a")], ConflictType.DeleteOfUpdatedArray, id="deleted"),
    pytest.param([put("a", 5, 1)], [resize("a", 3)], ConflictType.ChunksUpdatedInUpdatedArray, id="shrunk"),
    pytest.param([resize("a", 8)], [resize("a", 9)], ConflictType.ZarrMetadataDoubleUpdate, id="resized"),
    pytest.param([new("c", 1)], [group("c")], ConflictType.NewNodeConflictsWithExistingNode, id="kinds"),
    pytest.param([new("g/c", 1)], [drop("g")], ConflictType.DeleteOfUpdatedGroup, id="group"),
]


#: The same conflict if the other snapshot is ours.
MIRRORED = {
    ConflictType.DeleteOfUpdatedArray: ConflictType.ChunksUpdatedInDeletedArray,
    ConflictType.DeleteOfUpdatedGroup: ConflictType.NewNodeInInvalidGroup,
}


@pytest.mark.parametrize("branch_moved", [False, True])
@pytest.mark.parametrize(("one", "two", "kind"), CONFLICTS)
def test_conflicts_change_nothing(
    repo: frazil.Repository, one: list[Step], two: list[Step], kind: ConflictType, branch_moved: bool
) -> None:
    """Two workers, or a worker and the branch. The error names both, and what they did."""
    harmless = [worker(repo, put("o", number, 5)) for number in range(2)]
    if branch_moved:
        mine = worker(repo, *two)
        ids, others = [harmless[0], mine], {mine, edit(repo, *one)}
    else:
        ids = [harmless[0], worker(repo, *one), worker(repo, *two)]
        others = set(ids[1:])
    before = content(repo), repo.lookup_branch("main")
    with pytest.raises(MergeConflictError) as caught:
        repo.merge_snapshots("main", [*ids, harmless[1]], "conflict")
    error = caught.value
    assert error.kind == ErrorKind.MERGE_FAILED
    assert {error.snapshot, error.other} == others
    kinds = {each.conflict_type for each in error.conflicts}
    assert kinds & {kind, MIRRORED.get(kind, kind)}
    assert all(each.name in str(error) for each in kinds)
    assert (content(repo), repo.lookup_branch("main")) == before
    repo.merge_snapshots("main", harmless, "the others")  # which are still there
    assert chunks(repo, "o")[:2] == [5, 5]


@pytest.mark.parametrize(
    "change", [{"shape": [4]}, {"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]}]
)
@pytest.mark.parametrize("is_first", [False, True])
def test_chunks_must_fit_the_array(repo: frazil.Repository, change: dict[str, Any], is_first: bool) -> None:
    """The other worker only replaced the metadata, and deleted no chunk."""
    ids = [worker(repo, put("a", 5, 1))]
    session = repo.writable_session("main")
    document = json.loads(session.workspace.require_node("/a").user_data)
    session.workspace.set_node("/a", json.dumps({**document, **change}).encode())
    ids.insert(is_first, session.flush("metadata"))
    with pytest.raises(MergeConflictError) as caught:
        repo.merge_snapshots("main", ids, "x")
    assert {caught.value.snapshot, caught.value.other} == set(ids)
    assert [each.conflict_type for each in caught.value.conflicts] == [
        ConflictType.ChunksUpdatedInUpdatedArray
    ]
    assert chunks(repo) == [0] * CHUNKS


def test_the_error_can_be_pickled() -> None:
    error = MergeConflictError("A", "B", [frazil.Conflict(ConflictType.ChunkDoubleUpdate, "/t", [[1]])])
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.snapshot, copy.other, str(copy), copy.kind) == ("A", "B", str(error), error.kind)
    assert copy.conflicts == error.conflicts


def test_equal_changes_are_no_conflicts(repo: frazil.Repository) -> None:
    """A task that ran twice: the same bytes in other files, the same nodes with other ids."""
    steps = put("a", 1, 4), note("g", x=1), group("n"), new("n/c", 3), put("n/c", 2, 8), resize("g/b", 7)
    ids = [worker(repo, *steps), worker(repo, *steps), worker(repo, *steps, put("a", 2, 6))]
    repo.merge_snapshots("main", ids[:2], "twice")
    assert chunks(repo) == [0, 4, 0, 0, 0, 0]
    assert chunks(repo, "n/c") == [3, 3, 8, 3, 3, 3]
    assert chunks(repo, "g/b") == [0] * 6 + [-1]
    repo.merge_snapshots("main", ids[2:], "a late one")  # the branch has most of it already
    assert chunks(repo) == [0, 4, 6, 0, 0, 0]
    assert chunks(repo, "n/c") == [3, 3, 8, 3, 3, 3]
    assert_clean(repo, 4)


def test_different_bytes_of_one_length_are_a_conflict(repo: frazil.Repository) -> None:
    ids = [worker(repo, put("a", 0, 1), put("a", 3, value)) for value in (7, 8)]
    with pytest.raises(MergeConflictError) as caught:
        repo.merge_snapshots("main", ids, "x")
    (conflict,) = caught.value.conflicts
    assert (conflict.path, conflict.conflicted_chunks) == ("/a", [[3]])


def test_the_parents_may_differ_and_the_branch_may_move(repo: frazil.Repository) -> None:
    ids = [worker(repo, put("a", 0, 1), new("d", 2))]
    edit(repo, put("a", 1, 2), resize("g/b", 4))
    ids.append(worker(repo, put("a", 2, 3), put("g/b", 3, 9)))
    edit(repo, put("a", 3, 4), note("a", unit="m"))
    repo.merge_snapshots("main", ids, "both")
    assert content(repo)["a"] == ({"unit": "m"}, [1, 2, 3, 4, 0, 0])
    assert chunks(repo, "g/b") == [0, 0, 0, 9]
    assert chunks(repo, "d") == [2] * CHUNKS


def test_conflicts_between_workers_of_different_parents(repo: frazil.Repository) -> None:
    ids = [worker(repo, put("a", 0, 1))]
    edit(repo, put("a", 1, 2))
    ids.append(worker(repo, put("a", 0, 2)))
    with pytest.raises(MergeConflictError) as caught:
        repo.merge_snapshots("main", ids, "both")
    assert {caught.value.snapshot, caught.value.other} == set(ids)


def test_deleted_chunks_appends_and_scalars(repo: frazil.Repository) -> None:
    edit(repo, lambda root: root.create_array("s", shape=(), dtype="i4"))

    def scalar(root: Any) -> None:
        root["s"][...] = 5

    ids = [
        worker(repo, put("a", 0, -1)),  # the fill value: no chunk
        worker(repo, resize("a", 8), put("a", 7, 3)),
        worker(repo, scalar),
        worker(repo, drop("g")),
        worker(repo),
    ]
    repo.merge_snapshots("main", ids, "x")
    assert chunks(repo) == [-1, 0, 0, 0, 0, 0, -1, 3]
    assert "g" not in content(repo)
    assert zarr.open_array(repo.readonly_session("main").store, path="s")[()] == 5


def test_what_is_refused(repo: frazil.Repository, tmp_path: Path) -> None:
    id_ = worker(repo, put("a", 0, 1))
    with pytest.raises(frazil.InvalidInputError, match="at least one id"):
        repo.merge_snapshots("main", [], "x")
    with pytest.raises(TypeError, match="one text"):
        repo.merge_snapshots("main", id_, "x")
    with pytest.raises(frazil.SnapshotNotFoundError):
        repo.merge_snapshots("main", [id_, "1CECHNKREP0F1RSTCM00"], "x")
    with pytest.raises(frazil.IcechunkError, check=of_kind(ErrorKind.REF_NOT_FOUND)):
        repo.merge_snapshots("dev", [id_], "x")
    with pytest.raises(frazil.IcechunkError, check=of_kind(ErrorKind.INVALID_SNAPSHOT_ID)):
        repo.merge_snapshots("main", [repo.lookup_branch("main")], "x")
    repo.create_tag("kept", id_)
    with pytest.raises(frazil.IcechunkError, check=of_kind(ErrorKind.INVALID_SNAPSHOT_ID)):
        repo.merge_snapshots("main", [id_], "x")
    old = frazil.Repository.create(frazil.in_memory_storage(), spec_version=1)
    with pytest.raises(frazil.IcechunkError, check=of_kind(ErrorKind.UNSUPPORTED_SPEC_VERSION)):
        old.merge_snapshots("main", [id_], "x")
    assert listed(repo)[0] == "base"


def test_a_read_only_repository(repo: frazil.Repository) -> None:
    id_ = worker(repo, put("a", 0, 1))
    repo.set_status(frazil.RepoStatus(frazil.RepoAvailability.read_only))
    with pytest.raises(frazil.IcechunkError, check=of_kind(ErrorKind.READ_ONLY_REPOSITORY)):
        repo.merge_snapshots("main", [id_], "x")
    repo.set_status(frazil.RepoStatus(frazil.RepoAvailability.online))
    repo.merge_snapshots("main", [id_], "x")


@pytest.mark.parametrize("moved", [False, True])
def test_upkeep_between_flush_and_merge(repo: frazil.Repository, moved: bool) -> None:
    """Collections and expirations with any cut-off keep the snapshots, their chunks, and their parent."""
    ids = [worker(repo, put("a", 0, 1)), worker(repo, put("a", 1, 2), new("c", 4))]
    if moved:
        edit(repo, put("a", 3, 7))
        edit(repo, put("a", 3, 8))
    assert not repo.expire_snapshots(TOMORROW) & set(ids)
    repo.upkeep.retain(frazil.Retention(last=1)).apply()
    repo.garbage_collect(TOMORROW)
    repo.upkeep.collect(TOMORROW).apply()
    repo.merge_snapshots("main", ids, "x")
    assert chunks(repo) == [1, 2, 0, 8 if moved else 0, 0, 0]
    assert chunks(repo, "c") == [4] * CHUNKS
    repo.garbage_collect(TOMORROW)
    assert chunks(repo) == [1, 2, 0, 8 if moved else 0, 0, 0]
    assert not damage(repo)


@pytest.mark.parametrize("collects", [False, True])
def test_the_parent_was_amended(repo: frazil.Repository, collects: bool) -> None:
    edit(repo, put("a", 4, 1))
    id_ = worker(repo, put("a", 0, 1))
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a")[10:] = 6
    session.amend("amended")
    if collects:
        repo.garbage_collect(TOMORROW)
    repo.merge_snapshots("main", [id_], "x")
    assert chunks(repo) == [1, 0, 0, 0, 1, 6]


def test_a_worker_that_never_merges_holds_nothing_for_ever(repo: frazil.Repository) -> None:
    id_ = worker(repo, put("a", 0, 1))
    (lease,) = repo.upkeep.leases()
    assert (lease.purpose, lease.name, lease.id) == ("flush", "a part", f"flush.{id_}")
    assert lease.ends_at - lease.taken_at < timedelta(days=8, minutes=1)
    assert repo.garbage_collect(TOMORROW).chunks_deleted == 0
    repo.upkeep.break_lease(lease.id)  # as when it has ended
    summary = repo.garbage_collect(TOMORROW)
    assert (summary.snapshots_deleted, summary.chunks_deleted) == (1, 1)
    with pytest.raises(frazil.SnapshotNotFoundError):
        repo.merge_snapshots("main", [id_], "x")


def test_workers_that_set_chunks_are_read_together(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More workers than are read at a time, and some that are read alone."""
    count = MOST_JOINED + 6
    edit(repo, resize("o", count), resize("g/b", count), put("o", 7, 5))
    inline = frazil.Repository.open(repo.storage, frazil.RepositoryConfig(inline_chunk_threshold_bytes=512))
    ids = [worker(repo, put("o", at, at), put("g/b", count - 1 - at, at)) for at in range(count - 2)]
    ids.append(worker(inline, put("o", count - 2, 1)))
    ids.append(worker(repo, put("o", 3, 3)))  # again, with the same bytes
    ids.append(worker(repo, new("d", 2), put("o", count - 1, 2)))
    ids.append(worker(repo, put("a", 0, -1)))  # a deletion
    alone = []

    def compare(*arguments: Any) -> Any:
        alone.append(arguments)
        return change_set_between(*arguments)

    monkeypatch.setattr(detached, "change_set_between", compare)
    repo.merge_snapshots("main", ids, "x")
    assert len(alone) == 2
    assert chunks(repo, "o") == [*range(count - 2), 1, 2]
    assert chunks(repo, "g/b") == [0, 0, *reversed(range(count - 2))]
    assert chunks(repo, "d") == [2] * CHUNKS
    assert chunks(repo) == [-1, 0, 0, 0, 0, 0]
    assert_clean(repo, 4)


@pytest.mark.parametrize("makes_arrays", [False, True])
def test_requests_for_each_worker(makes_arrays: bool, tmp_path: Path) -> None:
    """A snapshot, a transaction log and a manifest, and nothing else that grows."""
    repo = create(frazil.local_filesystem_storage(tmp_path / "repo"))
    edit(repo, resize("o", 12))
    counts = []
    for number in (4, 12):
        steps = [new(f"n{number}{at}", at) if makes_arrays else put("o", at, number) for at in range(number)]
        ids = [worker(repo, step) for step in steps]
        other = frazil.Repository.open(frazil.local_filesystem_storage(tmp_path / "repo"))
        with keys_read(LocalStorage) as keys:
            other.merge_snapshots("main", ids, "x")
        counts.append(len(keys))
    assert counts[1] - counts[0] == 8 * 3


def wheel(path: Path) -> Any:
    icechunk = pytest.importorskip("icechunk")
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)))


def test_the_published_library_as_worker_writer_and_reader(tmp_path: Path) -> None:
    repo = create(frazil.local_filesystem_storage(tmp_path / "repo"))
    theirs = wheel(tmp_path / "repo")
    ids = [
        worker(repo, put("a", 0, 1)),
        worker(theirs, put("a", 1, 2), new("w", 4)),
        worker(theirs, put("a", 4, -1)),
        worker(theirs, put("a", 0, 1)),
    ]
    edit(theirs, put("a", 2, 3), note("g", by="wheel"))
    ids.append(worker(theirs, put("a", 5, 9)))
    commit = repo.merge_snapshots("main", ids, "merged")
    theirs = wheel(tmp_path / "repo")
    for each in (repo, theirs):
        assert chunks(each) == [1, 2, 3, 0, -1, 9]
        assert chunks(each, "w") == [4] * CHUNKS
        assert [entry.message for entry in each.ancestry(branch="main")] == [
            "merged",
            "an edit",
            "base",
            "Repository initialized",
        ]
    assert len(list(theirs.ops_log())) == len(list(repo.ops_log())) == 9
    edit(theirs, put("a", 3, 5))
    assert repo.merge_snapshots("main", ids, "again") == commit
    assert chunks(repo) == [1, 2, 3, 5, -1, 9]
    assert_clean(frazil.Repository.open(frazil.local_filesystem_storage(tmp_path / "repo")), 5)


# Against a model

#: Per worker: steps on a small tree.
STEP = st.one_of(
    st.tuples(
        st.just("put"), st.sampled_from(["a", "g/b", "n"]), st.integers(0, CHUNKS - 1), st.integers(1, 2)
    ),
    st.tuples(st.just("new"), st.sampled_from(["n", "g/m"]), st.integers(1, 2)),
    st.tuples(st.just("note"), st.sampled_from(["a", "g"]), st.integers(1, 2)),
    st.tuples(st.just("drop"), st.sampled_from(["a", "n"])),
)
ROUND = st.lists(
    st.one_of(
        st.tuples(st.just("worker"), st.lists(STEP, max_size=3)),
        st.tuples(st.just("commit"), st.lists(STEP, max_size=2)),
        st.sampled_from([("collect",), ("expire",), ("merge",), ("merge",), ("repeat",)]),
    ),
    max_size=9,
)
#: A value by the name of what has it: a chunk, attributes, an array.
type Model = dict[tuple[Any, ...], Any]


def play(model: Model, root: Any, step: tuple[Any, ...]) -> None:
    """Make a step in a repository and in the model, if it is possible there."""
    what, path, *values = step
    exists = ("array", path) in model or ("group", path) in model
    if what == "put" and exists:
        put(path, *values)(root)
        model["chunk", path, values[0]] = values[1]
    elif what == "new" and not exists:
        new(path, values[0])(root)
        model["array", path] = True
        model.update({("chunk", path, at): values[0] for at in range(CHUNKS)})
    elif what == "note" and exists:
        note(path, x=values[0])(root)
        model["attribute", path] = values[0]
    elif what == "drop" and exists:
        drop(path)(root)
        for key in [key for key in model if key[1] == path]:
            del model[key]


def model_of(repo: frazil.Repository) -> Model:
    model: Model = {}
    for path, (attributes, values) in content(repo).items():
        model["group" if values is None else "array", path] = True
        if attributes:
            model["attribute", path] = attributes["x"]
        model.update({("chunk", path, at): value for at, value in enumerate(values or ())})
    return model


def difference(before: Model, after: Model) -> Model:
    return {key: after.get(key) for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


@settings(max_examples=examples(40))
@given(ROUND)
def test_merges_are_those_of_a_model(steps: list[tuple[Any, ...]]) -> None:
    """A merge has the changes of all workers, or raises an error where two changes of one thing differ."""
    repo = create(frazil.in_memory_storage())
    tip = model_of(repo)
    waiting: dict[str, Model] = {}
    last: tuple[list[str], str] | None = None
    for step, *arguments in [*steps, ("merge",)]:
        if step in ("worker", "commit"):
            session = repo.writable_session("main")
            after = dict(tip)
            for each in arguments[0]:
                play(after, zarr.open_group(session.store, mode="r+"), each)
            if step == "worker":
                waiting[session.flush("w")] = difference(tip, after)
            else:
                session.commit("c", allow_empty=True)
                tip = after
        elif step == "collect":
            repo.garbage_collect(TOMORROW)
        elif step == "expire":
            repo.expire_snapshots(TOMORROW)
        elif step == "repeat" and last is not None:
            with suppress(frazil.SnapshotNotFoundError):  # the commit was expired
                assert repo.merge_snapshots("main", last[0], "r") == last[1]
        elif step == "merge" and waiting:
            expected = dict(tip)
            for changes in waiting.values():
                expected.update(changes)
            expected = {key: value for key, value in expected.items() if value is not None}
            try:
                commit = repo.merge_snapshots("main", list(waiting), "m")
            except MergeConflictError as error:
                del waiting[error.snapshot]  # a KeyError if it is none of them
                continue
            # Without a conflict, every change of every worker is there.
            assert model_of(repo) == expected
            last, tip, waiting = (list(waiting), commit), expected, {}
        assert model_of(repo) == tip
    assert not damage(repo)


# Processes

WORK = """
import sys, zarr, frazil
path, number = sys.argv[1], int(sys.argv[2])
repo = frazil.Repository.open(frazil.local_filesystem_storage(path))
session = repo.writable_session("main")
zarr.open_array(session.store, path="p")[2 * number : 2 * number + 2] = number
print(session.flush(f"part {number}"))
"""


@pytest.mark.deep
def test_fifty_processes_pass_texts(tmp_path: Path) -> None:
    repo = create(frazil.local_filesystem_storage(tmp_path / "repo"))
    edit(repo, lambda root: root.create_array("p", shape=(100,), chunks=(2,), dtype="i4", fill_value=-1))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WORK, str(tmp_path / "repo"), str(number)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for number in range(50)
    ]
    repo.garbage_collect(TOMORROW)
    ids = [process.communicate()[0].strip() for process in running]
    assert [process.returncode for process in running] == [0] * 50
    repo.garbage_collect(TOMORROW)
    repo.merge_snapshots("main", ids, "all")
    assert chunks(repo, "p") == list(range(50))
    assert_clean(repo, 4)
