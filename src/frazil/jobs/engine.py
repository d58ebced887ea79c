"""Run one function over many messages.

A task function is a plain function of a module, ``(shared, task) -> result``, bytes to bytes.
``shared`` is the same for all tasks of a run; what differs is small. What it needs to know is in its
arguments, what it did is in its result: it may run on another machine, and more than once.

    Inline     here, one after the other: small jobs, tests, debuggers
    Local      threads or processes of this machine (``local``)
    OnSpark    executors of Spark, on this machine or on a thousand (``on_spark``)

All of them give results in the order of the tasks while later ones are at work, hold few of them at a time,
and stop the rest when the caller stops. A task that fails is tried again where the engine says so; if it
fails for good, so does the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from frazil.jobs.task_failures import failure_of, task_error

type Task = Callable[[bytes, bytes], bytes]

#: An engine by its name: `frazil.jobs.engines` makes it.
type EngineName = Literal["inline", "local", "spark"]

#: Tries of one task, the first included.
ATTEMPTS = 4

_attempt: ContextVar[int] = ContextVar("frazil_attempt", default=0)


def attempt() -> int:
    """Which try of its task the code is in, from 0."""
    return _attempt.get()


def begin_attempt(number: int) -> None:
    """What engines call before a task."""
    _attempt.set(number)


_description: ContextVar[str] = ContextVar("frazil_description", default="")


@contextmanager
def described(text: str) -> Iterator[None]:
    """What runs of an engine are for: engines that show their work, as Spark does, show this."""
    token = _description.set(text)
    try:
        yield
    finally:
        _description.reset(token)


def description(task: Callable[..., object]) -> str:
    """What a run is for: the text of ``described``, else the name of its function."""
    return _description.get() or f"frazil {getattr(task, '__name__', 'tasks')}"


class Engine(Protocol):
    """Something that runs tasks."""

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        """``task(shared, t)`` for each ``t``, in order.

        If one fails for good, raises ``TaskFailedError`` with its number and the error that it raised.
        If the engine itself fails, raises ``IcechunkError`` (``concurrency``).
        """
        ...


@runtime_checkable
class ResumableEngine(Engine, Protocol):
    """An engine that says whether jobs stage the results of its tasks, so that a later run can continue
    (`frazil.jobs.staging`). Without ``resumable`` they do not.
    """

    @property
    def resumable(self) -> bool: ...


def is_resumable(engine: Engine) -> bool:
    """Whether jobs on this engine stage the results of its tasks."""
    return isinstance(engine, ResumableEngine) and engine.resumable


@dataclass(frozen=True, slots=True)
class Inline:
    """Tasks run in this thread, when their result is asked for; each is tried once.

    >>> list(Inline().run(lambda shared, task: shared + task, [b"1", b"2"], b"no. "))
    [b'no. 1', b'no. 2']
    """

    resumable: bool = False

    @property
    def slots(self) -> int:
        """Tasks that run at the same time."""
        return 1

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        for number, message in enumerate(tasks):
            try:
                result = task(shared, message)
            except KeyboardInterrupt:
                raise  # of the user, who is at this process
            except BaseException as error:
                raise task_error(failure_of(error), number, len(tasks), cause=error)  # noqa: B904  # it has one
            yield result
