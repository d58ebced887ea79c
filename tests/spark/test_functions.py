"""Functions of SQL: rows of a version, upkeep, and profiles, on a real Spark and in its processes."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import frazil
from frazil.pipeline import Target, coarsen, derived
from frazil.spark import register
from frazil.spark.functions import sql_functions
from frazil.spark.tables.options import READ, Profiles
from frazil.spark.tables.repository_tables import SCHEMAS
from frazil.sql import procedures

FUNCTIONS = {each.name.removeprefix("frazil_"): each for each in procedures.UPKEEP}
LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions: `one`, with the tag v1; `two` to `nine`, each with one more chunk."""
    path = tmp_path_factory.mktemp("functions") / "ice"
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(path)))
    with repo.transaction("main", message="one") as store:
        zarr.create_array(store, name="x", data=np.arange(9.0), dimension_names=["x"])
        shape: dict[str, Any] = {"shape": (9, 999), "chunks": (1, 999), "dtype": "f4", "compressors": None}
        zarr.create_array(store, name="t", dimension_names=["x", "y"], **shape)
    repo.create_tag("v1", repo.lookup_branch("main"))
    for row, name in enumerate(("two", "three", "four", "five", "six", "seven", "eight", "nine"), 1):
        with repo.transaction("main", message=name) as store:
            zarr.open_array(store, path="t")[row] = row
    return path


@pytest.fixture
def repo(template: Path, tmp_path: Path) -> frazil.Repository:
    shutil.copytree(template, tmp_path / "ice")
    return frazil.Repository.open(frazil.local_filesystem_storage(str(tmp_path / "ice")))


@dataclass
class Statement:
    """A statement that Spark has analyzed: it may be evaluated more than once, each time in a new process."""

    function: procedures.UpkeepFunction
    call: procedures.UpkeepCall
    values: Mapping[str, Any]

    def rows(self) -> list[Mapping[str, Any]]:
        call = pickle.loads(pickle.dumps(self.call))
        rows: list[Mapping[str, Any]] = [dict(each) for each in self.function.work(call, **self.values)]
        assert all(list(each) == self.function.schema.names for each in rows)
        return rows

    def row(self) -> Mapping[str, Any]:
        [row] = self.rows()
        return row


def analyzed(repo: frazil.Repository, name: str, /, **arguments: Any) -> Statement:
    function = FUNCTIONS[name]
    values = function.parse(arguments)[1]
    return Statement(function, procedures.UpkeepCall(repo, Profiles(), function.pin(repo, **values)), values)


def messages(repo: frazil.Repository, branch: str = "main") -> list[str]:
    return [commit.message for commit in repo.ancestry(branch=branch)][:-1]


def commit(repo: frazil.Repository, message: str = "by another writer", branch: str = "main") -> str:
    return repo.writable_session(branch).commit(message, allow_empty=True)


def test_a_tag_is_created_once_at_the_version_of_the_statement(repo: frazil.Repository) -> None:
    tip = repo.lookup_branch("main")
    statement = analyzed(repo, "tag", name="v2")
    assert statement.row() == {"tag": "v2", "snapshot_id": tip, "done_before": False}
    commit(repo)
    assert statement.row() == {"tag": "v2", "snapshot_id": tip, "done_before": True}
    with pytest.raises(frazil.AlreadyExistsError, match="v2"):
        analyzed(repo, "tag", name="v2").rows()
    assert analyzed(repo, "tag", name="v3", version="v1").row()["snapshot_id"] == repo.lookup_tag("v1")


def test_a_reset_never_removes_the_commits_of_others(repo: frazil.Repository) -> None:
    tip, first = repo.lookup_branch("main"), repo.lookup_tag("v1")
    late = analyzed(repo, "reset", branch="main", to="v1")
    statement = analyzed(repo, "reset", branch="main", to="v1")
    row = statement.row()
    assert (row["previous_snapshot_id"], row["snapshot_id"], row["done_before"]) == (tip, first, False)
    assert repo.lookup_branch("main") == first
    commit(repo)
    assert statement.row()["done_before"]
    assert messages(repo) == ["by another writer", "one"]
    assert late.row()["done_before"]
    stale = analyzed(repo, "reset", branch="main", to="v1")
    commit(repo, "one more")
    with pytest.raises(frazil.ConflictError):
        stale.rows()
    assert analyzed(repo, "reset", branch="main", to=repo.lookup_branch("main")).row()["done_before"]


