"""The default engine of an operation, and the engine that a caller passes or names (`frazil.engines`).

Engine      the engine itself
"inline"    `Inline()`, in this thread
"local"     `Local(processes=True)`, on processes of this machine
"spark"     `OnSpark(get_spark())`
None        `default_engine()`: "spark" if Spark is in use, else "local"
"""

from __future__ import annotations

import os
import sys
from typing import Final

from frazil.engines import Engine, EngineName
from frazil.engines import engine_of as engine_of_caller
from frazil.extras import installed
from frazil.jobs.local_engine import Local

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
    """Return the engine that the caller passes or names, or the default engine."""
    return default_engine() if engine is None else engine_of_caller(engine)


def local_processes() -> Local:
    """Return the engine ``"local"``."""
    return Local(processes=True)
