"""Tasks on Spark's executors: one partition for each task, so that a retry repeats only this task.

Where there are many tasks, several tasks share a partition; their retry finds the results that the others
have staged. The tasks are sent as a few Spark jobs, two of them at any time: the second job fills the slots
that the first one leaves free, results arrive while other tasks run, and the driver never holds all tasks.

The rows of a job are the numbers of its partitions (``spark.range``), and the messages of its tasks and
``shared`` are a part of the function. So the job has one stage. Many bytes of messages travel as rows
instead, because each task reads the whole function, and need a shuffle. A classic session broadcasts
functions of more than 1 MB, once to each executor. Through Connect, a large ``shared`` is sent once, as an
artifact.
"""

from __future__ import annotations

import gc
import hashlib
import os
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyspark
from pyspark import TaskContext
from pyspark.cloudpickle import dumps
from pyspark.sql import DataFrame, SparkSession

from frazil.errors import IcechunkError, SessionStateError
from frazil.jobs.engine import Task, begin_attempt, description
from frazil.jobs.task_failures import sendable
from frazil.spark.runtime.errors import SPARK_ERRORS, from_spark, marked
from frazil.spark.runtime.session import get_spark, is_connect, is_sail, ready
from frazil.threads import Purpose, in_order, start_threads

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
        """The number of tasks that run at the same time, as far as the driver knows before executors start.

        It is 1 for a client of Spark Connect.
        """
        return 1 if is_connect(self.spark) else int(self.spark.sparkContext.defaultParallelism)

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
            raise SessionStateError(
                "The Spark session of the engine was stopped. Make a new session and a new engine"
            )
        per_job = max(-(-len(tasks) // self.jobs), min(_SMALLEST_JOB, -(-len(tasks) // 3)))
        together = -(-len(tasks) // (self.partitions or _partitions(self.spark)))
        sendable(task, task, dumps)
        tag = f"frazil-{uuid.uuid4()}"
        work = worker(task, self._sent(shared), tag)
        label, cancel = _labels(self.spark, tag, description(task))

        def job(start: int) -> list[bytes]:
            numbered = enumerate(tasks[start : start + per_job], start)
            rows = [((number - start) // together, number, task) for number, task in numbered]
            label()  # this thread ends with the run, and its label with it
            try:
                slots, tasks_of = partitioned(
                    self.spark, rows, sys.maxsize if is_sail(self.spark) else _SMALL
                )
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
