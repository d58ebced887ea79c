"""Storages for histories, and workers on them that are killed with SIGKILL at random moments."""

from __future__ import annotations

import pickle
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from tests.histories import layout
from tests.histories.launcher import Launcher, Plan, WorkerProcess
from tests.histories.operations import operations
from tests.support import ceph as ceph_cluster
from tests.support import servers
from tests.support.fault_proxy import Fault, FaultProxy, Rule
from tests.support.servers import RunningServer

import frazil
from frazil.errors import ServerFailedError
from frazil.storage import local_filesystem_storage
from frazil.storage.base import Storage
from frazil.storage.object_store import ObjectStorage

_PREFIX: Final = "repository"
_FAULTS: Final = (
    *(Fault.LOSE_ANSWER, Fault.ERROR_AFTER, Fault.RESET, Fault.ERROR, Fault.TRUNCATE, Fault.DELAY),
)
#: The largest number of faults that wait for a request. More of them would meet one request again and again,
#: and its pauses between tries double each time.
_WAITING: Final = 2
_PATTERNS: Final = ("", "^PUT ", "^GET ", r"^PUT [^?]*(/|%2F)repo(\?|$)")


@dataclass
class Store:
    """A storage for a history."""

    name: str  #: Its name.
    storage: Storage  #: The storage, with faults if it is a server.
    direct: Storage  #: The same storage without faults.
    make_fault: Callable[[], None] = lambda: None  #: Makes the next fault, or does nothing.
    #: How many requests each fault hits. Complete when the store is closed.
    faults: Counter[str] = field(default_factory=Counter)


@contextmanager
def local(folder: Path, _seed: int) -> Iterator[Store]:
    """Local files."""
    storage = local_filesystem_storage(str(folder / "repository"))
    yield Store("local", storage, storage)


class Faults:
    """The faults of a proxy, one after the other."""

    def __init__(self, proxy: FaultProxy, seed: int) -> None:
        self._proxy = proxy
        self._chance = random.Random(seed)
        self._rules: list[Rule] = []

    def make(self) -> None:
        """Make the next fault, unless enough of them wait for a request."""
        if self.waiting() < _WAITING:
            fault = self._chance.choice(_FAULTS)
            status = self._chance.choice((500, 503))
            pattern, times = self._chance.choice(_PATTERNS), self._chance.randint(1, 3)
            self._rules.append(self._proxy.add(fault, pattern, times, status=status, seconds=0.2))

    def waiting(self) -> int:
        """Return how many of the last faults wait for a request."""
        return sum(rule.times > 0 for rule in self._rules[-2 * _WAITING :])

    def hits(self) -> Counter[str]:
        """Return how many requests each fault has hit."""
        counts: Counter[str] = Counter()
        for rule in self._rules:
            counts[rule.fault.name.lower()] += rule.hits
        return counts


@contextmanager
def behind_proxy(server: RunningServer, seed: int) -> Iterator[Store]:
    """An object store behind a proxy with faults."""
    bucket = f"bucket-{secrets.token_hex(8)}"
    server.make_bucket(bucket)
    direct = server.storage(bucket, _PREFIX)
    with FaultProxy(server.port) as proxy:
        faults = Faults(proxy, seed)
        storage = ObjectStorage(server.bucket(bucket, proxy.port), _PREFIX)
        store = Store(server.name, storage, direct, faults.make)
        yield store
        proxy.clear()
        store.faults.update(faults.hits())


@contextmanager
def _served(
    start: Callable[[], AbstractContextManager[RunningServer]], _folder: Path, seed: int
) -> Iterator[Store]:
    with start() as server, behind_proxy(server, seed) as store:
        yield store


#: Name -> a context manager of a folder and a seed.
STORES: Final[dict[str, Callable[[Path, int], AbstractContextManager[Store]]]] = {
    "local": local,
    "ministack": partial(_served, servers.ministack),
    "ceph": partial(_served, servers.ceph),
    "azurite": partial(_served, servers.azurite),
}
_INSTALLED: Final[dict[str, Callable[[], bool]]] = {
    "ceph": ceph_cluster.is_installed,
    "azurite": lambda: servers.azurite_binary() is not None,
}


def is_installed(name: str) -> bool:
    """Whether the program of a store is on this machine."""
    return _INSTALLED.get(name, lambda: True)()


_NUMBERS: Final = 100_000
_TICK: Final = 0.1
#: Operations that every second worker of a slot begins before it is killed: a slow machine also gets on.
_SPARED: Final = 10


@dataclass(frozen=True, slots=True)
class Scope:
    """How much a campaign does."""

    count: int  #: How many operations all workers begin together.
    workers: int = 4  #: How many workers run at a time.
    seed: int = 1  #: The seed of the random numbers.
    kill_every: float = 10.0  #: The mean number of seconds between two kills. 0: no kills.
    fault_every: float = 0.5  #: The mean number of seconds between two faults, where the store has faults.
    limit: float = 600.0  #: After so many seconds in which no operation begins or ends, the campaign fails.
    seconds: float = 0.0  #: After so many seconds all workers are killed, and the campaign ends. 0: never.


