"""The data source without Spark: what its classes do in the processes that Spark calls them in."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
import zarr
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from tests.spark.tables.test_reading import climate, write_dataset

import frazil
from frazil.credentials import Credentials, HttpAccess, LocalFileSystemAccess, S3Credentials
from frazil.errors import (
    ErrorKind,
    InvalidInputError,
    RefNotFoundError,
    RepositoryNotFoundError,
    SnapshotNotFoundError,
)
from frazil.spark.data_source import FrazilDataSource
from frazil.spark.tables.options import READ, options_of, repository_at, session_at, storage_at
from pyspark_frazil import DefaultSource


@pytest.fixture
def place(tmp_path: Path) -> str:
    path = str(tmp_path / "repo")
    repo = frazil.Repository.create(frazil.local_filesystem_storage(path))
    write_dataset(repo, climate(), {"time": 2, "lat": 1, "lon": 7})
    return path


def read(source: Any, schema: StructType) -> pa.Table:
    """What Spark does: every step gets a pickle."""
    reader = pickle.loads(pickle.dumps(source)).reader(schema)
    parts = reader.partitions()
    on_executor = pickle.loads(pickle.dumps(reader))
    assert [each.value for each in on_executor.partitions()] == [None]  # it is sent without its tasks
    batches = [batch for part in parts for batch in on_executor.read(pickle.loads(pickle.dumps(part)))]
    return pa.Table.from_batches(batches)


def test_the_version_is_that_of_when_the_schema_was_asked_for(place: str) -> None:
    source = DefaultSource({"path": place, "variables": "tas"})
    schema = source.schema()
    repo = frazil.Repository.open(frazil.local_filesystem_storage(place))
    with repo.transaction("main", message="later") as store:
        zarr.open_array(store, path="tas", mode="r+")[...] = -1
    assert min(read(source, schema)["tas"].drop_null().to_pylist()) == 0
    assert set(read(DefaultSource({"path": place}), schema)["tas"].to_pylist()) == {-1}


def test_a_table_of_the_catalog_knows_its_place(place: str) -> None:
    secret = {"secret-access-key": "hidden", "access-key-id": "hidden"}
    given = {"path": place, "provider": "frazil", "option.Where": "lat > 0", "owner": "me", **secret}
    with pytest.warns(UserWarning, match="secret options access-key-id, secret-access-key"):
        schema = FrazilDataSource(given).schema()
    assert "hidden" not in schema.json()
    assert json.loads(schema[0].metadata["frazil"]) == {"path": place, "where": "lat > 0"}
    rows_ = read(FrazilDataSource({}), schema)
    assert len(rows_) == 3 * 6 * 7
    assert options_of({"branch": "dev"}, READ, schema)["branch"] == "dev"
    with pytest.raises(InvalidInputError, match=r"`stream-max-commit`. Did you mean `stream-max-commits`\?"):
        options_of({"path": place, "stream-max-commit": "1"}, READ)
    for call in (FrazilDataSource({}).writer, FrazilDataSource({"write": "upsert"}).streamWriter):
        with pytest.raises(InvalidInputError, match=r"INSERT INTO t WITH \(path"):
            call(schema, False)  # the columns of the rows name the table that the rows come from
    some = StructType([schema[0], StructField("tas", FloatType())])
    with pytest.raises(InvalidInputError, match=r"SELECT \.\.\. FROM t WITH \(path"):
        FrazilDataSource({}).reader(some)
    assert not FrazilDataSource({"path": place}).schema()[0].metadata
    with pytest.raises(InvalidInputError, match="got tag"):
        FrazilDataSource({"path": place, "provider": "frazil", "tag": "v1"}).writer(schema, False)


def test_a_table_is_declared_before_its_repository(tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "later"), "provider": "frazil", "columns": "a b long,t TIMESTAMP"}
    schema = FrazilDataSource(options).schema()
    assert schema.simpleString() == "struct<a b:bigint,t:timestamp>"
    assert json.loads(schema[1].metadata["frazil"]) == {"path": options["path"]}
    with pytest.raises(RepositoryNotFoundError):
        FrazilDataSource({}).reader(schema)
    with pytest.raises(InvalidInputError, match=r"a type for each column.* got `b`"):
        FrazilDataSource({**options, "columns": "a double, b"}).schema()


def test_columns_are_those_of_the_schema(place: str) -> None:
    wider = StructType([StructField("TAS", DoubleType()), StructField("lat", DoubleType())])
    table = read(FrazilDataSource({"path": place}), wider)
    assert table.schema.equals(pa.schema({"TAS": pa.float64(), "lat": pa.float64()}))
    reordered = StructType([StructField("lat", DoubleType()), StructField("tas", FloatType())])
    assert read(FrazilDataSource({"path": place}), reordered).schema.names == ["lat", "tas"]
    assert FrazilDataSource({"path": place, "columns": "tas,time"}).schema().names == ["tas", "time"]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("field", "message"),
    [
        (StructField("nothing", DoubleType()), "A column must be one of .*got nothing. Spark's catalog"),
        (StructField("tass", FloatType()), "Did you mean `tas`"),
        (StructField("tas", TimestampType()), "tas must have the type float in Spark's catalog"),
        (StructField("tas", BooleanType()), "tas must have the type float .* got bool"),
        (StructField("count", TimestampType()), "count must have the type int64 .* got timestamp"),
        (StructField("time", DateType()), r"time must have the type timestamp\[us, tz=UTC\]"),
        (StructField("time", LongType()), r"time must have the type timestamp\[us, tz=UTC\]"),
        (StructField("TAS", FloatType()), "different names, got several named tas"),
    ],
    ids=str,
)
def test_a_reader_compares_the_columns_of_the_catalog(place: str, field: StructField, message: str) -> None:
    """Not while Spark pickles it: what is raised there is an error of pickle for the user."""
    schema = FrazilDataSource({"path": place}).schema().add(field)
    if field.name in ("tas", "count", "time"):
        schema = StructType([field])
    with pytest.raises(InvalidInputError, match=message) as caught:
        FrazilDataSource({"path": place}).reader(schema)
    assert len(str(caught.value).splitlines()) == 1


def test_a_schema_for_a_table_about_the_repository(place: str) -> None:
    def asked(table: str, field: StructField) -> pa.Table:
        return read(FrazilDataSource({"path": place, "table": table}), StructType([field]))

    assert asked("refs", StructField("NAME", StringType())).to_pydict() == {"NAME": ["main"]}
    with pytest.raises(InvalidInputError, match=r"those of the table refs \(name, .*got nothing"):
        asked("refs", StructField("nothing", StringType()))
    with pytest.raises(InvalidInputError, match="column name must be double"):
        asked("refs", StructField("name", DoubleType()))
    with pytest.raises(InvalidInputError, match="readStream"):
        asked("feed", StructField("path", StringType()))


@pytest.mark.parametrize(
    ("imported", "check"),
    [
        ("pyspark_frazil", "not {'frazil', 'zarr'} & set(sys.modules)"),
        ("frazil.spark", "'pyspark' not in sys.modules"),
        (
            "frazil.spark.daemon",
            "{'frazil.spark.data_source', 'frazil.spark.streams.sink'} <= set(sys.modules)",
        ),
        ("frazil.pipeline, frazil.spark", "set(frazil.pipeline.__all__) <= set(frazil.spark.__all__)"),
    ],
)
def test_imports(imported: str, check: str) -> None:
    subprocess.run([sys.executable, "-c", f"import sys, {imported}; assert {check}"], check=True)


def test_versions(place: str) -> None:
    repo = frazil.Repository.open(frazil.local_filesystem_storage(place))
    first, second = (info.id for info in reversed(list(repo.ancestry(branch="main"))))
    repo.create_tag("v0", first)
    written_at = repo.lookup_snapshot(first).written_at
    for options in (
        {"tag": "v0"},
        {"snapshot-id": first},
        {"as-of-timestamp": written_at.isoformat()},
        {"as-of-timestamp": str(int(written_at.timestamp() * 1000) + 1), "branch": "main"},
    ):
        assert session_at(repo, options).snapshot_id == first
    assert session_at(repo, {}).snapshot_id == second
    for options, error in (
        ({"branch": "main", "tag": "v0"}, InvalidInputError),
        ({"tag": "v0", "as-of-timestamp": "2024-01-01"}, InvalidInputError),
        ({"as-of-timestamp": "yesterday"}, InvalidInputError),
        ({"as-of-timestamp": "1999-01-01"}, SnapshotNotFoundError),
        ({"branch": "nothing"}, RefNotFoundError),
    ):
        with pytest.raises(error):
            session_at(repo, options)


def test_places(tmp_path: Path) -> None:
    for path in (f"file:{tmp_path}", f"file://{tmp_path}", str(tmp_path)):
        assert str(storage_at({"path": path})) == str(frazil.local_filesystem_storage(str(tmp_path)))
    text = str(
        storage_at({"path": "s3://ice/a/b", "endpoint-url": "http://127.0.0.1:9", "anonymous": "true"})
    )
    for line in ("bucket: ice", "prefix: a/b", "endpoint_url: http://127.0.0.1:9", "allow_http: True"):
        assert line in text
    for path in ("", "ftp://host/x", "mailto:me"):
        with pytest.raises(InvalidInputError, match="Option `path`"):
            storage_at({"path": path})


# Options that a query does not use


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"stream-from": "v0"}, "stream-from"),
        ({"start": "v0"}, "table"),
        ({"table": "row_changes", "stream-from": "v0"}, "stream-from"),
        ({"table": "row_changes", "end": "main", "tag": "v0"}, "tag"),
        ({"table": "refs", "branch": "main"}, "branch"),
        ({"table": "chunks", "where": "lat > 0"}, "where"),
        ({"table": "snapshots", "txnAppId": "rain"}, "txnappid"),
    ],
    ids=str,
)
def test_an_option_without_effect_is_refused(place: str, options: dict[str, str], name: str) -> None:
    with pytest.raises(InvalidInputError, match=name) as caught:
        FrazilDataSource({"path": place, **options}).schema()
    assert caught.value.kind == ErrorKind.INVALID_ARGUMENT
    catalog = {"path": place, "provider": "frazil", **options}
    assert options_of(catalog, READ).keys() >= options.keys() - {"txnAppId"}  # a table is also written


def test_writers_refuse_options_of_others(place: str) -> None:
    rows_ = StructType([StructField("lat", DoubleType()), StructField("tas", FloatType())])
    for options in ({"duplicates": "last"}, {"txnAppId": "rain"}, {"where": "lat > 0"}, {"table": "refs"}):
        with pytest.raises(InvalidInputError, match="no effect"):
            FrazilDataSource({"path": place, **options}).writer(rows_, False)
    with pytest.raises(InvalidInputError, match="job-id"):
        FrazilDataSource({"path": place, "job-id": "1"}).streamWriter(rows_, False)


def test_a_stream_of_rows_is_refused_by_every_call_of_spark(place: str) -> None:
    """An error of ``streamReader`` itself would be an UnboundLocalError of Spark."""
    source = FrazilDataSource({"path": place})
    reader = source.streamReader(source.schema())
    calls: list[Callable[[], object]] = [
        reader.prepareForTriggerAvailableNow,
        reader.initialOffset,
        reader.getDefaultReadLimit,
        lambda: reader.latestOffset({}, None),
        lambda: reader.partitions({}, {}),
    ]
    for call in calls:
        with pytest.raises(InvalidInputError, match="table=feed"):
            call()


# Virtual chunks


def test_prefixes_of_virtual_chunks_are_authorized(place: str) -> None:
    prefixes = {"path": place, "authorize-virtual": "s3://b/, file:///data/,https://h/"}
    assert repository_at(prefixes).virtual_chunk_access == {
        "s3://b/": Credentials.S3(S3Credentials.Anonymous()),
        "file:///data/": LocalFileSystemAccess,
        "https://h/": HttpAccess,
    }
    assert repository_at({"path": place}).virtual_chunk_access == {}
    options = {"path": place, "authorize-virtual": "s3://b", "virtual-credentials": "environment"}
    assert repository_at(options).virtual_chunk_access == {"s3://b": Credentials.S3(S3Credentials.FromEnv())}
    with pytest.raises(InvalidInputError, match="anonymous, environment, got 'mine'"):
        repository_at({**options, "virtual-credentials": "mine"})
