"""The objects of a simulated storage, and the storage of one client: a request is a step, and may fail."""

from __future__ import annotations

import random
from collections.abc import Buffer, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, override

from tests.simulation.scheduler import Client, Scheduler

from frazil.errors import ErrorKind, StorageError
from frazil.format.ids import REPO
from frazil.storage.base import (
    ALWAYS,
    Always,
    Condition,
    IfAbsent,
    IfVersion,
    ObjectInfo,
    Refused,
    Storage,
    Stored,
    Version,
)
from frazil.storage.checks import check_key, check_prefix, check_range, object_not_found, range_past_end
from frazil.storage.settings import StorageConcurrencySettings, StorageRetriesSettings, StorageSettings

#: Folders whose files never change.
IMMUTABLE = ("snapshots/", "manifests/", "transactions/", "chunks/")


class Violation(AssertionError):
    """A promise is broken. ``check`` names the promise."""

    def __init__(self, check: str, message: str) -> None:
        super().__init__(f"{check}: {message}")
        self.check = check


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object: its bytes, the number of its write, and its time by the clock of the storage."""

    data: bytes
    write: int
    modified_us: int

    @property
    def version(self) -> Version:
        return Version(etag=str(self.write))


@dataclass(eq=False)
class Objects:
    """All objects. ``clock`` is the clock of the storage, in microseconds.

    ``on_repo`` is called with the bytes of `repo` before and after each change.
    """

    objects: dict[str, StoredObject] = field(default_factory=dict)
    clock: Callable[[], int] = lambda: 0
    writes: int = 0
    on_repo: Callable[[bytes | None, bytes], None] | None = None
    #: The files that an accident has damaged, with the bytes that they had.
    damaged: dict[str, bytes] = field(default_factory=dict)
    undamaged_at: int = -1  #: When the last damaged file was repaired or deleted, by ``clock``.

    def put(self, key: str, data: bytes, condition: Condition) -> Stored | Refused:
        """Write an object in one step."""
        current = self.objects.get(key)
        if not _holds(condition, current):
            return Refused()
        if (
            self.damaged.get(key) != data
            and key.startswith(IMMUTABLE)
            and current is not None
            and current.data != data
        ):
            raise Violation("immutable", f"`{key}` was written again with other bytes")
        if key == REPO and isinstance(condition, Always) and current is not None:
            raise Violation("conditional", "`repo` was replaced without a condition")
        self._end_damage(key)
        self.writes += 1
        stored_object = self.objects[key] = StoredObject(data, self.writes, self.clock())
        if key == REPO and self.on_repo is not None:
            self.on_repo(None if current is None else current.data, data)
        return Stored(stored_object.version)

    def delete(self, key: str) -> None:
        """Delete an object, which may be missing."""
        if key == REPO:
            raise Violation("conditional", "`repo` was deleted")
        self.objects.pop(key, None)
        self._end_damage(key)

    def _end_damage(self, key: str) -> None:
        if self.damaged.pop(key, None) is not None:
            self.undamaged_at = self.clock()

    def harm(self, key: str, data: bytes | None) -> None:
        """Lose an immutable file, or leave other bytes of it."""
        lost = self.objects.pop(key)
        self.damaged.setdefault(key, lost.data)
        if data is not None:
            self.objects[key] = StoredObject(data, lost.write, lost.modified_us)

    def undamaged(self) -> dict[str, bytes]:
        """Return the bytes of all objects, as if no accident had happened."""
        return {key: each.data for key, each in self.objects.items()} | self.damaged

    def keys(self, prefix: str) -> list[str]:
        """Return the keys below a directory, in their order."""
        inside = f"{prefix.rstrip('/')}/" if prefix else ""
        return sorted(key for key in self.objects if key.startswith(inside))


def _holds(condition: Condition, current: StoredObject | None) -> bool:
    match condition:
        case IfAbsent():
            return current is None
        case IfVersion(version):
            return current is not None and current.version == version
    return True


class Fault(Enum):
    """What happens to one request."""

    CRASH_BEFORE = "crash-before"  #: The process stops before the request reaches the storage.
    CRASH_AFTER = "crash-after"  #: The process stops after the request took effect.
    LOST = "lost"  #: The request does not reach the storage; the client gets an error.
    ANSWER_LOST = "answer-lost"  #: The request takes effect; the client gets an error.
    LATE = "late"  #: The client gets an error, and the request takes effect later.
    #: A conditional write takes effect, the client retries, and finds its own write: it gets ``Refused``.
    MET_ITSELF = "met-itself"
    HALF = "half"  #: A part of a deletion takes effect; the client gets an error.
    THROTTLED = "throttled"  #: The storage has too many requests.
    FULL = "full"  #: The storage is full for a while: all writes fail.
    SHORT = "short"  #: A read returns fewer bytes than the object has. This breaks the contract of a storage.
    CLOCK_SET = "clock-set"  #: The clock of the client's host is set to another time.


CRASHES = frozenset({Fault.CRASH_BEFORE, Fault.CRASH_AFTER})
#: The faults of a storage that fulfils its contract.
LAWFUL = frozenset(Fault) - {Fault.SHORT}
#: Faults that let the request itself succeed.
HARMLESS = frozenset({Fault.SHORT, Fault.CLOCK_SET})
OF_READS = (Fault.CRASH_BEFORE, Fault.LOST, Fault.LOST, Fault.THROTTLED, Fault.SHORT, Fault.CLOCK_SET)
OF_WRITES = (*(fault for fault in Fault if fault is not Fault.SHORT), Fault.ANSWER_LOST, Fault.MET_ITSELF)

type Request = tuple[str, int]  # name of the client, number of its request


@dataclass(eq=False)
class Faults:
    """The faults of a run.

    With a ``rate``, each request has a fault with this probability, and the next one of the same client
    with a probability of one half: double faults. ``record`` has all faults that happened.
    """

    rate: float = 0.0
    seed: int = 0
    kinds: frozenset[Fault] = LAWFUL
    record: dict[Request, Fault] = field(default_factory=dict)
    _last: Request | None = None
    _numbers: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._numbers = random.Random(f"faults {self.seed}")

    def of(self, request: Request, *, writes: bool) -> Fault | None:
        """Return the fault of a request, or None."""
        fault = None
        if self.rate:
            follows = self._last == (request[0], request[1] - 1)
            if self._numbers.random() < (max(0.5, self.rate) if follows else self.rate):
                choices = [each for each in (OF_WRITES if writes else OF_READS) if each in self.kinds]
                fault = self._numbers.choice(choices) if choices else None
        if fault is not None:
            self.record[request] = fault
            self._last = request
        return fault


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Objects in one page of a listing. Other clients may write and delete between two pages.
_PAGE = 4
#: How far the clock of a host is set, in microseconds.
_CLOCK_STEPS_US = (-86_400_000_000, -3_600_000_000, -60_000_000, 60_000_000, 3_600_000_000, 86_400_000_000)
#: Steps for which a full storage refuses writes.
_FULL_STEPS = 30


class Crashed(BaseException):
    """The process of the client has stopped. No code of Frazil may catch it."""


@dataclass(eq=False)
class Network:
    """What all clients of a run share. ``late`` has requests that take effect later, with their steps."""

    scheduler: Scheduler
    objects: Objects
    faults: Faults = field(default_factory=Faults)
    is_local: bool = False
    full_until: int = 0
    late: list[tuple[int, Callable[[], object]]] = field(default_factory=list)
    trace: list[str] | None = None
    count: int = 0

    def note(self, client: Client, what: str) -> None:
        """Add a line to the trace that is not a request."""
        if self.trace is not None:
            self.trace.append(f"{self.scheduler.steps:6} {client.name:8} {client.requests:5} {what}")

    def execute_late(self, *, everything: bool = False) -> None:
        """Execute late requests whose step has come."""
        due = [each for each in self.late if everything or each[0] <= self.scheduler.steps]
        for each in due:
            self.late.remove(each)
            each[1]()


#: The storages of the present run. A pickle contains a number, so it has the same bytes each time.
_storages: list[SimulatedStorage] = []


def forget_storages() -> None:
    """Forget the storages of earlier runs."""
    _storages.clear()


class SimulatedStorage(Storage):
    """The storage as one client reaches it."""

    def __init__(self, network: Network, client: Client) -> None:
        self.network = network
        self.client = client
        self.is_local = network.is_local
        self.start = client.starts
        self._number = len(_storages)
        _storages.append(self)

    def __repr__(self) -> str:
        return "<frazil.Storage>\ntype: simulated\n"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_storage_of, (self._number,))

    def _request(self, what: str, key: str, *, writes: bool = False) -> Fault | None:
        network, client = self.network, self.client
        network.scheduler.step()
        if client.is_dead or client.starts != self.start:
            raise Crashed(client.name)
        network.count += 1
        client.requests += 1
        if network.late:
            network.execute_late()
        if network.scheduler.current is None:
            return None  # the judge
        fault = network.faults.of((client.name, client.requests), writes=writes)
        if network.trace is not None:
            text = f"{network.scheduler.steps:6} {client.name:8} {client.requests:5} {what} {key}"
            network.trace.append(text if fault is None else f"{text} [{fault.value}]")
        if fault is Fault.CRASH_BEFORE or (fault is Fault.CRASH_AFTER and not writes):
            self._crash()
        if fault is Fault.FULL:
            network.full_until = network.scheduler.steps + _FULL_STEPS
        if writes and network.full_until > network.scheduler.steps and what != "delete":
            raise StorageError(f"simulated: no space to {what} `{key}`", ErrorKind.STORAGE_FULL)
        if fault is Fault.THROTTLED:
            raise StorageError(f"simulated: slow down, {what} `{key}`", ErrorKind.THROTTLED)
        if fault is Fault.CLOCK_SET:
            client.ahead_us += client.numbers.choice(_CLOCK_STEPS_US)
        if fault is Fault.LOST or (fault is not None and fault not in HARMLESS and not writes):
            raise StorageError(f"simulated: {what} `{key}` was lost", ErrorKind.STORAGE_UNREACHABLE)
        return fault

    def _crash(self) -> None:
        self.client.is_dead = True
        raise Crashed(self.client.name)

    def _answer_lost(self, what: str, key: str) -> StorageError:
        return StorageError(f"simulated: the answer to {what} `{key}` was lost", ErrorKind.STORAGE_TIMEOUT)

    def _stored(self, key: str) -> Any:
        stored_object = self.network.objects.objects.get(check_key(key))
        if stored_object is None:
            raise object_not_found(key)
        return stored_object

    @override
    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        check_range(start, stop)
        fault = self._request("get", key)
        data = self._arrived(fault, self._stored(key).data)
        if start == 0 and stop is None:
            return data
        if start >= len(data):
            raise range_past_end(key, start, len(data))
        return memoryview(data)[start:stop]

    @override
    def get_versioned(self, key: str) -> tuple[Buffer, Version]:
        fault = self._request("get", key)
        stored_object = self._stored(key)
        return self._arrived(fault, stored_object.data), stored_object.version

    def _arrived(self, fault: Fault | None, data: bytes) -> bytes:
        """Return the bytes of an answer. A short answer breaks the contract of a storage."""
        if fault is not Fault.SHORT:
            return data
        self.client.short_reads += 1
        return data[: self.client.numbers.randrange(len(data))] if data else data

    @override
    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        content = bytes(data)
        fault = self._request(
            "put" if isinstance(condition, Always) else "put-if", check_key(key), writes=True
        )
        objects = self.network.objects
        if fault is Fault.LATE and not self.is_local:
            due = self.network.scheduler.steps + 1 + self.client.numbers.randrange(40)
            self.network.late.append((due, lambda: objects.put(key, content, condition)))
            raise self._answer_lost("put", key)
        answer = objects.put(key, content, condition)
        self._after(fault, "put", key)
        if fault is Fault.MET_ITSELF and not isinstance(condition, Always):
            return Refused()
        return answer

    def _after(self, fault: Fault | None, what: str, key: str) -> None:
        if fault in CRASHES:
            self._crash()
        if fault in (Fault.ANSWER_LOST, Fault.LATE, Fault.HALF):
            raise self._answer_lost(what, key)

    @override
    def backup(self, key: str, version: Version, data: Buffer, to: str) -> None:
        self.put(to, data)

    @override
    def head(self, key: str) -> ObjectInfo | None:
        self._request("head", check_key(key))
        return self._info(key)

    def _info(self, key: str) -> ObjectInfo | None:
        stored_object = self.network.objects.objects.get(key)
        if stored_object is None:
            return None
        modified = _EPOCH + timedelta(microseconds=stored_object.modified_us)
        return ObjectInfo(key, len(stored_object.data), modified)

    @override
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        path = check_prefix(prefix)
        self._request("list", path)
        return self._pages(path)

    def _pages(self, path: str) -> Iterator[ObjectInfo]:
        """Yield a listing by pages. An object that is written or deleted meanwhile may be in it or not."""
        objects = self.network.objects
        begin = [self._info(key) for key in objects.keys(path)]
        is_old = self.network.faults.rate > 0 and self.client.numbers.random() < 0.5
        last = ""
        while True:
            infos = begin if is_old else [self._info(key) for key in objects.keys(path)]
            page = [info for info in infos if info is not None and info.key > last][:_PAGE]
            yield from page
            if len(page) < _PAGE:
                return
            last = page[-1].key
            self._request("list", f"{path} after {last}")

    @override
    def delete(self, keys: Iterable[str]) -> None:
        names = [check_key(key) for key in keys]
        if not names:
            return
        fault = self._request("delete", " ".join(names), writes=True)
        for name in names[: len(names) // 2] if fault is Fault.HALF else names:
            self.network.objects.delete(name)
        self._after(fault, "delete", names[0])

    @override
    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        return self.get(key, start, stop)

    @override
    async def put_async(self, key: str, data: Buffer) -> Stored:
        answer = self.put(key, data)
        assert isinstance(answer, Stored)
        return answer

    @override
    def default_settings(self) -> StorageSettings:
        return StorageSettings(
            concurrency=StorageConcurrencySettings(
                max_concurrent_requests_for_object=5, ideal_concurrent_request_size=1
            ),
            retries=StorageRetriesSettings(max_tries=1, initial_backoff_ms=0, max_backoff_ms=0),
        )

    @override
    def with_settings(self, settings: StorageSettings) -> Storage:
        return self


def _storage_of(number: int) -> SimulatedStorage:
    return _storages[number]
