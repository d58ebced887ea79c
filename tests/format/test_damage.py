"""Whatever the bytes are: a value or a ``FormatError`` that names the file, in bounded time and memory."""

from __future__ import annotations

import contextlib
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import zstandard

from frazil.errors import FormatError
from frazil.format.envelope import HEADER_BYTES, FileType, open_envelope, seal
from frazil.format.ids import id_matrix
from frazil.format.manifest import (
    ChunkTable,
    Manifest,
    decode_manifest,
    encode_manifest,
)
from frazil.format.transaction_log import Move, TransactionLog, decode_transaction_log, encode_transaction_log

LISTS = ("new_groups", "new_arrays", "deleted_groups", "deleted_arrays", "updated_arrays", "updated_groups")


def _manifest() -> bytes:
    ids = np.arange(36, dtype=np.uint8).reshape(3, 12)
    table = ChunkTable.merge_tables(
        [
            ChunkTable.from_native([[0, 0], [0, 1], [0, 2]], ids, range(3), 0, 9),
            ChunkTable.from_virtual([[1, i] for i in range(4)], ["s3://b/a", "s3://b/b"] * 2, 1, 2, etag="e"),
            ChunkTable.from_virtual(
                [[2, i] for i in range(4)], ["s3://b/a", "s3://b/c"] * 2, 1, 2, modified=7
            ),
            ChunkTable.from_inline([[3, 0], [3, 1]], [b"", b"bytes"]),
        ]
    )
    scalar = ChunkTable.from_inline([[]], [b"x"])
    return encode_manifest(Manifest(b"manifest-id!", {b"node-001": table, b"node-002": scalar}))


def _log() -> bytes:
    chunks = {b"node-001": np.array([[0, 1], [2, 3]], np.uint32), b"node-002": np.zeros((1, 0), np.uint32)}
    moves = (Move("/a", "/b", b"node-003", True), Move("/a/x", "/b/x", b"node-004", False))
    lists = {name: id_matrix([b"node-00%d" % i, b"node-01%d" % i], 8) for i, name in enumerate(LISTS)}
    return encode_transaction_log(
        TransactionLog(b"snapshot-id!", **lists, updated_chunks=chunks, moves=moves)
    )


def _read_manifest(data: bytes) -> None:
    """Read everything; the text of a location is only looked at when it is asked for."""
    manifest = decode_manifest(data, "file-name")
    for table in manifest.arrays.values():
        for row in range(min(len(table), 50)):
            table.find_chunk(tuple(table.index[row].tolist()))
            with contextlib.suppress(FormatError):
                table.ref(row)
    small = {node: table for node, table in manifest.arrays.items() if len(table) < 100}
    encode_manifest(Manifest(manifest.id, small))


def _read_log(data: bytes) -> None:
    decode_transaction_log(data, "file-name")


type Read = Callable[[bytes], None]

FILES: dict[str, tuple[FileType, bytes, Read]] = {
    "manifest": (FileType.MANIFEST, _manifest(), _read_manifest),
    "transaction log": (FileType.TRANSACTION_LOG, _log(), _read_log),
}
files = pytest.mark.parametrize(("kind", "file", "read"), FILES.values(), ids=FILES.keys())


def _survives(read: Read, data: bytes) -> bool:
    """Whether ``data`` gives a value; it must give that or an error that names the file."""
    try:
        read(data)
    except FormatError as error:
        if "file-name" not in str(error):
            raise
        return False
    return True


@pytest.fixture
def bounded() -> Iterator[None]:
    """No test below takes much memory or time, whatever it reads."""
    tracemalloc.start()
    start = time.process_time()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 128e6
    assert time.process_time() - start < 120


@files
@pytest.mark.usefixtures("bounded")
class TestDamage:
    def test_none(self, kind: FileType, file: bytes, read: Read) -> None:
        assert _survives(read, file)

    def test_cut_off_at_every_byte(self, kind: FileType, file: bytes, read: Read) -> None:
        assert not any(_survives(read, file[:end]) for end in range(len(file)))

    @pytest.mark.deep
    def test_payload_cut_off_at_every_byte(self, kind: FileType, file: bytes, read: Read) -> None:
        payload = bytes(open_envelope(file, kind)[1])
        survivors = [end for end in range(len(payload)) if _survives(read, seal([payload[:end]], kind))]
        # Only the padding at the very end may go.
        assert all(end >= len(payload) - 4 for end in survivors)

    def test_random_bytes(self, kind: FileType, file: bytes, read: Read) -> None:
        chance = random.Random(1)
        for _ in range(200):
            noise = chance.randbytes(chance.randrange(200))
            _survives(read, noise)
            _survives(read, file[:HEADER_BYTES] + noise)
            _survives(read, seal([noise], kind))

    def test_file_with_changed_bytes(self, kind: FileType, file: bytes, read: Read) -> None:
        chance = random.Random(2)
        for _ in range(500):
            changed = bytearray(file)
            changed[chance.randrange(len(file))] = chance.randrange(256)
            _survives(read, bytes(changed))

    @pytest.mark.sample(2, 2)
    @pytest.mark.deep
    @pytest.mark.parametrize("seed", range(3))
    def test_payload_with_changed_bytes(self, kind: FileType, file: bytes, read: Read, seed: int) -> None:
        chance = random.Random(seed)
        payload = bytes(open_envelope(file, kind)[1])
        header, compress = file[:HEADER_BYTES], zstandard.ZstdCompressor(level=1).compress
        survived = 0
        for _ in range(600):
            changed = bytearray(payload)
            for _ in range(chance.choice([1, 1, 2, 8])):
                _change(chance, changed)
            survived += _survives(read, header + compress(bytes(changed)))
        # Neither is every change an error, nor none.
        assert 0 < survived < 600


def _change(chance: random.Random, data: bytearray) -> None:
    """One change of a byte, of a number, or of a stretch."""
    at = chance.randrange(len(data) - 8)
    match chance.randrange(5):
        case 0:
            data[at] = chance.randrange(256)
        case 1:
            data[at] ^= 1 << chance.randrange(8)
        case 2:
            at &= ~3
            value = chance.choice([0, 1, 4, 8, 0xFFFF, 1 << 16, 1 << 24, 1 << 31, (1 << 32) - 1, len(data)])
            data[at : at + 4] = value.to_bytes(4, "little")
        case 3:
            at &= ~3
            value = int.from_bytes(data[at : at + 4], "little") + chance.choice([-8, -4, -1, 1, 4, 8])
            data[at : at + 4] = (value % (1 << 32)).to_bytes(4, "little")
        case 4:
            other = chance.randrange(len(data) - 8)
            data[at : at + 8] = data[other : other + 8]


def test_every_object_kind_is_refused_by_the_other_reader() -> None:
    for name, (_, file, _) in FILES.items():
        for other, (_, _, read) in FILES.items():
            assert _survives(read, file) == (name == other)


def test_no_exception_of_numpy_gets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise IndexError("inside")

    monkeypatch.setattr("frazil.format.manifest.read_coordinates", broken)
    with pytest.raises(FormatError, match="file-name: damaged"):
        decode_manifest(FILES["manifest"][1], "file-name")
