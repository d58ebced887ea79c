"""Finds the engine of an operation: the engine of the caller, an engine by its name, or the default.

    Engine      the engine itself
    "inline"    `Inline()`, in this thread
    "local"     `Local(processes=True)`, on processes of this machine
    "spark"     `OnSpark(get_spark())`
    None        `default_engine()`: "spark" if Spark is in use, else "local"

Engines of other packages are entry points of the group ``frazil.engines``: a name, and a function without
arguments that returns an engine. So this package does not import them, and imports Spark only when the caller
asks for an engine on Spark.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Final

from frazil.arguments import wrong_type
from frazil.errors import ErrorKind, InvalidInputError
from frazil.extras import installed, needs
from frazil.jobs.engine import Engine, EngineName, Inline
from frazil.jobs.local_engine import Local

#: The engines of this package, by name.
_ENGINES: Final[Mapping[str, Callable[[], Engine]]] = {
    "inline": Inline,
    "local": lambda: Local(processes=True),
}
_GROUP: Final = "frazil.engines"
#: Variables of the environment that name a server or a cluster of Spark. spark-submit sets some of them.
_SPARK_VARIABLES: Final = (
    "SPARK_REMOTE",
    "SPARK_MASTER",
    "MASTER",
    "PYSPARK_SUBMIT_ARGS",
    "PYSPARK_GATEWAY_PORT",
    "SPARK_CONF_DIR",
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
        Local(workers=None, processes=True, attempts=4, resumable=True)
    """
    return engine_of("spark" if _uses_spark() else "local")


def _uses_spark() -> bool:
    """Return whether the process has an active Spark session, or its environment names a cluster."""
    if not installed("pyspark"):
        return False
    pyspark = sys.modules.get("pyspark.sql")
    has_session = pyspark is not None and pyspark.SparkSession.getActiveSession() is not None
    return has_session or any(map(os.environ.get, _SPARK_VARIABLES))


def engine_of(engine: Engine | EngineName | None) -> Engine:
    """Return the engine that the caller passes or names.

    >>> engine_of("inline")
    Inline(resumable=False)
    >>> engine_of("fast")
    Traceback (most recent call last):
    frazil.errors.InvalidInputError: engine must be 'inline', 'local' or 'spark', got 'fast'
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
            f"engine must be {', '.join(names)} or {last}, got {name!r:.80}", ErrorKind.UNKNOWN_CHOICE
        )
    with needs(f"the engine {name!r}", extra="spark"):
        factory: Callable[[], Engine] = registered[name].load()
    return factory()
