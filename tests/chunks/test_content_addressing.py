from __future__ import annotations

import asyncio
import pickle
import secrets
import threading
from collections.abc import Buffer
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from hashlib import sha256

import pytest
from tests.chunks.stand_ins import Storage, numbered_ids
from tests.support.patience import patience

from frazil.chunks import packs as content_addressing
from frazil.chunks.packs import ContentStore, PackSettings
from frazil.chunks.writer import ChunkWriter
from frazil.errors import StorageError
from frazil.format.chunk_trailer import SINGLE_TRAILER_BYTES, decode_trailer, single_trailer
from frazil.format.ids import chunk_key, id_from_text
from frazil.storage.base import ALWAYS, Condition, IfAbsent, ObjectInfo, Refused, Stored
from frazil.storage.local import LocalStorage

HOUR = 3_600_000_000
LIFETIME = 24 * HOUR
DATA = b"a chunk of some bytes"
ID = sha256(DATA).digest()[:12]


class Aging(Storage):
    """Objects are as old as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.stored_at: dict[str, int] = {}
        self.now = 1000 * HOUR
        self.heads = 0

    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        answer = super().put(key, data, condition)
        if isinstance(answer, Stored):
            self.stored_at[key] = self.now
        return answer

    def head(self, key: str) -> ObjectInfo | None:
        self.heads += 1
        info = super().head(key)
        if info is None:
            return None
        return ObjectInfo(key, info.size, datetime.fromtimestamp(self.stored_at[key] / 1e6, UTC))

    @property
    def chunks(self) -> dict[str, bytes]:
        """The chunks of all files, without the checksums."""
        return {info.key: self._chunk(info.key) for info in self.list("chunks")}

    def _chunk(self, key: str) -> bytes:
        data = bytes(self.get(key))
        trailer = decode_trailer(id_from_text(key.partition("/")[2]), data, len(data))
        return data if trailer is None else data[: trailer.size]

    def collect(self, before: int) -> None:
        """What garbage collection does to files that nobody refers to."""
        self.delete([key for key, when in self.stored_at.items() if when < before])


def store_on(
    storage: Aging, *, compare: bool = True, quiet: list[bool] | None = None, checksums: bool = True
) -> ContentStore:
    answers = iter(quiet or [])
    return ContentStore(
        storage,
        LIFETIME,
        compare,
        checksums,
        numbered_ids(),
        lambda: storage.now,
        lambda: next(answers, True),
    )


@pytest.mark.parametrize("compare", [True, False])
def test_existing_chunks_are_not_sent_again(compare: bool) -> None:
    storage = Aging()
    first, second = store_on(storage), store_on(storage, compare=compare)
    assert (
        first.put_chunk(DATA)
        == first.put_chunk(DATA)
        == second.put_chunk(DATA)
        == second.put_chunk(DATA)
        == ID
    )
    assert len(storage.puts) == 1
    assert storage.heads == 2  # one for each session
    assert len(storage.gets) == (1 if compare else 0)


@pytest.mark.parametrize("compare", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_files_with_and_without_checksums_have_the_same_chunk(first: bool, compare: bool) -> None:
    storage = Aging()
    store_on(storage, checksums=first).put_chunk(DATA)
    size = len(DATA) + first * SINGLE_TRAILER_BYTES
    assert [info.size for info in storage.list("chunks")] == [size]
    assert store_on(storage, checksums=not first, compare=compare).put_chunk(DATA) == ID
    assert len(storage.puts) == 1


def test_a_file_with_other_bytes_after_the_chunk_is_not_used() -> None:
    """It may be another, longer chunk with the same hash. A renewal would cut its end off."""
    storage = Aging()
    trailer = bytearray(single_trailer(ID, DATA))
    trailer[-20] ^= 1
    storage.put(chunk_key(ID), DATA + trailer)
    assert store_on(storage).put_chunk(DATA) != ID


@pytest.mark.parametrize("compare", [True, False])
@pytest.mark.parametrize(
    "other", [b"a shorter one", b"as long, but not same!"[: len(DATA)], DATA[:-1] + b"!"]
)
def test_other_bytes_under_the_same_id_stay_and_ours_go_elsewhere(other: bytes, compare: bool) -> None:
    storage = Aging()
    storage.put(chunk_key(ID), other)
    store = store_on(storage, compare=compare)
    if len(other) == len(DATA) and not compare:
        assert store.put_chunk(DATA) == ID  # as its documentation says
        return
    id_ = store.put_chunk(DATA)
    assert id_ == (1).to_bytes(12, "big")
    assert storage.chunks == {chunk_key(ID): other, chunk_key(id_): DATA}


def test_hashes_that_collide_within_a_session_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_addressing, "digest_of", lambda data: bytes(12) + sha256(data).digest()[12:])
    storage = Aging()
    store = store_on(storage)
    ids = [store.put_chunk(data) for data in (b"one", b"two", b"one", b"two")]
    assert ids[0] == ids[2] == bytes(12)
    assert {ids[1], ids[3]}.isdisjoint({ids[0]})
    assert [storage.chunks[chunk_key(id_)] for id_ in ids] == [b"one", b"two", b"one", b"two"]


def test_a_young_file_is_taken_and_brings_the_end_of_the_session_forward() -> None:
    storage = Aging()
    store_on(storage).put_chunk(DATA)
    stored = storage.now
    storage.now += 12 * HOUR
    store = store_on(storage)
    limits = []
    for data in (b"another", DATA):
        store.put_chunk(data)
        limits.append(store.keep_until)
    assert limits == [None, stored + 21 * HOUR]
    assert len(storage.puts) == 2


@pytest.mark.parametrize("compare", [True, False])
def test_an_old_file_is_renewed(compare: bool) -> None:
    storage = Aging()
    store_on(storage).put_chunk(DATA)
    storage.now += 12 * HOUR + 1
    store = store_on(storage, compare=compare)
    assert store.put_chunk(DATA) == ID
    assert store.keep_until is None
    assert storage.stored_at == {chunk_key(ID): storage.now}
    assert len(storage.gets) == 1  # nothing is replaced unseen


def test_no_collection_with_an_allowed_cut_off_deletes_a_reused_chunk() -> None:
    """Every age of the file, every moment of a collection, every moment of the commit, hour by hour."""
    for age in range(0, 60, 3):
        for collected in range(0, 48, 3):
            storage = Aging()
            store_on(storage).put_chunk(DATA)
            storage.now += age * HOUR
            store = store_on(storage)
            reused_at = storage.now
            id_ = store.put_chunk(DATA)
            until = min(reused_at + LIFETIME, store.keep_until or reused_at + LIFETIME)
            assert until >= reused_at + LIFETIME // 3
            collection_start = reused_at + collected * HOUR
            if collection_start <= until:  # later ones see the commit
                storage.collect(collection_start - LIFETIME)
            assert storage.chunks == {chunk_key(id_): DATA}, (age, collected)


@pytest.mark.parametrize(
    "quiet",
    [
        [False, True],  # one was under way before the file became young
        [True, False],  # one is under way now, or ended meanwhile
    ],
)
def test_a_collection_that_may_have_seen_the_file_while_it_was_old_is_given_another(
    quiet: list[bool],
) -> None:
    storage = Aging()
    store_on(storage).put_chunk(DATA)
    storage.now += 100 * HOUR
    listed = storage.now - LIFETIME
    old = [key for key, when in storage.stored_at.items() if when < listed]
    id_ = store_on(storage, quiet=quiet).put_chunk(DATA)
    storage.delete(old)
    assert storage.chunks == {chunk_key(id_): DATA}
    assert id_ != ID


class Interfering(Aging):
    """Somebody else acts just before a step of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.before_create: list[bytes | None] = []
        self.before_get: list[bool] = []

    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        if isinstance(condition, IfAbsent) and self.before_create:
            other = self.before_create.pop()
            if other is not None:
                super().put(key, other)
        return super().put(key, data, condition)

    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        if self.before_get and self.before_get.pop():
            self.delete([key])
        return super().get(key, start, stop)


