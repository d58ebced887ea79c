"""Streams from and to an open repository: the queries get its storage and credentials.

A repository that options can name has the same streams by ``format("frazil")``: see `frazil.spark.streams`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict, Unpack

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from frazil.jobs.run_options import with_options
from frazil.jobs.versions import Target
from frazil.repository.handle.repository import Repository
from frazil.spark.data_source import register_repository
from frazil.spark.runtime.session import get_spark
from frazil.spark.streams.change_feed import FEED


class ReadStreamOptions(TypedDict, total=False):
    """The options of `read_stream`.

    max_commits          the most commits of a batch
    max_rows             the most changed chunks of a batch
    fail_on_data_loss    whether the query fails if the branch was reset; otherwise it continues after the
                         last commit that both histories have
    """

    max_commits: int | None
    max_rows: int | None
    fail_on_data_loss: bool


@dataclass(frozen=True, slots=True)
class ReadStreamValues:
    """The options of one stream, with their defaults: see `ReadStreamOptions`."""

    max_commits: int | None = None
    max_rows: int | None = None
    fail_on_data_loss: bool = True


class WriteStreamOptions(TypedDict, total=False):
    """The options of `write_stream`.

    app_id     a name for the query, in place of Spark's id
    message    the message of the commits
    """

    app_id: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class WriteStreamValues:
    """The options of one stream, with their defaults: see `WriteStreamOptions`."""

    app_id: str | None = None
    message: str | None = None


@with_options(ReadStreamOptions, ReadStreamValues)
def read_stream(
    repo: Repository,
    *,
    branch: str = "main",
    start: str = "earliest",
    since: datetime | None = None,
    spark: SparkSession | None = None,
    **options: Unpack[ReadStreamOptions],
) -> DataFrame:
    """The commits of a branch as a stream: a row for each chunk and node that was changed.

    A new query begins at ``start`` ("earliest", "latest", or after a tag or snapshot), or with the commits
    after ``since``. A batch has at most ``max_commits`` commits, or ``max_rows`` changed chunks. Columns and
    options: `frazil.spark.streams.change_feed`, `frazil.spark.streams.source`.
    """
    spark = spark or get_spark()
    limits = ReadStreamValues(**options)
    values = {
        "table": FEED,
        "branch": branch,
        "stream-from": None if since is not None else start,
        "stream-from-timestamp": since and since.isoformat(),
        "stream-max-commits": limits.max_commits,
        "stream-max-rows": limits.max_rows,
        "stream-fail-on-data-loss": str(limits.fail_on_data_loss).lower(),
    }
    texts = {name: str(value) for name, value in values.items() if value is not None}
    return spark.readStream.format(register_repository(spark, repo)).options(**texts).load()


@with_options(WriteStreamOptions, WriteStreamValues)
def write_stream(
    rows: DataFrame,
    target: Target,
    *,
    mode: str = "upsert",
    dims: Sequence[str] | None = None,
    append_dim: str | None = None,
    chunks: Mapping[str, int] | None = None,
    duplicates: str = "error",
    **options: Unpack[WriteStreamOptions],
) -> DataStreamWriter:
    """A stream of rows with coordinates into arrays, one commit for each micro-batch.

    ``mode`` ("upsert" or "append"), ``dims``, ``append_dim`` and ``chunks`` are those of ``write_table``; of
    two rows of one cell the last one wins with ``duplicates="last"``. With ``app_id`` a query with a new
    checkpoint continues an older query. Give the writer a trigger and a checkpoint, and start it. See also
    `frazil.spark.streams.sink`.
    """
    query = WriteStreamValues(**options)
    values = {
        "branch": target.branch,
        "group": target.group,
        "write": mode,
        "dims": ",".join(dims) if dims else None,
        "append-dim": append_dim,
        "chunks": ",".join(map("{}={}".format, chunks, chunks.values())) if chunks else None,
        "duplicates": duplicates,
        "txnAppId": query.app_id,
        "message": query.message,
    }
    texts = {name: value for name, value in values.items() if value is not None}
    name = register_repository(rows.sparkSession, target.repo)
    return rows.writeStream.format(name).options(**texts)
