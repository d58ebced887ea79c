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
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Protocol

from frazil.errors import ErrorKind, IcechunkError

type Task = Callable[[bytes, bytes], bytes]

#: Tries of one task, the first included.
ATTEMPTS = 4

_attempt: ContextVar[int] = ContextVar("frazil_attempt", default=0)


def attempt() -> int:
    """Which try of its task the code is in, from 0."""
    return _attempt.get()


def begin_attempt(number: int) -> None:
    """What engines call before a task."""
    _attempt.set(number)


class Engine(Protocol):
    """Something that runs tasks."""

    @property
    def resumable(self) -> bool:
        """Whether jobs stage what their tasks did, so that a later run can go on from there: see
        `frazil.spark.staging`.
        """
        ...

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        """``task(shared, t)`` for each ``t``, in order.

        If one fails for good, raises ``IcechunkError`` (``concurrency``) with its number and what it
        raised.
        """
        ...


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
            except Exception as error:
                raise failed(number, len(tasks), *told(error)) from error
            yield result


#: Of what a task says when it fails, in characters: it passes through the JVM, and goes into logs.
_MOST: Final = 20_000


def told(error: BaseException) -> tuple[str, str]:
    """Type and text of what a task raised, whatever that is."""
    try:
        text = str(error)
    except Exception:
        text = "(it cannot say what)"
    if len(text) > _MOST:
        text = f"{text[: _MOST // 2]} ... {text[-_MOST // 2 :]}"
    return type(error).__name__, text


def failed(number: int, count: int, name: str, text: str) -> IcechunkError:
    """The error of every engine for a task that failed for good."""
    return IcechunkError(f"task {number + 1} of {count} failed with {name}: {text}", ErrorKind.CONCURRENCY)