@dataclass
class Slot:
    """A place for one worker at a time."""

    number: int
    count: int
    generation: int = 0
    plan: Plan | None = None
    process: WorkerProcess | None = None
    is_killed: bool = False
    is_done: bool = False

    def rest(self) -> int:
        """Return how many operations are left."""
        return self.count if self.plan is None else self.count - _operations_in(self.plan)


@dataclass
class Campaign:
    """The workers of one history."""

    store: Store  #: The storage.
    folder: Path  #: The folder of logs and plans.
    scope: Scope  #: How much to do.
    first: str = ""  #: The version with the arrays, before all operations.
    kills: int = 0  #: How many workers were killed.
    slots: list[Slot] = field(default_factory=list)

    def run(self) -> None:
        """Create the repository and run all workers to the end.

        Raises:
            ServerFailedError: A worker ends with an error, or no operation begins or ends within the limit.
        """
        repo = frazil.Repository.create(self.store.direct)
        self.first = layout.create(repo)
        share, more = divmod(self.scope.count, self.scope.workers)
        self.slots = [Slot(number, share + (number < more)) for number in range(self.scope.workers)]
        with Launcher() as launcher:
            for slot in self.slots:
                self._start(slot, launcher)
            self._drive(launcher)

    def logs(self) -> list[Path]:
        """Return the logs of all workers."""
        return sorted(self.folder.glob("*.jsonl"))

    def _drive(self, launcher: Launcher) -> None:
        chance = random.Random(self.scope.seed)
        start = time.monotonic()
        size, change = 0, start
        while sum(self._is_at_work(slot, launcher) for slot in self.slots):
            now, new_size = time.monotonic(), sum(path.stat().st_size for path in self.logs())
            if new_size != size:
                size, change = new_size, now
            if now - change > self.scope.limit:
                ends = "\n".join(path.read_text()[-300:] for path in self.logs())
                raise ServerFailedError(f"no operation began or ended for {now - change:.0f} s:\n{ends}")
            if 0 < self.scope.seconds < now - start:
                return  # the end of the launcher kills the workers
            time.sleep(_TICK)
            if self._is_due(chance, self.scope.kill_every):
                self._kill(chance)
            if self._is_due(chance, self.scope.fault_every):
                self.store.make_fault()

    @staticmethod
    def _is_due(chance: random.Random, every: float) -> bool:
        return bool(every) and chance.random() < _TICK / every

    def _is_at_work(self, slot: Slot, launcher: Launcher) -> bool:
        """Start a worker again that was killed. Return False when the operations of the slot are done."""
        assert slot.process is not None
        assert slot.plan is not None
        if slot.is_done or slot.process.is_alive():
            return not slot.is_done
        slot.process.close()
        slot.is_done = slot.plan.end_path().exists() or slot.rest() <= 0
        if slot.is_done:
            return False
        if not slot.is_killed:
            error = slot.plan.error_path().read_text(errors="replace")[-3000:]
            raise ServerFailedError(f"worker {slot.plan.name} failed:\n{error}")
        self._start(slot, launcher)
        return True

    def _kill(self, chance: random.Random) -> None:
        alive = [slot for slot in self.slots if slot.process is not None and slot.process.is_alive()]
        working = [
            slot
            for slot in alive
            if slot.plan is not None
            and slot.plan.log_path().exists()
            and (slot.generation % 2 or _operations_in(slot.plan) >= _SPARED)
        ]
        # The last workers are killed as often as before, not more often.
        if chance.random() * len(self.slots) < len(working):
            slot = chance.choice(working)
            assert slot.process is not None
            assert slot.plan is not None
            slot.process.kill()
            slot.is_killed = True
            self.kills += not slot.plan.end_path().exists()

    def _start(self, slot: Slot, launcher: Launcher) -> None:
        count, predecessor = slot.rest(), "" if slot.plan is None else slot.plan.name
        slot.count, slot.generation, slot.is_killed = count, slot.generation + 1, False
        name = f"w{slot.number}-{slot.generation}"
        slot.plan = Plan(
            name,
            # Every second worker meets faults. The others have no proxy before them, and get further.
            self.store.direct if slot.number % 2 else self.store.storage,
            self.folder,
            f"{self.scope.seed} {name}",
            (slot.number * 1000 + slot.generation) * _NUMBERS,
            count,
            predecessor,
            -1 if slot.process is None else slot.process.pid,
            packs=(slot.number + slot.generation) % 2 == 0,
        )
        path = self.folder / f"{name}.plan"
        path.write_bytes(pickle.dumps(slot.plan))
        slot.process = launcher.start(path)


def _operations_in(plan: Plan) -> int:
    """Return how many operations a worker has begun."""
    path = plan.log_path()
    return sum(each.kind != "prepare" for each in operations([path])) if path.exists() else 0


def counts(campaign: Campaign) -> Counter[str]:
    """Return how many operations there are of each outcome."""
    return Counter(each.outcome for each in operations(campaign.logs()) if each.kind != "prepare")
