from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.chunks.stand_ins import Foreign, Storage, numbered_ids
from tests.support.examples import examples
from tests.support.patience import patience

from frazil.chunks.packs import PackSettings
from frazil.chunks.ranges import MergeLimits, StoredObject
from frazil.chunks.reader import ChunkReader
from frazil.chunks.virtual import Container, VirtualSources
from frazil.chunks.writer import ChunkWriter
from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.format.ids import chunk_key
from frazil.format.manifest import ChunkRef, InlineRef, NativeRef, VirtualRef
from frazil.storage.memory import MemoryStorage
from frazil.storage.object_store_config import s3_store

NO_SOURCES = VirtualSources([], {})
PACK = bytes(i % 251 for i in range(10_000))
PACK_ID = bytes(11) + b"\x01"
FOREIGN = "s3://bucket/data.nc"


def foreign() -> Foreign:
    return Foreign({FOREIGN: (PACK, "etag-1", 1000)})


_LIMITS = MergeLimits()


def reader_on(
    storage: Storage, foreign: Foreign | None = None, limits: MergeLimits = _LIMITS, **options: Any
) -> ChunkReader:
    """A reader of one pack and, with ``foreign``, of one object of others."""
    storage.put(chunk_key(PACK_ID), PACK)
    sources = NO_SOURCES
    if foreign is not None:
        containers = [Container(None, "s3://bucket/", s3_store())]
        sources = VirtualSources(containers, {"s3://bucket/": None}, open_foreign=foreign)
    return ChunkReader(storage, sources, limits=limits, **options)


def native(offset: int, length: int) -> NativeRef:
    return NativeRef(PACK_ID, offset, length)


Read = Callable[[ChunkReader, ChunkRef, int, int | None], bytes]


def plain(reader: ChunkReader, ref: ChunkRef, start: int, stop: int | None) -> bytes:
    return bytes(reader.read(ref, start, stop))


def awaited(reader: ChunkReader, ref: ChunkRef, start: int, stop: int | None) -> bytes:
    return bytes(asyncio.run(_awaited(reader.read_async(ref, start, stop))))


def many(reader: ChunkReader, ref: ChunkRef, start: int, stop: int | None) -> bytes:
    return bytes(reader.read_many([(ref, start, stop), (ref, 0, 1)])[0])


async def _awaited[T](awaitable: Awaitable[T]) -> T:
    return await awaitable


every_way = pytest.mark.parametrize("read", [plain, awaited, many])
near_and_far = pytest.mark.parametrize("is_local", [True, False])
every_kind = pytest.mark.parametrize(
    "ref",
    [
        native(100, 50),
        VirtualRef(FOREIGN, 100, 50),
        VirtualRef(FOREIGN, 100, 50, "etag-1", 1000),
        InlineRef(PACK[100:150]),
    ],
    ids=["native", "virtual", "virtual-checked", "inline"],
)


@every_way
@near_and_far
@every_kind
@pytest.mark.parametrize(
    ("start", "stop"),
    [(0, None), (0, 50), (10, 20), (49, None), (10, 1000), (50, None), (70, 80), (20, 20), (30, 20)],
)
def test_a_range_of_a_chunk_is_a_slice_of_it(
    read: Read, is_local: bool, ref: ChunkRef, start: int, stop: int | None
) -> None:
    reader = reader_on(Storage(is_local=is_local), foreign())
    assert read(reader, ref, start, stop) == PACK[100:150][start:stop]


@every_way
@pytest.mark.parametrize(("start", "stop"), [(-1, None), (0, -1)])
def test_a_range_has_no_negative_ends(read: Read, start: int, stop: int | None) -> None:
    with pytest.raises(InvalidInputError) as error:
        read(reader_on(Storage()), native(0, 10), start, stop)
    assert error.value.kind == ErrorKind.INVALID_BYTE_RANGE


@every_way
@near_and_far
@pytest.mark.parametrize(
    "ref",
    [
        *(native(at, 20) for at in (9_990, 10_000, 10_001, 1 << 40, (1 << 63) - 5, (1 << 64) - 1)),
        VirtualRef(FOREIGN, 9_990, 20),
    ],
)
def test_an_object_that_is_too_short_is_named(
    read: Read, is_local: bool, ref: NativeRef | VirtualRef
) -> None:
    reader = reader_on(Storage(is_local=is_local), foreign())
    name = chunk_key(PACK_ID) if isinstance(ref, NativeRef) else FOREIGN
    with pytest.raises(StorageError, match=rf"{name}.*{ref.offset + 20}") as error:
        read(reader, ref, 0, None)
    assert error.value.kind == ErrorKind.INVALID_OBJECT_SIZE


