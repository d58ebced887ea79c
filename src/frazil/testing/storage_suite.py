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
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

import pytest

from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.storage.base import ALWAYS, IfAbsent, IfVersion, Refused, Storage, Stored, Version
from frazil.storage.local_commit import Replacement, local_queue, open_replacement, put_many
from frazil.storage.settings import StorageSettings

if TYPE_CHECKING:
    from collections.abc import Buffer, Callable

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
        """A read returns the bytes of the last write."""
        assert isinstance(storage.put("repo", b"one"), Stored)
        assert bytes(storage.get("repo")) == b"one"
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

    @pytest.mark.parametrize(("start", "stop"), [(10, 12), (10, None), (11, None), (500, 600)])
    def test_a_range_that_starts_at_the_end_is_an_error(
        self, storage: Storage, start: int, stop: int | None
    ) -> None:
        """A range that starts at the end or after it raises ``StorageError``."""
        storage.put("chunks/a", b"0123456789")
        with pytest.raises(StorageError):
            storage.get("chunks/a", start, stop)
        with pytest.raises(StorageError):
            asyncio.run(storage.get_async("chunks/a", start, stop))

    @pytest.mark.parametrize(("start", "stop"), [(-1, None), (-2, 3), (3, 3), (4, 2)])
    def test_what_is_no_range_is_refused(self, storage: Storage, start: int, stop: int | None) -> None:
        """An invalid range raises ``InvalidInputError``."""
        storage.put("chunks/a", b"0123456789")
        with pytest.raises(InvalidInputError) as caught:
            storage.get("chunks/a", start, stop)
        assert caught.value.kind == ErrorKind.INVALID_BYTE_RANGE

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

    def test_stored_bytes_do_not_change_with_the_writers_buffer(self, storage: Storage) -> None:
        """A change of the buffer after a write has no effect on the object."""
        buffer = bytearray(b"before")
        storage.put("chunks/a", buffer)
        buffer[:] = b"after!"
        assert bytes(storage.get("chunks/a")) == b"before"

    # versions and conditions

    def test_versions(self, storage: Storage) -> None:
        """Versions are equal for the same write, different for others, and can be pickled."""
        stored = storage.put("repo", b"one", IfAbsent())
        assert isinstance(stored, Stored)
        data, version = storage.get_versioned("repo")
        assert bytes(data) == b"one"
        assert version == stored.version
        assert pickle.loads(pickle.dumps(version)) == version
        assert version != Version()
        storage.put("repo", b"two")
        assert storage.get_versioned("repo")[1] != version

    def test_create(self, storage: Storage) -> None:
        """A create is refused while the object exists."""
        assert isinstance(storage.put("repo", b"one", IfAbsent()), Stored)
        assert storage.put("repo", b"two", IfAbsent()) == Refused()
        assert bytes(storage.get("repo")) == b"one"
        storage.delete(["repo"])
        assert isinstance(storage.put("repo", b"three", IfAbsent()), Stored)

    def test_update(self, storage: Storage) -> None:
        """An update is refused if the version is not the current one, and for a deleted object."""
        first = _stored(storage.put("repo", b"1", IfAbsent()))
        second = _stored(storage.put("repo", b"22", IfVersion(first)))
        assert storage.put("repo", b"stale", IfVersion(first)) == Refused()
        assert bytes(storage.get("repo")) == b"22"
        read = storage.get_versioned("repo")[1]
        assert read == second
        third = _stored(storage.put("repo", b"333", IfVersion(read)))
        assert bytes(storage.get("repo")) == b"333"
        storage.put("repo", b"unconditional")
        assert storage.put("repo", b"stale", IfVersion(third)) == Refused()
        last = storage.get_versioned("repo")[1]
        storage.delete(["repo"])
        assert storage.put("repo", b"stale", IfVersion(last)) == Refused()
        assert storage.head("repo") is None

    def test_large_conditional_writes(self, storage: Storage) -> None:
        """Conditions also hold for objects that are larger than one part of an upload."""
        large = bytes(6 << 20)
        version = _stored(storage.put("repo", large, IfAbsent()))
        assert storage.put("repo", large, IfAbsent()) == Refused()
        version = _stored(storage.put("repo", large + b"1", IfVersion(version)))
        assert len(bytes(storage.get("repo"))) == len(large) + 1

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

    def test_no_update_is_lost(self, storage: Storage) -> None:
        """Concurrent updates in a loop lose no change."""
        storage.put("repo", b"begin", IfAbsent())

        def work() -> None:
            for _ in range(self.rounds):
                add_line(storage, "repo", uuid.uuid4().hex)

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
        with open_replacement(storage, replacement, [("snapshots/a", b"new"), ("snapshots/b", b"")]):
            pass  # without `finish`
        assert bytes(storage.get("repo")) == b"first"
        assert [bytes(storage.get(f"snapshots/{name}")) for name in "ab"] == [b"new", b""]
        with open_replacement(storage, replacement) as early, open_replacement(storage, replacement) as late:
            assert bytes(storage.get("repo")) == b"first"
            _stored(late.finish())
            assert isinstance(early.finish(), Refused)
        assert bytes(storage.get("repo")) == b"second"
        assert bytes(storage.get("overwritten/repo.1")) == b"first"
        keys = {info.key for info in storage.list("")}
        assert keys == {"repo", "overwritten/repo.1", "snapshots/a", "snapshots/b"}

    def test_no_replacement_is_lost(self, storage: Storage) -> None:
        """Concurrent replacements in a loop lose no change, with turns and without."""
        storage.put("repo", b"begin", IfAbsent())

        def work() -> None:
            for number in range(self.rounds):
                with local_queue(storage, "repo") if number % 2 else nullcontext():
                    add_line(storage, "repo", uuid.uuid4().hex, _replace)

        _in_threads(self.threads, work)
        lines = bytes(storage.get("repo")).decode().split("\n")
        assert len(lines) == len(set(lines)) == 1 + self.threads * self.rounds

    # head, list and delete

    def test_head(self, storage: Storage) -> None:
        """``head`` returns key, size and time."""
        storage.put("chunks/a", b"12345")
        info = storage.head("chunks/a")
        assert info is not None
        assert (info.key, info.size) == ("chunks/a", 5)
        assert info.modified.tzinfo is not None
        assert abs(info.modified - datetime.now(UTC)) < timedelta(minutes=1)

    def test_list(self, storage: Storage) -> None:
        """A listing is recursive and matches whole segments of its prefix."""
        objects = {"repo": b"1", "chunks/a": b"22", "chunks/b/c": b"333", "chunks2/a": b"4444"}
        for key, data in objects.items():
            storage.put(key, data)
        infos = {info.key: info for info in storage.list("")}
        assert {key: info.size for key, info in infos.items()} == {k: len(d) for k, d in objects.items()}
        for info in infos.values():
            assert abs(info.modified - datetime.now(UTC)) < timedelta(minutes=1)
        for prefix in ("chunks", "chunks/"):
            assert {info.key for info in storage.list(prefix)} == {"chunks/a", "chunks/b/c"}
        assert [info.key for info in storage.list("chunks/b")] == ["chunks/b/c"]
        assert [*storage.list("nothing")] == []
        assert [*storage.list("chun")] == []

    def test_list_does_not_show_the_marks_of_conditional_writes(self, storage: Storage) -> None:
        """A listing shows no lock files or other helper objects."""
        first = _stored(storage.put("repo", b"1", IfAbsent()))
        _stored(storage.put("repo", b"2", IfVersion(first)))
        assert [info.key for info in storage.list("")] == ["repo"]

    def test_long_lists(self, storage: Storage) -> None:
        """A listing of many pages is complete, and ``delete`` accepts an iterator."""
        keys = {f"chunks/{number:05}" for number in range(self.many)}
        todo = [*keys]

        def work() -> None:
            while todo:
                try:
                    key = todo.pop()
                except IndexError:
                    return
                storage.put(key, b"x")

        _in_threads(self.threads, work)
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
        put_many(storage, objects.items())
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
        _stored(storage.put_parts("repo", [b"new", b"est"], IfVersion(version)))
        assert storage.put_parts("repo", parts, IfVersion(version)) == Refused()
        assert bytes(storage.get("repo")) == b"newest"

    def test_with_settings_is_the_same_storage(self, storage: Storage) -> None:
        """A storage with other settings has the same objects."""
        assert isinstance(storage.default_settings(), StorageSettings)
        storage.put("repo", b"1")
        other = storage.with_settings(StorageSettings())
        assert bytes(other.get("repo")) == b"1"
        other.put("repo", b"2")
        assert bytes(storage.get("repo")) == b"2"

    def test_pickle(self, storage: Storage) -> None:
        """An unpickled storage has the same objects."""
        storage.put("repo", b"1")
        other = pickle.loads(pickle.dumps(storage))
        assert bytes(other.get("repo")) == b"1"
        other.put("repo", b"2", ALWAYS)
        assert bytes(storage.get("repo")) == b"2"
        assert repr(other) == repr(storage)


