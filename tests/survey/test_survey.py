"""A collection reads what is new, and only that. It never depends on what earlier collections stored."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from tests.maintenance.test_in_use import CONFIG, TOMORROW, requests_of
from tests.repository.version_1 import copy_of

import frazil
from frazil import local_filesystem_storage
from frazil.format.columns import Ragged
from frazil.format.ids import id_matrix, ids_to_text
from frazil.format.snapshot import ManifestFiles
from frazil.storage.memory import MemoryStorage
from frazil.survey import columns, survey
from frazil.survey.columns import (
    DistinctRanges,
    ManifestChunks,
    Marks,
    Ranges,
    SnapshotManifests,
    id_digests,
    list_objects,
)
from frazil.survey.survey import StoredIndex, decode_index, index_parts, read_index, store_index


def commit(repo: frazil.Repository, number: int) -> None:
    with repo.transaction("main", message=str(number)) as store:
        array = zarr.create_array(
            store,
            name=f"a{number % 4}",
            shape=(4,),
            chunks=(2,),
            dtype="i4",
            compressors=None,
            overwrite=True,
        )
        array[:] = number + 1


def litter(repo: frazil.Repository) -> None:
    """Chunks of no version."""
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a0")[:] = 9
    session.workspace.writer.flush()


def commits(count: int, version: int = 2) -> MemoryStorage:
    storage = MemoryStorage()
    repo = frazil.Repository.create(storage, CONFIG, spec_version=version)
    for number in range(count):
        commit(repo, number)
    litter(repo)
    return storage


def counted(storage: MemoryStorage, act: Callable[[frazil.Repository], Any]) -> Counter[str]:
    """How often each folder is read by ``act``."""
    requests = requests_of(frazil.Repository.open(storage, CONFIG), act)
    return Counter(what[4:].partition("/")[0] for what in requests if what.startswith("get "))


def collect(repo: frazil.Repository) -> frazil.GCSummary:
    return repo.garbage_collect(TOMORROW)


@pytest.mark.sample(1)
@pytest.mark.parametrize("version", [1, 2])
def test_a_second_collection_reads_only_what_is_new(version: int) -> None:
    storage = commits(6, version)
    first = counted(storage, collect)
    assert (first["manifests"], first["walks"]) == (6, 0)
    if version == 2:  # version 1 reads snapshots for the history, too
        assert first["snapshots"] == 7
    repo = frazil.Repository.open(storage, CONFIG)
    commit(repo, 6)
    litter(repo)
    second = counted(storage, collect)
    assert (second["manifests"], second["walks"]) == (1, 1)
    if version == 2:
        assert second["snapshots"] == 1
    litter(repo)
    third = counted(storage, collect)
    assert (third["manifests"], third["walks"]) == (0, 1)
    if version == 2:
        assert third["snapshots"] == 0
    assert repo.upkeep.verify("checksum").ok


def test_a_dry_run_reads_and_stores_nothing() -> None:
    storage = commits(4)
    for _ in range(2):
        reads = counted(storage, lambda repo: repo.garbage_collect(TOMORROW, dry_run=True))
        assert (reads["snapshots"], reads["manifests"]) == (5, 4)
    assert not list(storage.list("walks"))
    counted(storage, collect)
    litter(frazil.Repository.open(storage, CONFIG))
    reads = counted(storage, lambda repo: repo.garbage_collect(TOMORROW, dry_run=True))
    assert (reads["snapshots"], reads["manifests"], reads["walks"]) == (0, 0, 1)


def test_versions_that_are_gone_are_forgotten() -> None:
    """Their chunks are deleted, and the object gets smaller."""
    storage = commits(8)
    repo = frazil.Repository.open(storage, CONFIG)
    collect(repo)
    (large,) = storage.list("walks")
    repo.upkeep.retain(frazil.Retention(last=1)).apply()
    assert collect(repo).chunks_deleted == 4
    (small,) = storage.list("walks")
    assert small.size < large.size
    assert repo.upkeep.verify("checksum").ok


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "damage", [b"", b"FRAZWLK1", bytes(300), None], ids=["empty", "magic", "zeros", "half"]
)
def test_a_damaged_object_changes_nothing(damage: bytes | None) -> None:
    """Half of the object, too: a result that lacks files would make their chunks garbage."""
    storage = commits(6)
    collect(frazil.Repository.open(storage, CONFIG))
    repo = frazil.Repository.open(storage, CONFIG)
    commit(repo, 6)
    litter(repo)
    (walk,) = storage.list("walks")
    whole = bytes(storage.get(walk.key))
    storage.put(walk.key, whole[: len(whole) // 2] if damage is None else damage)
    clean = copy_of(storage)
    clean.delete([walk.key])
    summaries = [collect(frazil.Repository.open(each, CONFIG)) for each in (storage, clean)]
    assert summaries[0] == summaries[1]
    assert summaries[0].chunks_deleted == 1
    assert repo.upkeep.verify("checksum").ok
    assert len(list(storage.list("walks"))) == 1


def test_a_storage_that_fails_to_store_it(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = commits(3)
    put = MemoryStorage.put

    def refusing(self: Any, key: str, *args: Any) -> Any:
        if key.startswith("walks/"):
            raise frazil.StorageError("no")
        return put(self, key, *args)

    monkeypatch.setattr(MemoryStorage, "put", refusing)
    assert collect(frazil.Repository.open(storage, CONFIG)).chunks_deleted == 1
    assert not list(storage.list("walks"))


ID = st.binary(min_size=12, max_size=12)
TABLES = st.dictionaries(ID, st.lists(ID, max_size=4, unique=True), max_size=5)
TABLE_DIGESTS = st.dictionaries(ID, st.lists(st.integers(0, 2**48 - 1), max_size=5, unique=True), max_size=5)


def files_of(ids: list[bytes]) -> ManifestFiles:
    matrix = np.frombuffer(b"".join(sorted(ids)), np.uint8).reshape(-1, 12)
    return ManifestFiles(matrix, np.arange(len(ids), dtype="u8"), np.arange(len(ids), dtype="u4"))


def index_of(snapshots: dict[bytes, list[bytes]], manifests: dict[bytes, list[int]]) -> StoredIndex:
    return StoredIndex(
        SnapshotManifests.concat(
            [SnapshotManifests.of_many([id_], [files_of(ids)]) for id_, ids in snapshots.items()]
        ),
        ManifestChunks.concat(
            [
                ManifestChunks(
                    id_matrix([id_]), Ragged.from_lengths(np.array(sorted(each), "u8"), np.array([len(each)]))
                )
                for id_, each in manifests.items()
            ]
        ),
    )


def encoded(each: StoredIndex) -> bytes:
    return b"".join(index_parts(each))


def content(each: StoredIndex) -> tuple[dict[bytes, set[bytes]], dict[bytes, list[int]]]:
    table, chunks = each.snapshots, each.manifests
    snapshots = {
        table.ids[row].tobytes(): {table.files.ids[at].tobytes() for at in table.rows.row(row).tolist()}
        for row in range(len(table))
    }
    return snapshots, {
        chunks.ids[row].tobytes(): chunks.digests.row(row).tolist() for row in range(len(chunks))
    }


@given(TABLES, TABLE_DIGESTS)
def test_what_is_stored_is_read(
    snapshots: dict[bytes, list[bytes]], manifests: dict[bytes, list[int]]
) -> None:
    decoded = decode_index(encoded(index_of(snapshots, manifests)))
    assert decoded is not None
    assert content(decoded) == (
        {id_: set(ids) for id_, ids in snapshots.items()},
        {id_: sorted(each) for id_, each in manifests.items()},
    )


def some() -> StoredIndex:
    return index_of({b"s" * 12: [b"m" * 12]}, {b"m" * 12: [1, 2, 3]})


@given(st.data())
def test_a_damaged_object_is_ignored(data: st.DataObject) -> None:
    good = encoded(some())
    at = data.draw(st.integers(0, len(good) - 1))
    bit = data.draw(st.integers(0, 7))
    assert decode_index(good[:at]) is None
    assert decode_index(good[:at] + bytes([good[at] ^ (1 << bit)]) + good[at + 1 :]) is None


def test_the_newest_object_counts_and_others_are_replaced() -> None:
    storage = MemoryStorage()
    assert len(read_index(storage)[0]) == 0
    store_index(storage, StoredIndex(), [])
    store_index(storage, some(), [])
    seen, keys = read_index(storage)
    assert (len(seen), len(keys)) == (2, 2)
    store_index(storage, some(), keys)
    assert len(read_index(storage)[1]) == 1
    storage.put(read_index(storage)[1][0], b"damaged")
    assert len(read_index(storage)[0]) == 0


def test_the_object_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "MOST_DIGESTS", 4)
    monkeypatch.setattr(survey, "MOST_USES", 1)
    large = index_of(
        {b"s" * 12: [b"m" * 12], b"t" * 12: [b"m" * 12]}, {b"m" * 12: [1, 2, 3], b"n" * 12: [1, 2]}
    )
    decoded = decode_index(encoded(large))
    assert decoded is not None
    assert (len(decoded.snapshots), len(decoded.manifests)) == (1, 1)


IDS = st.lists(st.binary(min_size=12, max_size=12), max_size=40)


def matrix(ids: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(ids), np.uint8).reshape(-1, 12)


@given(IDS, IDS, st.sampled_from([2, 20]))
def test_marks_are_membership(old: list[bytes], alive: list[bytes], start_bits: int) -> None:
    """Also with more files than first bits, which are then not compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_START_BITS", start_bits)
        marks = Marks(matrix(old))
        for part in (alive[:3], alive[3:], old[::2]):
            marks.mark(np.unique(id_digests(matrix(part))))
        marked = {*alive, *old[::2]}
        assert marks.rows().tolist() == [id_ in marked for id_ in old]