def test_derived_arrays_are_refreshed_once(repo: frazil.Repository) -> None:
    coarsen(repo, ["t"], {"y": 3}, to=Target(repo, group="third"), engine="inline")
    assert analyzed(repo, "refresh").rows() == []
    with repo.transaction("main", message="a correction") as store:
        zarr.open_array(store, path="t")[3] = 7
    tip = repo.lookup_branch("main")
    row = analyzed(repo, "refresh", dry_run=True).row()
    assert (row["path"], row["state"], row["chunks"], row["snapshot_id"]) == ("/third/t", "behind", 1, None)
    assert repo.lookup_branch("main") == tip
    statement = analyzed(repo, "refresh", paths="third")
    row = statement.row()
    assert row["snapshot_id"] == repo.lookup_branch("main") != tip
    assert statement.row() == row
    assert derived(repo).is_current


def test_a_branch_is_published_once(repo: frazil.Repository) -> None:
    repo.create_branch("dev", repo.lookup_branch("main"))
    new = commit(repo, "new", "dev")
    statement = analyzed(repo, "publish", branch="dev", tag="v2")
    assert statement.row() == {"branch": "main", "snapshot_id": new, "tag": "v2", "done_before": False}
    commit(repo)
    commit(repo, "newer", "dev")
    assert statement.row()["done_before"]
    assert repo.lookup_tag("v2") == new
    repo.create_branch("next", repo.lookup_branch("main"))
    commit(repo, "checked", "next")
    stale = analyzed(repo, "publish", branch="next")
    commit(repo, "not checked", "next")
    with pytest.raises(frazil.ConflictError, match="when Spark analyzed the statement"):
        stale.rows()


def test_manifests_are_rewritten_once(repo: frazil.Repository) -> None:
    statement = analyzed(repo, "rewrite_manifests", message="fewer")
    first = statement.row()
    commit(repo)
    again = statement.row()
    assert (first["done_before"], again["done_before"]) == (False, True)
    assert first["snapshot_id"] == again["snapshot_id"]
    assert messages(repo)[:2] == ["by another writer", "fewer"]


def test_what_deletes_makes_a_dry_run_by_default(repo: frazil.Repository) -> None:
    count = len(messages(repo))
    plan = analyzed(repo, "expire", older_than=LATER).rows()
    assert {each["message"] for each in plan} == {"two", "three", "four", "five", "six", "seven", "eight"}
    assert not any(each["removed"] for each in plan)
    assert len(messages(repo)) == count
    statement = analyzed(repo, "expire", older_than=LATER.isoformat(), dry_run=False)
    assert {each["name"] for each in statement.rows()} == {each["name"] for each in plan}
    assert messages(repo) == ["nine"]
    assert statement.rows() == []
    repo.create_branch("dev", repo.lookup_tag("v1"))
    everything: dict[str, Any] = {"delete_branches": True, "delete_tags": True, "dry_run": False}
    rows = analyzed(repo, "expire", older_than=LATER, **everything).rows()
    assert {("branch", "dev"), ("tag", "v1")} <= {(each["kind"], each["name"]) for each in rows}

    planned = analyzed(repo, "collect", older_than=LATER).row()
    assert (planned["dry_run"], planned["snapshots_deleted"]) == (True, 8)
    statement = analyzed(repo, "collect", older_than=LATER, dry_run="false")
    assert statement.row() == {**planned, "dry_run": False}
    assert statement.row()["snapshots_deleted"] == 0


