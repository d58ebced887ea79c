"""Real queries of Structured Streaming: sink, source and pipelines, with failures in between."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.spark.streams.data_source import Failing
from tests.support.judge import same_by_reference
from tests.support.patience import patience

import frazil
from frazil.pipeline import coarsen, derived
from frazil.spark import Target, foreach_batch

pytestmark = [pytest.mark.spark, pytest.mark.interop]

ROWS = 5


@pytest.fixture(scope="module")
def streaming(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(Failing)
    return spark


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "repo"


@pytest.fixture
def repo(path: Path) -> frazil.Repository:
    repository = frazil.Repository.create(frazil.local_filesystem_storage(str(path)))
    session = repository.writable_session("main")
    root = zarr.create_group(session.store)
    root.create_array("x", data=np.arange(2), chunks=(4,), dimension_names=["x"])
    root.create_array("v", shape=(2,), dtype="f8", chunks=(4,), fill_value=np.nan, dimension_names=["x"])
    session.commit("arrays")
    return repository


def arrive(place: Path, *numbers: int) -> None:
    """Files of rows; one for each batch."""
    place.mkdir(exist_ok=True)
    for number in numbers:
        rows = [{"x": 10 * number + n, "v": number + n / 10} for n in range(ROWS)]
        path = place / f"{number}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (number, number))  # Spark takes them by age


def rows_of(spark: SparkSession, place: Path) -> DataFrame:
    source = spark.readStream.schema("x bigint, v double").option("maxFilesPerTrigger", 1)
    return source.json(str(place))


def finish(query: DataStreamWriter, checkpoint: Path) -> int:
    """Run until nothing is left; how many batches that were."""
    started = query.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start()
    try:
        assert started.awaitTermination(int(patience(60)))
        return len([each for each in started.recentProgress if each.numInputRows])
    finally:
        started.stop()


def is_right(repo: frazil.Repository, *numbers: int) -> None:
    session = repo.readonly_session("main")
    labels = [10 * number + n for number in numbers for n in range(ROWS)]
    assert frazil.read(session, "/x").tolist() == [0, 1, *labels]
    values = [number + n / 10 for number in numbers for n in range(ROWS)]
    assert frazil.read(session, "/v")[2:].tolist() == values


def stamps(repo: frazil.Repository) -> list[int]:
    batches = (info.metadata.get("spark.batch") for info in repo.ancestry(branch="main"))
    return [batch for batch in batches if batch is not None]


@pytest.mark.weekly
def test_each_batch_is_one_commit(
    streaming: SparkSession, repo: frazil.Repository, path: Path, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    arrive(files, 1, 2, 3)

    def query(name: str = "frazil", **options: str) -> DataStreamWriter:
        sink = rows_of(streaming, files).writeStream.format(name)
        return sink.options(**{"path": str(path), **options})

    # the driver dies after the commit of batch 1, and Spark never hears of it
    with pytest.raises(StreamingQueryException, match="the power is gone"):
        finish(query("failing", message=str(tmp_path)), tmp_path / "checkpoint")
    assert (tmp_path / "aborted").exists()
    assert stamps(repo) == [1, 0]
    finish(query(), tmp_path / "checkpoint")
    assert stamps(repo) == [2, 1, 0]
    is_right(repo, 1, 2, 3)
    query_id = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    query_ids = [info.metadata.get("spark.query") for info in repo.ancestry(branch="main")]
    assert query_ids[:3] == [query_id] * 3

    # all of it expires; somebody starts anew, with another checkpoint
    with repo.transaction("main", message="by hand") as store:
        zarr.open_group(store, mode="r+").attrs["title"] = "hourly"
    repo.expire_snapshots(repo.lookup_snapshot(repo.lookup_branch("main")).written_at)
    assert stamps(repo) == []
    arrive(files, 4)
    finish(query(txnAppId=query_id), tmp_path / "another")
    assert stamps(repo) == [3]
    is_right(repo, 1, 2, 3, 4)
    same_by_reference(path)


@pytest.mark.deep
def test_commits_are_a_stream(
    streaming: SparkSession, repo: frazil.Repository, path: Path, tmp_path: Path
) -> None:
    def commit(number: int) -> str:
        session = repo.writable_session("main")
        zarr.open_array(session.store, path="v", mode="r+")[:] = number
        return session.commit(str(number))

    ids = [commit(number) for number in range(3)]
    source = streaming.readStream.format("frazil").option("table", "feed")
    limited = source.option("stream-max-commits", 2).load(str(path))
    out = limited.select("message", "change", "path", "chunk", "snapshot_id").writeStream.format("json")
    batches = finish(out.option("path", str(tmp_path / "out")), tmp_path / "checkpoint")
    assert batches == 2  # of 4 commits, and the first one of the repository has no changes
    ids += [commit(number) for number in range(3, 5)]
    finish(out.option("path", str(tmp_path / "out")), tmp_path / "checkpoint")

    rows = streaming.read.json(str(tmp_path / "out")).where("path = '/v' AND chunk IS NOT NULL")
    changes = rows.select("message", "change", "chunk", "snapshot_id").orderBy("message").collect()
    kinds = ["chunk_added", *["chunk_changed"] * 4]
    assert changes == [(str(number), kinds[number], [0], ids[number]) for number in range(5)]


def doubled(rows: DataFrame, target: Target) -> None:
    """A pipeline of two commits. The second batch loses its driver at first."""
    values = {row.x % 10: row.v for row in rows.collect()}
    for step in ("one", "two"):
        with target.repo.transaction(target.branch, message=step) as store:
            array = zarr.open_array(store, path="total", mode="r+")
            array[:] = np.asarray(array[:]) + [values[n] for n in range(ROWS)]


@pytest.mark.deep
def test_a_pipeline_for_each_batch(
    streaming: SparkSession, repo: frazil.Repository, path: Path, tmp_path: Path
) -> None:
    with repo.transaction("main", message="totals") as store:
        layout: Any = {"shape": (ROWS,), "dtype": "f8", "chunks": (ROWS,), "fill_value": 0}
        zarr.create_array(store, name="total", dimension_names=["n"], **layout)
    coarsen(repo, ["total"], {"n": 2}, "sum", boundary="pad", to=Target(repo, group="pairs"), engine="inline")
    arrive(tmp_path / "files", 1, 2)
    calls: list[int] = []
    once = foreach_batch(Target(repo), doubled, refresh=True)

    def failing(rows: DataFrame, batch: int) -> None:
        once(rows, batch)
        calls.append(batch)
        if calls == [0, 1]:
            raise OSError("the power is gone")

    query = rows_of(streaming, tmp_path / "files").writeStream.foreachBatch(failing)
    with pytest.raises(StreamingQueryException, match="the power is gone"):
        finish(query, tmp_path / "checkpoint")
    finish(query, tmp_path / "checkpoint")
    assert calls == [0, 1, 1]
    total = frazil.read(repo.readonly_session("main"), "/total")
    np.testing.assert_allclose(total, [2 * (1 + 2 + 2 * n / 10) for n in range(ROWS)])
    assert derived(repo).is_current
    pairs = frazil.read(repo.readonly_session("main"), "/pairs/total")
    assert float(np.sum(pairs)) == pytest.approx(float(np.sum(total)))
    assert stamps(repo) == [1, 0]
    messages = [info.message for info in repo.ancestry(branch="main")]
    assert [text for text in messages if text in ("one", "two")] == ["two", "one"] * 2
    assert repo.list_branches() == {"main"}
    same_by_reference(path)
