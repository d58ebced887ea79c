"""Tasks on Spark's executors: one partition each, so that a retry repeats one task and no other. Of many
several share one; their retry finds what the others have staged.

The tasks are sent as a few Spark jobs, two of them at any time: the second fills the slots that the first
leaves free, results arrive while others work, and the driver never holds all of them. (``toLocalIterator``
would run one partition after the other.) Each job costs about 0.1 s, each partition 10 to 15 ms of two
processors, and a task in it 1 ms: a thousand empty tasks take 3 s where four share one, and 11 to 28 s where
each has its own. On a cluster there are more slots to fill than anybody knows beforehand, so it takes more
tasks until they share.

``shared`` is a part of the function that Spark sends. A classic session broadcasts functions of more than 1
MB, once to each executor. Through Connect they would go with every task (0.3 s for 20 MB): there it is sent
as an artifact of the session, once.
"""

from __future__ import annotations

import gc
import hashlib
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark import SparkFiles, TaskContext
from pyspark.cloudpickle import dumps
from pyspark.sql import SparkSession

from frazil.errors import ErrorKind, IcechunkError, SessionStateError
from frazil.jobs.engine import Task, begin_attempt, description
from frazil.jobs.unpicklable import sendable
from frazil.spark.runtime.deployment import ready
from frazil.spark.runtime.error_translation import SPARK_ERRORS, from_spark, marked
from frazil.threads import Purpose, start_threads

#: Of a run, in tasks.
_SMALLEST_JOB: Final = 32
#: Of a run with many tasks: on this machine, and on a cluster.
_LOCAL_PARTITIONS: Final = 256
_PARTITIONS: Final = 2048
#: Bytes that may go with every task.
_SMALL: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class OnSpark:
    """Tasks run on Spark's executors, as at most ``jobs`` Spark jobs and about ``partitions`` partitions: 256
    on one machine and 2048 elsewhere, unless told otherwise.

    Spark tries a task again as often as ``spark.task.maxFailures`` says. The session is made `ready`.
    """

    spark: SparkSession
    jobs: int = 12
    resumable: bool = True
    partitions: int | None = None

    def __post_init__(self) -> None:
        ready(self.spark)

    @property
    def slots(self) -> int:
        """Tasks that run at the same time, as far as the driver knows before executors are there; 1 where it
        is a client of Spark Connect.
        """
        return 1 if _is_connect(self.spark) else int(self.spark.sparkContext.defaultParallelism)

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        _require_running(self.spark)
        per_job = max(-(-len(tasks) // self.jobs), min(_SMALLEST_JOB, -(-len(tasks) // 3)))
        together = -(-len(tasks) // (self.partitions or _partitions(self.spark)))
        sendable(task, task, dumps)
        tag = f"frazil-{uuid.uuid4()}"
        work = _worker(task, self._sent(shared), tag)
        label, cancel = _labels(self.spark, tag, description(task))

        def job(start: int) -> list[bytes]:
            numbered = enumerate(tasks[start : start + per_job], start)
            rows = [((number - start) // together, number, task) for number, task in numbered]
            label()  # of this thread, which ends with the run
            try:
                slots = self.spark.createDataFrame(rows, "slot int, number int, task binary")
                slots = slots.repartitionById(rows[-1][0] + 1, "slot")
                results = slots.mapInArrow(work, "number int, result binary").collect()
            except SPARK_ERRORS as error:
                firsts = range(start, start + len(rows), together)
                raise from_spark(error, tag, firsts, len(tasks))  # noqa: B904  # it has a cause
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
            for results in _window(submit, starts):
                yield from results
        except IcechunkError as error:
            raise error.with_traceback(None) from error.__cause__  # without the frames of the pool
        finally:
            # Also when the caller stops half way: nobody wants the rest.
            pool.shutdown(wait=False, cancel_futures=True)
            while running:  # one may be about to begin, which there is no way to cancel yet
                cancel()
                wait([*running], timeout=0.2)
            pool.shutdown(wait=True)

    def _sent(self, shared: bytes) -> Callable[[], bytes]:
        """How a task gets at ``shared``."""
        if len(shared) <= _SMALL or not _is_connect(self.spark):
            return partial(bytes, shared)
        name = f"frazil-{hashlib.sha256(shared).hexdigest()[:32]}"
        with tempfile.TemporaryDirectory(prefix="frazil-") as place:
            path = Path(place) / name
            path.write_bytes(shared)
            self.spark.addArtifacts(str(path), file=True)
        return partial(_artifact, name)


def _partitions(spark: SparkSession) -> int:
    master = spark.conf.get("spark.master", "") or ""
    return max(_LOCAL_PARTITIONS, 8 * (os.cpu_count() or 1)) if master.startswith("local") else _PARTITIONS


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _require_running(spark: SparkSession) -> None:
    """Raises ``SessionStateError`` (``not-allowed``) for a classic session that was stopped."""
    if not _is_connect(spark) and getattr(spark.sparkContext, "_jsc", None) is None:
        raise SessionStateError(
            "the Spark session of the engine was stopped: make a new session and a new engine",
            ErrorKind.NOT_ALLOWED,
        )


def _labels(spark: SparkSession, tag: str, text: str) -> tuple[Callable[[], None], Callable[[], object]]:
    """How a thread labels its Spark jobs, and how to cancel those with the tag.

    In a classic session ``interruptTag`` finds none. Spark Connect lets nobody set a description, so there
    the text is a second tag, which cannot hold commas.
    """
    if _is_connect(spark):
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
    """Describe the Spark jobs that this thread starts; afterwards the description is the one of before."""
    if _is_connect(spark):
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
    """A file that the driver has sent, read once in each process."""
    return Path(SparkFiles.get(name)).read_bytes()


def _window[T, R](submit: Callable[[T], Future[R]], items: Iterable[T], size: int = 2) -> Iterator[R]:
    """``map`` with at most ``size`` calls under way, so that results do not pile up."""
    rest = iter(items)
    pending = list(map(submit, islice(rest, size)))
    while pending:
        yield_now = pending.pop(0).result()
        pending += map(submit, islice(rest, 1))
        yield yield_now


def _worker(
    task: Task, shared: Callable[[], bytes], token: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that Spark calls for a partition."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Spark's worker collects garbage after each task: keep it from walking all of numpy and zarr again.
        if not gc.get_freeze_count():
            gc.collect()
            gc.freeze()
        context = TaskContext.get()
        begin_attempt(0 if context is None else context.attemptNumber())
        for batch in batches:
            _, numbers, messages = (column.to_pylist() for column in batch.columns)
            for number, message in zip(numbers, messages, strict=True):
                try:
                    result = task(shared(), message)
                except BaseException as error:  # also of sys.exit, which would end the worker
                    raise marked(token, number, error) from None
                arrays = [pa.array([number], pa.int32()), pa.array([result], pa.binary())]
                yield pa.RecordBatch.from_arrays(arrays, ["number", "result"])

    return work
