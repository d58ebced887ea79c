"""The settings of Spark that Frazil's jobs need, and their reasons.

A running session can change some settings; Spark reads others only when it starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

type Place = Literal["local", "cluster", "connect"]

_EVERYWHERE: Final[frozenset[Place]] = frozenset({"local", "cluster", "connect"})
_LOCAL: Final[frozenset[Place]] = frozenset({"local"})
_STARTED: Final[frozenset[Place]] = frozenset({"local", "cluster"})


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: its value, the reason, its places, and whether a running session can change it."""

    value: str
    why: str
    places: frozenset[Place] = _EVERYWHERE
    running: bool = False


#: The settings of Spark that Frazil's jobs need.
SETTINGS: Final[Mapping[str, Setting]] = {
    "spark.driver.bindAddress": Setting("127.0.0.1", "no network is needed", _LOCAL),
    "spark.driver.host": Setting("127.0.0.1", "no host name has to resolve", _LOCAL),
    "spark.driver.extraJavaOptions": Setting(
        "-XX:+UseSerialGC -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
        "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000",
        "the optimizing compiler only compiles loops over rows, which takes less time to start; without this "
        "compiler, rows take twice the processor time",
        _LOCAL,
    ),
    "spark.python.daemon.module": Setting(
        "frazil.spark.daemon", "workers are forked with their imports done, which saves a second each", _LOCAL
    ),
    "spark.ui.enabled": Setting("false", "no port, no web server", _LOCAL),
    "spark.ui.showConsoleProgress": Setting("false", "Progress uses the terminal", _STARTED),
    "spark.python.unix.domain.socket.enabled": Setting("true", "a task takes half the time"),
    "spark.task.maxFailures": Setting("4", "a task that was lost is retried"),
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": Setting(
        "true", "otherwise mapInArrow ignores the names and types of columns", running=True
    ),
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": Setting(
        "true", "a crash of a worker is reported with its line and its signal", running=True
    ),
    # Only for sessions that Frazil makes: users of other sessions would see times in another zone.
    "spark.sql.session.timeZone": Setting("UTC", "times of CF conventions are in UTC", _STARTED),
}


def settings(place: Place = "cluster") -> dict[str, str]:
    """Return the settings of Spark that Frazil's jobs need, for a session that the caller makes.

    Adaptive query execution may stay on: a job names the partition of each task, and Spark does not coalesce
    those.

    Args:
        place: Where Spark runs: ``"local"``, ``"cluster"`` (the default) or ``"connect"``, for the settings
            of the server.

    Returns:
        The names and values of the settings.

    Examples:
        >>> from frazil.spark import settings
        >>> settings("connect")["spark.python.unix.domain.socket.enabled"]
        'true'
        >>> from pyspark.sql import SparkSession
        >>> builder = SparkSession.builder.master("spark://master:7077").config(map=settings("cluster"))
    """
    return {name: each.value for name, each in SETTINGS.items() if place in each.places}
