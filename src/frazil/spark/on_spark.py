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
import json
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark import SparkFiles, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from frazil.errors import ErrorKind, IcechunkError
from frazil.spark.engine import Task, begin_attempt, failed, told
from frazil.spark.places import ready

#: Of a run, in tasks.
_SMALLEST_JOB: Final = 32
#: Of a run with many tasks: on this machine, and on a cluster.
_PARTITIONS_HERE: Final = 256
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
        per_job = max(-(-len(tasks) // self.jobs), min(_SMALLEST_JOB, -(-len(tasks) // 3)))
        together = -(-len(tasks) // (self.partitions or _partitions(self.spark)))
        work = _worker(task, self._sent(shared))
        tag = f"frazil-{uuid.uuid4()}"
        add_tag, cancel = _tagging(self.spark)

        def job(start: int) -> list[bytes]:
            numbered = enumerate(tasks[start : start + per_job], start)
            rows = [((number - start) // together, number, task) for number, task in numbered]
            add_tag(tag)  # tags belong to the thread
            slots = self.spark.createDataFrame(rows, "slot int, number int, task binary")
            slots = slots.repartitionById(rows[-1][0] + 1, "slot")
            results = slots.mapInArrow(work, "number int, result binary").collect()
            return [bytes(result) for _, result in sorted(results)]

        pool = ThreadPoolExecutor(2, "frazil-spark")
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
        except PySparkException as error:
            raise _from_spark(error, len(tasks)) from error
        finally:
            # Also when the caller stops half way: nobody wants the rest.
            pool.shutdown(wait=False, cancel_futures=True)
            while running:  # one may be about to begin, which there is no way to cancel yet
                cancel(tag)
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
    return max(_PARTITIONS_HERE, 8 * (os.cpu_count() or 1)) if master.startswith("local") else _PARTITIONS


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _tagging(spark: SparkSession) -> tuple[Callable[[str], None], Callable[[str], object]]:
    """How to tag jobs, and how to cancel those with a tag: in a classic session ``interruptTag`` finds
    none."""
    if _is_connect(spark):
        return spark.addTag, spark.interruptTag
    return spark.sparkContext.addJobTag, spark.sparkContext.cancelJobsWithTag


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
    task: Task, shared: Callable[[], bytes]
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
                except Exception as error:
                    raise RuntimeError(_mark(number, error)) from error
                arrays = [pa.array([number], pa.int32()), pa.array([result], pa.binary())]
                yield pa.RecordBatch.from_arrays(arrays, ["number", "result"])

    return work


# Spark gives back a traceback as text. The one line that we look for in it:
_MARK = re.compile(r'\{"frazil task": .*\}')


def _mark(number: int, error: Exception) -> str:
    name, text = told(error)
    return json.dumps({"frazil task": number, "type": name, "text": text})


def _from_spark(error: PySparkException, count: int) -> IcechunkError:
    marked = _MARK.search(str(error))
    if marked is None:
        return IcechunkError(f"the Spark job failed: {error}", ErrorKind.CONCURRENCY)
    said, _ = json.JSONDecoder().raw_decode(marked.group())
    return failed(said["frazil task"], count, said["type"], said["text"])
