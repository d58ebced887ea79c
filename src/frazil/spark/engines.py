"""Which engine runs the tasks of an operation: the caller's, one by its name, or the default.

    Engine      as it is
    "inline"    `Inline()`, in this thread
    "local"     `Local(processes=True)`, on processes of this machine
    "spark"     `OnSpark(get_spark())`
    None        `default_engine()`

Spark is imported when an engine on Spark is made, and not before.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from frazil.errors import ErrorKind, InvalidInputError
from frazil.extras import needs
from frazil.spark.engine import Engine, Inline
from frazil.spark.local import Local

type EngineName = Literal["inline", "local", "spark"]


def default_engine() -> Engine:
    """The engine of an operation that gets none.

    Where pyspark is installed this is Spark: the active session, or the one that `get_spark` starts.
    Elsewhere it is processes of this machine.
    """
    if importlib.util.find_spec("pyspark") is None:
        return _processes()
    return _on_spark()


def engine_of(engine: Engine | EngineName | None) -> Engine:
    """The engine that a caller names, or None for the default.

    Raises ``InvalidInputError`` (``not-allowed``) for anything else, and ``MissingExtraError`` for the name
    ``"spark"`` where pyspark is not installed.

    >>> engine_of("inline")
    Inline(resumable=False)
    >>> engine_of("fast")
    Traceback (most recent call last):
    frazil.errors.InvalidInputError: engine: expected an engine such as Inline(), Local() ...
    """
    if engine is None:
        return default_engine()
    if isinstance(engine, str) and engine in _BY_NAME:
        return _BY_NAME[engine]()
    if isinstance(engine, type) or not callable(getattr(engine, "run", None)):
        raise _no_engine(engine)
    return engine  # type: ignore[return-value]  # the names are strings, which have no method `run`


def _no_engine(value: Any) -> InvalidInputError:
    found = f"the class {value.__name__}" if isinstance(value, type) else f"{value!r:.80}"
    return InvalidInputError(
        "engine: expected an engine such as Inline(), Local() or OnSpark(spark), or one of the names "
        f"{', '.join(map(repr, _BY_NAME))}, found {found}",
        ErrorKind.NOT_ALLOWED,
    )


def _processes() -> Engine:
    return Local(processes=True)


def _on_spark() -> Engine:
    with needs("the engine 'spark'", extra="spark"):
        from frazil.spark.on_spark import OnSpark
        from frazil.spark.session import get_spark
    return OnSpark(get_spark())


_BY_NAME: Final[Mapping[str, Callable[[], Engine]]] = {
    "inline": Inline,
    "local": _processes,
    "spark": _on_spark,
}
