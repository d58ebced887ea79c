"""Tasks on Spark's executors: one partition for each task, so that a retry repeats only this task.

Where there are many tasks, several tasks share a partition; their retry finds the results that the others
have staged. The tasks are sent as a few Spark jobs, two of them at any time: the second job fills the slots
that the first one leaves free, results arrive while other tasks run, and the driver never holds all tasks.

The rows of a job are the numbers of its partitions (``spark.range``), and the messages of its tasks and
``shared`` are a part of the function. So the job has one stage. Many bytes of messages travel as rows
instead, because each task reads the whole function, and need a shuffle. A classic session broadcasts
functions of more than 1 MB, once to each executor. Through Connect, a large ``shared`` is sent once, as an
artifact.

**Failures.** A task that fails raises `marked`: its failure as one line of JSON, which Spark passes on inside
of its own text. The line has a token that only the driver and the tasks of one run know, because the text of
an error may come from a foreign file, and must not be taken for a mark. An error without a mark comes from
Spark itself. Tables of patterns find the cause in the text, since the classes of these errors say little.

Spark shows users the whole traceback of its Python process before the message. So an error of Frazil leaves
a data source or function (`causes_only`) without a traceback. The log has it at the level ``debug``.
"""

from __future__ import annotations

import base64
import functools
import gc
import hashlib
import importlib
import inspect
import json
import logging
import os
import re
import signal
import sys
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyspark
from pyspark import TaskContext
from pyspark.cloudpickle import dumps
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.util import is_remote_only

from frazil.errors import ErrorKind, IcechunkError, SessionStateError
from frazil.jobs.engine import Task, attempt, begin_attempt, description
from frazil.jobs.task_failures import Failure, failure_of, is_library, sendable, task_error, worker_lost
from frazil.spark.runtime.session import get_spark, is_connect, is_sail, ready, sail_session
from frazil.threads import Purpose, in_order, start_threads

_log: Final = logging.getLogger(__name__)

#: The errors of the bridge to the JVM, which pyspark-client does not have.
_BRIDGE_ERRORS: Final[tuple[type[Exception], ...]] = (
    () if is_remote_only() else (importlib.import_module("py4j.protocol").Py4JError,)
)
#: The errors of a call of Spark: the second if Spark has no class for it, the others if a process has ended.
SPARK_ERRORS: Final[tuple[type[Exception], ...]] = (
    PySparkException,
    *_BRIDGE_ERRORS,
    ConnectionError,
    EOFError,
)


def marked(token: str, number: int | None, error: BaseException) -> RuntimeError:
    """Return the error that a task raises instead of ``error``; ``number`` is that of the task, if known."""
    failure = failure_of(error)
    fields = asdict(failure) | {"error": base64.b64encode(failure.error).decode()}
    return RuntimeError(json.dumps({"frazil task": token, "number": number, "attempt": attempt(), **fields}))


def from_spark(error: BaseException, token: str, numbers: Sequence[int], count: int) -> IcechunkError:
    """Return the error that the driver raises for an error of Spark.

    ``numbers`` holds for each partition the first of its tasks; ``count`` is the number of all tasks.
    """
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # an error of the bridge asks the JVM for its text, which may be gone
        text = type(error).__name__
    start = text.find(json.dumps({"frazil task": token})[:-1]) if token else -1
    if start >= 0:
        fields: dict[str, Any] = json.JSONDecoder().raw_decode(text, start)[0]
        del fields["frazil task"]
        number, attempts = fields.pop("number"), fields.pop("attempt") + 1
        fields["error"] = base64.b64decode(fields["error"])
        return task_error(Failure(**fields), number, count, attempts)
    _log.debug("an error of Spark", exc_info=error)
    lost = _lost_worker(text)
    if lost is None:
        sentence = next((words for pattern, words in _CAUSES.items() if re.search(pattern, text)), None)
        first = _first_cause(text)[:_LONGEST]
        raised = IcechunkError(
            f"Spark could not run the tasks: {first if sentence is None else f'{sentence} ({first})'}",
            ErrorKind.CONCURRENCY,
        )
        raised.__cause__ = error.with_traceback(None)
        return raised
    partition = re.search(r"Task (\d+) in stage \S+ failed (\d+) times", text)
    at = int(partition[1]) if partition else len(numbers)
    number = numbers[at] if at < len(numbers) else None
    return task_error(lost, number, count, int(partition[2]) if partition else 1)


