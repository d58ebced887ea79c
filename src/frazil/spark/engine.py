"""Run one function over many messages.

A task function is a plain function of a module, ``(shared, task) -> result``, bytes to bytes.
``shared`` is the same for all tasks of a run; what differs is small. What it needs to know is in its
arguments, what it did is in its result: it may run on another machine, and more than once.

    Inline     here, one after the other: small jobs, tests, debuggers
    OnSpark    one Spark partition for each task

Results come in the order of the tasks. `OnSpark` sends the tasks as a few Spark jobs, two of them at any
time: the second fills the slots that the first leaves free, results arrive while others work, and the
driver never holds all of them. (``toLocalIterator`` would run one partition after the other.)
"""

from __future__ import annotations

import gc
import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from frazil.errors import ErrorKind, IcechunkError

type Task = Callable[[bytes, bytes], bytes]


class Engine(Protocol):
    """Something that runs tasks."""

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        """``task(shared, t)`` for each ``t``, in order.

        If one fails for good, raises ``IcechunkError`` (``concurrency``) with its number and what it
        raised.
        """
        ...


@dataclass(frozen=True, slots=True)
class Inline:
    """Tasks run in this thread, when their result is asked for.

    >>> list(Inline().run(lambda shared, task: shared + task, [b"1", b"2"], b"no. "))
    [b'no. 1', b'no. 2']
    """

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        for number, message in enumerate(tasks):
            try:
                result = task(shared, message)
            except Exception as error:
                raise _failed(number, len(tasks), type(error).__name__, str(error)) from error
            yield result


@dataclass(frozen=True, slots=True)
class OnSpark:
    """Tasks run on Spark's executors, at most ``jobs`` jobs for a run."""

    spark: SparkSession
    jobs: int = 12

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        per_job = -(-len(tasks) // self.jobs)
        work = _worker(task, shared)
        tag = f"frazil-{uuid.uuid4()}"

        def job(start: int) -> list[bytes]:
            rows = list(enumerate(tasks[start : start + per_job], start))
            self.spark.addTag(tag)  # tags belong to the thread
            slots = self.spark.createDataFrame(rows, "number int, task binary")
            slots = slots.repartitionById(len(rows), "number")
            results = slots.mapInArrow(work, "number int, result binary").collect()
            return [bytes(result) for _, result in sorted(results)]

        pool = ThreadPoolExecutor(2, "frazil-spark")
        try:
            starts = range(0, len(tasks), per_job) if tasks else ()
            for results in _window(pool, job, starts):
                yield from results
        except PySparkException as error:
            raise _from_spark(error, len(tasks)) from error
        finally:
            # Also when the caller stops half way: nobody wants the rest.
            pool.shutdown(wait=False, cancel_futures=True)
            self.spark.interruptTag(tag)
            pool.shutdown(wait=True)


def _window[T, R](
    pool: ThreadPoolExecutor, call: Callable[[T], R], items: Iterable[T], size: int = 2
) -> Iterator[R]:
    """``map`` with at most ``size`` calls under way, so that results do not pile up."""
    rest = iter(items)
    pending: list[Future[R]] = [pool.submit(call, item) for item in islice(rest, size)]
    while pending:
        yield_now = pending.pop(0).result()
        pending += [pool.submit(call, item) for item in islice(rest, 1)]
        yield yield_now


def _worker(task: Task, shared: bytes) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that Spark calls for a partition."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Spark's worker collects garbage after each task: keep it from walking all of numpy and zarr again.
        if not gc.get_freeze_count():
            gc.collect()
            gc.freeze()
        for batch in batches:
            numbers, messages = (column.to_pylist() for column in batch.columns)
            for number, message in zip(numbers, messages, strict=True):
                try:
                    result = task(shared, message)
                except Exception as error:
                    raise RuntimeError(_mark(number, error)) from error
                arrays = [pa.array([number], pa.int32()), pa.array([result], pa.binary())]
                yield pa.RecordBatch.from_arrays(arrays, ["number", "result"])

    return work


# Spark gives back a traceback as text. The one line that we look for in it:
_MARK = re.compile(r'\{"frazil task": .*\}')


def _mark(number: int, error: Exception) -> str:
    return json.dumps({"frazil task": number, "type": type(error).__name__, "text": str(error)})


def _from_spark(error: PySparkException, count: int) -> IcechunkError:
    marked = _MARK.search(str(error))
    if marked is None:
        return IcechunkError(f"the Spark job failed: {error}", ErrorKind.CONCURRENCY)
    told = json.loads(marked.group())
    return _failed(told["frazil task"], count, told["type"], told["text"])


def _failed(number: int, count: int, name: str, text: str) -> IcechunkError:
    return IcechunkError(f"task {number + 1} of {count} failed with {name}: {text}", ErrorKind.CONCURRENCY)