@given(IDS, st.data())
def test_equal_digests_are_marked_together(ids: list[bytes], data: st.DataObject) -> None:
    """A digest of one bit, so that most ids have the digest of another id."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_DROPPED_BITS", np.uint64(63))
        alive = data.draw(st.sets(st.sampled_from(ids))) if ids else set()
        marks = Marks(matrix(ids))
        marks.mark(id_digests(matrix(sorted(alive))))
        rows = marks.rows()
        for row, id_ in enumerate(ids):
            assert rows[row] or id_ not in alive


def test_ids_in_sequence_have_different_digests() -> None:
    """Not every writer chooses its ids at random."""
    ids = np.zeros((200_000, 12), np.uint8)
    ids[:, 8:] = np.arange(len(ids), dtype=">u4").view(np.uint8).reshape(-1, 4)
    assert len(np.unique(id_digests(ids))) == len(ids)
    assert len(np.unique(id_digests(ids[:, ::-1]))) == len(ids)


DIGESTS = st.one_of(st.integers(0, 9), st.integers(2**64 - 9, 2**64 - 1), st.integers(0, 2**64 - 1))


def ranges(numbers: list[int]) -> Ranges:
    column = np.array(numbers, np.uint64)
    return Ranges.of(column, column % np.uint64(1000))


@given(st.lists(st.lists(DIGESTS, max_size=9), max_size=12))
def test_each_range_counts_once(parts: list[list[int]]) -> None:
    """Small blocks, so that repetitions are removed several times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_BLOCK", 5)
        patch.setattr(columns, "_GATHERED", 12)
        distinct = DistinctRanges()
        for part in parts:
            distinct.add(ranges(part))
        assert distinct.length() == sum(each % 1000 for each in set().union(*parts))