# Workers that died, in the text of Spark

_EXECUTOR: Final = re.compile(r"ExecutorLostFailure \(.*?\)(?: Reason: (.*))?")
_EXIT_CODE: Final = re.compile(r"exit(?:ed with)? (?:code|status):? (\d+)", re.IGNORECASE)
_CRASHED: Final = re.compile("Python worker exited unexpectedly")
_NO_START: Final = re.compile(r"Python worker failed to connect back|PYTHON_WORKER_FAILED_TO|Failed to fork")
_FATAL: Final = re.compile(r"Fatal Python error: ([^\n]+)")
_FRAME: Final = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>\S+)', re.MULTILINE)
_LINE: Final = 'File "{file}", line {line}, in {name}'
#: The names of signals in the output of Python's fault handler.
_SIGNALS: Final = {
    "Segmentation fault": "signal SIGSEGV",
    "Aborted": "signal SIGABRT",
    "Bus error": "signal SIGBUS",
    "Illegal instruction": "signal SIGILL",
    "Floating point exception": "signal SIGFPE",
}


def _lost_worker(text: str) -> Failure | None:
    """Return the failure if a process of Spark died, else None."""
    if (fatal := _FATAL.search(text)) is not None:
        ending = _SIGNALS.get(fatal[1].strip(), f"the fatal error {fatal[1].strip()}")
        every = [frame.groupdict() for frame in _FRAME.finditer(text, fatal.end())]
        frames = [_LINE.format(**frame) for frame in every if not is_library(frame["file"])]
        return worker_lost(ending, *frames[:1])
    if (executor := _EXECUTOR.search(text)) is not None:
        ending = "the loss of its executor"
        if (exit_code := _EXIT_CODE.search(executor[1] or "")) is not None:
            code = int(exit_code[1])
            # Shells and containers report a signal as 128 plus its number.
            is_signal = code - 128 in signal.valid_signals()
            ending = f"signal {signal.Signals(code - 128).name}" if is_signal else f"exit code {code}"
        failure = worker_lost(ending)
        return replace(failure, text=f"{failure.text}. Spark says: {(executor[1] or executor[0]).strip()}")
    if _CRASHED.search(text):
        return worker_lost("a signal or an exit code that Spark does not report")
    if (start := _NO_START.search(text)) is not None:
        line = text[text.rfind("\n", 0, start.start()) + 1 :].partition("\n")[0].strip()
        return Failure(
            "ChildProcessError",
            f"Spark could not start its Python process: {line}. The log of the executor has details",
            kind=ErrorKind.WORKER_LOST,
        )
    return None


# Other errors of Spark

#: Patterns in the text of Spark, and the message for each.
_CAUSES: Final = {
    "No module named '(?:frazil|pyspark_frazil)": "Frazil is not installed on the executors. Install the "
    "version of the driver there",
    r"spark\.driver\.maxResultSize": "the results of the tasks are larger than spark.driver.maxResultSize. "
    "Raise this setting",
    r"java\.lang\.OutOfMemoryError": "a JVM of Spark had too little memory. Raise spark.driver.memory or "
    "spark.executor.memory",
    r"SparkContext (?:was|has been) ?(?:shut ?down|cancelled|stopped)|stopped SparkContext": "the Spark "
    "session was stopped",
    "Connection refused|Answer from Java side is empty|Error while sending or receiving|Py4JNetwork": "the "
    "JVM of Spark does not answer, because it ended or was killed. Start a new session",
    r"StatusCode\.UNAVAILABLE|failed to connect to all addresses": "the server of Spark Connect does not "
    "answer, because it ended or cannot be reached",
    "SESSION_(?:CLOSED|NOT_FOUND|CHANGED)": "the server of Spark Connect closed the session. Make a new one",
    "[Jj]ob .*cancelled|OPERATION_CANCELED": "the Spark job was cancelled",
}
_PYTHON_CAUSE: Final = re.compile(r"^(?:[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt))\b.*", re.MULTILINE)
_OWN_CAUSE: Final = re.compile(r"frazil\.errors\.\w+: [^\n]+")
_JAVA_CAUSE: Final = re.compile(r"(?:most recent failure: Lost task .*?\): |Caused by: )([^\n]+)")
_LONGEST: Final = 2_000


