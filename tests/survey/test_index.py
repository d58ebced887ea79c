"""The stored index: whole, or ignored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.format.columns import Ragged
from frazil.format.ids import id_matrix
from frazil.format.snapshot import ManifestFiles
from frazil.storage.memory import MemoryStorage
from frazil.survey import survey
from frazil.survey.columns import ManifestChunks, SnapshotManifests
from frazil.survey.survey import StoredIndex, decode_index, index_parts, read_index, store_index

ID = st.binary(min_size=12, max_size=12)
TABLES = st.dictionaries(ID, st.lists(ID, max_size=4, unique=True), max_size=5)
DIGESTS = st.dictionaries(ID, st.lists(st.integers(0, 2**48 - 1), max_size=5, unique=True), max_size=5)


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


@given(TABLES, DIGESTS)
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