def test_ranges_of_more_than_four_gibibytes_beside_short_ranges() -> None:
    distinct = DistinctRanges()
    distinct.add(ranges([5]))
    distinct.add(Ranges.of(np.array([7], np.uint64), np.array([1 << 40], np.uint64)))
    assert distinct.length() == 5 + (1 << 40)


def test_repetitions_do_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_BLOCK", 50)
    monkeypatch.setattr(columns, "_GATHERED", 200)
    distinct = DistinctRanges()
    for _ in range(100):
        distinct.add(ranges(list(range(50))))
    assert distinct._held <= 250
    assert distinct.length() == sum(range(50))


_FILES = 300


def test_a_listing_has_the_names_of_files_and_columns_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the status of each file, it was 1,100 bytes for each."""
    monkeypatch.setattr(columns, "_BATCH", 25)
    folder = tmp_path / "transactions"
    folder.mkdir()
    ids = np.random.default_rng(7).integers(0, 256, (_FILES, 12), dtype=np.uint8)
    for name in ids_to_text(ids):
        (folder / name).touch()
    storage = local_filesystem_storage(str(tmp_path))
    assert len(list_objects(storage, "transactions")) == _FILES
    tracemalloc.start()
    try:
        list_objects(storage, "transactions")
        assert tracemalloc.get_traced_memory()[1] < 300 * _FILES
    finally:
        tracemalloc.stop()
