"""Runs of a pipeline from its definition, compared with xarray."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from tests.pipeline.definition.feed import (
    DEFINITION,
    damaged,
    day,
    feed,
    is_up_to_date,
    objects,
    opened,
    published,
)

import frazil
from frazil.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidInputError,
    TaskFailedError,
    ValidationFailedError,
)
from frazil.pipeline import Pipeline, PipelineDerived, PipelineIngest, Range, derived, job_metrics
from frazil.pipeline.ingest import tasks
from frazil.pipeline.publishing import operation as publishing
from frazil.pipeline.reductions.functions import Climatology
from frazil.pipeline.transform import coarsening
from frazil.storage.access import environment_access

MONTHLY = "/climatology/daily/weather/t2m"
SECOND = """
[[ingest]]
files = "rain_*.nc"
group = "/rain"
concat_dim = "time"
"""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A folder with the files of two days."""
    for number in range(2):
        day(tmp_path, number)
    return tmp_path


def test_a_day_after_the_other(archive: Path) -> None:
    pipeline = feed(archive)
    first = pipeline.run()
    assert (first.outcome, first.files, first.rules) == ("published", 2, 1)
    is_up_to_date(archive, 0, 1)
    day(archive, 2)
    second = pipeline.run()
    assert (second.outcome, second.files) == ("published", 1)
    assert second.snapshot_id != first.snapshot_id
    assert set(second.derived) == {"/daily/weather/t2m", MONTHLY}
    is_up_to_date(archive, 0, 1, 2)
    repo = opened(archive)
    assert repo.list_branches() == {"main"}
    commits = [each for each in repo.ancestry(branch="main") if each.parent_id is not None]
    assert {each.metadata["author"] for each in commits} == {"Ada"}


def test_a_second_run_writes_nothing(archive: Path) -> None:
    pipeline = feed(archive)
    first = pipeline.run()
    before = objects(archive)
    second = pipeline.run()
    assert (second.outcome, second.snapshot_id) == ("unchanged", first.snapshot_id)
    assert pipeline.plan().is_empty
    pipeline.status()
    assert objects(archive) == before


def test_a_plan_writes_nothing_and_names_the_causes(archive: Path) -> None:
    pipeline = feed(archive)
    plan = pipeline.plan()
    assert not (archive / "ice").exists()
    assert [os.path.basename(each) for each in plan.ingest[0].new] == ["t2m_0.nc", "t2m_1.nc"]
    assert plan.seconds is None
    assert {each.path: each.chunks for each in plan.derived} == {"/daily/weather/t2m": 1, MONTHLY: 1}
    pipeline.run()
    for number in (2, 3, 4):
        day(archive, number)
    day(archive, 1, offset=1)
    damaged(archive, 5)
    before = objects(archive)
    plan = pipeline.plan()
    assert objects(archive) == before
    [files] = plan.ingest
    assert [os.path.basename(each) for each in files.changed] == ["t2m_1.nc"]
    assert (len(files.new), files.known, len(files.left_out)) == (3, 1, 1)
    assert files.span == ("2026-01-02 00:00:00", "2026-01-05 18:00:00")
    assert plan.seconds is not None
    for each in plan.derived:
        assert "t2m_1.nc" in each.reason
        assert "t2m_5.nc" not in each.reason

    # The run does what the plan says.
    result = pipeline.run()
    assert {each.path for each in plan.derived} == set(result.derived)
    assert result.files == len(files.new) + len(files.changed)
    is_up_to_date(archive, 0, 1, 2, 3, 4)


def test_a_plan_counts_only_the_chunks_that_files_reach(tmp_path: Path) -> None:
    for number in range(8):
        day(tmp_path, number)
    text = DEFINITION.replace("factors = {time = 4}", "factors = {time = 2}\nchunks = {time = 2}")
    pipeline = feed(tmp_path, text)
    pipeline.run()
    day(tmp_path, 6, offset=1)
    [daily, _] = pipeline.plan().derived
    assert (daily.chunks, daily.of_chunks) == (1, 8)