def test_chunk_files_are_merged_once(repo: frazil.Repository) -> None:
    plan = analyzed(repo, "compact", dry_run=True).row()
    assert (plan["files"], plan["snapshot_id"]) == (8, None)
    statement = analyzed(repo, "compact")
    row = statement.row()
    assert (row["files"], row["new_files"], row["snapshot_id"]) == (8, 1, repo.lookup_branch("main"))
    assert (statement.row()["files"], statement.row()["snapshot_id"]) == (0, None)
    assert messages(repo)[0] == "Merge chunk files"


def test_a_copy_is_continued(repo: frazil.Repository, tmp_path: Path) -> None:
    statement = analyzed(repo, "copy", target=str(tmp_path / "copy"))
    copied = statement.row()
    assert copied["objects"] > 9
    assert statement.row()["objects"] == 0
    copy = frazil.Repository.open(frazil.local_filesystem_storage(str(tmp_path / "copy")))
    assert messages(copy) == messages(repo)


def test_a_hold_back_begins_and_ends_once(repo: frazil.Repository) -> None:
    def values() -> list[float]:
        return frazil.read(repo.readonly_session("main"), "t")[:, 0].tolist()  # type: ignore[no-any-return]

    further = {"name": "season", "paths": "t", "until": "2199-06-01", "box": "2:5,:"}
    plan = analyzed(repo, "hold", **further, dry_run=True).row()
    assert (plan["what"], plan["visible"], plan["tag"]) == (["/t[2:5,:]"], [], "")
    statement = analyzed(repo, "hold", **further)
    rows = [statement.row(), statement.row()]
    assert [row["done_before"] for row in rows] == [False, True]
    assert rows[0]["tag"] == rows[1]["tag"] == "hold.season.1"
    assert values() == [0, 1, 0, 0, 0, 5, 6, 7, 8]
    assert analyzed(repo, "holds").row()["snapshot_id"] == rows[0]["snapshot_id"]
    with pytest.raises(frazil.AlreadyExistsError):
        analyzed(repo, "hold", **{**further, "box": "1,:"}).rows()
    end = analyzed(repo, "end_hold", name="season")
    assert [end.row()["done_before"], end.row()["done_before"]] == [False, True]
    assert values() == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    with pytest.raises(frazil.RefNotFoundError, match=r"no hold-back `season`\. It has none"):
        analyzed(repo, "end_hold", name="season").rows()


