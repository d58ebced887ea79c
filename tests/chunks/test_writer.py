from __future__ import annotations

import asyncio
import itertools
import os
import pickle
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.chunks.stand_ins import Storage, numbered_ids
from tests.support.examples import examples
from tests.support.patience import patience

from frazil.chunks.packs import PackRows, PackSettings
from frazil.chunks.reader import ChunkReader
from frazil.chunks.virtual import VirtualSources
from frazil.chunks.writer import ChunkWriter, RowWriter
from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.format.chunk_trailer import ChunkTrailer, crc32c, crc32c_rows, decode_trailer
from frazil.format.ids import chunk_key, id_from_text
from frazil.format.manifest import ChunkKind, ChunkRef, NativeRef
from frazil.storage.memory import MemoryStorage

SMALL = PackSettings(threshold=50, pack_size=100, checksums=False)
CHECKED = PackSettings(threshold=50, pack_size=100)


def random_id() -> bytes:
    return secrets.token_bytes(12)


def writer_on(storage: MemoryStorage, settings: PackSettings = SMALL, max_in_flight: int = 2) -> ChunkWriter:
    return ChunkWriter(storage, settings, numbered_ids(), max_in_flight=max_in_flight)


def stored(storage: MemoryStorage, ref: NativeRef) -> bytes:
    return bytes(storage.get(chunk_key(ref.chunk_id), ref.offset, ref.offset + ref.length))


def trailer_of(storage: MemoryStorage, key: str) -> ChunkTrailer | None:
    data = storage.get(key)
    return decode_trailer(id_from_text(key.partition("/")[2]), data, memoryview(data).nbytes)


def pending(writer: ChunkWriter, ref: NativeRef) -> bytes | None:
    data = writer.pending(ref.chunk_id, ref.offset, ref.offset + ref.length)
    return None if data is None else bytes(data)


def chunk(number: int, size: int) -> bytes:
    return bytes((number + i) % 251 for i in range(size))


steps = st.lists(
    st.one_of(st.integers(1, 70), st.sampled_from(["flush", "read", "async"])), min_size=1, max_size=60
)


@settings(max_examples=examples(60))
@given(steps, st.booleans())
def test_chunks_are_readable_at_every_moment(program: list[int | str], checksums: bool) -> None:
    storage = Storage()
    writer = writer_on(storage, CHECKED if checksums else SMALL)
    reader = ChunkReader(storage, VirtualSources([], {}), writer)
    chunks: list[tuple[NativeRef, bytes]] = []
    for number, step in enumerate(program):
        if isinstance(step, int):
            data = chunk(number, step)
            chunks.append((writer.write(data), data))
        elif step == "async":
            data = chunk(number, 20)
            chunks.append((asyncio.run(writer.write_async(data)), data))
        elif step == "flush":
            writer.flush()
            assert [stored(storage, ref) for ref, _ in chunks] == [data for _, data in chunks]
            assert all(pending(writer, ref) is None for ref, _ in chunks)
        else:
            assert [bytes(reader.read(ref)) for ref, _ in chunks] == [data for _, data in chunks]
    writer.flush()
    assert [stored(storage, ref) for ref, _ in chunks] == [data for _, data in chunks]
    assert checksums or all(size <= 100 for _, size in storage.puts)
    trailers = {info.key: trailer_of(storage, info.key) for info in storage.list("chunks")}
    for ref, data in chunks:
        trailer = trailers[chunk_key(ref.chunk_id)]
        assert (trailer is not None) == checksums
        if trailer is not None:
            offset, length = np.array([[ref.offset], [ref.length]], np.uint64)
            row = trailer.find_ranges(offset, length)[0]
            assert row >= 0
            assert trailer.crcs[row] == crc32c(data)
            assert trailer.id == ref.chunk_id


def test_a_trailer_larger_than_the_room_in_the_buffer_is_written() -> None:
    """Chunks of one byte have a trailer of 12 bytes each."""
    storage = Storage()
    writer = writer_on(storage, PackSettings(threshold=50, pack_size=1 << 20))
    ids = {writer.write(b"a").chunk_id for _ in range(30_000)}
    writer.flush()
    trailer = trailer_of(storage, chunk_key(ids.pop()))
    assert trailer is not None
    assert trailer.crcs.tolist() == [crc32c(b"a")] * 30_000
    assert trailer.size == 30_000