@every_way
@pytest.mark.parametrize(("etag", "modified"), [("etag-2", None), (None, 999), ("etag-2", 2000)])
def test_a_modified_foreign_object_is_refused(read: Read, etag: str | None, modified: int | None) -> None:
    with pytest.raises(StorageError) as error:
        read(reader_on(Storage(), foreign()), VirtualRef(FOREIGN, 0, 5, etag, modified), 0, None)
    assert error.value.kind == ErrorKind.VIRTUAL_CHUNK_MODIFIED


@near_and_far
def test_own_chunks_are_read_before_they_are_durable(is_local: bool) -> None:
    storage = Storage(is_local=is_local)
    writer = ChunkWriter(storage, PackSettings(), numbered_ids())
    reader = ChunkReader(storage, NO_SOURCES, writer)
    ref = writer.write(b"not yet durable")
    for read in (plain, awaited, many):
        assert read(reader, ref, 4, 7) == b"yet"
    assert storage.gets == []
    writer.flush()
    assert plain(reader, ref, 4, 7) == awaited(reader, ref, 4, 7) == b"yet"
    assert (len(storage.gets), storage.async_gets) == (2, not is_local)


# ------------------------------------------------------------------------------- many at once

wanted_lists = st.lists(
    st.tuples(st.sampled_from(["native", "virtual", "inline"]), st.integers(0, 9_900), st.integers(1, 100)),
    max_size=40,
)


@settings(max_examples=examples(60))
@given(wanted_lists, st.booleans(), st.integers(0, 500), st.integers(0, 3000), st.integers(1, 5000))
def test_many_are_as_one_by_one(
    wanted: list[tuple[str, int, int]], is_local: bool, gap: int, waste: int, size: int
) -> None:
    make: dict[str, Callable[[int, int], ChunkRef]] = {
        "native": native,
        "virtual": lambda offset, length: VirtualRef(FOREIGN, offset, length),
        "inline": lambda offset, length: InlineRef(PACK[offset : offset + length]),
    }
    storage = Storage(is_local=is_local)
    reader = reader_on(storage, foreign(), MergeLimits(gap, waste, size))
    requests = [(make[kind](offset, length), 0, None) for kind, offset, length in wanted]
    expected = [PACK[offset : offset + length] for _, offset, length in wanted]
    assert list(map(bytes, reader.read_many(requests))) == expected

    async def together() -> list[bytes]:
        return [bytes(data) for data in await asyncio.gather(*(reader.read_async(*r) for r in requests))]

    assert asyncio.run(together()) == expected


# ---------------------------------------------------------------- one turn of an event loop


def test_reads_of_one_turn_are_one_request() -> None:
    storage = Storage(is_local=False)
    reader = reader_on(storage)

    async def one_chunk(i: int) -> bytes:
        await asyncio.sleep(0)
        return bytes(await reader.read_async(native(i * 100, 100)))

    async def main() -> list[bytes]:
        return await asyncio.gather(*map(one_chunk, range(100)))

    assert asyncio.run(main()) == [PACK[i * 100 : i * 100 + 100] for i in range(100)]
    reader.read_many([(native(i * 100, 100), 0, None) for i in range(100)])
    assert storage.gets == [(chunk_key(PACK_ID), 0, 10_000)] * 2


def test_requests_at_once_are_bounded() -> None:
    storage = Storage(is_local=False)
    reader = reader_on(storage, limits=MergeLimits(max_gap=0), max_requests=3)

    async def main() -> None:
        for _ in range(2):
            await asyncio.gather(*(reader.read_async(native(i * 100, 10)) for i in range(20)))

    for _ in range(5):
        asyncio.run(main())
    assert storage.async_gets == 200
    assert storage.most_running == 3
    assert len(reader._loops) <= 1  # closed event loops are let go


def test_two_states_of_one_object_are_two_requests() -> None:
    reader = reader_on(Storage(), foreign())

    async def main() -> list[object]:
        refs = [VirtualRef(FOREIGN, 0, 10, "etag-1"), VirtualRef(FOREIGN, 10, 10, "etag-2")]
        return await asyncio.gather(*map(reader.read_async, refs), return_exceptions=True)

    good, bad = asyncio.run(main())
    assert bytes(good) == PACK[:10]  # type: ignore[call-overload]
    assert isinstance(bad, StorageError)
    assert bad.kind == ErrorKind.VIRTUAL_CHUNK_MODIFIED