@pytest.mark.not_for_the_reference("a chunk file is missing")
def test_findings_are_rows(repo: frazil.Repository, tmp_path: Path) -> None:
    assert analyzed(repo, "verify", level="exists").rows() == []
    next((tmp_path / "ice" / "chunks").iterdir()).unlink()
    row = analyzed(repo, "verify", level="exists").row()
    assert (row["severity"], row["path"], len(row["coordinates"])) == ("loss", "/t", 2)
    assert (row["arrays"], row["branches"], row["snapshots"] > 0) == (["/t"], ["main"], True)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("tag", {}, "frazil_tag must have the argument name"),
        ("tag", {"nam": "v1"}, "Did you mean `name`"),
        ("tag", {"name": 1}, "name must be text, got 1"),
        ("collect", {"older_than": 3}, "older_than must be a TIMESTAMP"),
        ("collect", {"older_than": "yesterday"}, "ISO 8601"),
        ("compact", {"dry_run": "maybe"}, "dry_run must be true or false"),
        (
            "hold",
            {"name": "x", "paths": "t", "until": "2199-06-01", "box": "a"},
            "must be indices and slices",
        ),
        ("end_hold", {"name": "x", "conflicts": "all"}, "conflicts must be"),
        ("verify", {"level": "all"}, "level must be one of metadata"),
        ("copy", {"target": "x", "target_options": "brunch=1"}, "unknown option `brunch`"),
    ],
)
def test_wrong_arguments(repo: frazil.Repository, name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(frazil.InvalidInputError, match=message):
        analyzed(repo, name, **arguments).rows()


def test_options_of_a_call() -> None:
    call = {"path": "ice", "as_of_timestamp": "2024-01-01", "options": "TAG=v1, array=a=b", "where": None}
    options = {"path": "ice", "as-of-timestamp": "2024-01-01", "tag": "v1", "array": "a=b"}
    assert procedures.options_of_call(call, READ) == options
    with pytest.raises(frazil.InvalidInputError, match=r"unknown option `brnch`\. Did you mean `branch`"):
        procedures.options_of_call({"options": "brnch=main"}, READ)
    with pytest.raises(frazil.InvalidInputError, match="as an argument and in `options`"):
        procedures.options_of_call({"path": "ice", "tag": "v1", "options": "tag=v2"}, READ)


def test_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "profiles.toml").write_text('[air]\nlocation = "s3://bucket/air"\nallow_http = true\n')
    monkeypatch.setenv("FRAZIL_PROFILES", str(tmp_path / "profiles.toml"))
    prefix = "spark.frazil.profile."
    profiles = Profiles.of_configuration(
        {
            f"{prefix}climate.location": "gs://bucket/ice",
            f"{prefix}climate.branch": "dev",
            f"{prefix}climate.accountKey": "secret",
            f"{prefix}nowhere.branch": "dev",
            f"{prefix}wrong.location": "ice",
            f"{prefix}wrong.brunch": "dev",
            "spark.app.name": "climate",
        }
    )
    monkeypatch.delenv("FRAZIL_PROFILES")  # an executor has no file
    options = {"path": "gs://bucket/ice", "branch": "dev", "account-key": "secret"}
    assert profiles.resolve({"path": "climate"}) == options
    assert profiles.resolve({"profile": "climate"}) == options
    assert profiles.resolve({"path": "climate", "tag": "v1", "cf": "false"}) == {
        "path": "gs://bucket/ice", "account-key": "secret", "tag": "v1", "cf": "false",
    }  # fmt: skip
    assert profiles.resolve({"path": "air"}) == {"path": "s3://bucket/air", "allow-http": "true"}
    for path in ("./climate", "ice", "s3://climate"):
        assert profiles.resolve({"path": path}) == {"path": path}
    for options, message in (
        ({"path": "nowhere"}, "must have a location"),
        ({"path": "wrong"}, "The profile `wrong` has an unknown option `brunch`"),
        ({"profile": "ice"}, "must be the name of a profile"),
        ({"profile": "climate", "path": "ice"}, "path or profile"),
    ):
        with pytest.raises(frazil.InvalidInputError, match=message):
            profiles.resolve(options)


@pytest.fixture
def climate(spark: SparkSession, repo: frazil.Repository, tmp_path: Path) -> SparkSession:
    """The session has the profile `climate`."""
    name = "spark.frazil.profile.climate.location"
    spark.conf.set(name, str(tmp_path / "ice"))
    register(spark)
    spark.conf.unset(name)
    return spark


@pytest.mark.deep
@pytest.mark.spark
def test_functions_on_spark(climate: SparkSession, repo: frazil.Repository) -> None:
    for name in ("rows", *SCHEMAS, *FUNCTIONS):
        assert climate.catalog.functionExists(f"frazil_{name}")

    def one(query: str) -> tuple[Any, ...]:
        return tuple(climate.sql(f"SELECT {query}").collect()[0])

    total = "round(sum(t)), count(*) FROM frazil_rows('climate', where => 'x > 1 AND y IN (3, 4)'"
    assert one(f"{total}, columns => 't')") == (2 * sum(range(2, 9)), 14)
    assert one(f"{total}, version => 'v1')") == (0, 14)
    parts = "range(0, 3, 1, 3) p, LATERAL frazil_rows('climate', partitions => 3, part => p.id"
    part_of_rows = climate.sql(
        f"SELECT p.id, x, t, spark_partition_id() AS task FROM {parts}, block_rows => 1)"
    )
    assert part_of_rows.groupBy().sum("t").collect() == [(999 * sum(range(9)),)]
    assert len(part_of_rows.select("x").distinct().collect()) == 9
    assert len(part_of_rows.select("task").distinct().collect()) == 3
    with pytest.raises(PySparkException, match="part must be from 0 to 1, got 2"):
        climate.sql("SELECT * FROM frazil_rows('climate', partitions => 2, part => 2)").collect()
    assert one("count(*) FROM frazil_history('climate', tag => 'v1')") == (2,)
    statement = climate.sql("SELECT * FROM frazil_rewrite_manifests('climate', message => 'fewer')")
    assert [statement.collect()[0].done_before, statement.collect()[0].done_before] == [False, True]
    assert one("count(*) FROM frazil_expire('climate', current_timestamp() + INTERVAL 1 DAY)") == (8,)
    with pytest.raises(PySparkException, match=r"InvalidInputError: .* Did you mean `name`"):
        climate.sql("SELECT * FROM frazil_tag('climate', nam => 'v3')")
    frame = climate.read.format("frazil").options(path="climate", table="row_changes", columns="x,t")
    assert {tuple(row) for row in frame.options(start="v1", where="x > 7").load().distinct().collect()} == {
        ("updated", 8.0, 8.0)
    }
    climate.sql("CREATE TABLE climate_rows USING frazil OPTIONS (profile 'climate', branch 'main')")
    try:
        assert one("max(t) FROM climate_rows") == (8,)
        assert one("max(t) FROM climate_rows WITH (version = 'v1')") == (0,)
    finally:
        climate.sql("DROP TABLE climate_rows")