def test_small_chunks_share_a_file_and_large_ones_do_not() -> None:
    storage = Storage()
    writer = writer_on(storage)
    refs = [writer.write(bytes(size)) for size in (49, 49, 50, 2, 49)]
    writer.flush()
    assert [(ref.chunk_id[-1], ref.offset, ref.length) for ref in refs] == [
        (1, 0, 49),
        (1, 49, 49),
        (2, 0, 50),
        (1, 98, 2),
        (3, 0, 49),
    ]
    assert sorted(size for _, size in storage.puts) == [49, 50, 100]


def test_a_chunk_larger_than_a_pack_is_a_pack() -> None:
    storage = Storage()
    writer = writer_on(storage, PackSettings(threshold=1000, pack_size=10))
    refs = [writer.write(bytes([size]) * size) for size in (30, 40, 5)]
    writer.flush()
    assert [stored(storage, ref) for ref in refs] == [b"\x1e" * 30, b"\x28" * 40, b"\x05" * 5]


@pytest.mark.parametrize("settings", [SMALL, PackSettings(enabled=False)])
@pytest.mark.parametrize(
    "data",
    [
        b"bytes",
        bytearray(b"bytearray"),
        memoryview(b"-memoryview-")[1:-1],
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.arange(6, dtype="u1")[::2],
        np.arange(6, dtype="i4").reshape(2, 3).T,
        np.array([True, False]),
    ],
    ids=lambda data: f"{type(data).__name__}-{getattr(data, 'dtype', '')}",
)
def test_every_buffer_is_taken(data: object, settings: PackSettings) -> None:
    storage = Storage()
    writer = writer_on(storage, settings)
    ref = writer.write(data)  # type: ignore[arg-type]
    writer.flush()
    expected = data.tobytes() if isinstance(data, np.ndarray) else bytes(data)  # type: ignore[call-overload]
    assert stored(storage, ref) == expected


def test_a_packed_chunk_is_a_copy() -> None:
    storage = Storage()
    writer = writer_on(storage)
    data = bytearray(b"before")
    ref = writer.write(data)
    data[:] = b"after!"
    assert pending(writer, ref) == b"before"
    writer.flush()
    assert stored(storage, ref) == b"before"


@pytest.mark.parametrize("empty", [b"", np.empty((0, 3))])
def test_a_chunk_has_at_least_one_byte(empty: bytes) -> None:
    with pytest.raises(InvalidInputError) as error:
        writer_on(Storage()).write(empty)
    assert error.value.kind == ErrorKind.ZERO_LENGTH_CHUNK


def test_flush_returns_only_when_the_puts_have() -> None:
    storage = Storage()
    storage.open_gate.clear()
    writer = writer_on(storage)
    refs = [writer.write(bytes([i]) * 40) for i in range(5)]  # two packs sealed, one open
    with ThreadPoolExecutor(1) as pool:
        flushed = pool.submit(writer.flush)
        time.sleep(0.05)
        assert not flushed.done()
        assert storage.puts == []
        assert [pending(writer, ref) for ref in refs] == [bytes([i]) * 40 for i in range(5)]
        storage.open_gate.set()
        flushed.result(patience(10))
    assert [stored(storage, ref) for ref in refs] == [bytes([i]) * 40 for i in range(5)]


def test_a_failed_put_is_reported_until_it_succeeds() -> None:
    storage = Storage()
    storage.failing_puts = 1000
    writer = writer_on(storage)
    refs = [writer.write(bytes([i]) * 40) for i in range(3)]
    for _ in range(3):
        with pytest.raises(StorageError, match="disk is full"):
            writer.flush()
        assert [pending(writer, ref) for ref in refs] == [bytes([i]) * 40 for i in range(3)]
    storage.failing_puts = 1  # one of the two packs fails once more
    with pytest.raises(StorageError):
        writer.flush()
    writer.flush()
    assert [stored(storage, ref) for ref in refs] == [bytes([i]) * 40 for i in range(3)]
    assert all(pending(writer, ref) is None for ref in refs)


