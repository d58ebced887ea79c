"""The contract of engines, which run one function for many messages, and the engine of a name.

An engine is an entry point of the group ``frazil.engines``: a name, and a function without arguments that
returns the engine. So this package imports an engine, such as the one on Spark, only when a caller names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, Protocol

from frazil.arguments import wrong_type
from frazil.display import suggest
from frazil.errors import ErrorKind, InvalidInputError
from frazil.extras import needs

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

type Task = Callable[[bytes, bytes], bytes]

#: The name of an engine.
type EngineName = Literal["inline", "threads", "processes", "spark", "sail"]

_GROUP: Final = "frazil.engines"
#: Names that are common for other engines.
_NEAR: Final = {"local": ". Did you mean `threads` or `processes`?"}

_description: ContextVar[str] = ContextVar("frazil_description", default="")


@contextmanager
def described(text: str) -> Iterator[None]:
    """Return a context in which engines describe their runs with this text, as in the UI of Spark."""
    token = _description.set(text)
    try:
        yield
    finally:
        _description.reset(token)


def description(task: Callable[..., object]) -> str:
    """Return the description of a run: the text of ``described``, or else the name of its function."""
    return _description.get() or f"frazil {getattr(task, '__name__', 'tasks')}"


class Engine(Protocol):
    """The protocol of engines, which run tasks.

    >>> from frazil.pipeline import Inline
    >>> list(Inline().run(lambda shared, task: shared + task, [b"1", b"2"], b"no. "))
    [b'no. 1', b'no. 2']
    """

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        """Run ``task(shared, t)`` for each ``t`` of ``tasks``.

        Args:
            task: A function of a module that the workers can import. It may be called more than once for a
                task, and in another process.
            tasks: The message of each task.
            shared: A message for all tasks. It is sent once to each worker.

        Returns:
            An iterator of the results, in the order of ``tasks``. Close it early to stop the other tasks.

        Raises:
            TaskFailedError: If a task fails in all its attempts; it has the number of the task and its error.
            IcechunkError: ``concurrency`` if the engine itself fails.
        """
        ...


@cache
def _registered() -> EntryPoints:
    # It takes 20 ms to import, and most processes name no engine.
    from importlib.metadata import entry_points

    return entry_points(group=_GROUP)


def engine_of(engine: Engine | EngineName) -> Engine:
    """Return the engine that the caller passes or names."""
    if not isinstance(engine, str):
        if isinstance(engine, type) or not callable(getattr(engine, "run", None)):
            raise wrong_type("engine", engine, "Engine", "None")
        return engine
    registered = _registered()
    if engine not in registered.names:
        *names, last = map(repr, sorted(registered.names))
        near = _NEAR.get(str(engine)) or suggest(engine, registered.names)
        raise InvalidInputError(
            f"engine must be {', '.join(names)} or {last}, got {engine!r:.80}{near}", ErrorKind.UNKNOWN_CHOICE
        )
    with needs(f"the engine {engine!r}", extra=engine if engine in ("spark", "sail") else "pipeline"):
        factory: Callable[[], Engine] = registered[engine].load()
    return factory()
