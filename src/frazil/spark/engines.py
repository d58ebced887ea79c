"""Which engine runs the tasks of an operation: the caller's, one by its name, or the default.

    Engine      as it is
    "inline"    `Inline()`, in this thread
    "local"     `Local(processes=True)`, on processes of this machine
    "spark"     `OnSpark(get_spark())`
    None        `default_engine()`

Spark is imported only when an engine on Spark is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from frazil.arguments import wrong_type
from frazil.errors import ErrorKind, InvalidInputError
from frazil.extras import installed, needs
from frazil.spark.engine import Engine, EngineName, Inline
from frazil.spark.local import Local


def default_engine() -> Engine:
    """The engine of an operation that gets none.

    Where pyspark is installed this is Spark: the active session, or the one that `get_spark` starts.
    Elsewhere it is processes of this machine.
    """
    return _on_spark() if installed("pyspark") else _processes()


def engine_of(engine: Engine | EngineName | None) -> Engine:
    """The engine that a caller gives or names; the default for None.

    Raises ``InvalidInputError`` (``not-allowed``) for any other text, ``TypeError`` for what is no engine,
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
        if engine not in _BY_NAME:
            names = "'inline', 'local' or 'spark'"
            raise InvalidInputError(f"engine: expected {names}, found {engine!r:.80}", ErrorKind.NOT_ALLOWED)
        return _BY_NAME[engine]()
    if isinstance(engine, type) or not callable(getattr(engine, "run", None)):
        raise wrong_type("engine", engine, "Engine", "None")
    return engine


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
