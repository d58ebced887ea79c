"""The places where Spark runs, and the settings that Frazil's jobs need there.

    local      a JVM that `get_spark` starts on this machine
    cluster    a master outside of this process: standalone, YARN, Kubernetes
    connect    a server of Spark Connect

``SETTINGS`` has the places and the reason of each setting. A running session can change some settings; Spark
reads others only when it starts. `get_spark` gives both kinds to the sessions that it makes. `ready` gives
the first kind to other sessions, unless the user has set it, and reports what is missing of the second kind.

On a cluster the executors need the same minor version of Python, and Frazil installed: a task is sent as
the name of a function, with its arguments.
"""

from __future__ import annotations

import logging
import re
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pyspark.sql import SparkSession

from frazil.errors import ErrorKind, SessionStateError

type Place = Literal["local", "cluster", "connect"]

_log = logging.getLogger(__name__)

_EVERYWHERE: Final[frozenset[Place]] = frozenset({"local", "cluster", "connect"})
_LOCAL: Final[frozenset[Place]] = frozenset({"local"})
_STARTED: Final[frozenset[Place]] = frozenset({"local", "cluster"})


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of Spark: its value, the reason, and the places that need it.

    ``running`` is True if a running session can change it.
    """

    value: str
    why: str
    places: frozenset[Place] = _EVERYWHERE
    running: bool = False


#: The settings of Spark that Frazil's jobs need.
SETTINGS: Final[Mapping[str, Setting]] = {
    "spark.driver.bindAddress": Setting("127.0.0.1", "no network is needed", _LOCAL),
    "spark.driver.host": Setting("127.0.0.1", "no host name has to resolve", _LOCAL),
    "spark.driver.extraJavaOptions": Setting(
        " ".join(
            (
                "-XX:+UseSerialGC",
                "-XX:Tier4InvocationThreshold=50000",
                "-XX:Tier4MinInvocationThreshold=6000",
                "-XX:Tier4CompileThreshold=150000",
                "-XX:Tier4BackEdgeThreshold=400000",
            )
        ),
        "the optimizing compiler only compiles loops over rows, which takes less time to start; without this "
        "compiler, rows take twice the processor time",
        _LOCAL,
    ),
    "spark.python.daemon.module": Setting(
        "frazil.spark.daemon", "workers are forked with all imports done, which saves a second each", _LOCAL
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
        >>> builder = SparkSession.builder.master("spark://master:7077").config(map=settings("cluster"))
    """
    return {name: each.value for name, each in SETTINGS.items() if place in each.places}


_READY: Final[weakref.WeakSet[SparkSession]] = weakref.WeakSet()


def ready(spark: SparkSession) -> tuple[str, ...]:
    """Prepare a Spark session that the caller made for Frazil's jobs, and return advice about it.

    The call changes the settings that a running session can change, unless the user has set them. It returns,
    and logs once, a sentence for each setting that only a new session can have.

    Args:
        spark: The session.

    Returns:
        The advice; empty if the session has all settings.

    Raises:
        SessionStateError: The session cannot run Frazil's jobs, because Spark is older than 4.1, or has
            batches without rows (``not-allowed``).

    Examples:
        >>> import frazil.spark
        >>> frazil.spark.ready(frazil.spark.get_spark())
        ()
    """
    set_ = {name: str(value) for name, value in spark.conf.getAll.items()}
    _refuse_what_cannot_work(spark, set_)
    for name, setting in SETTINGS.items():
        if setting.running and name not in set_:
            spark.conf.set(name, setting.value)
    advice = _advice(set_)
    if spark not in _READY:
        _READY.add(spark)
        for sentence in advice:
            _log.warning(sentence)
    return advice


_ROWS_OF_A_BATCH: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"


def _refuse_what_cannot_work(spark: SparkSession, set_: Mapping[str, str]) -> None:
    version = tuple(map(int, re.findall(r"\d+", spark.version)[:2]))
    if version < (4, 1):
        raise SessionStateError(
            f"Spark must be 4.1 or newer, got {spark.version}. This session cannot run Frazil's jobs",
            ErrorKind.NOT_ALLOWED,
        )
    if not int(set_.get(_ROWS_OF_A_BATCH, "10000")) > 0:
        raise SessionStateError(
            f"{_ROWS_OF_A_BATCH} must be above 0, got {set_[_ROWS_OF_A_BATCH]}. Spark fails in every Python "
            "data source with this value. Set it to 100000, or unset it",
            ErrorKind.NOT_ALLOWED,
        )


def _advice(set_: Mapping[str, str]) -> tuple[str, ...]:
    advice = []
    local = re.fullmatch(r"local(?:\[[^,\]]*(?:,\s*(\d+))?\])?", set_.get("spark.master", ""))
    if local and int(local[1] or 1) < 2:
        advice.append(
            f"Spark runs on {set_['spark.master']}, where a task that fails is not retried. "
            "local[N,4] tries it up to four times"
        )
    if not local and int(set_.get("spark.task.maxFailures", "4")) < 2:
        advice.append("spark.task.maxFailures is 1: a task that is lost is not retried")
    if set_.get("spark.python.unix.domain.socket.enabled", "false").lower() != "true":
        advice.append(
            "spark.python.unix.domain.socket.enabled is not true: each task takes up to twice the time. "
            "Set it before Spark starts"
        )
    return tuple(advice)
