"""Tasks on the threads or processes of this machine, without a JVM.

Threads are enough where the work is numpy, codecs and storage, which run without the interpreter's lock.
Processes are for the rest (HDF5 holds a lock of its own for each process), and for what may crash.

A worker process is a fresh Python that is told everything over a socket: it is not forked (obstore hangs in a
forked child), and it does not run the caller's main module again, as ``multiprocessing`` would. One thread
of the driver serves each. When a worker dies, its thread starts another one and tries its task again; when
the driver dies, the workers meet the end of the socket and go.
"""

from __future__ import annotations

import functools
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final, Protocol

from pyspark.cloudpickle import dumps  # plain pickle cannot send what a notebook defines

from frazil.errors import ErrorKind, InvalidInputError
from frazil.spark.engine import ATTEMPTS, Task, begin_attempt, failed, told

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

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        if not tasks:
            return
        count = min(self.workers or os.cpu_count() or 1, len(tasks))
        said = dumps((task, shared)) if self.processes else b""  # type: ignore[no-untyped-call]
        workers = _Workers(lambda: _Process(said) if self.processes else _Thread(task, shared))
        pool = ThreadPoolExecutor(count, "frazil-local")

        def try_(number: int) -> bytes:
            for tries in range(self.attempts):
                try:
                    return workers.mine().call(tasks[number], tries)
                except (Exception, SystemExit) as error:
                    if tries + 1 == self.attempts or workers.closed:
                        raise failed(number, len(tasks), *_told(error)) from error
            raise AssertionError("no try")

        pending: list[Future[bytes]] = []
        try:
            for number in range(len(tasks)):
                pending.append(pool.submit(try_, number))
                if len(pending) == _AHEAD * count:
                    yield pending.pop(0).result()
            while pending:
                yield pending.pop(0).result()
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
    """A task raised in a worker process."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name, text)


class _Process:
    """A Python of its own, started when it is needed and again when it died."""

    def __init__(self, said: bytes) -> None:
        self._said = said
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._closed = False

    def call(self, message: bytes, tries: int) -> bytes:
        with self._lock:
            if self._closed:
                raise CancelledError
            if self._child is None:
                self._start()
            child, connection = self._child, self._connection
        try:
            connection.send_bytes(pickle.dumps((message, tries)))
            outcome, *values = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError) as error:
            with self._lock:
                self._child = None
            connection.close()
            assert child is not None
            raise ChildProcessError(f"its process ended with {_ending(child)}") from error
        if outcome == "raised":
            raise _Raised(*values)
        result: bytes = values[0]
        return result

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._child = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            )
        self._connection = Connection(ours.detach())
        self._connection.send_bytes(self._said)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.kill()
                self._child.wait()


def _ending(child: subprocess.Popen[bytes]) -> str:
    code = child.wait()
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _told(error: BaseException) -> tuple[str, str]:
    if isinstance(error, _Raised):
        name, text = error.args
        return name, text
    return told(error)


# In the worker process

_PROGRAM: Final = "import sys; from frazil.spark.local import serve; serve(int(sys.argv[1]))"


def serve(descriptor: int) -> None:
    """What a worker process does: tasks from a socket, until that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the driver, which ends its workers
    with Connection(descriptor) as connection:
        try:
            said = connection.recv_bytes()
            while True:
                message, tries = pickle.loads(connection.recv_bytes())
                begin_attempt(tries)
                connection.send_bytes(pickle.dumps(_answer(said, message)))
        except (EOFError, OSError):
            return  # the driver is gone


def _answer(said: bytes, message: bytes) -> tuple[Any, ...]:
    try:
        task, shared = _unpacked(said)
        return ("done", task(shared, message))
    except Exception as error:
        return ("raised", *told(error))


@functools.lru_cache(maxsize=1)
def _unpacked(said: bytes) -> tuple[Task, bytes]:
    unpacked: tuple[Task, bytes] = pickle.loads(said)
    return unpacked
