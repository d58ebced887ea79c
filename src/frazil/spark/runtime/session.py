"""A Spark session that works without configuration.

`get_spark` gives the settings of `frazil.spark.runtime.settings` to the sessions that it makes. `ready` gives
those that a running session can change to other sessions, unless the user has set them, and reports what is
missing of the others.

A local session uses only the loopback address. So it starts on a machine without a network, and with a host
name that does not resolve. Its workers run this Python with the ``sys.path`` of this process. On a cluster
the executors need the same minor version of Python, and Frazil installed: a task is sent as the name of a
function, with its arguments.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import re
import threading
import weakref
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession
from pyspark.util import is_remote_only

from frazil.errors import SessionStateError
from frazil.extras import needs
from frazil.lazy_names import ModuleOnDemand
from frazil.spark.runtime.settings import SETTINGS

if TYPE_CHECKING:
    from frazil.spark.runtime import jvm
else:  # pyspark-client has no JVM
    jvm = ModuleOnDemand("frazil.spark.runtime.jvm")
pysail: Any = ModuleOnDemand("pysail.spark")

_log = logging.getLogger(__name__)

_READY: Final[weakref.WeakSet[SparkSession]] = weakref.WeakSet()
_IS_SAIL: Final[weakref.WeakKeyDictionary[SparkSession, bool]] = weakref.WeakKeyDictionary()


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def is_sail(spark: SparkSession) -> bool:
    """Return whether the server of a session is Sail. It answers as the version of Spark that the client has.

    Spark has a master in its configuration, and a revision in its version.
    """
    if not is_connect(spark):
        return False
    if spark not in _IS_SAIL:
        version = "" if "spark.master" in spark.conf.getAll else spark.sql("SELECT version()").collect()[0][0]
        _IS_SAIL[spark] = re.fullmatch(r"[\w.-]+", version) is not None and version != spark.version
    return _IS_SAIL[spark]


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
        raise SessionStateError(f"Spark must be 4.1 or newer for Frazil's jobs, got {spark.version}")
    if not int(set_.get(_ROWS_OF_A_BATCH, "10000")) > 0:
        raise SessionStateError(
            f"{_ROWS_OF_A_BATCH} must be above 0, got {set_[_ROWS_OF_A_BATCH]}. Spark fails in every Python "
            "data source with this value. Set it to 100000, or unset it"
        )
    if is_sail(spark):
        return ()  # the settings are of workers and of a JVM, which Sail does not have
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
            Frazil's jobs, see `ready` (``not-allowed``). ``pyspark-client`` has no server to connect to.

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
        if is_remote_only():
            raise SessionStateError(
                "Without an active session, pyspark-client must have the address of a server, got none. Set "
                "SPARK_REMOTE (sc://host), or make a session with SparkSession.builder.remote. A local "
                "session needs pyspark: pip install 'frazil[spark]'"
            )
        jvm.start(cores, log)
        active = SparkSession.builder.getOrCreate()
    ready(active)
    return active


def sail_session() -> SparkSession:
    """Return the active session if it is one of Sail, or start one.

    A new session is on the server of ``SPARK_REMOTE``; without this variable, on a server of Sail in this
    process, which the first call starts and which ends with the process.

    Returns:
        The session, made `ready`.

    Raises:
        MissingExtraError: The extra ``sail`` is not installed, and the call needs a server.
        SessionStateError: The active session has a JVM, or ``SPARK_REMOTE`` names another server
            (``not-allowed``).
    """
    with _LOCK:
        active = SparkSession.getActiveSession()
        if active is None or not is_sail(active):
            if active is not None and not is_connect(active):
                raise SessionStateError(
                    "engine='sail' needs a process without a session of Spark's JVM, got one. Stop it "
                    "(spark.stop()), or pass engine='spark'"
                )
            remote = os.environ.get("SPARK_REMOTE") or _sail_server()
            with needs("the engine 'sail'", extra="sail"):
                builder = SparkSession.builder.remote(remote)
                active = builder.getOrCreate() if active is None else builder.create()
        if not is_sail(active):
            raise SessionStateError(
                f"SPARK_REMOTE must be the address of a server of Sail for engine='sail', got {remote}, "
                "which is Spark. Unset SPARK_REMOTE, or pass engine='spark'"
            )
        ready(active)
        return active


_LOCK: Final = threading.Lock()


@cache
def _sail_server() -> str:
    """Start a server of Sail in this process. Returns its address."""
    os.environ.setdefault("RUST_LOG", "error")  # the log of the server goes to standard error
    with needs("the engine 'sail'", extra="sail"):
        server = pysail.SparkConnectServer()
    server.start(background=True)
    atexit.register(server.stop)
    return "sc://{}:{}".format(*server.listening_address)


def _connected(remote: str) -> SparkSession:
    with needs("Spark Connect", extra="connect"):
        importlib.import_module("pyspark.sql.connect")  # the import checks the packages that Connect needs
    if not remote.startswith("local"):
        return SparkSession.builder.getOrCreate()
    with jvm.environment_of_local_server():
        return SparkSession.builder.getOrCreate()