def test_errors_go_to_those_who_asked() -> None:
    storage = Storage(is_local=False)
    reader = reader_on(storage)

    async def main() -> list[object]:
        refs = [native(0, 10), NativeRef(bytes(12), 0, 1), native(20, 10), NativeRef(bytes(12), 5, 1)]
        return await asyncio.gather(*map(reader.read_async, refs), return_exceptions=True)

    outcomes = asyncio.run(main())
    assert [isinstance(outcome, StorageError) for outcome in outcomes] == [False, True, False, True]


def test_a_foreign_object_that_is_too_short_fails_only_those_past_its_end() -> None:
    others = foreign()
    others.is_strict = True
    reader = reader_on(Storage(), others)

    async def main() -> list[object]:
        refs = [VirtualRef(FOREIGN, at, 50) for at in (9_800, 9_900, 9_960, 9_950)]
        return await asyncio.gather(*map(reader.read_async, refs), return_exceptions=True)

    outcomes = asyncio.run(main())
    assert [isinstance(outcome, StorageError) for outcome in outcomes] == [False, False, True, False]
    assert bytes(outcomes[3]) == PACK[9_950:]  # type: ignore[call-overload]


def test_a_cancelled_reader_does_not_disturb_the_others() -> None:
    storage = Storage(is_local=False)
    reader = reader_on(storage)

    async def main() -> bytes:
        tasks = [asyncio.create_task(_awaited(reader.read_async(native(i * 10, 10)))) for i in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()  # before the request is made
        while not storage.running:
            await asyncio.sleep(0)
        tasks[1].cancel()  # while it runs
        data = bytes(await tasks[2])
        ended = await asyncio.gather(*tasks[:2], return_exceptions=True)
        assert [type(outcome) for outcome in ended] == [asyncio.CancelledError] * 2
        return data

    assert asyncio.run(main()) == PACK[20:30]
    assert storage.gets == [(chunk_key(PACK_ID), 10, 30)]


def test_a_request_that_nobody_waits_for_is_cancelled() -> None:
    storage = Storage(is_local=False)
    storage.latency = 60
    reader = reader_on(storage)

    async def main() -> None:
        tasks = [asyncio.create_task(_awaited(reader.read_async(native(i * 10, 10)))) for i in range(3)]
        while not storage.running:
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)
        assert storage.running == 0
        storage.latency = 0
        assert bytes(await reader.read_async(native(0, 3))) == PACK[:3]

    asyncio.run(main())
    assert storage.gets == [(chunk_key(PACK_ID), 0, 3)]


def test_several_event_loops_and_threads_share_a_reader() -> None:
    storage = Storage(is_local=False)
    reader = reader_on(storage)
    barrier = threading.Barrier(6)

    async def main() -> list[bytes]:
        return [
            bytes(data)
            for data in await asyncio.gather(*(reader.read_async(native(i, 9)) for i in range(50)))
        ]

    def in_a_loop() -> list[bytes]:
        barrier.wait(patience(10))
        return [data for _ in range(10) for data in asyncio.run(main())]

    def in_a_thread() -> list[bytes]:
        barrier.wait(patience(10))
        requests = [(native(i, 9), 0, None) for i in range(50)]
        return [bytes(data) for _ in range(10) for data in reader.read_many(requests)]

    with ThreadPoolExecutor(6) as pool:
        running = [pool.submit(work) for work in [in_a_loop, in_a_thread] * 3]
        expected = [PACK[i : i + 9] for i in range(50)] * 10
        assert all(work.result(patience(30)) == expected for work in running)


def test_a_reader_can_be_pickled() -> None:
    storage = MemoryStorage()
    writer = ChunkWriter(storage, PackSettings(), _fixed_id)
    reader = ChunkReader(storage, NO_SOURCES, writer, limits=MergeLimits(max_gap=7), max_requests=5)
    ref = writer.write(b"before")
    asyncio.run(_awaited(reader.read_async(ref)))
    copy = pickle.loads(pickle.dumps(reader))
    assert bytes(copy.read(ref)) == b"before"
    assert copy.limits_of(StoredObject("object", storage)) == MergeLimits(max_gap=7)


def _fixed_id() -> bytes:
    return PACK_ID
