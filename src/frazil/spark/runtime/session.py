"""A Spark session that works without configuration, and the settings of Spark that Frazil's jobs need.

A running session can change some settings; Spark reads others only when it starts. `get_spark` gives both
kinds to the sessions that it makes. `ready` gives the first kind to other sessions, unless the user has set
it, and reports what is missing of the second kind.

A local session uses only the loopback address. So it starts on a machine without a network, and with a host
name that does not resolve. Its workers run this Python with the ``sys.path`` of this process. On a cluster
the executors need the same minor version of Python, and Frazil installed: a task is sent as the name of a
function, with its arguments.
"""

from __future__ import annotations

import importlib
import itertools
import logging
import os
import re
import shlex
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from frazil.errors import ErrorKind, SessionStateError
from frazil.extras import needs

type Place = Literal["local", "cluster", "connect"]

_log = logging.getLogger(__name__)

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
    for name, setting in SETTINGS.items():
        if setting.running and name not in set_:
            spark.conf.set(name, setting.value)
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
    if spark not in _READY:
        _READY.add(spark)
        for sentence in advice:
            _log.warning(sentence)
    return tuple(advice)


_ROWS_OF_A_BATCH: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"


#: Tries of one task, the first included. In local mode the default is one.
ATTEMPTS: Final = int(SETTINGS["spark.task.maxFailures"].value)

_JAVA_HOMES: Final = ("/usr/lib/jvm", "/Library/Java/JavaVirtualMachines", "/opt/java")


def get_spark(cores: int | None = None, *, log: Path | None = None) -> SparkSession:
    """Return the active Spark session, or start one.

    Without an active session, the environment names the server or the master (``SPARK_REMOTE``,
    ``SPARK_MASTER``, ``MASTER``, ``PYSPARK_SUBMIT_ARGS``, ``spark-defaults.conf``). Without these, the call
    starts a local session, which tries each task up to four times.

    Args:
        cores: The number of processes of a local session. The default, None, is the number of processors.
        log: The file for the log of the JVM of a local session. The default, None, discards the log; errors
            reach Python as exceptions.

    Returns:
        The session, made `ready`.

    Raises:
        SessionStateError: Java is not installed, the JVM does not start, or the active session cannot run
            Frazil's jobs, see `ready` (``not-allowed``).

    Examples:
        >>> from frazil.spark import get_spark
        >>> spark = get_spark(cores=2)
        >>> spark.range(3).count()
        3
    """
    active = SparkSession.getActiveSession()
    if active is None and "SPARK_REMOTE" in os.environ:
        active = _connected(os.environ["SPARK_REMOTE"])
    elif active is None:
        # spark-submit has started a JVM for this process, with its own settings
        if SparkContext._active_spark_context is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
            _start(cores, log)
        active = SparkSession.builder.getOrCreate()
    ready(active)
    return active


def _connected(remote: str) -> SparkSession:
    with needs("Spark Connect", extra="connect"):
        importlib.import_module("pyspark.sql.connect")  # the import checks the packages that Connect needs
    if not remote.startswith("local"):
        return SparkSession.builder.getOrCreate()
    # pyspark starts a server on this machine. It would repeat settings of the builder to the session, which
    # cannot change them. So the settings go to the server.
    conf = [f"--conf={name}={value}" for name, value in settings("local").items()]
    arguments = f"{shlex.join(conf)} {os.environ.get('PYSPARK_SUBMIT_ARGS', 'pyspark-shell')}"
    with _environment({**_for_the_jvm(find_java_home()), "PYSPARK_SUBMIT_ARGS": arguments}):
        return SparkSession.builder.getOrCreate()


def _start(cores: int | None, log: Path | None) -> None:
    defaults = _defaults()
    master = _master(os.environ, defaults)
    place: Place = "local" if master is None else "cluster"
    conf = SparkConf().setMaster(master or f"local[{cores or '*'},{ATTEMPTS}]")
    options = {"spark.app.name": "frazil", **settings(place)}
    conf.setAll([(name, value) for name, value in options.items() if name not in defaults])
    home = find_java_home()
    with _environment(_for_the_jvm(home) if place == "local" else {"JAVA_HOME": str(home)}):
        # One JVM serves all sessions of a process, one after the other.
        gateway = SparkContext._gateway or _launch(conf, log)
        context = SparkContext(conf=conf, gateway=gateway)
    context.setLogLevel("ERROR")


def _master(environment: Mapping[str, str], defaults: Mapping[str, str]) -> str | None:
    """Return the master that the environment names, in the order in which spark-submit looks for it."""
    words = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    after = dict(itertools.pairwise(words))
    candidates = (
        after.get("--master"),
        environment.get("SPARK_MASTER"),
        defaults.get("spark.master"),
        environment.get("MASTER"),
    )
    return next(filter(None, candidates), None)


def _defaults() -> dict[str, str]:
    """Read ``spark-defaults.conf``: a name and a value in each line, with white space or ``=`` in between."""
    home = os.environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    path = Path(home, "spark-defaults.conf")
    lines = map(str.strip, path.read_text().splitlines() if path.exists() else ())
    pairs = (line.replace("=", " ", 1).split(None, 1) for line in lines if line and line[0] not in "#!")
    return {pair[0]: pair[-1].strip() for pair in pairs}


def _launch(conf: SparkConf, log: Path | None) -> Any:
    # A file without a name is deleted with the JVM.
    with tempfile.TemporaryFile() if log is None else log.open("w+b") as output:
        try:
            return launch_gateway(conf, {"stderr": output})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            output.seek(0)
            words = output.read().decode(errors="replace").splitlines()[-15:]
            raise SessionStateError(
                "\n".join(
                    ["Spark's JVM did not start. It must be Java 17 or newer. The end of its log:", *words]
                ),
                ErrorKind.NOT_ALLOWED,
            ) from error


def find_java_home(environment: Mapping[str, str] = os.environ, usual: tuple[str, ...] = _JAVA_HOMES) -> Path:
    """Return the directory of Java: ``JAVA_HOME``, the ``java`` on ``PATH``, or one in a usual place."""
    if "JAVA_HOME" in environment and (home := Path(environment["JAVA_HOME"])).joinpath("bin/java").exists():
        return home
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        return Path(on_path).resolve().parents[1]
    for place in map(Path, usual):
        for java in sorted(
            [*place.glob("*/bin/java"), *place.glob("*/Contents/Home/bin/java")], reverse=True
        ):
            return java.resolve().parents[1]
    raise SessionStateError(
        "Spark needs Java 17 or newer, got no Java. Install it (Debian: openjdk-17-jre-headless), or set "
        "JAVA_HOME to the directory that has bin/java. Operations run without Spark with engine='local'",
        ErrorKind.NOT_ALLOWED,
    )


def _for_the_jvm(java_home: Path) -> dict[str, str]:
    return {
        "JAVA_HOME": str(java_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
    }


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a child process, and restore those of this process afterwards."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
