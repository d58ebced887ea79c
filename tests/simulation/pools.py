"""The threads of Frazil as tasks of the scheduler: pools, futures and locks that never block the process.

`installed` replaces the names from `threading` and `concurrent.futures` in all modules of Frazil. Each call
in a pool becomes a task of the same client, so that the calls of one client also change places at each
request.
"""

from __future__ import annotations

import concurrent.futures
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import frazil
import frazil.pipeline.replication
import frazil.threads
from frazil.lazy_names import ModuleOnDemand
from frazil.repository.catalog import collection_guard as leases

if TYPE_CHECKING:
    from tests.simulation.scheduler import Scheduler, Task

# Modules are imported on demand. A module that a run imports would have real threads.
for _room in ("format", "storage", "changes", "chunks", "repository", "zarr_store", "maintenance", "jobs"):
    for _module in walk_packages([f"{frazil.__path__[0]}/{_room}"], f"frazil.{_room}."):
        import_module(_module.name)
for _name in frazil.__all__:
    getattr(frazil, _name)

_present: list[Scheduler] = []


def _wait_until(is_ready: Callable[[], bool]) -> None:
    if not is_ready():
        _present[-1].wait_until(is_ready)


class TaskFuture[R](Future[R]):
    """A future whose ``result`` lets other tasks run."""

    def result(self, timeout: float | None = None) -> R:
        _wait_until(self.done)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        _wait_until(self.done)
        return super().exception(0)


class TaskPool(concurrent.futures.ThreadPoolExecutor):
    """A pool whose calls are tasks, at most ``max_workers`` of them at a time."""

    def __init__(self, max_workers: int | None = None, thread_name_prefix: str = "") -> None:
        self._size = max_workers or 1
        self._futures: list[TaskFuture[Any]] = []
        self._running = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: TaskFuture[Any] = TaskFuture()
        task = _present[-1].current
        if task is None:
            self._call(future, lambda: fn(*args, **kwargs))
            return future
        self._futures = [each for each in self._futures if not each.done()]
        self._futures.append(future)
        _start(
            task, lambda: self._call(future, lambda: fn(*args, **kwargs)), lambda: self._running < self._size
        )
        return future

    def _call(self, future: TaskFuture[Any], function: Callable[[], Any]) -> None:
        if (task := _present[-1].current) is not None:
            task.is_ready = None  # it has begun
        if not future.set_running_or_notify_cancel():
            return
        self._running += 1
        try:
            value = function()
        except BaseException as error:
            self._running -= 1
            future.set_exception(error)
        else:
            self._running -= 1
            future.set_result(value)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        pending, self._futures = self._futures, []
        for future in pending:
            if cancel_futures:
                future.cancel()
        if wait and pending:
            _wait_until(lambda: all(future.done() for future in pending))


def _start(task: Task, function: Callable[[], None], is_free: Callable[[], bool]) -> None:
    scheduler = _present[-1]
    started = scheduler.start(task.owner, function)
    started.is_ready = is_free


def wait(futures: Iterable[Future[Any]], timeout: float | None = None, return_when: str = "") -> Any:
    """Stand for ``concurrent.futures.wait``."""
    pending = list(futures)
    _wait_until(lambda: all(future.done() for future in pending))
    return SimpleNamespace(done=set(pending), not_done=set())


class TaskLock:
    """A lock between tasks. With ``is_reentrant``, its task may take it several times."""

    is_reentrant = False

    def __init__(self) -> None:
        self._owner: object = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = _me()
        if self._owner is me and self.is_reentrant:
            self._depth += 1
            return True
        if self._depth and not blocking:
            return False
        _wait_until(lambda: not self._depth)
        self._owner, self._depth = me, 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class TaskRLock(TaskLock):
    """A lock that its task may take several times."""

    is_reentrant = True


class TaskEvent:
    """An event between tasks."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        _wait_until(self.is_set)
        return True


def _me() -> object:
    task = _present[-1].current if _present else None
    return task if task is not None else "outside"


_REPLACED: dict[int, Any] = {
    id(threading.Lock): TaskLock,
    id(threading.RLock): TaskRLock,
    id(threading.Event): TaskEvent,
    id(concurrent.futures.Future): TaskFuture,
    id(concurrent.futures.wait): wait,
    id(concurrent.futures.ThreadPoolExecutor): TaskPool,
    id(frazil.threads.PlainThreadPool): TaskPool,
}


class _Threading:
    """The module `threading` with the locks of this module."""

    Lock = TaskLock
    RLock = TaskRLock
    Event = TaskEvent
    local = threading.local
    Thread = threading.Thread
    get_ident = staticmethod(threading.get_ident)


@cache
def _replacements(count: int) -> list[tuple[Any, str, Any, Any]]:
    """Return module, name, value and replacement, for ``count`` loaded modules."""
    return [
        (module, name, value, _Threading if value is threading else _REPLACED[id(value)])
        for key, module in list(sys.modules.items())
        if key.startswith("frazil.") and not key.startswith(("frazil.spark", "frazil.testing"))
        for name, value in list(vars(module).items())
        if value is threading or id(value) in _REPLACED
    ]


@cache
def _caches(count: int) -> list[Any]:
    """Return the caches of functions that unpickle values of jobs, for ``count`` loaded modules.

    The values contain storages of the run that pickled them.
    """
    return [
        value
        for key, module in list(sys.modules.items())
        if key.startswith(("frazil.jobs.", "frazil.pipeline.", "frazil.survey."))
        for value in list(vars(module).values())
        if not isinstance(value, ModuleOnDemand) and hasattr(value, "cache_clear")
    ]


#: What a lease has about its process. The length of these texts differs from host to host.
_PROCESS: dict[str, Any] = {
    "os": SimpleNamespace(getpid=lambda: 1),
    "socket": SimpleNamespace(gethostname=lambda: "host"),
    "current_user": lambda: "user",
    "_machine": lambda: "",  # nobody knows whether the process runs
}


def _modules() -> set[str]:
    return {name for name in list(sys.modules) if name.startswith("frazil.")}


@contextmanager
def installed(scheduler: Scheduler) -> Iterator[None]:
    """Let Frazil use tasks of a scheduler instead of threads."""
    modules = _modules()
    replacements = [*_replacements(len(sys.modules))]
    replacements += [(leases, name, vars(leases)[name], value) for name, value in _PROCESS.items()]
    shared_pools = frazil.threads.shared_pool
    _present.append(scheduler)
    for each in (shared_pools, *_caches(len(sys.modules))):
        each.cache_clear()
    for module, name, _, replacement in replacements:
        setattr(module, name, replacement)
    try:
        yield
    finally:
        for module, name, value, _ in replacements:
            setattr(module, name, value)
        shared_pools.cache_clear()
        _present.pop()
        if late := _modules() - modules:
            raise ImportError(f"a run has imported {sorted(late)}. Import them in tests/simulation/pools.py")
