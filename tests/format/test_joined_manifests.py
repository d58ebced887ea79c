"""Manifests that are read together: the same as each of them alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frazil.format.chunk_table import ChunkTable
from frazil.format.envelope import FileType, open_envelope, seal
from frazil.format.joined_files import (
    decode_chunk_files,
    decode_chunk_files_together,
    decode_chunk_ranges,
    decode_chunk_ranges_together,
)
from frazil.format.manifest import Manifest, encode_manifest

RANDOM = np.random.default_rng(0)


def ids(count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return RANDOM.integers(0, 256, (count, 12), np.uint8)


def native(*files: int) -> bytes:
    """A manifest with an array for each number of chunk files, three chunks in each file."""
    arrays = {}
    for number, count in enumerate(files):
        rows = np.arange(3 * count)
        arrays[f"node-{number:03}".encode()] = ChunkTable.from_native(
            rows.reshape(-1, 1), ids(count), rows // 3, rows % 3, 7
        )
    return encode_manifest(Manifest(ids(1).tobytes(), arrays))


def mixed() -> bytes:
    """A manifest with native and inline chunks."""
    parts = [
        ChunkTable.from_native([[0]], ids(1), np.zeros(1, int), 5, 6),
        ChunkTable.from_inline([[1]], [b"data"]),
    ]
    table = ChunkTable.merge_tables(parts)
    return encode_manifest(Manifest(ids(1).tobytes(), {b"node-000": table}))


def columns(value: Any) -> list[Any]:
    names = ("id", "kind", "source", "offset", "length", "chunk_ids")
    return [np.asarray(getattr(value, name)).tolist() for name in names if hasattr(value, name)]


def test_the_chunk_files_are_those_of_each_manifest() -> None:
    files = [native(4), native(), native(1, 30), mixed(), native(0), native(2, 2)]
    together = decode_chunk_files_together(files)
    assert together is not None
    assert list(map(columns, together)) == [columns(decode_chunk_files(data, "x")) for data in files]


def test_the_ranges_are_those_of_each_manifest() -> None:
    files = [native(4), native(), native(1, 30), native(0), native(2, 2)]
    together = decode_chunk_ranges_together(files)
    assert together is not None
    assert list(map(columns, together)) == [columns(decode_chunk_ranges(data, "x")) for data in files]


def test_manifests_may_share_a_chunk_file() -> None:
    one, other = ids(2)
    chunk_file = ids(1)
    table = ChunkTable.from_native(np.arange(3).reshape(-1, 1), chunk_file, np.zeros(3, int), np.arange(3), 1)
    files = [encode_manifest(Manifest(each.tobytes(), {b"node-000": table})) for each in (one, other)]
    for decode in (decode_chunk_files_together, decode_chunk_ranges_together):
        together = decode(files)
        assert together is not None
        assert [each.chunk_ids.tolist() for each in together] == 2 * [chunk_file.tolist()]


def test_other_manifests_are_read_alone() -> None:
    assert decode_chunk_ranges_together([native(2), mixed()]) is None
    for decode in (decode_chunk_files_together, decode_chunk_ranges_together):
        assert decode([native(2), native(2)[:-3]]) is None


@pytest.mark.parametrize("decode", [decode_chunk_files_together, decode_chunk_ranges_together])
def test_no_manifest_reads_the_bytes_of_another(decode: Any) -> None:
    """The arrays of the first file are those of the second, which has the same layout."""
    data = native(4)
    payload = bytearray(open_envelope(data, FileType.MANIFEST)[1])
    root = int.from_bytes(payload[:4], "little")
    vtable = root - int.from_bytes(payload[root : root + 4], "little", signed=True)
    at = root + int.from_bytes(payload[vtable + 6 : vtable + 8], "little")  # slot 1
    distance = int.from_bytes(payload[at : at + 4], "little") + -(-len(payload) // 8) * 8
    payload[at : at + 4] = distance.to_bytes(4, "little")
    assert decode([data, data]) is not None
    assert decode([seal([bytes(payload)], FileType.MANIFEST), data]) is None
