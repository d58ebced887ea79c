"""Writes of many chunks: inline bytes, packs and files, with their places as columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.chunks.test_writer import writer_on

from frazil.chunks.packs import PackRows, PackSettings
from frazil.chunks.writer import RowWriter
from frazil.errors import StorageError
from frazil.format.chunk_trailer import crc32c, crc32c_rows, decode_trailer
from frazil.format.ids import id_to_text
from frazil.format.manifest import ChunkKind, ChunkTable, InlineRef, NativeRef
from frazil.storage.memory import MemoryStorage


def rows_of(chunks: list[bytes]) -> PackRows:
    data = np.frombuffer(b"".join(chunks), np.uint8)
    length = np.array(list(map(len, chunks)))
    return PackRows(data, length, crc32c_rows(data, length))


def stored(storage: MemoryStorage, table: ChunkTable, row: int) -> bytes | None:
    ref = table.ref(row)
    if isinstance(ref, NativeRef):
        return bytes(storage.get(f"chunks/{id_to_text(ref.chunk_id)}", ref.offset, ref.offset + ref.length))
    return ref.data if isinstance(ref, InlineRef) else None


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_places(batch: int) -> None:
    """Chunks of all sizes are where the table says, and trailers have their checksums."""
    storage = MemoryStorage()
    writer = writer_on(storage, PackSettings(threshold=60, pack_size=100))
    rng = np.random.default_rng(batch)
    chunks = [rng.bytes(int(size)) for size in rng.integers(1, 90, 60)]
    rows = RowWriter(writer, 1, inline_threshold=10)
    for begin in range(0, len(chunks), batch):
        part = chunks[begin : begin + batch]
        rows.add(np.arange(begin, begin + len(part), dtype=np.uint32)[:, None], rows_of(part))
        writer.write(b"another chunk of the session")
    rows.delete(np.array([[70], [65]], np.uint32))
    table = rows.table()
    writer.flush()
    assert table.index[:, 0].tolist() == [*range(60), 65, 70]
    assert [stored(storage, table, row) for row in range(62)] == [*chunks, None, None]
    kinds = [ChunkKind.INLINE if len(each) <= 10 else ChunkKind.NATIVE for each in chunks]
    assert table.kind.tolist() == [*kinds, 0, 0]
    for info in storage.list("chunks"):
        data = bytes(storage.get(info.key))
        trailer = decode_trailer(bytes(12), data, len(data))
        assert trailer is not None
        assert trailer.size <= 100
        for offset, length, crc in zip(trailer.offsets, trailer.lengths, trailer.crcs, strict=True):
            assert crc32c(data[int(offset) : int(offset + length)]) == crc


def test_failed_uploads_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    writer = writer_on(storage, PackSettings(threshold=50, pack_size=100))

    def failing(*args: Any) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "put", failing)
        rows = RowWriter(writer, 1, inline_threshold=0)
        rows.add(np.array([[0]], np.uint32), rows_of([b"1" * 70]))
        with pytest.raises(StorageError, match="full"):
            rows.table()
        more = [b"2" * 30] * 30  # more packs than may wait for their uploads
        with pytest.raises(StorageError, match="full"):
            writer.pack_rows(rows_of(more))
    writer.flush()  # uploads the failed packs again
    assert all(info.size > 90 for info in storage.list("chunks"))
