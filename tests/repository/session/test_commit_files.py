"""What a commit stores, and in which order. Manifests that split themselves, or contradict each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from tests.counting import keys_read
from tests.support.faulty_storage import Fault, FaultyStorage
from tests.support.patience import patience

import frazil
from frazil.changes import manifests as windows
from frazil.errors import StorageError
from frazil.format.ids import id_from_text, id_matrix, manifest_key, snapshot_key
from frazil.format.manifest import ChunkTable, Manifest, encode_manifest
from frazil.format.nodes import ManifestRef, NodeTable
from frazil.format.snapshot import ManifestFiles, decode_snapshot, encode_snapshot
from frazil.handle.repository import Repository
from frazil.repository.session import commit_files as uploads
from frazil.repository.session.commit_files import uploading
from frazil.repository.settings.manifest_config import DEFAULT_SPLITTING
from frazil.storage.memory import MemoryStorage
from frazil.testing import LatencyStorage


def repository() -> Any:
    """A repository with an array of eight chunks, one of them there; and its storage."""
    storage = FaultyStorage(MemoryStorage(), lambda key, condition: None)
    repo = Repository.create(storage)
    session = repo.writable_session("main")
    array = zarr.create_array(
        session.store, name="a", shape=(8000,), chunks=(1000,), dtype="i4", compressors=None
    )
    array[:1000] = 1
    session.commit("one chunk")
    return repo, storage


def write(session: frazil.Session, start: int, value: int) -> None:
    zarr.open_array(session.store, path="a")[start : start + 1000] = value


@pytest.mark.parametrize("folder", ["chunks/", "manifests/", "snapshots/", "transactions/"])
def test_nothing_is_committed_while_a_file_is_missing(folder: Path) -> None:
    repo, storage = repository()
    before = repo.lookup_branch("main")
    session = repo.writable_session("main")
    write(session, 1000, 2)
    storage.puts.clear()
    storage.choose = lambda key, condition: Fault.LOST if key.startswith(folder) else None
    with pytest.raises(StorageError, match="injected"):
        session.commit("not to be")
    assert "repo" not in storage.puts
    assert repo.lookup_branch("main") == before
    storage.choose = lambda key, condition: None
    session.commit("now")
    fresh = zarr.open_array(Repository.open(storage).readonly_session("main").store, path="a")
    assert fresh[1000] == 2


def test_a_new_manifest_is_not_read() -> None:
    repo, storage = repository()
    for number in range(1, 8):
        session = repo.writable_session("main")
        write(session, number * 1000, number + 1)
        storage.gets.clear()
        session.commit(f"chunk {number}")
        assert not [key for key in storage.gets if key.startswith("manifests/")]
    stored = Repository.open(storage)
    for reader in (repo, stored):
        array = zarr.open_array(reader.readonly_session("main").store, path="a")
        assert np.array_equal(array[:], np.repeat(np.arange(1, 9), 1000))


@pytest.fixture(params=[True, False], ids=["local", "remote"])
def storage(request: pytest.FixtureRequest) -> frazil.Storage:
    storage = MemoryStorage()
    storage.is_local = request.param
    return storage


def stored(storage: frazil.Storage) -> dict[str, Any]:
    return {info.key: bytes(storage.get(info.key)) for info in storage.list("")}


@pytest.mark.parametrize("count", [1, 2, 9])
def test_all_is_stored_at_the_end_of_the_block(
    storage: frazil.Storage, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "_TOGETHER", 20)
    done = []
    files = {f"f/{n}": b"%d" % n * 7 for n in range(count)}
    with uploading(storage) as block:
        block.run(lambda: done.append(1))
        assert block.put([(key, partial(bytes, data)) for key, data in files.items()]) == [7] * count
        assert block.put([("last", lambda: b"last")]) == [4]
        block.run(lambda: done.append(2))
    assert sorted(done) == [1, 2]
    assert stored(storage) == files | {"last": b"last"}


def test_many_files_are_encoded_side_by_side(storage: frazil.Storage) -> None:
    together = threading.Barrier(3)

    def encode() -> bytes:
        together.wait(patience(10))
        return b"x"

    with uploading(storage) as block:
        assert block.put([(str(n), encode) for n in range(3)]) == [1, 1, 1]


@pytest.mark.parametrize("count", [1, 5])
def test_the_error_of_encoding_is_raised(storage: frazil.Storage, count: int) -> None:
    def fail() -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), uploading(storage) as block:
        block.put([(str(n), fail) for n in range(count)])
    assert stored(storage) == {}


def test_errors_of_actions_and_of_the_storage_are_raised(storage: frazil.Storage) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), uploading(storage) as block:
        block.run(fail)
    faulty = FaultyStorage(storage, lambda key, _: Fault.LOST if key == "b" else None)
    with pytest.raises(StorageError, match="put `b` was lost"), uploading(faulty) as block:
        block.put([(key, key.encode) for key in "abc"])


CAPACITY = 16
WIDE = 4


@pytest.fixture(autouse=True)
def _small_windows() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "CAPACITY", CAPACITY)
        patch.setattr(windows, "_ENTRY_BYTES", 0.0)
        yield


def plain(storage: Any = None, **settings: Any) -> frazil.Repository:
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0, **settings)
    return frazil.Repository.create(storage or frazil.in_memory_storage(), config)


def create(repo: frazil.Repository, rows: int, value: int = 1) -> None:
    with repo.transaction("main", message="an array") as store:
        array = zarr.create_array(store, name="x", shape=(rows, WIDE), chunks=(1, 1), dtype="i4")
        array[:] = value


def append(repo: frazil.Repository, value: int) -> None:
    with repo.transaction("main", message="a step") as store:
        array = zarr.open_array(store, path="x")
        rows = array.shape[0]
        array.resize((rows + 1, WIDE))
        array[rows] = value


def counts(repo: frazil.Repository) -> list[int]:
    return sorted(file.num_chunk_refs for file in repo.list_manifest_files(repo.lookup_branch("main")))


def content(repo: frazil.Repository) -> np.ndarray:
    return np.asarray(zarr.open_array(repo.readonly_session("main").store, path="x", mode="r")[:])


def test_rules_and_old_repositories_have_no_windows() -> None:
    by_rows: Any = {frazil.ManifestSplitDimCondition.Axis(0): 8}
    rules = frazil.ManifestSplittingConfig.from_dict({frazil.ManifestSplitCondition.AnyArray(): by_rows})
    repo = plain(manifest=frazil.ManifestConfig(splitting=rules))
    create(repo, 16)
    assert counts(repo) == [32, 32]
    old = frazil.Repository.create(frazil.in_memory_storage(), spec_version=1)
    assert old.config.manifest is None


def test_an_old_repository_asks_for_windows() -> None:
    storage = frazil.in_memory_storage()
    repo = plain(storage, manifest=frazil.ManifestConfig(splitting=DEFAULT_SPLITTING))
    create(repo, 16)
    assert counts(repo) == [64]
    config = frazil.RepositoryConfig(manifest=frazil.ManifestConfig(splitting="auto"))
    repo = frazil.Repository.open(storage, config)
    append(repo, 5)
    assert counts(repo) == [4, 64]
    repo.rewrite_manifests("windows", branch="main")
    assert counts(repo) == [4, 16, 16, 16, 16]
    assert (
        frazil.Repository.open(storage, config).upkeep.compact("nothing", branch="main").apply().new_manifests
        == 0
    )


@pytest.mark.parametrize("rows", [4, 200])
def test_a_cold_look_up_costs_four_requests(rows: int) -> None:
    inner = frazil.in_memory_storage()
    create(plain(inner), rows)
    repo = frazil.Repository.open(LatencyStorage(inner))
    with keys_read(LatencyStorage, "get", "get_versioned", "head") as reads:
        session = repo.readonly_session("main")
        assert session.workspace.read_chunk("/x", (rows - 1, 2)) is not None
    assert sorted(key.split("/")[0] for key in reads) == ["chunks", "manifests", "repo", "snapshots"]


@pytest.mark.deep
@pytest.mark.interop
def test_the_reference_reads_and_changes_windows(tmp_path: Path) -> None:
    repo = plain(frazil.local_filesystem_storage(str(tmp_path)))
    create(repo, 16)
    for step in range(5):
        append(repo, step + 1)
    icechunk = pytest.importorskip("icechunk")
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path)))
    read = np.asarray(zarr.open_array(theirs.readonly_session("main").store, path="x", mode="r")[:])
    assert (read == content(repo)).all()
    session = theirs.writable_session("main")
    zarr.open_array(session.store, path="x", mode="r+")[3, 3] = 99
    session.commit("theirs")
    assert counts(repo) == [84]
    append(repo, 77)
    assert counts(repo) == [4, 84]
    with repo.transaction("main", message="ours") as store:
        zarr.open_array(store, path="x", mode="r+")[20, 0] = 98
    assert max(counts(repo)) == CAPACITY
    read = np.asarray(zarr.open_array(theirs.readonly_session("main").store, path="x", mode="r")[:])
    assert (read == content(repo)).all()
    assert (int(read[3, 3]), int(read[20, 0]), int(read[21, 0])) == (99, 98, 77)


CHUNKS = 6
#: A manifest: its extents, and the chunks in them that it has.
type Part = tuple[int, int, list[int]]


def repository_of(parts: Sequence[Part]) -> tuple[frazil.Repository, list[int]]:
    """Return an array with these manifests, and the value of each chunk."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="an array") as store:
        options: dict[str, Any] = {"dtype": "u1", "fill_value": 0, "compressors": None}
        zarr.create_array(store, name="a", shape=(2 * CHUNKS,), chunks=(2,), **options)
    key = snapshot_key(id_from_text(repo.lookup_branch("main")))
    snapshot = decode_snapshot(repo.storage.get(key), key)
    *groups, node = map(snapshot.nodes.node, range(len(snapshot.nodes)))
    assert node.array is not None
    refs, sizes, expected = [], [], [0] * CHUNKS
    for row, (low, high, chunks) in enumerate(parts):
        id_ = bytes([row + 1] * 12)
        values = [10 * (row + 1) + chunk for chunk in chunks]
        for chunk, value in zip(chunks, values, strict=True):
            expected[chunk] = expected[chunk] or value
        table = ChunkTable.from_inline(np.array(chunks)[:, None], [bytes([value] * 2) for value in values])
        data = encode_manifest(Manifest(id_, {node.id: table}))
        repo.storage.put(manifest_key(id_), data)
        refs.append(ManifestRef(id_, np.array([[low, high]], np.uint32)))
        sizes.append(len(data))
    nodes = NodeTable.from_nodes([*groups, replace(node, array=replace(node.array, manifests=tuple(refs)))])
    counts = [len(chunks) for *_, chunks in parts]
    files = ManifestFiles(
        id_matrix([ref.id for ref in refs]), np.array(sizes, np.uint64), np.array(counts, np.uint32)
    )
    repo.storage.put(key, encode_snapshot(replace(snapshot, nodes=nodes, manifests=files)))
    return frazil.Repository.open(repo.storage), expected


