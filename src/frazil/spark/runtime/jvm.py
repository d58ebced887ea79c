"""The JVM of a local session, or of the driver of a cluster: needs pyspark, and not only its client.

A client of Spark Connect (``pyspark-client``) has no JVM and no py4j. So `frazil.spark.runtime.session`
imports this module only to start a JVM.
"""

from __future__ import annotations

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

from frazil.errors import SessionStateError
from frazil.spark.runtime.settings import SETTINGS, Place, settings

#: Tries of one task, the first included. In local mode the default is one.
ATTEMPTS: Final = int(SETTINGS["spark.task.maxFailures"].value)

_JAVA_HOMES: Final = ("/usr/lib/jvm", "/Library/Java/JavaVirtualMachines", "/opt/java")


def start(cores: int | None, log: Path | None) -> None:
    """Start a JVM and its SparkContext, unless this process has them, or spark-submit has started them."""
    if SparkContext._active_spark_context is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
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
                )
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
        "JAVA_HOME to the directory that has bin/java. Operations run without Spark with engine='processes'"
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


@contextmanager
def environment_of_local_server() -> Iterator[None]:
    """Set the variables for a server of Spark Connect on this machine, which pyspark starts.

    pyspark would repeat settings of the builder to the session, which cannot change them. So the settings go
    to the server.
    """
    conf = [f"--conf={name}={value}" for name, value in settings("local").items()]
    arguments = f"{shlex.join(conf)} {os.environ.get('PYSPARK_SUBMIT_ARGS', 'pyspark-shell')}"
    with _environment({**_for_the_jvm(find_java_home()), "PYSPARK_SUBMIT_ARGS": arguments}):
        yield
