"""What is done at every place where Spark runs: see ``driver``. A line in ``CASES`` for each operation.

The functions run in the driver, and the checks in the test: all of them are functions of a module.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import xarray as xr
import zarr
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.jobs import tasks
from tests.spark.driver import Case, Site
from tests.support.losses import lose_the_second

import cubed
import frazil
import frazil.pipeline as ops
import frazil.xarray
from frazil.cubed import Executor
from frazil.spark import Catalog, Selection, foreach_batch, read, read_stream, scan, write_stream, write_table

ROWS = 32


def _prepare(session: frazil.Session) -> ops.Tasks:
    zarr.create_array(session.store, name="x", shape=(ROWS,), chunks=(4,), dtype="i4", overwrite=True)
    large = os.urandom(2 << 20)  # more than goes with each task
    return ops.Tasks(range(0, ROWS, 4), shared=("x", large, zlib.crc32(large)))


def a_job(repo: frazil.Repository, site: Site) -> tuple[str, bool]:
    job = ops.Job("count", ops.Target(repo), _prepare, tasks.counts_with_more, writes=("/x",))
    first = ops.run_job(job, site.engine)
    again = ops.run_job(job, site.engine)
    return first.snapshot_id, again.done_before


def is_done_once(repo: frazil.Repository, result: tuple[str, bool]) -> None:
    assert result == (repo.lookup_branch("main"), True)
    assert frazil.read(repo.readonly_session("main"), "/x").tolist() == list(range(ROWS))


SHAPE, CHUNKS = (24, 600), (4, 600)  # chunks that are not inline


def blocks(repo: frazil.Repository, site: Site) -> int:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="y", shape=SHAPE, chunks=CHUNKS, dtype="f4")
    work = [ops.Block("y", (row, 0), (row + 4, SHAPE[1])) for row in range(0, SHAPE[0], 4)]
    report = ops.write_blocks(session, tasks.values, work, site.engine)
    session.commit("In parallel")
    return report.chunks


def check_blocks(repo: frazil.Repository, chunks: int) -> None:
    assert chunks == 6
    values = frazil.read(repo.readonly_session("main"), "/y")
    np.testing.assert_array_equal(values, tasks.values(ops.Block("", (0, 0), SHAPE)))


# Streams: files of rows, one for each batch


def _lost_on_the_way(site: Site) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    marks, victim = site.marks, site.victim

    def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
        texts = (json.dumps({"x": 10 * batch + n, "v": n / 2}) for n in range(10))
        (files / f"{batch}.json").write_text("\n".join(texts))
        os.utime(files / f"{batch}.json", (batch, batch))
    schema = "x bigint, v double"
    arriving = site.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(files))
    arriving = arriving.mapInArrow(_lost_on_the_way(site), schema)
    _finish(write_stream(arriving, ops.Target(repo)), site.directory / "sink")
    commits = read_stream(repo, spark=site.spark, max_commits=2)
    feed = site.directory / "told"
    _finish(commits.writeStream.format("json").option("path", str(feed)), site.directory / "source")
    rows = site.spark.read.schema(commits.schema).json(str(feed)).collect()
    return sorted((row.change, row.chunk, row.metadata) for row in rows if row.path == "/v" and row.chunk)


def _finish(query: DataStreamWriter, checkpoint: Path) -> None:
    started = query.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start()
    started.awaitTermination()


def check_streams(repo: frazil.Repository, rows: list[tuple[str, list[int], str]]) -> None:
    session = repo.readonly_session("main")
    assert frazil.read(session, "/x").tolist() == list(range(20))
    assert frazil.read(session, "/v").tolist() == [n / 2 for n in range(10)] * 2
    batches = [(change, chunk, json.loads(metadata)["spark.batch"]) for change, chunk, metadata in rows]
    assert batches == [
        ("chunk_added", [0], 0),
        ("chunk_added", [1], 0),
        ("chunk_added", [2], 1),
        ("chunk_changed", [1], 1),
    ]


# Arrays into arrays, in two stages; statistics; looking after


def cube() -> np.ndarray:
    return np.arange(24 * 40 * 50, dtype="f4").reshape(24, 40, 50)


def arrays_of_arrays(repo: frazil.Repository, site: Site) -> dict[str, Any]:
    with repo.transaction("main", message="cube") as store:
        zarr.create_array(
            store, name="cube", data=cube(), chunks=(2, 40, 50), dimension_names=["t", "y", "x"]
        )
    before = ops.Version.of(repo)
    series = ops.rechunk(
        before,
        ["/cube"],
        (24, 5, 5),
        max_mem="40kB",
        to=ops.Target(repo, group="/series"),
        engine=site.engine,
    )
    values = zarr.open_array(series.version.session().store, path="series/cube", mode="r")
    same = values.chunks == (24, 5, 5) and np.array_equal(np.asarray(values[...]), cube())
    average = ops.mean(series.version, ["/cube"], "t", to=ops.Target(repo, group="/mean"), engine=site.engine)
    with repo.transaction("main", message="gone") as store:
        zarr.open_group(store, mode="r+").__delitem__("series")
    repo.expire_snapshots(datetime.now(UTC))
    collected = repo.upkeep.collect(datetime.now(UTC), engine=site.engine).apply()
    seen = repo.upkeep.verify("checksum", engine=site.engine)
    return {
        "same": same,
        "tasks": series.metrics.tasks,
        "averaged": average.done_before,
        "deleted": collected.manifests_deleted,
        "findings": seen.rows(),
        "read": seen.bytes_read,
    }


def are_in_order(repo: frazil.Repository, checks: dict[str, Any]) -> None:
    assert checks["same"]
    assert checks["tasks"] >= 2
    assert not checks["averaged"]
    assert checks["deleted"] >= 1
    assert checks["findings"] == []
    assert checks["read"] >= cube().nbytes / 4
    values = frazil.read_many(repo.readonly_session("main"), ["/cube", "/mean/cube"])
    np.testing.assert_array_equal(values["/cube"], cube())
    np.testing.assert_allclose(values["/mean/cube"], cube().mean(axis=0, dtype="f8"), rtol=1e-6)


def derived_arrays(repo: frazil.Repository, site: Site) -> int:
    """Results of results, which follow two more steps and a correction in one commit."""
    with repo.transaction("main", message="cube") as store:
        layout: Any = {"chunks": (2, 40, 50), "dimension_names": ["t", "y", "x"]}
        zarr.create_array(store, name="data/cube", data=cube()[:20], **layout)
    ops.rechunk(
        repo,
        ["data/cube"],
        (5, 5, 5),
        max_mem="40kB",
        to=ops.Target(repo, group="series"),
        engine=site.engine,
    )
    ops.coarsen(
        repo, ["series/data/cube"], {"y": 2, "x": 5}, to=ops.Target(repo, group="half"), engine=site.engine
    )
    ops.mean(repo, "half/series/data/cube", "t", to=ops.Target(repo, group="mean"), engine=site.engine)
    with repo.transaction("main", message="two steps") as store:
        array: Any = zarr.open_array(store, path="data/cube")
        array.resize((24, 40, 50))
        array[20:] = cube()[20:]
        array[3, :5] = -1
    ops.refresh(repo, engine=site.engine).apply()
    return len([each for each in ops.derived(repo).arrays if each.state == "current"])


def follow(repo: frazil.Repository, count: int) -> None:
    assert count == 3
    values = cube()
    values[3, :5] = -1
    half = values.reshape(24, 20, 2, 10, 5).mean(axis=(2, 4), dtype="f4")
    stored = frazil.read_many(
        repo.readonly_session("main"), ["/series/data/cube", "/mean/half/series/data/cube"]
    )
    np.testing.assert_array_equal(stored["/series/data/cube"], values)
    np.testing.assert_allclose(stored["/mean/half/series/data/cube"], half.mean(axis=0), rtol=1e-5)


def by_cubed(repo: frazil.Repository, site: Site) -> int:
    """A program of xarray: a rechunk in files, and a mean, in one commit."""
    with repo.transaction("main", message="cube") as store:
        layout: Any = {"chunks": (2, 40, 50), "dimension_names": ["t", "y", "x"]}
        zarr.create_array(store, name="cube", data=cube(), **layout)
    spec = cubed.Spec(
        work_dir=str(site.directory / "work"), allowed_mem="100MB", executor=Executor(site.engine)
    )
    options: Any = {"chunked_array_type": "cubed", "from_array_kwargs": {"spec": spec}}
    version: Any = repo
    data = xr.open_dataset(version, engine="frazil", chunks={}, **options)
    series = data.chunk(t=-1, y=5, x=25, chunked_array_type="cubed")
    series.assign(mean=data.cube.mean("t")).frazil.to(repo, group="series")
    return sum(path.is_file() and path.name != "zarr.json" for path in (site.directory / "work").rglob("*"))


def is_by_cubed(repo: frazil.Repository, left: int) -> None:
    assert left == 0
    stored = frazil.read_many(repo.readonly_session("main"), ["/series/cube", "/series/mean"])
    np.testing.assert_array_equal(stored["/series/cube"], cube())
    np.testing.assert_allclose(stored["/series/mean"], cube().mean(axis=0), rtol=1e-6)


# Tables


def statements(repo: frazil.Repository, site: Site) -> list[tuple[Any, ...]]:
    """Statements of the catalog: a new table, a join with its former version, and the rows afterwards."""
    catalog = Catalog(site.spark, {"ice": repo})
    new = site.spark.range(0, 60, 1, 6).selectExpr("id div 6 as y", "id % 6 as x", "id * 1.0D as v")
    new.mapInArrow(_lost_on_the_way(site), new.schema).createOrReplaceTempView("new")
    catalog.sql("CREATE TABLE ice.grid TBLPROPERTIES ('dims' = 'y,x') AS SELECT * FROM new")
    repo.create_tag("made", repo.lookup_branch("main"))
    catalog.sql("UPDATE ice.grid SET v = v + 100 WHERE y = 2")
    catalog.sql(
        "MERGE INTO ice.grid t USING (SELECT * FROM new WHERE y = 3) s ON t.y = s.y AND t.x = s.x "
        "WHEN MATCHED AND s.x = 0 THEN UPDATE SET t.v = -1.0 WHEN NOT MATCHED THEN INSERT *"
    )
    changed = catalog.sql(
        "SELECT n.y, n.x, n.v FROM ice.grid n JOIN ice.grid.tag_made o ON n.y = o.y AND n.x = o.x "
        "WHERE n.v <> o.v ORDER BY n.y, n.x"
    )
    return list(map(tuple, changed.collect()))


def are_changed(repo: frazil.Repository, rows: list[tuple[Any, ...]]) -> None:
    assert rows == [*((2, x, 112.0 + x) for x in range(6)), (3, 0, -1.0)]


def rows_and_back(repo: frazil.Repository, site: Site) -> dict[str, Any]:
    spark = site.spark
    frame = spark.range(0, 600, 1, 6).selectExpr("id div 30 as y", "id % 30 as x", "id / 7 as v")
    frame = frame.mapInArrow(_lost_on_the_way(site), frame.schema)
    result = write_table(frame, ops.Target(repo, group="/table"), dims=["y", "x"], chunks={"y": 5, "x": 30})
    version = result.version
    source = read(spark, version, options={"group": "/table"}).where("y >= 15 and x < 3")
    scanned = scan(spark, version, where="y >= 15", selection=Selection(group="/table"))
    snapshots = read(spark, version, options={"table": "snapshots"})
    return {
        "cells": [tuple(row) for row in source.select("y", "x", "v").orderBy("y", "x").collect()],
        "scanned": scanned.count(),
        "snapshots": sorted(row.message for row in snapshots.collect()),
    }


def are_rows(repo: frazil.Repository, values: dict[str, Any]) -> None:
    table = frazil.read(repo.readonly_session("main"), "/table/v")
    np.testing.assert_array_equal(table.ravel(), np.arange(600) / 7)
    assert values["cells"] == [(y, x, (y * 30 + x) / 7) for y in range(15, 20) for x in range(3)]
    assert values["scanned"] == 150
    assert len(values["snapshots"]) == 2


def _largest(rows: DataFrame, target: ops.Target) -> None:
    largest = rows.agg({"v": "max"}).collect()[0][0]
    with target.repo.transaction(target.branch, message="largest") as store:
        zarr.open_group(store, mode="a").attrs["largest"] = largest


def pipelines(repo: frazil.Repository, site: Site) -> None:
    """The same batch twice: the second query has lost its checkpoint."""
    files = site.directory / "files"
    files.mkdir()
    (files / "0.json").write_text('{"v": 1.5}\n{"v": 2.5}')
    rows = site.spark.readStream.schema("v double").json(str(files))
    for checkpoint in ("one", "two"):
        query = rows.writeStream.foreachBatch(foreach_batch(ops.Target(repo), _largest, app_id="largest"))
        _finish(query, site.directory / checkpoint)


def batches_are_published(repo: frazil.Repository) -> None:
    assert zarr.open_group(repo.readonly_session("main").store, mode="r").attrs["largest"] == 2.5
    history = list(repo.ancestry(branch="main"))
    assert [info.message for info in history[:2]] == [
        "Batch 0 of query largest: pipeline into main",
        "largest",
    ]
    assert len(history) == 3
    assert repo.list_branches() == {"main"}


CASES = (
    Case("job", a_job, is_done_once),
    Case("write_blocks", blocks, check_blocks),
    Case("streams", streams, check_streams, commits=3),
    Case("transform", arrays_of_arrays, are_in_order, commits=1),
    Case("refresh", derived_arrays, follow, commits=6),
    Case("cubed", by_cubed, is_by_cubed, commits=2),
    Case("tables", rows_and_back, are_rows),
    Case("statements", statements, are_changed, commits=3),
)
