"""Engines: they run one function for many messages.

A task function is a function of a module, ``(shared, task) -> result``, from bytes to bytes. ``shared`` is
the same for all tasks of a run, and ``task`` is small. A task function uses only its arguments and has no
effect on the process, because it may run on another machine, and more than once.

    Inline     in this thread, one task after the other: small jobs, tests, debuggers
    Local      threads or processes of this machine (``local``)
    OnSpark    executors of Spark, on one machine or a thousand (``spark``)

All engines return results in the order of the tasks while later tasks run, hold only a few results at a time,
and stop the remaining tasks when the caller stops. Some engines retry a failed task. If a task fails in all
its attempts, the run fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from frazil.engines import Engine, EngineName, Task, described, description
from frazil.jobs.task_failures import failure_of, task_error

#: The contract is in `frazil.engines`. The modules of this room import it from here.
__all__ = [
    "ATTEMPTS",
    "Engine",
    "EngineName",
    "Inline",
    "ResumableEngine",
    "Task",
    "attempt",
    "begin_attempt",
    "described",
    "description",
    "is_resumable",
]

#: The number of attempts of one task, including the first.
ATTEMPTS = 4

_attempt: ContextVar[int] = ContextVar("frazil_attempt", default=0)


def attempt() -> int:
    """Return the number of the current attempt of the task, from 0."""
    return _attempt.get()


def begin_attempt(number: int) -> None:
    """Set the number of the attempt. Engines call this before a task."""
    _attempt.set(number)


@runtime_checkable
class ResumableEngine(Engine, Protocol):
    """An engine that tells whether jobs stage the results of its tasks, so that a later run can continue.

    Jobs on an engine without this property do not stage results. See `frazil.jobs.staging`.
    """

    @property
    def resumable(self) -> bool:
        """Whether jobs stage the results of tasks."""
        ...


def is_resumable(engine: Engine) -> bool:
    """Return whether jobs on this engine stage the results of its tasks."""
    return isinstance(engine, ResumableEngine) and engine.resumable


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
