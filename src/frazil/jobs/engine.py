"""The engines of this machine: they run one function for many messages, in threads or worker processes.

A worker process is a new Python process that gets its work over a socket. It is not forked, because obstore
hangs in a forked child, and does not run the main module of the caller again. When the driver dies, the
workers read the end of the socket and exit.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import ClassVar, Final

from frazil.engines import Engine, EngineName, Task, described, description
from frazil.engines import engine_of as engine_of_caller
from frazil.errors import InvalidInputError, TaskFailedError
from frazil.extras import installed
from frazil.jobs.task_failures import Failure, failure_of, sendable, shared_value, task_error, worker_lost
from frazil.threads import Purpose, start_threads

#: The number of attempts of one task, including the first.
ATTEMPTS = 4

_attempt: ContextVar[int] = ContextVar("frazil_attempt", default=0)


def attempt() -> int:
    """Return the number of the current attempt of the task, from 0."""
    return _attempt.get()


def begin_attempt(number: int) -> None:
    """Set the number of the attempt. Engines call this before a task."""
    _attempt.set(number)


@dataclass(frozen=True, slots=True)
class Inline:
    """An engine that runs tasks in this thread, one after the other, when the caller asks for their results.

    Each task has one attempt.

    Args:
        resumable: Whether jobs stage the results of tasks, so that a later run can continue. Default: False.

    >>> list(Inline().run(lambda shared, task: shared + task, [b"1", b"2"], b"no. "))
    [b'no. 1', b'no. 2']
    """

    resumable: bool = False

    @property
    def slots(self) -> int:
        """The number of tasks that run at the same time."""
        return 1

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        """Run the tasks, each when the caller asks for its result: see `Engine.run`.

        Args:
            task: The function of the tasks.
            tasks: The message of each task.
            shared: A message for all tasks.

        Yields:
            The results, in the order of ``tasks``.

        Raises:
            TaskFailedError: If a task fails.
        """
        for number, message in enumerate(tasks):
            try:
                result = task(shared, message)
            except KeyboardInterrupt:
                raise  # the user stops this process, not the task
            except BaseException as error:
                raise task_error(failure_of(error), number, len(tasks), cause=error)  # noqa: B904  # it has one
            yield result


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


class _Workers:
    """The threads of a pool, or a process for each thread. If a process dies, another replaces it.

    An idle process stays for the next run. ``function`` is the pickled function of the tasks with their
    shared value; empty for threads.
    """

    def __init__(self, task: Task, shared: bytes, function: bytes) -> None:
        self._task, self._shared, self._function = task, shared, function
        self._lock = threading.Lock()
        self._idle: dict[int, _Child] = {}  # by thread
        self._busy: list[_Child] = []
        self.closed = False

    def call(self, message: bytes, tries: int) -> bytes | Failure:
        """Run one task in this thread or its process. Returns its result or its failure."""
        if not self._function:
            begin_attempt(tries)
            return self._task(self._shared, message)
        thread = threading.get_ident()
        with self._lock:
            child = self._idle.pop(thread, None)
        function = self._function if child is None else None
        child = child or IDLE_PROCESSES.take_process()
        with self._lock:
            if self.closed:
                child.end()
                raise CancelledError
            self._busy.append(child)
        try:
            child.connection.send_bytes(pickle.dumps((function, message, tries)))
            if not child.has_started:
                child.connection.recv_bytes()
                child.has_started = True
            result: bytes | Failure = pickle.loads(child.connection.recv_bytes())
        except (EOFError, OSError):
            with self._lock:
                self._busy.remove(child)
            child.connection.close()
            return worker_lost(child.ending())
        with self._lock:
            self._busy.remove(child)
            if child.process.poll() is None:
                self._idle[thread] = child
            else:
                child.end()  # `close` has killed it
        return result

    def close(self) -> None:
        """Kill the processes that run a task, and make the others idle."""
        with self._lock:
            self.closed = True
            for child in self._busy:
                # The thread that waits for the result reads the end of the socket, and closes the socket.
                child.process.kill()
                child.process.wait()
            for child in self._idle.values():
                IDLE_PROCESSES.return_process(child)
            self._idle.clear()


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
            process = _start(theirs, environment[1])
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


def _start(end: socket.socket, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a worker process that gets its work over a socket."""
    command = [sys.executable, "-c", _PROGRAM]
    if sys.platform == "win32":  # a process inherits no sockets there
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(end.share(process.pid))
    else:
        place = end.fileno()
        process = subprocess.Popen(
            [*command, str(place)], stdin=subprocess.DEVNULL, pass_fds=[place], env=environment
        )
    return process


