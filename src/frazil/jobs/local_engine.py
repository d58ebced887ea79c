"""The engine that runs tasks in threads or processes of this machine, without a JVM.

Threads are enough for numpy, codecs and storage, which release the global interpreter lock. Processes
(`frazil.jobs.worker_process`) are for other work, such as HDF5, which has one lock in each process, and for
work that may crash.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Protocol

from frazil.errors import ErrorKind, InvalidInputError, TaskFailedError
from frazil.jobs.engine import ATTEMPTS, Task, begin_attempt
from frazil.jobs.pickles import dumps
from frazil.jobs.task_failures import Failure, failure_of, task_error
from frazil.jobs.unpicklable import sendable
from frazil.jobs.worker_process import IDLE_PROCESSES, ProcessWorker
from frazil.threads import Purpose, start_threads

#: The number of tasks of each worker whose results the caller has not read yet.
_AHEAD: Final = 4


@dataclass(frozen=True, slots=True)
class Local:
    """An engine that runs tasks in threads or processes of this machine.

    Args:
        workers: The number of threads or processes. None: the number of CPUs.
        processes: Whether to use processes instead of threads. Default: False.
        attempts: The number of attempts of each task. Default: 4.
        resumable: Whether jobs stage the results of tasks, so that a later run can continue. Default: True.

    Raises:
        InvalidInputError: ``invalid-argument`` if ``workers`` or ``attempts`` is less than 1.

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
                raise InvalidInputError(f"{name} must be at least 1, got {value}", ErrorKind.INVALID_ARGUMENT)

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
        function = sendable(task, (task, shared), dumps) if self.processes else b""
        workers = _Workers(lambda: ProcessWorker(function) if self.processes else _ThreadWorker(task, shared))
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


class _Worker(Protocol):
    def call(self, message: bytes, tries: int) -> bytes | Failure: ...

    def close(self) -> None: ...


def _try_task(attempts: int, workers: _Workers, tasks: Sequence[bytes], number: int) -> bytes:
    """Return the result of a task after at most ``attempts`` attempts, or raise ``TaskFailedError``."""
    for tries in range(attempts):
        cause: BaseException | None = None
        try:
            result = workers.of_this_thread().call(tasks[number], tries)
        except BaseException as error:  # Python raises interrupts of the user in the main thread, not here
            result, cause = failure_of(error), error
        if not isinstance(result, Failure):
            return result
        if tries + 1 == attempts or workers.closed or result.is_final:
            raise task_error(result, number, len(tasks), tries + 1, cause)
    raise AssertionError("no attempts")


class _Workers:
    """One worker for each thread of a pool."""

    def __init__(self, make: Callable[[], _Worker]) -> None:
        self._make = make
        self._local = threading.local()
        self._lock = threading.Lock()
        self._all: list[_Worker] = []
        self.closed = False

    def of_this_thread(self) -> _Worker:
        """Return the worker of the calling thread, and make it at the first call."""
        worker: _Worker | None = getattr(self._local, "worker", None)
        if worker is None:
            worker = self._local.worker = self._make()
            with self._lock:
                self._all.append(worker)
                if self.closed:
                    worker.close()
        return worker

    def close(self) -> None:
        """Close all workers, and workers that threads make later."""
        with self._lock:
            self.closed = True
            for worker in self._all:
                worker.close()


@dataclass(frozen=True, slots=True)
class _ThreadWorker:
    """Runs tasks in the calling thread."""

    task: Task
    shared: bytes

    def call(self, message: bytes, tries: int) -> bytes:
        begin_attempt(tries)
        return self.task(self.shared, message)

    def close(self) -> None:
        pass
