"""A Spark session that works without configuration.

`get_spark` returns the active session, if there is one, and makes it `ready`. Otherwise it follows the
variables of Spark: ``SPARK_REMOTE`` is a server of Spark Connect; a master is in ``SPARK_MASTER`` or
``MASTER``, in ``PYSPARK_SUBMIT_ARGS``, or in ``spark-defaults.conf``. Otherwise it starts a JVM on this
machine with the settings that Frazil's jobs need: see `frazil.spark.runtime.deployment`.

The local session uses only the loopback address. So it starts on a machine without a network, and with a host
name that does not resolve. Its workers run this Python with the ``sys.path`` of this process: they can import
the same modules.
"""

from __future__ import annotations

import importlib
import itertools
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from frazil.errors import ErrorKind, SessionStateError
from frazil.extras import needs
from frazil.spark.runtime.deployment import SETTINGS, Place, ready, settings

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
    wanted = {"spark.app.name": "frazil", **settings(place)}
    conf.setAll([(name, value) for name, value in wanted.items() if name not in defaults])
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
    """Return the directory of Java: ``JAVA_HOME``, the ``java`` on ``PATH``, or one in a usual place.

    Raises ``SessionStateError`` if Java is not found.
    """
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
