"""Two actors on one storage, whose requests are let through one at a time, in an order that tests choose."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Buffer, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.patience import patience

from frazil.host import Host
from frazil.storage.base import ALWAYS, Condition, ObjectInfo, Refused, Storage, Stored, Version
from frazil.storage.memory import MemoryStorage
from frazil.storage.settings import StorageSettings


class Schedule:
    """Whose turn it is: ``order`` names an actor for each request; after its end everybody may go on.

    ``made`` is the order in which requests were made in the end.
    """

    def __init__(self, order: Sequence[int]) -> None:
        self._order = list(order)
        self._at = 0
        self._ended: set[int] = set()
        self._turn = threading.Condition()
        self.requests: list[tuple[int, str]] = []

    @contextmanager
    def request(self, actor: int, what: str) -> Iterator[None]:
        with self._turn:
            assert self._turn.wait_for(lambda: self._next() in (None, actor), timeout=patience(30))
            self.requests.append((actor, what))
            self._at += 1
            try:
                yield
            finally:
                self._turn.notify_all()

    def _next(self) -> int | None:
        while self._at < len(self._order) and self._order[self._at] in self._ended:
            self._at += 1
        return self._order[self._at] if self._at < len(self._order) else None

    def run(self, *acts: Callable[[], Any]) -> list[Any]:
        """What each actor returns, or the error that it raises."""

        def act(actor: int) -> Any:
            try:
                return acts[actor]()
            except Exception as error:  # the test looks at it
                return error
            finally:
                with self._turn:
                    self._ended.add(actor)
                    self._turn.notify_all()

        with ThreadPoolExecutor(len(acts)) as pool:
            return list(pool.map(act, range(len(acts))))


class Seen(Storage):
    """``inner`` for one actor. ``meet(what)`` is called before each request, or returns what is around it."""

    def __init__(self, inner: Storage, meet: Callable[[str], Any]) -> None:
        self.inner = inner
        self.meet = meet
        self.is_local = inner.is_local

    def _around(self, what: str) -> Any:
        return self.meet(what) or nullcontext()

    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        with self._around(f"get {key}"):
            return self.inner.get(key, start, stop)

    def get_versioned(self, key: str) -> tuple[Buffer, Version]:
        with self._around(f"get {key}"):
            return self.inner.get_versioned(key)

    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        with self._around(f"put {key}"):
            return self.inner.put(key, data, condition)

    def backup(self, key: str, version: Version, data: Buffer, to: str) -> None:
        with self._around(f"put {to}"):
            self.inner.backup(key, version, data, to)

    def head(self, key: str) -> ObjectInfo | None:
        with self._around(f"head {key}"):
            return self.inner.head(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        with self._around(f"list {prefix}"):
            return iter([*self.inner.list(prefix)])

    def delete(self, keys: Iterable[str]) -> None:
        keys = [*keys]
        if keys:
            with self._around(f"delete {keys[0].partition('/')[0]}"):
                self.inner.delete(keys)

    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        return self.get(key, start, stop)

    async def put_async(self, key: str, data: Buffer) -> Stored:
        answer = self.put(key, data)
        assert isinstance(answer, Stored)
        return answer

    def default_settings(self) -> StorageSettings:
        return self.inner.default_settings()

    def with_settings(self, settings: StorageSettings) -> Storage:
        return self


class Killed(BaseException):
    """The process ends here: nothing catches it, and no request comes after it."""


def killing(
    storage: Storage,
    deadly: int,
    error: Any = Killed,
    *,
    after: bool = False,
    prefix: str | tuple[str, ...] = "",
) -> Seen:
    """The request with this number, of those with the prefix, is the last one of all, and is made or not."""
    count = 0

    @contextmanager
    def meet(what: str) -> Iterator[None]:
        nonlocal count
        count += count > deadly or what.startswith(prefix)
        if count > deadly + after:
            raise error
        yield
        if count > deadly:
            raise error

    return Seen(storage, meet)


class Interrupted(Seen):
    """A storage that counts requests, and where others ``act`` right before the request ``step``."""

    def __init__(self, inner: Storage, step: int, act: Callable[[], object]) -> None:
        super().__init__(inner, self._count_request)
        self.step, self.act, self.count = step, act, 0

    def _count_request(self, what: str) -> None:
        self.count += 1
        if self.count == self.step:
            self.act()


def make_old(storage: Storage, folder: str = "", **age: float) -> None:
    """Let every file of a folder have this age."""
    assert isinstance(storage, MemoryStorage)
    objects = storage._contents.objects
    for key in [info.key for info in storage.list(folder)]:
        objects[key] = replace(objects[key], modified=datetime.now(UTC) - timedelta(**age))


_clocked: weakref.WeakValueDictionary[str, Clocked] = weakref.WeakValueDictionary()


class Clocked(MemoryStorage):
    """A storage whose clock is ``ahead`` of this host's by so many seconds when something is stored."""

    ahead: float = 0

    def __init__(self) -> None:
        super().__init__()
        _clocked[self._contents.name] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return (_clocked_of, (self._contents.name,))

    def with_settings(self, settings: StorageSettings) -> Clocked:
        return self

    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        answer = super().put(key, data, condition)
        if isinstance(answer, Stored):
            self._store_time(key)
        return answer

    def backup(self, key: str, version: Version, data: Buffer, to: str) -> None:
        super().backup(key, version, data, to)
        self._store_time(to)

    def _store_time(self, key: str) -> None:
        stored = self._contents.objects[key]
        modified = stored.modified + timedelta(seconds=self.ahead)
        self._contents.objects[key] = replace(stored, modified=modified)


def _clocked_of(name: str) -> Clocked:
    return _clocked[name]


class HostTime(Host):
    """A host whose clock is set ``ahead`` seconds."""

    def __init__(self) -> None:
        self.ahead: float = 0

    def time_us(self) -> int:
        return super().time_us() + int(self.ahead * 1e6)