def test_a_failed_file_is_reported_at_once() -> None:
    storage = Storage()
    storage.failing_puts = 2
    writer = writer_on(storage)
    with pytest.raises(StorageError):
        writer.write(bytes(50))
    with pytest.raises(StorageError):
        asyncio.run(writer.write_async(bytes(50)))
    writer.flush()


def test_failed_packs_do_not_pile_up_in_memory() -> None:
    storage = Storage()
    storage.failing_puts = 1000
    writer = writer_on(storage, max_in_flight=2)
    chunks: list[tuple[NativeRef, bytes]] = []

    def write_for_ever() -> None:
        for i in itertools.cycle(range(256)):
            chunks.append((writer.write(bytes([i]) * 40), bytes([i]) * 40))  # noqa: PERF401  # seen as it grows

    with pytest.raises(StorageError):
        write_for_ever()
    assert len(chunks) == 6  # two packs that failed and a full open one
    storage.failing_puts = 0
    writer.flush()
    chunks.append((writer.write(b"more"), b"more"))
    writer.flush()
    assert [stored(storage, ref) for ref, _ in chunks] == [data for _, data in chunks]


def test_a_writer_waits_when_enough_packs_are_in_flight() -> None:
    storage = Storage()
    storage.open_gate.clear()
    writer = writer_on(storage, max_in_flight=2)
    refs: list[NativeRef] = []

    def write() -> None:
        for i in range(20):
            refs.append(writer.write(bytes([i]) * 40))  # noqa: PERF401  # seen as it grows

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(write)
        end = time.monotonic() + patience(30)
        while len(refs) < 6 and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(0.05)  # time for one that does not wait
        assert len(refs) == 6
        storage.open_gate.set()
        done.result(patience(10))
    writer.flush()
    assert [stored(storage, ref) for ref in refs] == [bytes([i]) * 40 for i in range(20)]


def test_an_event_loop_goes_on_while_a_write_waits() -> None:
    storage = Storage(is_local=False)
    storage.open_gate.clear()
    writer = writer_on(storage, max_in_flight=1)

    async def main() -> list[NativeRef]:
        refs = [await writer.write_async(bytes([i]) * 40) for i in range(4)]
        waiting = asyncio.create_task(writer.write_async(b"x" * 40))
        given_up = asyncio.create_task(writer.write_async(b"y" * 40))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        given_up.cancel()
        await asyncio.sleep(0)
        storage.open_gate.set()
        return [*refs, await waiting]

    refs = asyncio.run(main())
    writer.flush()
    expected = [*(bytes([i]) * 40 for i in range(4)), b"x" * 40]
    assert [stored(storage, ref) for ref in refs] == expected


def test_many_threads_write_at_once() -> None:
    storage = Storage()
    writer = ChunkWriter(storage, PackSettings(threshold=64, pack_size=1000), random_id)
    barrier = threading.Barrier(8)

    def write(thread: int) -> list[tuple[NativeRef, bytes]]:
        barrier.wait(patience(10))
        chunks: list[tuple[NativeRef, bytes]] = []
        for i in range(200):
            data = chunk(thread * 37 + i, 1 + (thread * i) % 90)
            chunks.append((writer.write(data), data))
            if i % 50 == 49:
                writer.flush()
                assert [stored(storage, ref) for ref, _ in chunks] == [data for _, data in chunks]
        return chunks

    with ThreadPoolExecutor(8) as pool:
        chunks = [pair for part in pool.map(write, range(8)) for pair in part]
    assert len(chunks) == 1600
    writer.flush()
    assert [stored(storage, ref) for ref, _ in chunks] == [data for _, data in chunks]


def test_forgotten_chunks_are_gone_and_their_failure_too() -> None:
    storage = Storage()
    storage.failing_puts = 1000
    writer = writer_on(storage)
    refs = [writer.write(bytes(40)) for _ in range(4)]
    with pytest.raises(StorageError):
        writer.flush()
    refs.append(writer.write(b"open"))
    writer.forget()
    assert [pending(writer, ref) for ref in refs] == [None] * 5
    storage.failing_puts = 0
    writer.flush()
    assert storage.puts == []
    ref = writer.write(b"new")
    writer.flush()
    assert stored(storage, ref) == b"new"