def add_line(
    storage: Storage,
    key: str,
    line: str,
    write: Callable[[Storage, str, Buffer, Version, bytes], Stored | Refused] | None = None,
) -> None:
    """Append ``line`` to an object with conditional updates, until the object contains it.

    Neither a refusal nor an error proves that nothing was written. Therefore the function first looks
    for the line.
    """
    while True:
        old, version = storage.get_versioned(key)
        text = bytes(old).decode()
        if line in text.split("\n"):
            return
        data = f"{text}\n{line}".encode()
        with suppress(StorageError):
            if write is None:
                outcome = storage.put(key, data, IfVersion(version))
            else:
                outcome = write(storage, key, old, version, data)
            if isinstance(outcome, Stored):
                return


def _replace(storage: Storage, key: str, old: Buffer, version: Version, data: bytes) -> Stored | Refused:
    backup = f"overwritten/{uuid.uuid4().hex}"
    with open_replacement(storage, Replacement(key, data, version, old, backup)) as ready:
        return ready.finish()


def _stored(outcome: Stored | Refused) -> Version:
    assert isinstance(outcome, Stored)
    return outcome.version


def _in_threads[T](count: int, work: Callable[[], T]) -> list[T]:
    """Return the results of ``count`` simultaneous calls, or raise their first exception."""
    results: list[T] = []
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)

    def run() -> None:
        try:
            barrier.wait(30)
            results.append(work())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
