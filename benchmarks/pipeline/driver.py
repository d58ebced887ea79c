"""The work of the driver: starting engines, sending tasks, receiving results, committing."""

from __future__ import annotations

import atexit
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import zarr
from measure import Measured, peak_mib, scratch
from pyspark.sql import SparkSession

import frazil
from frazil.changes.change_set import ChangeSet, ChunkChanges
from frazil.changes.merge import merge_forks
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import NodeTable
from frazil.jobs.engine import Task
from frazil.jobs.task_results import decode_changes, encode_changes
from frazil.spark import Engine, Inline, Job, OnSpark, Processes, Target, Tasks, rechunk, run_job
from pipeline import tasks as work
from pipeline.engines import WORKERS, engine_of, spark_with
from pipeline.inputs import grid
from pipeline.names import PLAIN, SPARK


def overhead(implementation: str, tasks: int) -> Measured:
    """Measure the overhead of Spark: of the start (in a process without a session), and of an empty task."""
    out = Measured()
    plain = implementation == PLAIN
    with out.seconds("start of a session and its JVM"):
        spark = _plain_session() if plain else spark_with(WORKERS)
    with out.seconds("first job"):
        spark.range(0, 2, 1, 2).collect()
    if plain:
        for name, partitions in (("first job in Python", WORKERS), ("a job after that", 1)):
            with out.seconds(name):
                spark.range(0, partitions, 1, partitions).mapInArrow(
                    lambda batches: batches, "id long"
                ).collect()
        return out
    engine = OnSpark(spark)
    with out.seconds("first job in Python"):
        list(engine.run(work.nothing, [b""] * WORKERS, b""))
    with out.seconds("a job after that"):
        list(engine.run(work.nothing, [b""], b""))
    list(engine.run(work.nothing, [b""] * (tasks // 5), b""))
    with out.milliseconds_each("an empty task", tasks):
        list(engine.run(work.nothing, [b""] * tasks, b""))
    with scratch() as root:
        repo = frazil.Repository.create(frazil.local_filesystem_storage(root))
        for name, one in (
            ("with a fork and a result", OnSpark(spark, resumable=False)),
            ("staged as well", engine),
        ):
            _empty_job(repo, 4, one)
            with out.milliseconds_each(f"an empty task {name}", tasks):
                _empty_job(repo, tasks, one)
    return out


def occupied(implementation: str, tasks: int, seconds: float) -> Measured:
    """Measure the part of the time in which the slots have no task, for tasks of equal length."""
    run = _occupy_plain if implementation == PLAIN else partial(_occupy, engine_of(implementation))
    run(WORKERS, 0.01)
    start = time.perf_counter()
    run(tasks, seconds)
    slot_seconds = (time.perf_counter() - start) * WORKERS
    out = Measured()
    out["idle slots, %"] = 100 * (1 - tasks * seconds / slot_seconds)
    return out


def _occupy(engine: Engine, tasks: int, seconds: float) -> None:
    list(engine.run(work.occupy, [str(seconds).encode()] * tasks, b""))


def _occupy_plain(tasks: int, seconds: float) -> None:
    """Run the same tasks in the Python workers of Spark, without Frazil."""
    spark = _plain_session()

    def occupy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                pass
            yield batch

    spark.range(0, tasks, 1, tasks).mapInArrow(occupy, "id long").collect()


def _plain_session() -> SparkSession:
    session = (
        SparkSession.builder.master(f"local[{WORKERS}]").config("spark.ui.enabled", "false").getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    atexit.register(session.stop)
    return session


def _empty_job(repo: frazil.Repository, tasks: int, engine: Engine) -> None:
    run_job(Job("nothing", Target(repo), lambda session: Tasks(range(tasks)), work.no_item), engine)


# Change sets


def change_sets(implementation: str, references: int, parts: int) -> Measured:
    """Measure the size of the change sets of tasks, and the time to merge them."""
    side = references // 1000
    index = np.stack(np.divmod(np.arange(references), 1000), axis=1).astype("u4")
    rng = np.random.default_rng(0)
    node = b"a node 1"
    rows = np.arange(references)
    names = np.repeat([f"s3://bucket/model/run-{row:06d}/file.nc" for row in range(side)], 1000).tolist()
    lengths = rng.integers(3000, 5000, references).astype("u8")
    ids = np.frombuffer(rng.bytes(12 * references), "u1").reshape(-1, 12)
    out = Measured()

    def forks(tables: Iterator[ChunkTable]) -> list[bytes]:
        return [encode_changes(ChangeSet(chunks={node: ChunkChanges("/v", 2, (table,))})) for table in tables]

    cuts = [slice(at[0], at[-1] + 1) for at in np.array_split(rows, parts)]
    tenth = [slice(at[0], at[-1] + 1) for at in np.array_split(rows, max(parts // 100, 1))]
    for how, some in (("", tenth), (f", in {parts:,} parts", cuts)):
        virtual = forks(
            ChunkTable.from_virtual(index[c], names[c], rows[c] % 1000 * 4096, lengths[c]) for c in some
        )
        native = forks(
            ChunkTable.from_native(index[c], ids[c], np.arange(c.stop - c.start), 0, lengths[c]) for c in some
        )
        out[f"a virtual reference{how}, bytes"] = sum(map(len, virtual)) / references
        out[f"a native reference{how}, bytes"] = sum(map(len, native)) / references
    with out.seconds("decode"):
        changes = list(map(decode_changes, virtual))
    with out.seconds("merge"):
        merged = merge_forks(NodeTable.from_nodes([]), ChangeSet(), changes)
    assert len(merged.chunks[node].table()) == references
    return out


def big_commit(implementation: str, references: int, per_task: int) -> Measured:
    """Measure many references in one commit. Tasks run in other processes, so the memory is the driver's."""
    rows, each = references // work.WIDE, max(per_task // work.WIDE, 1)
    out = Measured()
    with scratch() as root:
        repo = frazil.Repository.create(frazil.local_filesystem_storage(root))

        def prepare(session: frazil.Session) -> Tasks:
            zarr.create_array(
                session.store, name="v", shape=(rows, work.WIDE), chunks=(1, 1), dtype="f4", compressors=None
            )
            return Tasks([(low, min(low + each, rows)) for low in range(0, rows, each)])

        before = peak_mib()
        with out.seconds("all of it"):
            result = run_job(
                Job("refer", Target(repo), prepare, work.refer, writes=("/v",)), Processes(WORKERS)
            )
        out["of that the tasks, on two processes, s"] = result.metrics.task_seconds / WORKERS
        out["driver's peak memory, MiB"] = peak_mib()
        out["driver's peak memory over the start, MiB"] = peak_mib() - before
        out["results of tasks, MiB"] = result.metrics.returned / 2**20
        assert len(result.version.session().chunk_table("/v").index) == references
    return out


# Many slots


@dataclass(slots=True)
class _Timed:
    """An engine that runs tasks here and times them. The remaining time is the time of the driver."""

    resumable: bool = True
    seconds: float = 0.0

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        inline = Inline().run(task, tasks, shared)
        while True:
            start = time.perf_counter()
            result = next(inline, None)
            self.seconds += time.perf_counter() - start
            if result is None:
                return
            yield result


def driver_share(
    implementation: str, tasks: int, references: int, shape: list[int], chunks: list[list[int]]
) -> Measured:
    """Measure the time of the driver per task and the requests of a slot, to estimate a thousand slots."""
    out = Measured()
    few, many = tasks // 2, tasks
    seconds, result = {}, None
    with scratch() as root:
        for count in (2, few, many):
            repo = frazil.Repository.create(frazil.local_filesystem_storage(f"{root}/{count}"))
            engine = _Timed()
            start = time.perf_counter()
            result = run_job(_referring(repo, count, references), engine)
            seconds[count] = time.perf_counter() - start - engine.seconds
        each = (seconds[many] - seconds[few]) / (many - few)
        out[f"Frazil's driver, for a task of {references:,} references, ms"] = each * 1e3
        out["Frazil's driver, once for each job, s"] = max(seconds[few] - few * each, 0.0)
        assert result is not None
        out["result of a task, bytes"] = result.metrics.returned / tasks
        spark = spark_with(WORKERS)
        spark.range(0, 20, 1, 20).write.format("noop").mode("overwrite").save()
        with out.milliseconds_each("Spark's driver and two executors, for an empty task in Java", tasks):
            spark.range(0, tasks, 1, tasks).write.format("noop").mode("overwrite").save()
        source = frazil.Repository.open(frazil.local_filesystem_storage(grid(tuple(shape), tuple(chunks[0]))))
        to = Target(frazil.Repository.create(frazil.local_filesystem_storage(f"{root}/rechunked")))
        moved = rechunk(source, ["tas"], chunks[1], to=to, engine=engine_of(SPARK)).metrics
    out["a slot that rechunks, requests per s"] = moved.requests / moved.task_seconds
    out["a slot that rechunks, MB stored and read per s"] = (
        (moved.stored_bytes_read + moved.stored_bytes_written) / moved.task_seconds / 1e6
    )
    return out


def _referring(repo: frazil.Repository, tasks: int, references: int) -> Job:
    rows = max(references // work.WIDE, 1)

    def prepare(session: frazil.Session) -> Tasks:
        shape = (tasks * rows, work.WIDE)
        zarr.create_array(session.store, name="v", shape=shape, chunks=(1, 1), dtype="f4", compressors=None)
        return Tasks([(low, low + rows) for low in range(0, tasks * rows, rows)])

    return Job("refer", Target(repo), prepare, work.refer, writes=("/v",))