@pytest.mark.parametrize("other", [DATA, b"x" * len(DATA)])
def test_a_file_created_meanwhile_is_shared_if_it_has_the_same_bytes(other: bytes) -> None:
    storage = Interfering()
    storage.before_create = [other]
    id_ = store_on(storage).put_chunk(DATA)
    assert (id_ == ID) == (other == DATA)
    assert storage.chunks == {chunk_key(ID): other, chunk_key(id_): DATA}


def test_a_file_that_goes_while_it_is_compared_is_created() -> None:
    storage = Interfering()
    store_on(storage).put_chunk(DATA)
    storage.before_get = [False, True]
    assert store_on(storage).put_chunk(DATA) == ID
    storage.before_get.clear()
    assert storage.chunks == {chunk_key(ID): DATA}


def test_a_file_that_comes_and_goes_for_ever_is_stored_apart() -> None:
    storage = Interfering()
    store_on(storage).put_chunk(DATA)
    storage.before_get = [True] * 10
    storage.before_create = [DATA] * 10
    id_ = store_on(storage).put_chunk(DATA)
    storage.before_get.clear()
    assert id_ != ID
    assert storage.chunks[chunk_key(id_)] == DATA


def test_a_failed_write_is_reported_and_tried_again() -> None:
    storage = Aging()
    store = store_on(storage)
    storage.failing_puts = 1
    with pytest.raises(StorageError):
        store.put_chunk(DATA)
    assert store.put_chunk(DATA) == ID
    assert storage.chunks == {chunk_key(ID): DATA}


