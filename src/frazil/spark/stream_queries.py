"""Streams from and to a repository that is open here: its storage and credentials go along.

The same with options, for a repository that options can name: ``format("frazil")``, see `source` and `sink`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from frazil.jobs.versions import Target
from frazil.repository.handle.repository import Repository
from frazil.spark.data_source import register_repository
from frazil.spark.runtime.session import get_spark
from frazil.spark.streams.change_feed import FEED


def read_stream(
    repo: Repository,
    *,
    branch: str = "main",
    start: str = "earliest",
    since: datetime | None = None,
    max_commits: int | None = None,
    max_rows: int | None = None,
    fail_on_data_loss: bool = True,
    spark: SparkSession | None = None,
) -> DataFrame:
    """The commits of a branch as a stream: a row for each chunk and node that was changed.

    A new query begins at ``start`` ("earliest", "latest", or after a tag or snapshot), or with the commits
    after ``since``. A batch has at most ``max_commits`` commits, or ``max_rows`` changed chunks. Columns and
    options: `frazil.spark.streams.change_feed`, `frazil.spark.streams.source`.
    """
    spark = spark or get_spark()
    given = {
        "table": FEED,
        "branch": branch,
        "stream-from": None if since is not None else start,
        "stream-from-timestamp": since and since.isoformat(),
        "stream-max-commits": max_commits,
        "stream-max-rows": max_rows,
        "stream-fail-on-data-loss": str(fail_on_data_loss).lower(),
    }
    options = {name: str(value) for name, value in given.items() if value is not None}
    return spark.readStream.format(register_repository(spark, repo)).options(**options).load()


def write_stream(
    rows: DataFrame,
    target: Target,
    *,
    mode: str = "upsert",
    dims: Sequence[str] | None = None,
    append_dim: str | None = None,
    chunks: Mapping[str, int] | None = None,
    duplicates: str = "error",
    app_id: str | None = None,
    message: str | None = None,
) -> DataStreamWriter:
    """A stream of rows with coordinates into arrays, one commit for each micro-batch.

    ``mode`` ("upsert" or "append"), ``dims``, ``append_dim`` and ``chunks`` are those of ``write_table``; of
    two rows of one cell the last one wins with ``duplicates="last"``. ``app_id`` names the query where a new
    checkpoint has to go on from an old one. Give the writer a trigger and a checkpoint, and start it. More
    in `frazil.spark.streams.sink`.
    """
    given = {
        "branch": target.branch,
        "group": target.group,
        "write": mode,
        "dims": ",".join(dims) if dims else None,
        "append-dim": append_dim,
        "chunks": ",".join(map("{}={}".format, chunks, chunks.values())) if chunks else None,
        "duplicates": duplicates,
        "txnAppId": app_id,
        "message": message,
    }
    options = {name: value for name, value in given.items() if value is not None}
    name = register_repository(rows.sparkSession, target.repo)
    return rows.writeStream.format(name).options(**options)