def test_a_damaged_file_is_left_out_until_it_is_complete(archive: Path) -> None:
    damaged(archive, 1)
    day(archive, 2)
    pipeline = feed(archive)
    first = pipeline.run()
    assert first.outcome == "left-out"
    [(name, reason)] = first.left_out
    assert name.endswith("t2m_1.nc")
    assert reason.startswith("damaged")
    is_up_to_date(archive, 0, 2)
    assert pipeline.run().outcome == "unchanged"
    [(name, reason)] = pipeline.status().quarantined
    assert name.endswith("t2m_1.nc")
    assert reason.startswith("damaged")
    day(archive, 1)
    assert pipeline.run().outcome == "published"
    is_up_to_date(archive, 0, 1, 2)
    assert pipeline.status().quarantined == ()


def test_files_that_an_unpublished_run_left_out_are_named(tmp_path: Path) -> None:
    """The ledger of the audit branch has them already, when the next run continues."""
    damaged(tmp_path, 1)
    pipeline = feed(tmp_path)
    with pytest.raises(InvalidInputError, match=r"at least one file, .*t2m_1\.nc: damaged"):
        pipeline.run()
    day(tmp_path, 2)
    first = pipeline.run()
    assert (first.outcome, first.files) == ("left-out", 1)
    assert [name.rpartition("/")[2] for name, _ in first.left_out] == ["t2m_1.nc"]
    damaged(tmp_path, 3)
    day(tmp_path, 4, offset=500)
    with pytest.raises(ValidationFailedError):
        pipeline.run()
    day(tmp_path, 4)
    second = pipeline.run()
    assert second.outcome == "left-out"
    assert [name.rpartition("/")[2] for name, _ in second.left_out] == ["t2m_3.nc"]
    is_up_to_date(tmp_path, 2, 4)
    tagged = replace(pipeline, tag="day-%Y")
    tag = tagged.run().tag
    assert tag is not None
    assert [each.tag for each in tagged.status().runs] == [tag, None]


def test_a_damaged_file_of_the_root_group(archive: Path) -> None:
    pipeline = feed(archive, DEFINITION.replace("/weather", "/").replace("//", "/"))
    assert pipeline.run().outcome == "published"
    damaged(archive, 2)
    day(archive, 3)
    assert pipeline.run().outcome == "left-out"
    day(archive, 4)
    assert pipeline.run().outcome == "published"
    assert published(archive, "/").sizes["time"] == 16


def test_a_file_returns_to_its_earlier_contents(archive: Path) -> None:
    pipeline, path = feed(archive), archive / "t2m_1.nc"
    pipeline.run()
    first, times = path.read_bytes(), path.stat()
    day(archive, 1, offset=1)
    assert pipeline.run().outcome == "published"
    path.write_bytes(first)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert pipeline.run().outcome == "published"
    is_up_to_date(archive, 0, 1)


def test_the_status_names_quarantined_files_that_are_gone(archive: Path) -> None:
    damaged(archive, 2)
    pipeline = feed(archive)
    pipeline.run()
    for path in archive.glob("t2m_*.nc"):
        path.unlink()
    [(name, reason)] = pipeline.status().quarantined
    assert name.startswith("t2m_2.nc")
    assert reason.startswith("unreadable")


def test_a_rule_that_fails_publishes_nothing(archive: Path) -> None:
    pipeline = feed(archive)
    first = pipeline.run()
    day(archive, 2, offset=200)
    for _ in range(2):
        with pytest.raises(ValidationFailedError):
            pipeline.run()
        assert opened(archive).lookup_branch("main") == first.snapshot_id
    status = pipeline.status()
    assert [each.outcome for each in status.runs] == ["rules-failed", "published"]
    day(archive, 2)
    assert pipeline.run().outcome == "published"
    is_up_to_date(archive, 0, 1, 2)
    assert opened(archive).list_branches() == {"main"}


class Killed(BaseException):
    """The end of a process."""


def killed(*_: Any, **__: Any) -> Any:
    raise Killed


