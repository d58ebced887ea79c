"""Tasks on the threads or processes of this machine, without a JVM.

Threads are enough where the work is numpy, codecs and storage, which run without the interpreter's lock.
Processes are for the rest (HDF5 holds a lock of its own for each process), and for what may crash.

A worker process is a fresh Python that is told everything over a socket: it is not forked (obstore hangs in a
forked child), and it does not run the caller's main module again, as ``multiprocessing`` would. One thread
of the driver serves each. When a worker dies, its thread starts another one and tries its task again; when
the driver dies, the workers meet the end of the socket and go.
"""

from __future__ import annotations

import atexit
import functools
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final, Protocol

from frazil.errors import ErrorKind, InvalidInputError, TaskFailedError
from frazil.jobs.engine import ATTEMPTS, Task, begin_attempt
from frazil.jobs.pickles import dumps
from frazil.jobs.task_failures import Failure, failure_of, task_error, worker_lost
from frazil.jobs.unpicklable import sendable
from frazil.threads import Purpose, start_threads

#: Tasks that have begun or ended and not been taken, for each worker.
_AHEAD: Final = 4


@dataclass(frozen=True, slots=True)
class Local:
    """Tasks run in ``workers`` threads, or processes; each is tried ``attempts`` times.

    >>> list(Local(2).run(lambda shared, task: shared + task, [b"1", b"2"], b"no. "))
    [b'no. 1', b'no. 2']
    """

    workers: int | None = None
    processes: bool = False
    attempts: int = ATTEMPTS
    resumable: bool = True

    def __post_init__(self) -> None:
        for name in ("workers", "attempts"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidInputError(f"{name}: expected at least 1, found {value}", ErrorKind.NOT_ALLOWED)

    @property
    def slots(self) -> int:
        """Tasks that run at the same time."""
        return self.workers or os.cpu_count() or 1

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        if not tasks:
            return
        count = min(self.slots, len(tasks))
        said = sendable(task, (task, shared), dumps) if self.processes else b""
        workers = _Workers(lambda: _Process(said) if self.processes else _Thread(task, shared))
        pool = start_threads(Purpose.LOCAL_TASKS, count)

        def try_(number: int) -> bytes:
            for tries in range(self.attempts):
                try:
                    return workers.mine().call(tasks[number], tries)
                except _Raised as error:
                    failure, cause = error.failure, None
                except BaseException as error:  # none is the user's: those go to the main thread
                    failure, cause = failure_of(error), error
                if tries + 1 == self.attempts or workers.closed or failure.is_final:
                    break
            raise task_error(failure, number, len(tasks), tries + 1, cause)

        pending: list[Future[bytes]] = []
        try:
            for number in range(len(tasks)):
                pending.append(pool.submit(try_, number))
                if len(pending) == _AHEAD * count:
                    yield pending.pop(0).result()
            while pending:
                yield pending.pop(0).result()
        except TaskFailedError as error:
            raise error.with_traceback(None) from error.__cause__  # without the frames of the pool
        except KeyboardInterrupt:
            workers.close()
            _IDLE.end()  # the user wants his machine back
            raise
        finally:
            # Also when the caller stops half way: nobody wants the rest.
            pool.shutdown(wait=False, cancel_futures=True)
            workers.close()
            pool.shutdown(wait=True)


class _Worker(Protocol):
    def call(self, message: bytes, tries: int) -> bytes: ...

    def close(self) -> None: ...


class _Workers:
    """One worker for each thread of a pool."""

    def __init__(self, make: Callable[[], _Worker]) -> None:
        self._make = make
        self._local = threading.local()
        self._lock = threading.Lock()
        self._all: list[_Worker] = []
        self.closed = False

    def mine(self) -> _Worker:
        worker: _Worker | None = getattr(self._local, "worker", None)
        if worker is None:
            worker = self._local.worker = self._make()
            with self._lock:
                self._all.append(worker)
                if self.closed:
                    worker.close()
        return worker

    def close(self) -> None:
        with self._lock:
            self.closed = True
            for worker in self._all:
                worker.close()


@dataclass(frozen=True, slots=True)
class _Thread:
    """The calling thread does it."""

    task: Task
    shared: bytes

    def call(self, message: bytes, tries: int) -> bytes:
        begin_attempt(tries)
        return self.task(self.shared, message)

    def close(self) -> None:
        pass


class _Raised(Exception):
    """A task raised in a worker process, or ended it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


@dataclass(slots=True, eq=False)
class _Child:
    """A Python of its own. ``begun`` is what it was begun with: a later run needs the same."""

    process: subprocess.Popen[bytes]
    connection: Connection
    begun: object
    idle_since: float = 0.0
    served: bool = False

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()


class _Process:
    """A process that does tasks; another one when it died. A whole one is kept for the next run."""

    def __init__(self, said: bytes) -> None:
        self._said = said
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._busy = False
        self._closed = False

    def call(self, message: bytes, tries: int) -> bytes:
        with self._lock:
            if self._closed:
                raise CancelledError
            said = None
            if self._child is None:
                self._child, said = _IDLE.take(), self._said
            child = self._child
            self._busy = True
        try:
            child.connection.send_bytes(pickle.dumps((said, message, tries)))
            if not child.served:
                child.connection.recv_bytes()  # it has started
                child.served = True
            answer: bytes | Failure = pickle.loads(child.connection.recv_bytes())
        except (EOFError, OSError):
            with self._lock:
                self._child = None
            child.connection.close()
            raise _Raised(worker_lost(_ending(child))) from None
        finally:
            with self._lock:
                self._busy = False
        if isinstance(answer, Failure):
            raise _Raised(answer)
        return answer

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._child is None:
                return
            if self._busy:
                self._child.process.kill()  # the thread that waits for it is told, and closes the socket
                self._child.process.wait()
            else:
                _IDLE.keep(self._child)
            self._child = None


class _Idle:
    """Worker processes without work. A job is several runs, and a Python with xarray takes a second to start:
    they are kept for a minute, as many as there are processors.
    """

    def __init__(self) -> None:
        self._children: list[_Child] = []
        self._lock = threading.Lock()

    def take(self) -> _Child:
        begun = _surroundings()
        with self._lock:
            for at, child in reversed(list(enumerate(self._children))):
                if child.begun == begun:
                    del self._children[at]
                    if child.process.poll() is None:
                        return child
                    child.end()
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=begun[1],
            )
        return _Child(process, Connection(ours.detach()), begun)

    def keep(self, child: _Child) -> None:
        child.idle_since = time.monotonic()
        with self._lock:
            self._children.append(child)
        self.end(older=0.0, most=os.cpu_count() or 1)
        timer = threading.Timer(_KEPT + 1, self.end, (_KEPT,))
        timer.daemon = True
        timer.start()

    def end(self, older: float = 0.0, most: int = 0) -> None:
        """End those that have been idle for longer, but not the newest ``most``."""
        now = time.monotonic()
        with self._lock:
            count = max(len(self._children) - most, 0)
            gone = [child for child in self._children[:count] if now - child.idle_since >= older]
            self._children = [child for child in self._children if child not in gone]
        for child in gone:
            child.end()


#: Seconds for which a process without work is kept.
_KEPT: Final = 60.0
_IDLE: Final = _Idle()
atexit.register(_IDLE.end)


def _surroundings() -> tuple[str, dict[str, str]]:
    """The directory and the environment of the driver, as they are now."""
    path = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return os.getcwd(), {**os.environ, "PYTHONPATH": path}


def _ending(child: _Child) -> str:
    code = child.process.wait()
    ending = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return ending if child.served else f"{ending} while it started, before the task"


# In the worker process

# An interrupt is for the driver, which ends its workers; they get it too, from the terminal.
_PROGRAM: Final = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
from frazil.jobs.local_engine import serve
serve(int(sys.argv[1]))
"""


def serve(descriptor: int) -> None:
    """What a worker process does: tasks from a socket, until that ends."""
    with Connection(descriptor) as connection:
        try:
            connection.send_bytes(b"")  # started
            said = b""
            while True:
                new, message, tries = pickle.loads(connection.recv_bytes())
                said = said if new is None else new  # the first of a run
                begin_attempt(tries)
                connection.send_bytes(pickle.dumps(_answer(said, message)))
        except (EOFError, OSError):
            return  # the driver is gone


def _answer(said: bytes, message: bytes) -> bytes | Failure:
    try:
        task, shared = _unpacked(said)
        return task(shared, message)
    except BaseException as error:  # also of sys.exit, which would end the worker
        return failure_of(error)


@functools.lru_cache(maxsize=1)
def _unpacked(said: bytes) -> tuple[Task, bytes]:
    unpacked: tuple[Task, bytes] = pickle.loads(said)
    return unpacked