def test_threads_store_the_same_bytes_once() -> None:
    storage = Aging()
    store = store_on(storage)
    storage.open_gate.clear()
    with ThreadPoolExecutor(8) as pool:
        ids = [pool.submit(store.put_chunk, DATA) for _ in range(8)]
        threading.Timer(0.02, storage.open_gate.set).start()
        assert {each.result(patience(10)) for each in ids} == {ID}
    assert len(storage.puts) == storage.heads == 1


def test_forgotten_chunks_are_recognised_in_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_addressing, "REMEMBERED", 2)
    storage = Aging()
    store = store_on(storage)
    chunks = [bytes([i]) * 9 for i in range(4)]
    first = [store.put_chunk(data) for data in chunks]
    assert [store.put_chunk(data) for data in chunks] == first
    assert len(storage.puts) == 4
    assert storage.heads > 4


def test_a_store_can_be_pickled(tmp_path: object) -> None:
    store = ContentStore(LocalStorage(str(tmp_path)), LIFETIME, True, True, _new_id, _now_us, _quiet)
    writer = ChunkWriter(LocalStorage(str(tmp_path)), PackSettings(threshold=5), _new_id, content=store)
    again = pickle.loads(pickle.dumps(writer))
    assert writer.write(DATA) == again.write(DATA)


def _new_id() -> bytes:
    return secrets.token_bytes(12)


def _now_us() -> int:
    return int(datetime.now(UTC).timestamp() * 1e6)


def _quiet() -> bool:
    return True


# ------------------------------------------------------------------------------------- with packs


def writer_on(storage: Aging, threshold: int = 50) -> ChunkWriter:
    settings = PackSettings(threshold=threshold, pack_size=100)
    return ChunkWriter(storage, settings, _new_id, content=store_on(storage))


def test_a_chunk_is_packed_once_in_a_session_and_stored_once_above_the_threshold() -> None:
    storage = Aging()
    writer = writer_on(storage)
    small = [writer.write(bytes([i % 3]) * 30) for i in range(9)]
    large = [asyncio.run(writer.write_async(bytes([i % 3]) * 60)) for i in range(9)]
    writer.flush()
    more = [asyncio.run(writer.write_async(bytes([i % 3]) * 30)) for i in range(9)]
    writer.flush()
    assert [len(set(refs)) for refs in (small, large)] == [3, 3]
    assert more == small
    assert sorted(map(len, storage.chunks.values())) == [60, 60, 60, 90]
    for number, ref in enumerate(small + large):
        data = storage.get(chunk_key(ref.chunk_id), ref.offset, ref.offset + ref.length)
        assert bytes(data) == bytes([number % 3]) * (30 if number < 9 else 60)
    another = writer_on(storage)
    assert another.write(bytes([1]) * 60) == large[1]
    assert another.write(bytes([1]) * 30) != small[1]  # packs are not searched


def test_a_discarded_pack_is_not_referred_to() -> None:
    storage = Aging()
    writer = writer_on(storage)
    writer.write(b"x" * 30)
    writer.forget()
    ref = writer.write(b"x" * 30)
    writer.flush()
    assert storage.chunks == {chunk_key(ref.chunk_id): b"x" * 30}


def test_waits_do_not_fill_the_threads_of_a_loop() -> None:
    """More equal chunks than threads, all at once."""
    storage = Aging()
    writer = writer_on(storage, threshold=1)

    async def write() -> set[bytes]:
        refs = await asyncio.gather(*(writer.write_async(bytes([i % 2]) * 20) for i in range(200)))
        return {ref.chunk_id for ref in refs}

    assert len(asyncio.run(write())) == 2
    assert len(storage.puts) == 2
