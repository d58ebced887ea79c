"""Which engine runs the tasks of an operation: the caller's, one by its name, or the default.

    Engine      as it is
    "inline"    `Inline()`, in this thread
    "local"     `Local(processes=True)`, on processes of this machine
    "spark"     `OnSpark(get_spark())`
    None        `default_engine()`

Engines of other rooms and of other packages are entry points of the group ``frazil.engines``: a name, and a
function without arguments that returns an engine. So this room does not import them, and Spark is imported
only when an engine on Spark is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Final

from frazil.arguments import wrong_type
from frazil.errors import ErrorKind, InvalidInputError
from frazil.extras import installed, needs
from frazil.jobs.engine import Engine, EngineName, Inline
from frazil.jobs.local_engine import Local

#: Engines of this room, by name.
_ENGINES: Final[Mapping[str, Callable[[], Engine]]] = {
    "inline": Inline,
    "local": lambda: Local(processes=True),
}
_GROUP: Final = "frazil.engines"


def default_engine() -> Engine:
    """The engine of an operation that gets none.

    Where pyspark is installed this is Spark: the active session, or the one that `get_spark` starts.
    Elsewhere it is processes of this machine.
    """
    return engine_of("spark" if installed("pyspark") else "local")


def engine_of(engine: Engine | EngineName | None) -> Engine:
    """The engine that a caller gives or names; the default for None.

    Raises ``InvalidInputError`` (``unknown-choice``) for any other text, ``TypeError`` for what is no engine,
    and ``MissingExtraError`` for the name ``"spark"`` where pyspark is not installed.

    >>> engine_of("inline")
    Inline(resumable=False)
    >>> engine_of("fast")
    Traceback (most recent call last):
    frazil.errors.InvalidInputError: engine: expected 'inline', 'local' or 'spark', found 'fast'
    """
    if engine is None:
        return default_engine()
    if isinstance(engine, str):
        return _named(engine)
    if isinstance(engine, type) or not callable(getattr(engine, "run", None)):
        raise wrong_type("engine", engine, "Engine", "None")
    return engine


def _named(name: str) -> Engine:
    if name in _ENGINES:
        return _ENGINES[name]()
    registered = entry_points(group=_GROUP)
    if name not in registered.names:
        *names, last = map(repr, sorted({*_ENGINES, *registered.names}))
        raise InvalidInputError(
            f"engine: expected {', '.join(names)} or {last}, found {name!r:.80}", ErrorKind.UNKNOWN_CHOICE
        )
    with needs(f"the engine {name!r}", extra="spark"):
        factory: Callable[[], Engine] = registered[name].load()
    return factory()
