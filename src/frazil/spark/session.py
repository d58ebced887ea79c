"""A Spark session that works without configuration.

Whoever runs Spark already has a session, and gets that one. Everybody else gets a JVM on this machine,
with what Frazil's jobs need: see ``SETTINGS``, each line with its reason.

The local session asks for nothing but the loopback address, so it starts on a machine without a
network and with a host name that does not resolve. Its workers run this Python and see this process's
``sys.path``: what can be imported here can be imported there.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from frazil.errors import ErrorKind, SessionStateError

#: Settings of a local session.
SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # The JVM hands out tasks, the work is done in Python: half the processor time to start.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",  # no port, no web server
    "spark.ui.showConsoleProgress": "false",  # Progress has the terminal
    # A task costs half the time over a unix socket.
    "spark.python.unix.domain.socket.enabled": "true",
    # Else mapInArrow takes columns by position, whatever their names and types.
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}

#: Tries of one task, the first included. In local mode the default is one.
ATTEMPTS: Final = 4

_JAVA_HOMES: Final = ("/usr/lib/jvm", "/Library/Java/JavaVirtualMachines", "/opt/java")


def get_spark(cores: int | None = None, *, log: Path | None = None) -> SparkSession:
    """The active Spark session, else a new local one.

    A new one uses ``cores`` processes (all processors if None) and tries each task up to four times.
    What its JVM says goes to the file ``log``, or nowhere: errors reach Python as exceptions anyway.
    With ``SPARK_REMOTE`` set, it is a session of that Spark Connect server instead.

    Raises ``SessionStateError`` if there is no Java here, or the JVM does not start.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if "SPARK_REMOTE" not in os.environ and SparkContext._active_spark_context is None:
        _start(cores, log)
    return SparkSession.builder.getOrCreate()


def _start(cores: int | None, log: Path | None) -> None:
    conf = SparkConf().setAppName("frazil").setMaster(f"local[{cores or '*'},{ATTEMPTS}]")
    conf.setAll(list(SETTINGS.items()))
    with _environment(_for_the_jvm(find_java_home())):
        # One JVM serves all sessions of a process, one after the other.
        gateway = SparkContext._gateway or _launch(conf, log)
        context = SparkContext(conf=conf, gateway=gateway)
    context.setLogLevel("ERROR")


def _launch(conf: SparkConf, log: Path | None) -> Any:
    # Without a name the file vanishes with the JVM.
    with tempfile.TemporaryFile() if log is None else log.open("w+b") as output:
        try:
            return launch_gateway(conf, {"stderr": output})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            output.seek(0)
            words = output.read().decode(errors="replace").splitlines()[-15:]
            raise SessionStateError(
                "\n".join(
                    ["Spark's JVM did not start (it has to be Java 17 or newer). Its last words:", *words]
                ),
                ErrorKind.NOT_ALLOWED,
            ) from error


def find_java_home(environment: Mapping[str, str] = os.environ, usual: tuple[str, ...] = _JAVA_HOMES) -> Path:
    """The directory of a Java: ``JAVA_HOME``, the ``java`` on ``PATH``, else one in a usual place.

    >>> find_java_home({"PATH": ""}, usual=())
    Traceback (most recent call last):
    frazil.errors.SessionStateError: Spark needs Java 17 or newer, and none was found: ...
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
        "Spark needs Java 17 or newer, and none was found: install one (Debian: openjdk-17-jre-headless), "
        "or set JAVA_HOME to the directory that has bin/java",
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
    """Environment variables for a child process; this process gets its own back."""
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
