"""Worker processes of this machine.

A worker process is a new Python process that gets its work over a socket. It is not forked, because obstore
hangs in a forked child. It does not run the main module of the caller again, as ``multiprocessing`` would.
Each worker has one thread of the driver. When a worker dies, its thread starts another worker for the next
attempt of the task. When the driver dies, the workers read the end of the socket and exit.
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
from concurrent.futures import CancelledError
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final

from frazil.jobs.engine import Task, begin_attempt
from frazil.jobs.task_failures import Failure, failure_of, worker_lost

#: The time after which an idle process ends, in seconds.
_IDLE_SECONDS: Final = 60.0


@dataclass(slots=True, eq=False)
class _Child:
    """A Python process. ``environment`` is the environment of its start, which a later run must share."""

    process: subprocess.Popen[bytes]
    connection: Connection
    environment: object
    idle_since: float = 0.0
    has_started: bool = False

    def end(self) -> None:
        """Kill the process."""
        self.connection.close()
        self.process.kill()
        self.process.wait()

    def ending(self) -> str:
        """Wait for the end of the process, and return the signal or exit code as text."""
        code = self.process.wait()
        ending = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return ending if self.has_started else f"{ending} while it started, before the task"


class ProcessWorker:
    """A process that runs the tasks of one thread. If it dies, another process replaces it.

    An idle process stays for the next run. ``function`` is the pickled function of the tasks, with their
    shared value.
    """

    def __init__(self, function: bytes) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._busy = False
        self._closed = False

    def call(self, message: bytes, tries: int) -> bytes | Failure:
        """Run one task in the process. Returns its result or its failure."""
        with self._lock:
            if self._closed:
                raise CancelledError
            function = None
            if self._child is None:
                self._child, function = IDLE_PROCESSES.take_process(), self._function
            child = self._child
            self._busy = True
        try:
            child.connection.send_bytes(pickle.dumps((function, message, tries)))
            if not child.has_started:
                child.connection.recv_bytes()
                child.has_started = True
            result: bytes | Failure = pickle.loads(child.connection.recv_bytes())
        except (EOFError, OSError):
            with self._lock:
                self._child = None
            child.connection.close()
            return worker_lost(child.ending())
        finally:
            with self._lock:
                self._busy = False
        return result

    def close(self) -> None:
        """Kill the process if it runs a task, or else make it idle."""
        with self._lock:
            self._closed = True
            if self._child is None:
                return
            if self._busy:
                # The thread that waits for the result reads the end of the socket, and closes the socket.
                self._child.process.kill()
                self._child.process.wait()
            else:
                IDLE_PROCESSES.return_process(self._child)
            self._child = None


class _IdleProcesses:
    """The idle processes: at most as many as CPUs, each for at most a minute.

    They save time because a job has several runs, and a Python process with xarray takes a second to start.
    """

    def __init__(self) -> None:
        self._children: list[_Child] = []
        self._lock = threading.Lock()

    def take_process(self) -> _Child:
        """Return an idle process that was started in the same environment, or else a new process."""
        environment = _environment()
        with self._lock:
            for position, child in reversed(list(enumerate(self._children))):
                if child.environment == environment:
                    del self._children[position]
                    if child.process.poll() is None:
                        return child
                    child.end()
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environment[1],
            )
        return _Child(process, Connection(ours.detach()), environment)

    def return_process(self, child: _Child) -> None:
        """Add a process without work."""
        child.idle_since = time.monotonic()
        with self._lock:
            self._children.append(child)
        self.end_processes(min_seconds=0.0, spare=os.cpu_count() or 1)
        timer = threading.Timer(_IDLE_SECONDS + 1, self.end_processes, (_IDLE_SECONDS,))
        timer.daemon = True
        timer.start()

    def end_processes(self, min_seconds: float = 0.0, spare: int = 0) -> None:
        """Kill the processes that have been idle for ``min_seconds``, except the newest ``spare``."""
        now = time.monotonic()
        with self._lock:
            count = max(len(self._children) - spare, 0)
            old = [child for child in self._children[:count] if now - child.idle_since >= min_seconds]
            self._children = [child for child in self._children if child not in old]
        for child in old:
            child.end()


IDLE_PROCESSES: Final = _IdleProcesses()
atexit.register(IDLE_PROCESSES.end_processes)


def _environment() -> tuple[str, dict[str, str]]:
    """Return the present directory and environment variables of the driver."""
    path = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return os.getcwd(), {**os.environ, "PYTHONPATH": path}


# In the worker process

# Workers ignore interrupts, which the terminal also sends to them: the driver ends its workers.
_PROGRAM: Final = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
from frazil.jobs.worker_process import serve_tasks
serve_tasks(int(sys.argv[1]))
"""


def serve_tasks(descriptor: int) -> None:
    """Run tasks from a socket until it ends: the main function of a worker process."""
    with Connection(descriptor) as connection:
        try:
            connection.send_bytes(b"")  # the process has started
            function = b""
            while True:
                new_function, message, tries = pickle.loads(connection.recv_bytes())
                function = function if new_function is None else new_function  # with the first task of a run
                begin_attempt(tries)
                connection.send_bytes(pickle.dumps(_run_task(function, message)))
        except (EOFError, OSError):
            return  # the driver has ended


def _run_task(function: bytes, message: bytes) -> bytes | Failure:
    try:
        task, shared = _unpickled(function)
        return task(shared, message)
    except BaseException as error:  # includes sys.exit, which would end the worker
        return failure_of(error)


@functools.lru_cache(maxsize=1)
def _unpickled(function: bytes) -> tuple[Task, bytes]:
    task: tuple[Task, bytes] = pickle.loads(function)
    return task