def test_a_pickle_has_nothing_open_and_what_it_had_is_durable() -> None:
    storage = MemoryStorage()
    writer = ChunkWriter(storage, SMALL, random_id)
    ref = writer.write(b"before")
    copy = pickle.loads(pickle.dumps(writer))
    assert stored(storage, ref) == b"before"
    other = copy.write(b"after")
    assert other.chunk_id != ref.chunk_id
    assert pending(writer, other) is None
    copy.flush()
    assert stored(storage, other) == b"after"
    failing = Storage()
    failing.failing_puts = 1
    writer = ChunkWriter(failing, SMALL, random_id)
    writer.write(b"lost?")
    with pytest.raises(StorageError):
        pickle.dumps(writer)


def test_a_forked_child_does_not_go_on_with_an_open_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writer_on(MemoryStorage(), SMALL)
    ref = writer.write(b"of the parent")
    process = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: process + 1)
    for call in (writer.flush, lambda: writer.write(b"of the child")):
        with pytest.raises(StorageError) as error:
            call()
        assert error.value.kind == ErrorKind.FORKED_PROCESS
    assert pending(writer, ref) == b"of the parent"
    writer.forget()
    assert pending(writer, writer.write(b"of the child")) == b"of the child"


def test_the_caller_of_a_joint_flush_stores_the_open_pack() -> None:
    storage, threads = Storage(), set(threading.enumerate())
    writer = writer_on(storage)
    ref = writer.write(b"abc")
    with writer.begin_uploads(is_joint=True) as flush:
        [(key, data)] = flush.files
        assert (key, bytes(data)) == (chunk_key(ref.chunk_id), b"abc")
        assert not list(storage.list("chunks"))
        assert pending(writer, ref) == b"abc"
        storage.put_many(flush.files)
        flush.confirm()
    assert (pending(writer, ref), stored(storage, ref)) == (None, b"abc")
    assert set(threading.enumerate()) == threads
    assert not writer.begin_uploads(is_joint=True).files
    assert writer.write(b"d").chunk_id != ref.chunk_id


def test_a_joint_flush_that_is_not_confirmed_is_an_upload() -> None:
    storage = Storage()
    writer = writer_on(storage)
    ref = writer.write(b"abc")
    with ThreadPoolExecutor(1) as other:
        with writer.begin_uploads(is_joint=True) as flush:
            assert flush.files
            waiting = other.submit(writer.flush)  # such as the pickle of a fork
        waiting.result(patience(60))
        assert stored(storage, ref) == b"abc"
    writer.flush()
    assert pending(writer, ref) is None


# Many chunks of one array


def rows_of(chunks: list[bytes]) -> PackRows:
    data = np.frombuffer(b"".join(chunks), np.uint8)
    length = np.array(list(map(len, chunks)))
    return PackRows(data, length, crc32c_rows(data, length))


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_the_places_of_many_chunks(batch: int) -> None:
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

    def content(ref: ChunkRef | None) -> bytes | None:
        return stored(storage, ref) if isinstance(ref, NativeRef) else getattr(ref, "data", None)

    assert table.index[:, 0].tolist() == [*range(60), 65, 70]
    assert list(map(content, map(table.ref, range(62)))) == [*chunks, None, None]
    kinds = [ChunkKind.INLINE if len(each) <= 10 else ChunkKind.NATIVE for each in chunks]
    assert table.kind.tolist() == [*kinds, 0, 0]
    for info in storage.list("chunks"):
        data = bytes(storage.get(info.key))
        trailer = decode_trailer(bytes(12), data, len(data))
        assert trailer is not None
        assert trailer.size <= 100
        for offset, length, crc in zip(trailer.offsets, trailer.lengths, trailer.crcs, strict=True):
            assert crc32c(data[int(offset) : int(offset + length)]) == crc


def test_failed_uploads_of_many_chunks_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
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