@pytest.mark.parametrize(
    ("module", "function", "copied"),
    [
        (tasks, "copy_values", 2),
        (coarsening, "window_statistics", 0),
        (Climatology, "plan", 0),
        (publishing, "publish", 0),
        (publishing, "delete_if_published", None),
    ],
)
def test_a_killed_run_continues(
    archive: Path, monkeypatch: pytest.MonkeyPatch, module: Any, function: str, copied: int | None
) -> None:
    """A run dies in the ingest, in a task of a derived array, before the next one, or at the publication.

    ``copied`` is the number of tasks of the ingest that the next run runs.
    """
    day(archive, 2)
    pipeline = feed(archive)
    with monkeypatch.context() as patch:
        patch.setattr(module, function, killed)
        with pytest.raises((Killed, TaskFailedError)):
            pipeline.run()
    calls: list[None] = []
    copy = tasks.copy_values

    def counted(*arguments: Any) -> Any:
        calls.append(None)
        return copy(*arguments)

    monkeypatch.setattr(tasks, "copy_values", counted)
    result = pipeline.run()
    assert result.outcome == ("unchanged" if copied is None else "published")
    assert len(calls) == (copied or 0)
    is_up_to_date(archive, 0, 1, 2)
    before = objects(archive)
    assert pipeline.run().outcome == "unchanged"
    assert objects(archive) == before