def _first_cause(text: str) -> str:
    """Return the line of Spark's text with the cause: of Frazil, of a Python traceback, or of a Java one."""
    if own := _OWN_CAUSE.findall(text):
        return str(own[-1])
    python = text.rfind("Traceback (most recent call last)")
    if python >= 0 and (causes := _PYTHON_CAUSE.findall(text, python)):
        return str(causes[-1] if isinstance(causes[-1], str) else causes[-1][0])
    if causes := _JAVA_CAUSE.findall(text):
        return str(causes[-1]).strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), "no text")


def causes_only[C: type](cls: C) -> C:
    """Return a class for Spark whose methods raise errors of Frazil without traceback and causes."""
    for name, method in [*vars(cls).items()]:
        if isinstance(method, staticmethod):
            setattr(cls, name, staticmethod(_guarded(method.__func__)))
        elif inspect.isfunction(method) and not name.startswith("_"):
            setattr(cls, name, _guarded(method))
    return cls


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    @contextmanager
    def bare() -> Iterator[None]:
        try:
            yield
        except IcechunkError as error:
            _log.debug("an error in a process of Spark", exc_info=error)
            if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
                # Spark begins its text with the traceback of its own frames. The worker ends with this error.
                os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            raise error.with_traceback(None) from None

    @functools.wraps(method)
    def generating(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with bare():
            yield from method(*args, **kwargs)

    @functools.wraps(method)
    def calling(*args: Any, **kwargs: Any) -> Any:
        with bare():
            return method(*args, **kwargs)

    return generating if inspect.isgeneratorfunction(method) else calling


#: The columns of the results.
RESULTS: Final = "number int, result binary"

type Rows = list[tuple[int, int, bytes]]
type TasksOf = Callable[[pa.RecordBatch], Iterable[tuple[int, bytes]]]


def partitioned(spark: SparkSession, rows: Rows, limit: int) -> tuple[DataFrame, TasksOf]:
    """Return a DataFrame with a partition for each slot, and the function from its batches to their tasks.

    ``rows`` are the slot, the number and the message of each task, in the order of the slots. Messages of
    more than ``limit`` bytes are not sent with the function.
    """
    count = rows[-1][0] + 1
    if sum(len(message) for _, _, message in rows) > limit:
        frame = spark.createDataFrame(rows, "slot int, number int, task binary")
        return frame.repartitionById(count, "slot"), partial(_tasks_of, None)
    of_slots: list[list[tuple[int, bytes]]] = [[] for _ in range(count)]
    for slot, number, message in rows:
        of_slots[slot].append((number, message))
    return spark.range(0, count, 1, count), partial(_tasks_of, of_slots)


def _tasks_of(
    of_slots: list[list[tuple[int, bytes]]] | None, batch: pa.RecordBatch
) -> Iterable[tuple[int, bytes]]:
    """Return the tasks of the slots of a batch, or those in its rows."""
    slots, *tasks = (column.to_pylist() for column in batch.columns)
    return (
        zip(*tasks, strict=True)
        if of_slots is None
        else chain.from_iterable(of_slots[each] for each in slots)
    )


def worker(
    task: Task, shared: Callable[[], bytes], token: str
) -> Callable[[TasksOf, Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that works on a partition. It gets the tasks of a batch by its first argument."""

    def work(tasks_of: TasksOf, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _freeze_imports()
        context = TaskContext.get()
        begin_attempt(0 if context is None else context.attemptNumber())
        for batch in batches:
            for number, message in tasks_of(batch):
                try:
                    result = task(shared(), message)
                except BaseException as error:  # also of sys.exit, which would end the worker
                    raise marked(token, number, error) from None
                arrays = [pa.array([number], pa.int32()), pa.array([result], pa.binary())]
                yield pa.RecordBatch.from_arrays(arrays, ["number", "result"])

    return work


@cache
def _freeze_imports() -> None:
    """Freeze all objects once: Spark's worker collects garbage after each task, and skips frozen objects."""
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


#: The size of the smallest Spark job of a run, in tasks.
_SMALLEST_JOB: Final = 32
#: Partitions of a run with many tasks: on this machine, and on a cluster.
_LOCAL_PARTITIONS: Final = 256
_PARTITIONS: Final = 2048
#: The most bytes of ``shared``, and of the messages of a Spark job, that are sent with every task.
_SMALL: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class OnSpark:
    """An engine that runs tasks on Spark's executors.

    The constructor makes the session `ready`. Spark retries a task until it has failed
    ``spark.task.maxFailures`` times.

    Attributes:
        spark: The session.
        jobs: The most Spark jobs of a run. The default is 12.
        resumable: Whether jobs stage the results of tasks, so that a later run continues. The default is
            True.
        partitions: About how many partitions a run has. The default, None, is 256 (or 8 for each processor)
            on one machine and 2048 elsewhere.

    Examples:
        >>> from frazil.spark import OnSpark, get_spark
        >>> engine = OnSpark(get_spark())
        >>> list(engine.run(lambda shared, task: shared + task, [b"1", b"2"], b"no. "))
        [b'no. 1', b'no. 2']
    """

    spark: SparkSession
    jobs: int = 12
    resumable: bool = True
    partitions: int | None = None

    def __post_init__(self) -> None:
        ready(self.spark)

    @property
    def slots(self) -> int:
        """The number of tasks that run at the same time, at least: see `configured_slots`.

        For Sail, it is the number of processors of this machine.
        """
        if is_sail(self.spark):
            return os.cpu_count() or 1
        if self.spark not in _CONFIGURED:  # a request, for Spark Connect
            conf = {name: str(value) for name, value in self.spark.conf.getAll.items()}
            _CONFIGURED[self.spark] = configured_slots(conf)
        known = 1 if is_connect(self.spark) else int(self.spark.sparkContext.defaultParallelism)
        return max(known, _CONFIGURED[self.spark])

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        """Run tasks on the executors.

        Args:
            task: The function, which is called as ``task(shared, t)`` for each element ``t`` of ``tasks``.
            tasks: The messages of the tasks.
            shared: Bytes that all tasks get.

        Yields:
            The results, in the order of ``tasks``.

        Raises:
            TaskFailedError: A task failed after all attempts.
            SessionStateError: The Spark session was stopped (``not-allowed``).
            IcechunkError: Spark could not run the tasks (``concurrency``).
        """
        if not is_connect(self.spark) and getattr(self.spark.sparkContext, "_jsc", None) is None:
            raise SessionStateError("The Spark session was stopped. Make a new session and engine")
        third = min(_SMALLEST_JOB, -(-len(tasks) // 3))
        per_job = max(-(-len(tasks) // self.jobs), third, min(self.slots, len(tasks)))
        together = -(-len(tasks) // (self.partitions or _partitions(self.spark)))
        sendable(task, dumps=dumps)
        tag = f"frazil-{uuid.uuid4()}"
        work = worker(task, self._sent(shared), tag)
        label, cancel = _labels(self.spark, tag, description(task))

        limit = sys.maxsize if is_sail(self.spark) else _SMALL

        def job(start: int) -> list[bytes]:
            numbered = enumerate(tasks[start : start + per_job], start)
            rows = [((number - start) // together, number, task) for number, task in numbered]
            label()  # this thread ends with the run, and its label with it
            try:
                slots, tasks_of = partitioned(self.spark, rows, limit)
                results = slots.mapInArrow(partial(work, tasks_of), RESULTS).collect()
            except SPARK_ERRORS as error:
                firsts = range(start, start + len(rows), together)
                raise from_spark(error, tag, firsts, len(tasks))  # noqa: B904  # the error has a cause
            return [bytes(result) for _, result in sorted(results)]

        pool = start_threads(Purpose.SPARK_JOBS)
        running: set[Future[list[bytes]]] = set()

        def submit(start: int) -> Future[list[bytes]]:
            future = pool.submit(job, start)
            running.add(future)
            future.add_done_callback(running.discard)
            return future

        try:
            starts = range(0, len(tasks), per_job) if tasks else ()
            for results in in_order(submit, starts, 2):
                yield from results
        except IcechunkError as error:
            raise error.with_traceback(None) from error.__cause__  # without the frames of the pool
        finally:
            # Also when the caller stops half way: the other results are not needed.
            pool.shutdown(wait=False, cancel_futures=True)
            while running:  # a job that is about to begin cannot be cancelled yet
                cancel()
                wait([*running], timeout=0.2)
            pool.shutdown(wait=True)

    def _sent(self, shared: bytes) -> Callable[[], bytes]:
        """Return a function by which a task gets ``shared``."""
        if len(shared) <= _SMALL or not is_connect(self.spark) or is_sail(self.spark):
            return partial(bytes, shared)
        name = f"frazil-{hashlib.sha256(shared).hexdigest()[:32]}"
        with tempfile.TemporaryDirectory(prefix="frazil-") as place:
            path = Path(place) / name
            path.write_bytes(shared)
            self.spark.addArtifacts(str(path), file=True)
        return partial(_artifact, name)


def engine() -> OnSpark:
    """Return an engine on the active Spark session, or on a session that this call starts."""
    return OnSpark(get_spark())


def sail_engine() -> OnSpark:
    """Return an engine on a session of Sail, whose server this call starts if the environment names none."""
    return OnSpark(sail_session())


def configured_slots(conf: Mapping[str, str]) -> int:
    """Return how many tasks run at the same time by the settings of Spark; 1 if they do not say it.

    Executors may start later, so with dynamic allocation it is the number of slots of the most executors.
    """
    if local := re.fullmatch(r"local\[\s*(\d+|\*)\s*(?:,.*)?\]", conf.get("spark.master", "")):
        return int(local[1]) if local[1] != "*" else os.cpu_count() or 1
    is_dynamic = conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true"
    name = "spark.dynamicAllocation.maxExecutors" if is_dynamic else "spark.executor.instances"
    executors = int(conf.get(name, "1"))
    cores = int(conf.get("spark.executor.cores", "1")) // int(conf.get("spark.task.cpus", "1"))
    return max(executors * cores, 1) if executors < _UNLIMITED else 1


_CONFIGURED: Final[weakref.WeakKeyDictionary[SparkSession, int]] = weakref.WeakKeyDictionary()
#: Spark's default for the most executors.
_UNLIMITED: Final = (1 << 31) - 1


def _partitions(spark: SparkSession) -> int:
    master = spark.conf.get("spark.master", "") or ""
    return max(_LOCAL_PARTITIONS, 8 * (os.cpu_count() or 1)) if master.startswith("local") else _PARTITIONS


def _labels(spark: SparkSession, tag: str, text: str) -> tuple[Callable[[], None], Callable[[], object]]:
    """Return a function that labels the Spark jobs of a thread, and a function that cancels these jobs.

    In a classic session ``interruptTag`` does not find any jobs. Spark Connect does not allow descriptions,
    so there the text is a second tag, which cannot hold commas.
    """
    if is_connect(spark):
        tags = tag, text.replace(",", ";")

        def label() -> None:
            for each in tags:
                spark.addTag(each)

        return label, partial(spark.interruptTag, tag)
    context = spark.sparkContext
    group = context.getLocalProperty(_GROUP) or tag  # a group of the caller may be cancelled by its name

    def describe() -> None:
        context.addJobTag(tag)
        context.setJobGroup(group, text)

    return describe, partial(context.cancelJobsWithTag, tag)


_GROUP: Final = "spark.jobGroup.id"
_DESCRIPTION: Final = "spark.job.description"


@contextmanager
def labelled(spark: SparkSession, text: str) -> Iterator[None]:
    """Describe the Spark jobs that this thread starts, and restore the earlier description afterwards."""
    if is_connect(spark):
        tag = text.replace(",", ";")
        is_new = tag not in spark.getTags()
        spark.addTag(tag)
        try:
            yield
        finally:
            if is_new:
                spark.removeTag(tag)
        return
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]  # None takes it away


@lru_cache(maxsize=2)
def _artifact(name: str) -> bytes:
    """Read a file that the driver has sent, once in each process."""
    return Path(pyspark.SparkFiles.get(name)).read_bytes()
