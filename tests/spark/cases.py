"""What is done at every place where Spark runs: see ``driver``. A line in ``CASES`` for each operation.

The functions run in the driver, and the checks in the test: all of them are functions of a module.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import zarr
from pyspark.sql.streaming import DataStreamWriter
from tests.spark import tasks
from tests.spark.driver import Case, Site, lose_the_second

import frazil
from frazil.spark import (
    Block,
    Job,
    Target,
    Tasks,
    read_stream,
    run_job,
    write_blocks,
    write_stream,
)

ROWS = 32


def _prepare(session: frazil.Session) -> Tasks:
    zarr.create_array(session.store, name="x", shape=(ROWS,), chunks=(4,), dtype="i4", overwrite=True)
    large = os.urandom(2 << 20)  # more than goes with each task
    return Tasks(range(0, ROWS, 4), shared=("x", large, zlib.crc32(large)))


def a_job(repo: frazil.Repository, site: Site) -> tuple[str, bool]:
    job = Job("count", Target(repo), _prepare, tasks.counts_with_more, writes=("/x",))
    first = run_job(job, site.engine)
    again = run_job(job, site.engine)
    return first.snapshot_id, again.done_before


def is_done_once(repo: frazil.Repository, result: tuple[str, bool]) -> None:
    assert result == (repo.lookup_branch("main"), True)
    found = zarr.open_array(repo.readonly_session("main").store, path="x", mode="r")[:]
    assert found.tolist() == list(range(ROWS))


SHAPE, CHUNKS = (24, 600), (4, 600)  # chunks that are not inline


def blocks(repo: frazil.Repository, site: Site) -> int:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="y", shape=SHAPE, chunks=CHUNKS, dtype="f4")
    work = [Block("y", (row, 0), (row + 4, SHAPE[1])) for row in range(0, SHAPE[0], 4)]
    written = write_blocks(session, tasks.values, work, site.engine)
    session.commit("In parallel")
    return written.chunks


def are_written(repo: frazil.Repository, chunks: int) -> None:
    assert chunks == 6
    found = zarr.open_array(repo.readonly_session("main").store, path="y", mode="r")[...]
    np.testing.assert_array_equal(found, tasks.values(Block("", (0, 0), SHAPE)))


# Streams: files of rows, one for each batch


def _lost_on_the_way(site: Site) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    marks, victim = site.marks, site.victim

    def passed(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        yield from batches
        lose_the_second(marks, victim)

    return passed


def streams(repo: frazil.Repository, site: Site) -> list[tuple[str, list[int], str]]:
    """Rows into arrays, and then what the commits were."""
    with repo.transaction("main", message="arrays") as store:
        root = zarr.create_group(store)
        root.create_array("x", shape=(0,), dtype="i8", chunks=(8,), dimension_names=["x"])
        root.create_array("v", shape=(0,), dtype="f8", chunks=(8,), dimension_names=["x"])
    files = site.directory / "files"
    files.mkdir()
    for batch in range(2):
        rows = (json.dumps({"x": 10 * batch + n, "v": n / 2}) for n in range(10))
        (files / f"{batch}.json").write_text("\n".join(rows))
        os.utime(files / f"{batch}.json", (batch, batch))
    schema = "x bigint, v double"
    arriving = site.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(files))
    arriving = arriving.mapInArrow(_lost_on_the_way(site), schema)
    _finish(write_stream(arriving, Target(repo)), site.directory / "sink")
    commits = read_stream(repo, spark=site.spark, max_commits=2)
    told = site.directory / "told"
    _finish(commits.writeStream.format("json").option("path", str(told)), site.directory / "source")
    rows = site.spark.read.schema(commits.schema).json(str(told)).collect()
    return sorted((row.change, row.chunk, row.metadata) for row in rows if row.path == "/v" and row.chunk)


def _finish(query: DataStreamWriter, checkpoint: Path) -> None:
    started = query.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start()
    started.awaitTermination()


def are_told(repo: frazil.Repository, told: list[tuple[str, list[int], str]]) -> None:
    root = zarr.open_group(repo.readonly_session("main").store, mode="r")
    assert root["x"][:].tolist() == list(range(20))
    assert root["v"][:].tolist() == [n / 2 for n in range(10)] * 2
    batches = [(change, chunk, json.loads(metadata)["spark.batch"]) for change, chunk, metadata in told]
    assert batches == [
        ("chunk_added", [0], 0),
        ("chunk_added", [1], 0),
        ("chunk_added", [2], 1),
        ("chunk_changed", [1], 1),
    ]


CASES = (
    Case("job", a_job, is_done_once),
    Case("write_blocks", blocks, are_written),
    Case("streams", streams, are_told, commits=3),
)
