"""The places where Spark runs, and what its settings have to be there.

    local      a JVM that `get_spark` starts on this machine
    cluster    a master that somebody else runs: standalone, YARN, Kubernetes
    connect    a server of Spark Connect

``SETTINGS`` says which setting is for which place, and why. Some can be changed while a session runs, others
are read once, when Spark starts; ``get_spark`` gives both to the sessions that it makes. To a session of
somebody else `ready` gives the first kind, where nothing was said, and tells what is missing of the second.

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
    """One setting of Spark: a value, why, where. ``running`` if a session that runs can change it."""

    value: str
    why: str
    places: frozenset[Place] = _EVERYWHERE
    running: bool = False


#: What Frazil's jobs want of Spark.
SETTINGS: Final[Mapping[str, Setting]] = {
    "spark.driver.bindAddress": Setting("127.0.0.1", "no network is needed", _LOCAL),
    "spark.driver.host": Setting("127.0.0.1", "nor a host name that resolves", _LOCAL),
    "spark.driver.extraJavaOptions": Setting(
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "the JVM hands out tasks, the work is done in Python: half the processor time to start",
        _LOCAL,
    ),
    "spark.python.daemon.module": Setting(
        "frazil.spark.daemon", "workers are forked with all imports done: a second each", _LOCAL
    ),
    "spark.ui.enabled": Setting("false", "no port, no web server", _LOCAL),
    "spark.ui.showConsoleProgress": Setting("false", "Progress has the terminal", _STARTED),
    "spark.python.unix.domain.socket.enabled": Setting("true", "a task costs half the time"),
    "spark.task.maxFailures": Setting("4", "a task that was lost is tried again"),
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": Setting(
        "true", "else mapInArrow takes columns by position, whatever their names and types", running=True
    ),
    "spark.sql.python.filterPushdown.enabled": Setting(
        "true", "else the data source cannot be asked to take conditions of the query", running=True
    ),
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": Setting(
        "true", "else nobody knows in which line a worker crashed, and by which signal", running=True
    ),
    # Only where the session is ours: another would show its users other clocks.
    "spark.sql.session.timeZone": Setting("UTC", "times of CF conventions are in UTC", _STARTED),
}


def settings(place: Place = "cluster") -> dict[str, str]:
    """The settings for a session that you make yourself.

    ``place`` is "local", "cluster" or "connect"; the last are settings of the server. Adaptive query
    execution may stay on: a job names the partition of each task, and those are not coalesced.

    >>> settings("connect")["spark.python.unix.domain.socket.enabled"]
    'true'

    >>> builder = SparkSession.builder.master("spark://master:7077").config(map=settings("cluster"))
    """
    return {name: each.value for name, each in SETTINGS.items() if place in each.places}


_READY: Final[weakref.WeakSet[SparkSession]] = weakref.WeakSet()


def ready(spark: SparkSession) -> tuple[str, ...]:
    """Make a session that somebody else made fit for Frazil's jobs; returns what could be better.

    Sets what a running session can change and nobody has set. What cannot be changed any more is returned,
    a sentence each, and logged once. Raises ``SessionStateError`` (``not-allowed``) for a session that
    cannot do the work: Spark before 4.1, or batches of no rows.
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
            f"expected Spark 4.1 or newer, found {spark.version}: this session cannot run Frazil's jobs",
            ErrorKind.NOT_ALLOWED,
        )
    if not int(set_.get(_ROWS_OF_A_BATCH, "10000")) > 0:
        raise SessionStateError(
            f"expected {_ROWS_OF_A_BATCH} above 0, found {set_[_ROWS_OF_A_BATCH]}: Spark then fails in every "
            "Python data source; set it to 100000, or unset it",
            ErrorKind.NOT_ALLOWED,
        )


def _advice(set_: Mapping[str, str]) -> tuple[str, ...]:
    advice = []
    local = re.fullmatch(r"local(?:\[[^,\]]*(?:,\s*(\d+))?\])?", set_.get("spark.master", ""))
    if local and int(local[1] or 1) < 2:
        advice.append(
            f"Spark runs on {set_['spark.master']}, where a task that fails is not tried again: "
            "local[N,4] tries it up to four times"
        )
    if not local and int(set_.get("spark.task.maxFailures", "4")) < 2:
        advice.append("spark.task.maxFailures is 1: a task that is lost is not tried again")
    if set_.get("spark.python.unix.domain.socket.enabled", "false").lower() != "true":
        advice.append(
            "spark.python.unix.domain.socket.enabled is not true: each task takes up to twice the time; "
            "it has to be set when Spark starts"
        )
    return tuple(advice)