def lost_once(
    call: procedures.UpkeepCall, mark: str, branch: str = "main", message: str = ""
) -> Iterator[Mapping[str, Any]]:
    """Do the work. The first process that does it is killed before Spark gets the result."""
    rows = list(procedures.rewrite_manifests(call, branch, message))
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    yield from rows


@pytest.mark.deep
@pytest.mark.spark
def test_a_task_that_is_retried_does_its_work_once(
    spark: SparkSession, repo: frazil.Repository, tmp_path: Path
) -> None:
    function = replace(FUNCTIONS["rewrite_manifests"], work=lost_once)
    spark.udtf.register("lost_once", sql_functions.upkeep_udtf(function, Profiles()))
    place = f"'{tmp_path / 'ice'}', '{tmp_path / 'mark'}'"
    [row] = spark.sql(f"SELECT * FROM lost_once({place}, message => 'fewer')").collect()
    assert (tmp_path / "mark").exists()
    assert row.done_before
    assert row.snapshot_id == repo.lookup_branch("main")
    assert messages(repo)[:2] == ["fewer", "nine"]


@pytest.mark.deep
@pytest.mark.spark
def test_statements_for_people_of_delta_and_iceberg(spark: SparkSession, tmp_path: Path) -> None:
    """docs/merge.md: Spark refuses each statement of the first column, and runs that of the second."""
    register(spark)
    page = Path(__file__).parents[2].joinpath("docs", "merge.md").read_text()
    rows = re.findall(r"^\| `(.+)` \| `+(.+?) ?`+ \|$", page.partition("## Statements")[2], re.MULTILINE)
    path = str(tmp_path / "stations")
    first = spark.createDataFrame([(1, 1.5), (2, 2.5)], "day long, tas double")
    first.write.format("frazil").mode("append").options(path=path, dims="day").save()
    repo = frazil.Repository.open(path)
    repo.create_tag("v1", repo.lookup_branch("main"))
    new_rows = spark.createDataFrame([(3, 3.5)], "day long, tas double")
    new_rows.createOrReplaceTempView("new_rows")
    new_rows.write.parquet(str(tmp_path / "new"))
    spark.sql(f"CREATE TABLE stations USING frazil OPTIONS (path '{path}')")
    try:
        for refused, statement in rows:
            with pytest.raises(PySparkException):
                spark.sql(refused.replace("/data", str(tmp_path))).collect()
            spark.sql(statement.replace("/data", str(tmp_path))).collect()
            if "DELETE" in refused:
                deleted = spark.table("stations").orderBy("day").collect()
        assert [tuple(row) for row in deleted] == [(1, 1), (2, None), (3, 1)]
        assert spark.table("stations").count() == 2
    finally:
        spark.sql("DROP TABLE stations")
        spark.catalog.dropTempView("new_rows")
    assert len(rows) == 16
    assert repo.list_tags() == {"v1", "v2"}