def parts() -> st.SearchStrategy[list[Part]]:
    numbers = st.integers(0, CHUNKS - 1)
    boxes = st.lists(st.lists(numbers, min_size=1, unique=True).map(sorted), min_size=1, max_size=10)
    return boxes.map(lambda each: [(chunks[0], chunks[-1] + 1, chunks) for chunks in each])


@given(parts())
def test_all_readers_take_the_first_reference(parts: list[Part]) -> None:
    repo, expected = repository_of(parts)
    values = np.repeat(expected, 2).tolist()
    session = repo.readonly_session("main")
    single = [session.store.get_sync(f"a/c/{chunk}") for chunk in range(CHUNKS)]
    assert [each.to_bytes()[0] if each else 0 for each in single] == expected
    for array in (zarr.open_array(session.store, path="a", mode="r"), frazil.Array(session, "/a")):
        assert np.asarray(array[...]).tolist() == values
        assert np.asarray(array[1::3]).tolist() == values[1::3]
    table = session.chunk_table("/a")
    assert table.index[:, 0].tolist() == np.flatnonzero(expected).tolist()
    with repo.transaction("main", message="one chunk") as store:
        zarr.open_array(store, path="a")[:2] = 7
    after = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    assert np.asarray(after[...]).tolist() == [7, 7, *values[2:]]


@pytest.mark.parametrize("takes_all", [False, True])
def test_the_shortest_overlap(takes_all: bool) -> None:
    repo, expected = repository_of([(0, 2, [0, 1] if takes_all else [1]), (1, 3, [1, 2])])
    array = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    assert np.asarray(array[...]).tolist() == np.repeat(expected, 2).tolist()
    assert "extents-overlap" in {each.check for each in repo.upkeep.verify().problems}
