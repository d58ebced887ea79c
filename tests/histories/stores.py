"""Storages for histories: local files, and object stores. A proxy makes faults before the servers."""

from __future__ import annotations

import random
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from tests.support import ceph as ceph_cluster
from tests.support import servers
from tests.support.fault_proxy import Fault, FaultProxy, Rule
from tests.support.servers import RunningServer

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
