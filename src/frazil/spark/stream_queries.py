"""Streams from and to an open repository: the queries get its storage and credentials.

For a repository that options can name, ``format("frazil")`` has the same streams: see `frazil.spark.streams`.
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
    spark: SparkSession | None = None,
    max_commits: int | None = None,
    max_rows: int | None = None,
    fail_on_data_loss: bool = True,
) -> DataFrame:
    """Return the commits of a branch as a stream, with one row for each changed chunk and node.

    `frazil.spark.streams.change_feed` describes the columns.

    Args:
        repo: The repository.
        branch: The name of the branch.
        start: Where a new query begins: ``"earliest"`` (the default), ``"latest"`` (with the next commit), or
            after a tag or a snapshot id.
        since: A time: a new query begins with the commits after it, and ``start`` is ignored. The default,
            None, uses ``start``.
        spark: The session. The default, None, is the session of `get_spark`.
        max_commits: The most commits of a batch. The default, None, sets no limit.
        max_rows: The most changed chunks of a batch, which always has at least one commit. The default, None,
            sets no limit.
        fail_on_data_loss: Whether the query fails if the branch was reset. With False, the query continues
            after the last commit that both histories have. The default is True.

    Returns:
        A streaming DataFrame.

    Examples:
        >>> import frazil.spark
        >>> repo = frazil.Repository.create(frazil.local_filesystem_storage("ice"))
        >>> changes = frazil.spark.read_stream(repo, start="latest", spark=frazil.spark.get_spark())
        >>> changes.isStreaming, changes.columns[:2]
        (True, ['snapshot_id', 'parent_id'])
    """
    spark = spark or get_spark()
    values = {
        "table": FEED,
        "branch": branch,
        "stream-from": None if since is not None else start,
        "stream-from-timestamp": since and since.isoformat(),
        "stream-max-commits": max_commits,
        "stream-max-rows": max_rows,
        "stream-fail-on-data-loss": str(fail_on_data_loss).lower(),
    }
    texts = {name: str(value) for name, value in values.items() if value is not None}
    return spark.readStream.format(register_repository(spark, repo)).options(**texts).load()


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
    """Write a stream of rows with coordinates to arrays, with one commit for each micro-batch.

    Give the writer a trigger and a checkpoint, and start it. The rows of a batch must fit into the memory of
    the driver's machine: see `frazil.spark.streams.sink`.

    Args:
        rows: A streaming DataFrame.
        target: The `Target` of the rows.
        mode: How rows are written: ``"upsert"`` (the default), ``"append"``, ``"backfill"`` or ``"insert"``,
            see `write_table`.
        dims: The columns that are the dimensions of new arrays, see `write_table`.
        append_dim: The dimension along which the mode ``"append"`` adds rows. The default, None, is the first
            one.
        chunks: The chunk lengths of new arrays, by dimension.
        duplicates: What happens to two rows of one cell: ``"error"`` (the default) fails, with ``"last"`` the
            last row wins.
        app_id: A name for the query, instead of Spark's id. A query with a new checkpoint and the same name
            continues the older query. The default, None, is Spark's id.
        message: The message of the commits. The default, None, is a message that names the batch.

    Returns:
        The ``DataStreamWriter`` of Spark.

    Examples:
        >>> import frazil.spark
        >>> repo = frazil.Repository.create(frazil.local_filesystem_storage("ice-sink"))
        >>> rates = frazil.spark.get_spark().readStream.format("rate").load()
        >>> rows = rates.selectExpr("value AS x", "value * 2 AS t")
        >>> writer = frazil.spark.write_stream(rows, frazil.spark.Target(repo), dims=["x"])
        >>> type(writer).__name__
        'DataStreamWriter'
        >>> query = writer.option("checkpointLocation", "checkpoint").start()  # doctest: +SKIP
    """
    values = {
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
    texts = {name: value for name, value in values.items() if value is not None}
    name = register_repository(rows.sparkSession, target.repo)
    return rows.writeStream.format(name).options(**texts)
