"""A standalone Spark cluster on this machine: a master, and a worker on each of 127.0.0.1 and 127.0.0.2.

The executors are separate processes, which a test can kill. ``environment`` is for the driver, which is a
separate process. The module needs Linux, because it finds processes in ``/proc``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from frazil.errors import ServerFailedError
from frazil.spark.runtime.jvm import find_java_home
from frazil.spark.runtime.settings import SETTINGS
from frazil.testing.processes import free_port, running

HOSTS: Final = ("127.0.0.1", "127.0.0.2")

# Few threads are sufficient.
_FEW_THREADS: Final = "-Dio.netty.eventLoopThreads=2"
# Drivers and executors compile as the local sessions of `get_spark` do.
_JAVA: Final = f"{SETTINGS['spark.driver.extraJavaOptions'].value} {_FEW_THREADS}"
# The master and the workers process no rows, so the optimizing compiler has no work there.
_JAVA_OF_DAEMONS: Final = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {_FEW_THREADS}"

_DEFAULTS: Final[Mapping[str, str]] = {
    "spark.driver.host": HOSTS[0],
    "spark.driver.bindAddress": HOSTS[0],
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.executor.memory": "512m",
    # A killed executor does not come back, so the default of 15 seconds is too long.
    "spark.shuffle.io.retryWait": "100ms",
    "spark.shuffle.io.maxRetries": "1",
    "spark.ui.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A running cluster.

    Attributes:
        master: URL of the master.
        workers: Host -> process id.
        environment: Environment variables for a driver.
    """

    master: str
    workers: Mapping[str, int]
    environment: Mapping[str, str]

    def executors(self, at_least: int = 0, seconds: float = 600.0) -> dict[int, int]:
        """Return process ids of the executors, each with the process id of its worker.

        The method waits until there are ``at_least`` executors.

        Raises:
            ServerFailedError: There are fewer executors after ``seconds``.
        """
        workers = set(self.workers.values())
        deadline = time.monotonic() + seconds
        while True:
            executors = _executors(workers)
            if len(executors) >= at_least:
                return executors
            if time.monotonic() > deadline:
                raise ServerFailedError(f"the cluster must have {at_least} executors, got {len(executors)}")
            time.sleep(0.05)

    def kill_executor(self, number: int = 0) -> int:
        """Kill an executor, as the system does when memory is short. Return its process id.

        The method waits until there is an executor. Its worker starts another one in its place.
        """
        pid = sorted(self.executors(number + 1))[number]
        _kill(pid)
        return pid

    def kill_worker(self, host: str) -> None:
        """Kill a worker and its executors, like a power failure of a host. Nothing replaces them."""
        worker = self.workers[host]
        for pid in (worker, *(pid for pid, parent in self.executors().items() if parent == worker)):
            _kill(pid)


def _kill(pid: int) -> None:
    if sys.platform != "win32":  # this module needs Linux
        os.kill(pid, signal.SIGKILL)


_EXECUTOR: Final = "CoarseGrainedExecutorBackend"


@contextmanager
def spark_cluster(cores: int = 1, memory: str = "640m") -> Iterator[SparkCluster]:
    """Run a master and two workers during the block.

    Args:
        cores: Number of cores of each worker. Default: 1.
        memory: Memory of each worker. Default: ``640m``.

    Raises:
        ServerFailedError: A process does not start.
        SessionStateError: There is no Java.
    """
    spark = Path(find_spec("pyspark").submodule_search_locations[0])  # type: ignore[union-attr, index]
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="frazil-cluster-")))
        port, status = free_port(), free_port()
        master = f"spark://{HOSTS[0]}:{port}"
        environment = {
            "JAVA_HOME": str(find_java_home()),
            "SPARK_HOME": str(spark),
            "SPARK_CONF_DIR": str(home),  # and no configuration of the user
            "SPARK_LOCAL_DIRS": str(home),
            "SPARK_LOCAL_IP": HOSTS[0],
            "SPARK_LOCAL_HOSTNAME": HOSTS[0],
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _JAVA_OF_DAEMONS,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        }
        (home / "spark-defaults.conf").write_text(
            "".join(f"{name} {value}\n" for name, value in {"spark.master": master, **_DEFAULTS}.items())
        )

        def start(host: str, *arguments: str) -> int:
            directory = home / f"{arguments[0].rpartition('.')[2]}-{host}"
            directory.mkdir()
            command = [str(spark / "bin" / "spark-class"), *arguments, "--host", host]
            variables = {**environment, "SPARK_LOCAL_IP": host, "SPARK_LOCAL_HOSTNAME": host}
            return stack.enter_context(running(command, directory, variables, ready=lambda: True))

        start(
            HOSTS[0],
            "org.apache.spark.deploy.master.Master",
            *("--port", str(port), "--webui-port", str(status)),
        )
        # A worker without a master tries again only after ten seconds.
        _wait(home, lambda: _workers(status) is not None)
        limits = ("--cores", str(cores), "--memory", memory, "--webui-port", "0")
        workers = {
            host: start(
                host,
                "org.apache.spark.deploy.worker.Worker",
                *limits,
                *("--work-dir", str(home / f"work-{host}"), master),
            )
            for host in HOSTS
        }
        _wait(home, lambda: _workers(status) == len(HOSTS))
        yield SparkCluster(master, workers, environment)


def _wait(home: Path, ready: Callable[[], bool], seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            logs = "\n".join(path.read_text(errors="replace")[-1500:] for path in home.glob("*/*.log"))
            raise ServerFailedError(f"the cluster did not start within {seconds} s:\n{logs}")
        time.sleep(0.1)


def _workers(status: int) -> int | None:
    """Return the number of workers of the master. None if there is no master."""
    with closing(HTTPConnection(HOSTS[0], status, timeout=5)) as connection, suppress(OSError, ValueError):
        connection.request("GET", "/json/")
        return int(json.loads(connection.getresponse().read())["aliveworkers"])
    return None


def _executors(workers: Set[int]) -> dict[int, int]:
    """Return the process ids of the executors of some workers, each with the process id of its worker."""
    executors = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended
            # the name of the program, in parentheses, may contain any characters
            _, parent, *_ = (path / "stat").read_text().rpartition(")")[2].split()
            if int(parent) in workers and _EXECUTOR in (path / "cmdline").read_text():
                executors[int(path.name)] = int(parent)
    return executors