@pytest.mark.parametrize(
    ("failure", "what"),
    [
        (None, "deleted"),  # the other run publishes first
        (ConflictError("A", "B"), "committed to"),
        (AlreadyExistsError("exists", "branch-already-exists"), "created"),
    ],
)
def test_two_runs_at_the_same_time(
    archive: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception | None, what: str
) -> None:
    pipeline, work = feed(archive), Pipeline._work

    def with_another_run(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(Pipeline, "_work", work)
        if failure is not None:
            raise failure
        assert pipeline.run().outcome == "published"
        return work(*arguments, **options)

    monkeypatch.setattr(Pipeline, "_work", with_another_run)
    text = f"another writer {what} the branch `audit/.*probably another run of .*Run the pipeline again"
    with pytest.raises(ConflictError, match=text):
        pipeline.run()
    assert pipeline.run().outcome == ("unchanged" if failure is None else "published")
    is_up_to_date(archive, 0, 1)


def test_a_changed_definition_is_computed_again(archive: Path) -> None:
    feed(archive).run()
    pipeline = feed(archive, DEFINITION.replace('to = "/climatology"', 'to = "/climatology"\nhow = "max"'))
    [row] = pipeline.plan().derived
    assert (row.path, row.reason) == (MONTHLY, "its definition has changed")
    result = pipeline.run()
    assert (result.outcome, result.files, result.derived) == ("published", 0, (MONTHLY,))
    with xr.set_options(use_flox=False):  # type: ignore[no-untyped-call]  # xarray
        daily = published(archive, "daily/weather").t2m.compute()
        largest = daily.groupby("time.month").max()
    np.testing.assert_array_equal(published(archive, "climatology/daily/weather").t2m, largest)
    assert pipeline.run().outcome == "unchanged"


def test_a_changed_definition_may_have_other_results(archive: Path) -> None:
    feed(archive).run()
    how = 'to = "/climatology"\nhow = ["min", "max"]'
    pipeline = feed(archive, DEFINITION.replace('to = "/climatology"', how))
    assert pipeline.run().outcome == "published"
    assert set(published(archive, "climatology/daily/weather").data_vars) == {"t2m_min", "t2m_max"}
    assert pipeline.run().outcome == "unchanged"


def test_results_of_a_changed_definition_are_computed_again(archive: Path) -> None:
    feed(archive).run()
    pipeline = feed(archive, DEFINITION.replace("factors = {time = 4}", 'factors = {time = 4}\nhow = "max"'))
    assert len(pipeline.plan().derived) == 2
    pipeline.run()
    daily = published(archive, "daily/weather").t2m.compute()
    with xr.open_mfdataset(str(archive / "t2m_*.nc"), engine="h5netcdf") as files:
        np.testing.assert_array_equal(daily, files.t2m.coarsen(time=4).max())
    np.testing.assert_allclose(
        published(archive, "climatology/daily/weather").t2m[0], daily.mean("time"), rtol=1e-6
    )
    assert pipeline.plan().is_empty
    assert derived(opened(archive)).is_current


def test_a_new_table_reads_data_that_are_published(archive: Path) -> None:
    text, table = (
        DEFINITION,
        DEFINITION[DEFINITION.index('[[derived]]\noperation = "clim') : DEFINITION.index("[[rules]]")],
    )
    feed(archive, text.replace(table, "")).run()
    assert feed(archive).run().derived == (MONTHLY,)
    is_up_to_date(archive, 0, 1)


def test_two_sources_are_published_together(archive: Path) -> None:
    day(archive, 0, "rain", -280)
    pipeline = feed(archive, DEFINITION + SECOND)
    assert pipeline.run().files == 3
    day(archive, 2)
    day(archive, 1, "rain", -280)
    result = pipeline.run()
    assert result.files == 2
    moves = [each for each in opened(archive).ancestry(branch="main") if "frazil_audit" in each.metadata]
    assert len(moves) == 2
    is_up_to_date(archive, 0, 1, 2)
    with xr.open_mfdataset(str(archive / "rain_*.nc"), engine="h5netcdf") as rain:
        xr.testing.assert_equal(published(archive, "rain").compute(), rain.compute())


def test_a_source_that_fails_publishes_nothing_of_the_other(archive: Path) -> None:
    day(archive, 0, "rain", -280)
    pipeline = feed(archive, DEFINITION + SECOND)
    first = pipeline.run()
    day(archive, 2)
    (archive / "rain_1.nc").write_bytes(b"no file")  # on_problem of this table is "fail"
    with pytest.raises(InvalidInputError, match=r"rain_1\.nc"):
        pipeline.run()
    assert opened(archive).lookup_branch("main") == first.snapshot_id
    with pytest.raises(InvalidInputError, match=r"rain_1\.nc"):
        pipeline.plan()
    day(archive, 1, "rain", -280)
    assert pipeline.run().files >= 1
    is_up_to_date(archive, 0, 1, 2)


def test_a_backfill_repairs_the_files_of_a_span(archive: Path) -> None:
    for number in (2, 3):
        day(archive, number)
    pipeline = feed(archive, DEFINITION.replace('on_change = "rewrite"', 'on_change = "ignore"'))
    pipeline.run()
    day(archive, 1, offset=1)
    day(archive, 3, offset=1)
    before = objects(archive)
    assert pipeline.run().outcome == "unchanged"
    assert objects(archive) == before
    result = pipeline.backfill(date(2026, 1, 2), date(2026, 1, 2))
    assert (result.outcome, result.files) == ("published", 1)
    with pytest.raises(AssertionError):
        is_up_to_date(archive, 0, 1, 2, 3)  # the file of the fourth day has other values
    pipeline.backfill(datetime(2026, 1, 4, 6), datetime(2026, 1, 4, 6))
    is_up_to_date(archive, 0, 1, 2, 3)


def test_a_backfill_reads_unchanged_files_too(archive: Path) -> None:
    pipeline = feed(archive)
    pipeline.run()
    with opened(archive).transaction("main", message="a mistake") as store:
        zarr.open_array(store, path="weather/t2m")[:4] = 200
    assert pipeline.backfill(date(2026, 1, 1), date(2026, 1, 1)).outcome == "published"
    is_up_to_date(archive, 0, 1)
    assert pipeline.backfill(date(2027, 1, 1), date(2027, 2, 1)).outcome == "unchanged"
    with pytest.raises(InvalidInputError, match="span must be times"):
        pipeline.backfill(1, 2)


def test_a_backfill_names_the_files_that_it_cannot_read(archive: Path) -> None:
    """They may have labels in the span."""
    pipeline = feed(archive)
    pipeline.run()
    days = sorted(archive.glob("t2m_*.nc"))
    days[1].write_bytes(b"a part")
    span = date(2026, 1, 1), date(2026, 1, 2)
    result = pipeline.backfill(*span)
    assert (result.outcome, result.files) == ("left-out", 1)
    assert [name.rpartition("/")[2] for name, _ in result.left_out] == [days[1].name]
    assert "damaged" in result.left_out[0][1]
    for each in days:
        each.write_bytes(b"a part")
    before = objects(archive)
    result = pipeline.backfill(*span)
    assert (result.outcome, len(result.left_out)) == ("unchanged", len(days))
    assert objects(archive) == before


def test_changes_of_other_writers_are_refreshed(archive: Path) -> None:
    pipeline = feed(archive)
    pipeline.run()
    with opened(archive).transaction("main", message="a correction") as store:
        zarr.open_array(store, path="weather/t2m")[:4] = 290
    assert [each.path for each in pipeline.status().behind] == ["/daily/weather/t2m", MONTHLY]
    assert pipeline.run().outcome == "published"
    assert published(archive, "daily/weather").t2m[0].values.tolist() == [[290.0] * 4] * 3


def test_tags_and_retention(archive: Path) -> None:
    text = DEFINITION + '[publish]\ntag = "feed-%Y"\n[retention]\nversions = 1\n'
    pipeline = feed(archive, text)
    first = pipeline.run()
    assert (first.tag or "").startswith("feed-")
    day(archive, 2)
    second = pipeline.run()
    assert second.tag == f"{first.tag}.2"
    assert second.expired
    repo = opened(archive)
    assert repo.lookup_tag(str(first.tag)) == first.snapshot_id
    times = [each for each in repo.ancestry(branch="main") if "frazil_audit" in each.metadata]
    assert len(times) == 1
    assert pipeline.run().tag == second.tag
    assert repo.list_tags() == {first.tag, second.tag}
    assert pipeline.status().runs[0].tag == second.tag
    is_up_to_date(archive, 0, 1, 2)


def test_another_branch_for_readers(archive: Path) -> None:
    pipeline = feed(archive, DEFINITION + '[publish]\nbranch = "live"\naudit_branch = "work"\n')
    result = pipeline.run()
    repo = opened(archive)
    assert repo.lookup_branch("live") == result.snapshot_id
    assert next(repo.ancestry(branch="main")).parent_id is None
    assert pipeline.run().outcome == "unchanged"
    assert pipeline.status().snapshot_id == result.snapshot_id


def test_a_first_plan_knows_the_values_of_coordinates(archive: Path) -> None:
    table = """
[[derived]]
operation = "select"
sources = ["/weather/t2m"]
sel = {lat = [1.0, 2.0]}
to = "/part"
"""
    pipeline = feed(archive, DEFINITION + table)
    planned = {each.path: each.state for each in pipeline.plan().derived}
    assert planned["/part/weather/t2m"] == "behind"
    assert set(pipeline.run().derived) == set(planned)
    assert published(archive, "part/weather").lat.values.tolist() == [1.0, 2.0]


def test_a_plan_without_any_good_file(tmp_path: Path) -> None:
    damaged(tmp_path, 0)
    plan = feed(tmp_path).plan()
    assert len(plan.ingest[0].left_out) == 1
    assert {each.state for each in plan.derived} == {"broken"}


def test_references_to_files(archive: Path) -> None:
    text = f"""
name = "feed"
repository = "ice"
engine = "inline"
[[ingest]]
files = "t2m_*.nc"
group = "/weather"
concat_dim = "time"
virtual = true
containers = ["file://{archive}/"]
[[derived]]
operation = "coarsen"
sources = "/weather/t2m"
factors = {{time = 4}}
to = "/daily"
[[derived]]
operation = "climatology"
sources = "/daily/weather/t2m"
to = "/climatology"
"""
    pipeline = feed(archive, text)
    assert pipeline.plan().ingest[0].tasks
    assert pipeline.run().outcome == "published"
    day(archive, 2)
    assert pipeline.plan().ingest[0].tasks
    assert pipeline.run().outcome == "published"
    access = {f"file://{archive}/": environment_access(f"file://{archive}/")}
    repo = frazil.Repository.open(opened(archive).storage, authorize_virtual_chunk_access=access)
    store = repo.readonly_session("main").store
    with xr.open_mfdataset(str(archive / "t2m_*.nc"), engine="h5netcdf") as expected:
        data = xr.open_zarr(store, group="weather", consolidated=False)
        np.testing.assert_array_equal(data.t2m, expected.t2m)


def test_the_arrays_of_a_group_are_derived(archive: Path) -> None:
    pipeline = feed(archive, DEFINITION.replace('["/weather/t2m"]', '["/weather"]'))
    assert set(pipeline.run().derived) == {"/daily/weather/t2m", MONTHLY}
    is_up_to_date(archive, 0, 1)
    assert pipeline.run().outcome == "unchanged"


def test_the_status_before_and_after_the_first_day(archive: Path) -> None:
    pipeline = feed(archive)
    assert pipeline.status().published_at is None
    assert not (archive / "ice").exists()
    pipeline.run()
    status = pipeline.status()
    assert status.newest == (("/weather", "2026-01-02 18:00:00"),)
    assert [each.outcome for each in status.runs] == ["published"]
    assert status.runs[0].seconds > 0
    assert status.behind == ()


def test_the_graph() -> None:
    pipeline = Pipeline(
        name="feed",
        repository="ice",
        ingest=[PipelineIngest("a.nc", "/a")],
        derived=[PipelineDerived("mean", "/a/t", "/mean", {"dims": "time"})],
        rules=[Range("/a/t", 0, 1)],
    )
    assert pipeline.graph().steps == (
        (("a.nc",), "ingest", "/a"),
        (("/a/t",), "mean", "/mean"),
        (("/a", "/mean"), "publish, 1 rules", "branch main"),
    )


def test_python_and_toml_are_the_same_definition(archive: Path) -> None:
    loaded = feed(archive)
    written = Pipeline(
        name="feed",
        repository="ice",
        owners=["Ada"],
        engine="inline",
        ingest=[
            PipelineIngest(
                "t2m_*.nc",
                "weather",
                {
                    "concat_dim": "time",
                    "chunks": {"time": 4},
                    "on_problem": "quarantine",
                    "on_change": "rewrite",
                    "allow": ["hole"],
                },
            )
        ],
        derived=[
            PipelineDerived("coarsen", "weather/t2m", "daily", {"factors": {"time": 4}}),
            PipelineDerived("climatology", "daily/weather/t2m", "climatology"),
        ],
        rules=[Range("/weather/t2m", 180, 340)],
        folder=archive,
    )
    assert written == loaded
    assert replace(written, name="other") != loaded


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_a_function_in_the_folder_of_the_definition(tmp_path: Path, engine: str) -> None:
    module = f"corrections_{engine}"
    code = "def plus(dataset):\n    return dataset.assign(t2m=dataset.t2m + 1)\n"
    (tmp_path / f"{module}.py").write_text(code)
    path = day(tmp_path, 0)
    text = f'''
name = "feed"
repository = "ice"
engine = "{engine}"
[[ingest]]
files = "t2m_*.nc"
group = "/weather"
preprocess = "{module}:plus"
'''
    assert feed(tmp_path, text).run().outcome == "published"
    with xr.open_dataset(path, engine="h5netcdf") as file:
        np.testing.assert_array_equal(published(tmp_path, "weather").t2m, file.t2m + 1)


@pytest.mark.parametrize("virtual", ["false", "true"])
def test_a_plan_has_the_bytes_that_a_run_writes(archive: Path, virtual: str) -> None:
    """The driver writes the labels, 8 bytes for each step."""
    text = f"""
name = "feed"
repository = "ice"
engine = "inline"
[[ingest]]
files = "t2m_*.nc"
group = "/weather"
concat_dim = "time"
virtual = {virtual}
containers = ["file://{archive}/"]
"""
    pipeline = feed(archive, text)
    for number in (2, 3):
        plan = pipeline.plan()
        pipeline.run()
        jobs = job_metrics(opened(archive), branch="main")
        job = next(each for each in jobs if each["name"] == "ingest")
        labels = job["bytes_written"] - plan.ingest[0].bytes
        assert 0 < labels <= 8 * 4 * 2
        day(archive, number)
    plan = pipeline.plan()
    assert (plan.ingest[0].bytes == 0) == (virtual == "true")
    seconds = [
        each["seconds"] for each in job_metrics(opened(archive), branch="main") if each["name"] == "ingest"
    ]
    assert plan.seconds is not None
    assert min(seconds) <= plan.seconds <= 2 * max(seconds)