# In the worker process

# Workers ignore interrupts, which the terminal also sends to them: the driver ends its workers.
_PROGRAM: Final = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
from frazil.jobs.engine import serve_tasks
serve_tasks(*map(int, sys.argv[1:]))
"""


def serve_tasks(descriptor: int = -1) -> None:
    """Run tasks from a socket until it ends: the main function of a worker process."""
    if sys.platform == "win32":
        descriptor = socket.fromshare(sys.stdin.buffer.read()).detach()
    with Connection(descriptor) as connection:
        try:
            connection.send_bytes(b"")  # the process has started
            function = b""
            while True:
                new_function, message, tries = pickle.loads(connection.recv_bytes())
                function = function if new_function is None else new_function  # with the first task of a run
                begin_attempt(tries)
                result: bytes | Failure
                try:
                    task, shared = shared_value(function)
                    result = task(shared, message)
                except BaseException as error:  # includes sys.exit, which would end the worker
                    result = failure_of(error)
                connection.send_bytes(pickle.dumps(result))
        except (EOFError, OSError):
            return  # the driver has ended


#: The number of tasks of each worker whose results the caller has not read yet.
_AHEAD: Final = 4


@dataclass(frozen=True, slots=True)
class _Parallel:
    """The base of the engines with several workers."""

    workers: int | None = None
    attempts: int = ATTEMPTS
    resumable: bool = True

    _has_processes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("workers", "attempts"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidInputError(f"{name} must be at least 1, got {value}")

    @property
    def slots(self) -> int:
        """The number of tasks that run at the same time."""
        return self.workers or os.cpu_count() or 1

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        """Run the tasks in parallel: see `Engine.run`.

        Args:
            task: The function of the tasks.
            tasks: The message of each task.
            shared: A message for all tasks.

        Yields:
            The results, in the order of ``tasks``.

        Raises:
            TaskFailedError: If a task fails in all its attempts.
            InvalidInputError: ``invalid-argument`` if the function or ``shared`` cannot be sent to a process.
        """
        if not tasks:
            return
        count = min(self.slots, len(tasks))
        function = sendable((task, shared), parts=task) if self._has_processes else b""
        workers = _Workers(task, shared, function)
        pool = start_threads(Purpose.LOCAL_TASKS, count)
        pending: list[Future[bytes]] = []
        try:
            for number in range(len(tasks)):
                pending.append(pool.submit(_try_task, self.attempts, workers, tasks, number))
                if len(pending) == _AHEAD * count:
                    yield pending.pop(0).result()
            while pending:
                yield pending.pop(0).result()
        except TaskFailedError as error:
            raise error.with_traceback(None) from error.__cause__  # without the frames of the pool
        except KeyboardInterrupt:
            workers.close()
            IDLE_PROCESSES.end_processes()  # the user wants to free the machine
            raise
        finally:
            # The caller may stop early, and does not read the other results then.
            pool.shutdown(wait=False, cancel_futures=True)
            workers.close()
            pool.shutdown(wait=True)


class Threads(_Parallel):
    """An engine that runs tasks in threads of this process.

    Args:
        workers: The number of threads. None: the number of CPUs.
        attempts: The number of attempts of each task. Default: 4.
        resumable: Whether jobs stage the results of tasks, so that a later run can continue. Default: True.

    Raises:
        InvalidInputError: ``invalid-argument`` if ``workers`` or ``attempts`` is less than 1.

    >>> list(Threads(2).run(lambda shared, task: shared + task, [b"1", b"2"], b"no. "))
    [b'no. 1', b'no. 2']
    """

    __slots__ = ()


class Processes(_Parallel):
    """An engine that runs tasks in processes of this machine.

    Args:
        workers: The number of processes. None: the number of CPUs.
        attempts: The number of attempts of each task. Default: 4.
        resumable: Whether jobs stage the results of tasks, so that a later run can continue. Default: True.

    Raises:
        InvalidInputError: ``invalid-argument`` if ``workers`` or ``attempts`` is less than 1.

    >>> list(Processes(2).run(max, [b"1", b"2"], b"0"))
    [b'1', b'2']
    """

    __slots__ = ()
    _has_processes = True


def _try_task(attempts: int, workers: _Workers, tasks: Sequence[bytes], number: int) -> bytes:
    """Return the result of a task after at most ``attempts`` attempts, or raise ``TaskFailedError``."""
    for tries in range(attempts):
        cause: BaseException | None = None
        try:
            result = workers.call(tasks[number], tries)
        except BaseException as error:  # Python raises interrupts of the user in the main thread, not here
            result, cause = failure_of(error), error
        if not isinstance(result, Failure):
            return result
        if tries + 1 == attempts or workers.closed or result.is_final:
            raise task_error(result, number, len(tasks), tries + 1, cause)
    raise AssertionError("no attempts")


#: Variables of the environment that name a server or a cluster of Spark. spark-submit sets some of them.
_SPARK_VARIABLES: Final = (
    *("SPARK_REMOTE", "SPARK_MASTER", "MASTER"),
    *("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR"),
)


def default_engine() -> Engine:
    """Return the engine of an operation that is called without ``engine``.

    Returns:
        An engine on Spark if this process has an active Spark session, or if the environment names a server
        or a cluster of Spark (``SPARK_REMOTE``, ``SPARK_MASTER``, ``MASTER``, ``PYSPARK_SUBMIT_ARGS``,
        ``SPARK_CONF_DIR``, or spark-submit). Otherwise an engine on processes of this machine: the start of
        Spark on one machine takes longer than most operations.

    Examples:
        >>> from frazil.pipeline import default_engine
        >>> default_engine()  # doctest: +SKIP
        Processes(workers=None, attempts=4, resumable=True)
    """
    uses_spark = installed("pyspark") and any(map(os.environ.get, _SPARK_VARIABLES))
    if installed("pyspark") and (pyspark := sys.modules.get("pyspark.sql")) is not None:
        uses_spark = uses_spark or pyspark.SparkSession.getActiveSession() is not None
    return engine_of("spark" if uses_spark else "processes")


def engine_of(engine: Engine | EngineName | None) -> Engine:
    """Return the engine that the caller passes or names, or the default engine."""
    return default_engine() if engine is None else engine_of_caller(engine)


#: The least number of tasks of an operation, if each of them has `LEAST_TASK` bytes.
LEAST_TASKS: Final = 32
LEAST_TASK: Final = 8_000_000
#: The bytes of a task that is smaller, because else a slot of the engine would have no task.
_SMALLEST_TASK: Final = 1_000_000


def slots_of(engine: Engine | EngineName | None) -> int:
    """Return the number of tasks that an engine runs at the same time; None: the CPUs of this machine.

    The default engine is created only for work: a job that is done already does not start Spark.
    """
    return (os.cpu_count() or 1) if engine is None else getattr(engine_of(engine), "slots", 1)


def least_tasks(engine: Engine | EngineName | None) -> int:
    """Return the number of tasks that fill an engine. It is the same for all engines with a few slots."""
    return max(LEAST_TASKS, 2 * slots_of(engine))


def slots_for(total: int, engine: Engine | EngineName | None) -> int:
    """Return the number of slots for work of ``total`` bytes: each of them has enough for a task."""
    return max(min(slots_of(engine), total // _SMALLEST_TASK), 1)


def least_blocks(total: int, engine: Engine | EngineName | None) -> int:
    """Return a number of blocks of ``total`` bytes that slots can share evenly."""
    return 8 * slots_for(total, engine)


def task_bytes(total: int, most: int, engine: Engine | EngineName | None) -> int:
    """Return the bytes of one task of ``total`` bytes: at most ``most``, and less to fill the engine."""
    least = min(LEAST_TASK, -(-total // slots_for(total, engine)))
    return max(min(most, max(-(-total // least_tasks(engine)), least)), 1)


def task_count(total: int, most: int, engine: Engine | EngineName | None) -> int:
    """Return the number of tasks of `task_bytes`."""
    return max(-(-total // task_bytes(total, most, engine)), 1)


__all__ = [
    "ATTEMPTS",
    "Engine",
    "EngineName",
    "Inline",
    "Task",
    "attempt",
    "begin_attempt",
    "described",
    "description",
]
