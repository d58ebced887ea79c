"""The contract of a storage as tests. A subclass of ``StorageSuite`` provides the storage.

    class TestMyStorage(StorageSuite):
        @pytest.fixture
        def storage(self) -> Storage:
            return MyStorage(...)          # empty, and only for this test

``frazil.storage.base`` describes the contract. The module needs pytest.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
import uuid
from collections.abc import Buffer, Callable
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import ClassVar

import pytest

from frazil.errors import ErrorKind, IcechunkError, InvalidInputError, StorageError
from frazil.storage.base import ALWAYS, IfAbsent, IfVersion, Refused, Replacement, Storage, Stored, Version
from frazil.storage.settings import StorageSettings
from frazil.threads import Purpose, thread_pool

_BAD_KEYS = ("", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\0b")


class StorageSuite:
    """The contract of ``Storage``, with one test for each sentence of it.

    Attributes:
        many: Number of objects in the test of long listings, more than one page of any server. Default: 1100.
        threads: Number of threads in the tests of concurrent writers. Default: 8.
        rounds: Number of rounds in the tests of concurrent writers. Default: 10.
    """

    many: ClassVar[int] = 1100
    threads: ClassVar[int] = 8
    rounds: ClassVar[int] = 10

    @pytest.fixture
    def storage(self) -> Storage:
        """Return an empty storage that only this test uses. Subclasses implement this fixture."""
        raise NotImplementedError

    # reading

    def test_read_after_write(self, storage: Storage) -> None:
        """A read returns the bytes of the last write. A later change of the writer's buffer has no effect."""
        buffer = bytearray(b"before")
        assert isinstance(storage.put("repo", buffer), Stored)
        buffer[:] = b"after!"
        assert bytes(storage.get("repo")) == b"before"
        storage.put("repo", b"another")
        assert bytes(storage.get("repo")) == b"another"

    @pytest.mark.parametrize(
        ("start", "stop", "expected"),
        [
            *((0, None, b"0123456789"), (3, 7, b"3456"), (3, None, b"3456789"), (0, 1, b"0"), (9, 10, b"9")),
            *((4, stop, b"456789") for stop in (11, 1 << 20, 1 << 40)),
        ],
    )
    def test_ranges(self, storage: Storage, start: int, stop: int | None, expected: bytes) -> None:
        """A range contains exactly the requested bytes. A range past the end of the object ends with it."""
        storage.put("chunks/a", b"0123456789")
        assert bytes(storage.get("chunks/a", start, stop)) == expected
        assert bytes(asyncio.run(storage.get_async("chunks/a", start, stop))) == expected

    def test_reads_into_memory(self, storage: Storage) -> None:
        """A read into memory fills it up to the end of the object, and leaves the rest."""
        storage.put("chunks/a", b"0123456789")
        out = bytearray(6)
        assert storage.get_into("chunks/a", 3, memoryview(out)) == 6
        assert bytes(out) == b"345678"
        assert storage.get_into("chunks/a", 7, memoryview(out)) == 3
        assert bytes(out) == b"789678"
        with pytest.raises(StorageError):
            storage.get_into("chunks/a", 10, memoryview(out))
        with pytest.raises(StorageError):
            storage.get_into("chunks/b", 0, memoryview(out))

    @pytest.mark.parametrize(
        ("kind", "ranges"),
        [
            (ErrorKind.OBJECT_STORE, [(10, 12), (10, None), (11, None), (500, 600)]),
            (ErrorKind.INVALID_BYTE_RANGE, [(-1, None), (-2, 3), (3, 3), (4, 2)]),
        ],
    )
    def test_wrong_ranges(
        self, storage: Storage, kind: ErrorKind, ranges: list[tuple[int, int | None]]
    ) -> None:
        """A range that starts at the end or after it raises an error, and so does an invalid range."""
        storage.put("chunks/a", b"0123456789")
        for each in ranges:
            for read in (storage.get, lambda *args: asyncio.run(storage.get_async(*args))):
                with pytest.raises(IcechunkError) as caught:
                    read("chunks/a", *each)
                assert caught.value.kind == kind

    def test_an_empty_object(self, storage: Storage) -> None:
        """An object without bytes can be written and read as a whole."""
        storage.put("chunks/a", b"")
        assert bytes(storage.get("chunks/a")) == b""
        assert bytes(storage.get_versioned("chunks/a")[0]) == b""
        info = storage.head("chunks/a")
        assert info is not None
        assert info.size == 0
        with pytest.raises(StorageError):
            storage.get("chunks/a", 0, 5)

    def test_a_missing_object(self, storage: Storage) -> None:
        """A read of a missing object raises ``StorageError``, and ``head`` returns None."""
        storage.put("chunks/a", b"x")
        reads: list[Callable[[str], object]] = [
            storage.get,
            storage.get_versioned,
            lambda key: storage.get(key, 2, 5),
            lambda key: asyncio.run(storage.get_async(key)),
        ]
        for key in ("repo", "chunks", "chunks/b"):
            assert storage.head(key) is None
            for read in reads:
                with pytest.raises(StorageError) as caught:
                    read(key)
                assert caught.value.kind == ErrorKind.OBJECT_NOT_FOUND
                assert key in str(caught.value)

    @pytest.mark.parametrize("key", _BAD_KEYS)
    def test_what_is_no_key_is_refused(self, storage: Storage, key: str) -> None:
        """An invalid key raises ``InvalidInputError`` in every method."""
        calls: list[Callable[[], object]] = [
            lambda: storage.get(key),
            lambda: storage.get_versioned(key),
            lambda: storage.put(key, b"x"),
            lambda: storage.put(key, b"x", IfAbsent()),
            lambda: storage.head(key),
            lambda: storage.delete([key]),
            lambda: asyncio.run(storage.get_async(key)),
        ]
        for call in calls:
            with pytest.raises(InvalidInputError):
                call()

    @pytest.mark.parametrize("key", ["a b+c%20d", "é/日本", "a&b<c>", "x=1/y=2", "~a", "a.b..c/...", "q?r"])
    def test_keys_with_odd_characters(self, storage: Storage, key: str) -> None:
        """Keys may contain spaces, percent signs, and characters of any script."""
        storage.put(key, b"x")
        assert bytes(storage.get(key)) == b"x"
        assert [info.key for info in storage.list("")] == [key]
        storage.delete([key])
        assert storage.head(key) is None

    @pytest.mark.parametrize("size", [1, 1000, 70_000, 12 << 20])
    def test_sizes(self, storage: Storage, size: int) -> None:
        """Small and large objects are read back unchanged."""
        data = (b"0123456789abcdef!" * (size // 17 + 1))[:size]
        storage.put("chunks/a", data)
        assert bytes(storage.get("chunks/a")) == data
        assert bytes(storage.get("chunks/a", size // 2, size // 2 + 100)) == data[size // 2 :][:100]

    @pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda b: memoryview(b).cast("H")])
    def test_all_buffers_are_accepted(self, storage: Storage, make: Callable[[bytes], bytes]) -> None:
        """A write accepts every kind of buffer."""
        storage.put("chunks/a", make(b"01234567"))
        assert bytes(storage.get("chunks/a")) == b"01234567"
        asyncio.run(storage.put_async("chunks/b", make(b"76543210")))
        assert bytes(storage.get("chunks/b")) == b"76543210"

    # versions and conditions

    def test_conditions(self, storage: Storage) -> None:
        """A create is refused while the object exists, an update if its version is not the current one."""
        first = _stored(storage.put("repo", b"1", IfAbsent()))
        assert storage.put("repo", b"other", IfAbsent()) == Refused()
        data, read = storage.get_versioned("repo")
        assert (bytes(data), read) == (b"1", first)
        assert pickle.loads(pickle.dumps(read)) == read != Version()
        second = _stored(storage.put("repo", b"22", IfVersion(read)))
        assert storage.put("repo", b"stale", IfVersion(first)) == Refused()
        data, read = storage.get_versioned("repo")
        assert (bytes(data), read) == (b"22", second)
        storage.put("repo", b"unconditional")
        assert storage.put("repo", b"stale", IfVersion(second)) == Refused()
        last = storage.get_versioned("repo")[1]
        assert last != second
        assert [info.key for info in storage.list("")] == ["repo"]  # without lock files
        storage.delete(["repo"])
        assert storage.put("repo", b"stale", IfVersion(last)) == Refused()
        assert storage.head("repo") is None
        _stored(storage.put("repo", b"new", IfAbsent()))

    def test_one_of_many_creators_wins(self, storage: Storage) -> None:
        """Exactly one of many concurrent creates succeeds."""
        for round_number in range(self.rounds):
            key = f"race/{round_number}"

            def create(key: str = key) -> tuple[bytes, object]:
                mine = uuid.uuid4().hex.encode()
                try:
                    return mine, storage.put(key, mine, IfAbsent())
                except StorageError as error:  # an error proves nothing, so this may not be the winner
                    return mine, error

            outcomes = _in_threads(self.threads, create)
            winners = [mine for mine, outcome in outcomes if isinstance(outcome, Stored)]
            assert winners == [bytes(storage.get(key))]

    @pytest.mark.parametrize("is_replacement", [False, True])
    def test_no_update_is_lost(self, storage: Storage, is_replacement: bool) -> None:
        """Concurrent updates and replacements in a loop lose no change, with turns and without."""
        storage.put("repo", b"begin", IfAbsent())

        def work() -> None:
            for number in range(self.rounds):
                with storage.local_queue("repo") if number % 2 else nullcontext():
                    add_line(storage, "repo", uuid.uuid4().hex, is_replacement=is_replacement)

        _in_threads(self.threads, work)
        lines = bytes(storage.get("repo")).decode().split("\n")
        assert len(lines) == len(set(lines)) == 1 + self.threads * self.rounds

    def test_backup(self, storage: Storage) -> None:
        """A backup has the bytes of the read version, also after later writes."""
        storage.put("repo", b"first", IfAbsent())
        data, version = storage.get_versioned("repo")
        storage.backup("repo", version, data, "overwritten/repo.1")
        assert bytes(storage.get("overwritten/repo.1")) == b"first"
        storage.backup("repo", version, data, "overwritten/repo.1")  # a second backup is not an error
        assert isinstance(storage.put("repo", b"second", IfVersion(version)), Stored)
        assert bytes(storage.get("overwritten/repo.1")) == b"first"
        storage.backup("repo", version, data, "overwritten/repo.2")  # a backup of an old version
        assert bytes(storage.get("overwritten/repo.2")) == b"first"
        storage.delete(["repo"])
        storage.backup("repo", version, data, "overwritten/repo.3")
        assert bytes(storage.get("overwritten/repo.3")) == b"first"

    def test_open_replacement(self, storage: Storage) -> None:
        """A replacement stores new objects and a backup first, and replaces the version that was read."""
        storage.put("repo", b"first", IfAbsent())
        old, version = storage.get_versioned("repo")
        replacement = Replacement("repo", b"second", version, old, "overwritten/repo.1")
        with storage.open_replacement(replacement, [("snapshots/a", b"new"), ("snapshots/b", b"")]):
            pass  # without `finish`
        assert bytes(storage.get("repo")) == b"first"
        assert [bytes(storage.get(f"snapshots/{name}")) for name in "ab"] == [b"new", b""]
        with storage.open_replacement(replacement) as early, storage.open_replacement(replacement) as late:
            assert bytes(storage.get("repo")) == b"first"
            _stored(late.finish())
            assert isinstance(early.finish(), Refused)
        assert bytes(storage.get("repo")) == b"second"
        assert bytes(storage.get("overwritten/repo.1")) == b"first"
        keys = {info.key for info in storage.list("")}
        assert keys == {"repo", "overwritten/repo.1", "snapshots/a", "snapshots/b"}

    # list and delete

    def test_list(self, storage: Storage) -> None:
        """A listing is recursive and matches whole segments of its prefix. ``head`` returns one entry."""
        objects = {"repo": b"1", "chunks/a": b"22", "chunks/b/c": b"333", "chunks2/a": b"4444"}
        for key, data in objects.items():
            storage.put(key, data)
        infos, head = {info.key: info for info in storage.list("")}, storage.head("chunks/a")
        assert head is not None
        assert (head.key, head.size) == ("chunks/a", 2)
        assert {key: info.size for key, info in infos.items()} == {k: len(d) for k, d in objects.items()}
        for info in (head, *infos.values()):
            assert abs(info.modified - datetime.now(UTC)) < timedelta(minutes=1)
        for prefix in ("chunks", "chunks/"):
            assert {info.key for info in storage.list(prefix)} == {"chunks/a", "chunks/b/c"}
        assert [info.key for info in storage.list("chunks/b")] == ["chunks/b/c"]
        assert [*storage.list("nothing")] == []
        assert [*storage.list("chun")] == []

    def test_long_lists(self, storage: Storage) -> None:
        """A listing of many pages is complete, and ``delete`` accepts an iterator."""
        keys = {f"chunks/{number:05}" for number in range(self.many)}
        with thread_pool(Purpose.CATALOG_WRITES, self.threads) as threads:
            assert all(isinstance(each, Stored) for each in threads.map(storage.put, keys, repeat(b"x")))
        assert {info.key for info in storage.list("chunks")} == keys
        storage.delete(info.key for info in storage.list("chunks"))
        assert [*storage.list("")] == []

    def test_delete(self, storage: Storage) -> None:
        """A deletion ignores missing objects."""
        for key in ("chunks/a", "chunks/b", "chunks/c"):
            storage.put(key, b"x")
        storage.delete(["chunks/a", "chunks/missing", "chunks/c"])
        assert [info.key for info in storage.list("")] == ["chunks/b"]
        storage.delete(["chunks/a", "nothing/at/all"])
        storage.delete([])

    # asynchronous, settings, pickles

    def test_async(self, storage: Storage) -> None:
        """The asynchronous methods work concurrently."""
        keys = [f"chunks/{number}" for number in range(20)]

        async def work() -> list[bytes]:
            await asyncio.gather(*(storage.put_async(key, key.encode()) for key in keys))
            return [bytes(data) for data in await asyncio.gather(*map(storage.get_async, keys))]

        assert asyncio.run(work()) == [key.encode() for key in keys]

    @pytest.mark.parametrize("count", [0, 1, 3, 200])
    def test_put_many(self, storage: Storage, count: int) -> None:
        """``put_many`` writes all objects."""
        storage.put("chunks/0", b"before")
        objects = {f"{'chunks' if n % 2 == 0 else f'deep/{n % 7}'}/{n}": b"%d" % n for n in range(count)}
        storage.put_many(objects.items())
        for key, data in ({"chunks/0": b"before"} | objects).items():
            assert bytes(storage.get(key)) == data
        assert {info.key for info in storage.list("")} == {"chunks/0", *objects}

    @pytest.mark.parametrize("size", [3, 12_000_000])
    def test_put_parts(self, storage: Storage, size: int) -> None:
        """``put_parts`` writes one object, with the conditions of ``put``."""
        first = bytes(range(256)) * (size // 256 + 1)
        parts: list[Buffer] = [memoryview(first)[:size], bytearray(b"between"), b"", b"the end"]
        whole = b"".join(parts)
        assert isinstance(storage.put_parts("chunks/a", parts), Stored)
        asyncio.run(storage.put_parts_async("chunks/b", parts))
        assert [bytes(storage.get(f"chunks/{name}")) for name in "ab"] == [whole] * 2
        version = _stored(storage.put_parts("repo", parts, IfAbsent()))
        assert storage.put_parts("repo", [b"other"], IfAbsent()) == Refused()
        assert bytes(storage.get("repo")) == whole
        _stored(storage.put_parts("repo", [*parts, b"er"], IfVersion(version)))
        assert storage.put_parts("repo", parts, IfVersion(version)) == Refused()
        assert bytes(storage.get("repo")) == whole + b"er"

    def test_other_instances_have_the_same_objects(self, storage: Storage) -> None:
        """A storage with other settings, and an unpickled one, have the same objects."""
        for other in (storage.with_settings(StorageSettings()), pickle.loads(pickle.dumps(storage))):
            assert isinstance(other.default_settings(), StorageSettings)
            assert repr(other) == repr(storage)
            storage.put("repo", b"1")
            assert bytes(other.get("repo")) == b"1"
            other.put("repo", b"2", ALWAYS)
            assert bytes(storage.get("repo")) == b"2"


def add_line(storage: Storage, key: str, line: str, *, is_replacement: bool = False) -> None:
    """Append ``line`` to an object with conditional updates, until the object contains it.

    Neither a refusal nor an error proves that nothing was written. Therefore the function first looks
    for the line.
    """
    while True:
        old, version = storage.get_versioned(key)
        text = bytes(old).decode()
        if line in text.split("\n"):
            return
        data, backup = f"{text}\n{line}".encode(), f"overwritten/{uuid.uuid4().hex}"
        with suppress(StorageError):
            if not is_replacement:
                outcome = storage.put(key, data, IfVersion(version))
            else:
                with storage.open_replacement(Replacement(key, data, version, old, backup)) as ready:
                    outcome = ready.finish()
            if isinstance(outcome, Stored):
                return


def _stored(outcome: Stored | Refused) -> Version:
    assert isinstance(outcome, Stored)
    return outcome.version


def _in_threads[T](count: int, work: Callable[[], T]) -> list[T]:
    """Return the results of ``count`` simultaneous calls, or raise their first exception."""
    barrier = threading.Barrier(count)

    def run() -> T:
        barrier.wait(300)
        return work()

    with thread_pool(Purpose.CATALOG_WRITES, count) as threads:
        return [call.result() for call in [threads.submit(run) for _ in range(count)]]
