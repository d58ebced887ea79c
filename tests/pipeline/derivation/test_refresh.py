"""A refresh makes of each derived array what its operation makes from nothing, and reads only changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr
from tests.pipeline.derivation.machine import HALF, OPERATIONS, REACHES, negative
from tests.support.faulty_storage import FaultyStorage

import frazil
from frazil.cli.main import main
from frazil.errors import SessionStateError
from frazil.pipeline import (
    DerivedSolver,
    DerivedState,
    Exists,
    Target,
    Version,
    coarsen,
    derived,
    ingest,
    map_blocks,
    pyramid,
    rechunk,
    recompress,
    reduce,
    refresh,
    select,
    write_audit_publish,
)
from frazil.pipeline.derivation.digest_table import DigestTable
from frazil.pipeline.reductions.reduction_job import ReductionOperation

type Call = Callable[..., Any]

INLINE: dict[str, Any] = {"engine": "inline"}


def steps(start: int, stop: int, dice: np.random.Generator) -> xr.Dataset:
    values = dice.integers(0, 99, (stop - start, 8, 12)).astype("f4")
    coords = {"time": np.arange(start, stop), "lat": np.linspace(-70, 70, 8), "lon": np.arange(0, 360, 30.0)}
    return xr.Dataset({"t": (("time", "lat", "lon"), values)}, coords)


def archive(
    count: int = 12,
    chunk: int = 1,
    storage: frazil.Storage | None = None,
    config: frazil.RepositoryConfig | None = None,
) -> frazil.Repository:
    """Return a repository with the array ``data/t``."""
    repo = frazil.Repository.create(storage or frazil.in_memory_storage(), config)
    encoding = {"t": {"chunks": (chunk, 4, 12), "fill_value": 0.0}, "time": {"chunks": (50,)}}
    with repo.transaction("main", message="data") as store:
        data = steps(0, count, np.random.default_rng(0))
        data.to_zarr(store, group="data", zarr_format=3, consolidated=False, encoding=encoding)
    return repo


def append(store: Any, start: int, stop: int) -> None:
    data = steps(start, stop, np.random.default_rng(start))
    data.to_zarr(store, group="data", append_dim="time", zarr_format=3, consolidated=False)


@contextmanager
def commit(repo: frazil.Repository, message: str) -> Iterator[Any]:
    """Yield a store, and commit its changes if there are any."""
    session = repo.writable_session("main")
    yield session.store
    if session.has_uncommitted_changes:
        session.commit(message)


def arrays_of(repo: frazil.Repository, group: str) -> dict[str, tuple[Any, Any, bytes]]:
    """Return the arrays below a group by path, without the group of the source."""
    root: Any = zarr.open_group(repo.readonly_session("main").store, path=group, mode="r")
    return {
        path: (each.dtype, dict(each.attrs), np.asarray(each[...]).tobytes() + bytes(each.shape))
        for path, each in root.members(max_depth=None)
        if isinstance(each, zarr.Array)
    }


def from_nothing(repo: frazil.Repository, call: Call, path: str = "data/t") -> dict[str, Any]:
    """Return the results of an operation in a copy of its source."""
    group = path.rpartition("/")[0]
    other = frazil.Repository.create(frazil.in_memory_storage())
    with other.transaction("main", message="copy") as store:
        source = zarr.open_group(repo.readonly_session("main").store, path=group, mode="r")
        for name, each in source.arrays():
            zarr.from_array(store, name=f"{group}/{name}", data=each, attributes=dict(each.attrs))
    call(other, path, to=Target(other, group="out"), **INLINE)
    return arrays_of(other, "out")


@pytest.mark.parametrize("name", [*REACHES, "trim", "pyramid", "newest", "crop"])
def test_an_appended_step_is_the_only_one_that_is_computed(name: str) -> None:
    repo = archive()
    OPERATIONS[name](repo, "data/t", to=Target(repo, group="out"), **INLINE)
    assert derived(repo).is_current
    with commit(repo, "append") as store:
        append(store, 12, 13)
    plan = refresh(repo, **INLINE)
    of_source = sum(each.of_chunks for each in plan.report.arrays)
    needed = sum(each.chunks for each in plan.report.arrays)
    most = {"halo": 6, "rechunk": 6, "shards": 4, "newest": 1, "pyramid": 6}.get(name, 2)
    assert needed <= most < of_source
    plan.apply()
    assert derived(repo).is_current
    assert arrays_of(repo, "out") == from_nothing(repo, OPERATIONS[name])


def test_results_of_results_are_computed_after_them_in_one_commit() -> None:
    repo = archive()
    coarsen(repo, ["data/t"], HALF, to=Target(repo, group="half"), **INLINE)
    coarsen(repo, ["half/data/t"], {"time": 3}, to=Target(repo, group="third"), **INLINE)
    rechunk(repo, ["third/half/data/t"], (-1, 2, 2), to=Target(repo, group="series"), **INLINE)
    with commit(repo, "append") as store:
        append(store, 12, 15)
    before = len(list(repo.ancestry(branch="main")))
    plan = refresh(repo, ["series"], **INLINE)
    assert [each.path.split("/")[1] for each in plan.report.arrays] == ["half", "third", "series"]
    result = plan.apply()
    assert len(list(repo.ancestry(branch="main"))) == before + 1
    assert derived(repo).is_current
    store = result.version.session().store
    values = xr.open_zarr(store, group="data", consolidated=False)["t"]
    expected = values.coarsen(lat=2, lon=2).mean().coarsen(time=3).mean().values
    series = zarr.open_array(store, path="series/third/half/data/t", mode="r")[...]
    np.testing.assert_array_equal(series, expected)


@pytest.mark.parametrize("what", ["correction", "append", "labels"])
def test_references_to_results_follow_them(what: str) -> None:
    """A result that only refers to the chunks of another one is behind as soon as that one is."""

    def chain(repo: frazil.Repository) -> None:
        coarsen(repo, ["data/t"], HALF, to=Target(repo, group="a"), **INLINE)
        recompress(repo, ["a/data/t"], to=Target(repo, group="b"), **INLINE)
        select(repo, ["b/a/data/t"], isel={"lat": slice(0, 2)}, to=Target(repo, group="c"), **INLINE)
        map_blocks(negative, repo, ["c/b/a/data/t"], to=Target(repo, group="d"), **INLINE)

    repo = archive()
    chain(repo)
    with commit(repo, what) as store:
        if what == "append":
            append(store, 12, 13)
        else:
            array, values = ("data/t", 50.0) if what == "correction" else ("data/lat", -80.0)
            zarr.open_array(store, path=array)[2] = values
    plan = refresh(repo, **INLINE)
    behind = {each.path.split("/")[1] for each in plan.report.arrays if each.state == DerivedState.BEHIND}
    assert behind == {"a", "b", "c", "d"}
    assert plan.report.of("d/c/b/a/data/t").chunks == {"correction": 1, "append": 1, "labels": 0}[what]
    plan.apply()
    assert derived(repo).is_current
    found = {group: arrays_of(repo, group) for group in "abcd"}
    for group in "abcd":
        with commit(repo, f"without {group}") as store:
            del zarr.open_group(store)[group]
    chain(repo)
    assert found == {group: arrays_of(repo, group) for group in "abcd"}


def test_a_chunk_that_moves_is_not_computed() -> None:
    repo = archive()
    coarsen(repo, ["data/t"], HALF, to=Target(repo, group="half"), **INLINE)
    with repo.transaction("main", message="a backfill") as store:
        array, time = (zarr.open_array(store, path=f"data/{name}") for name in ("t", "time"))
        for each in (array, time):
            each.resize((13, *each.shape[1:]))
        session = store.session
        session.shift_array("/data/t", (1, 0, 0))
        array[0] = 7
        time[:] = np.arange(-1, 12)
    (row,) = refresh(repo, **INLINE).report.arrays
    assert (row.state, row.chunks, row.of_chunks) == (DerivedState.BEHIND, 1, 13)
    refresh(repo, **INLINE).apply()
    assert arrays_of(repo, "half") == from_nothing(repo, OPERATIONS["coarsen"])


@pytest.mark.parametrize("length", [1, 2, 5])
def test_labels_of_the_newest_steps(length: int) -> None:
    """The result has whole chunks of the labels on some days only, and takes over their references then."""
    repo, dice = frazil.Repository.create(frazil.in_memory_storage()), np.random.default_rng(0)
    encoding = {"t": {"chunks": (1, 8, 12)}, "time": {"chunks": (3,)}}
    with repo.transaction("main", message="data") as store:
        steps(0, 9, dice).to_zarr(store, group="data", zarr_format=3, consolidated=False, encoding=encoding)
    isel = {"time": slice(-length, None)}
    select(repo, ["data/t"], isel=isel, to=Target(repo, group="newest"), **INLINE)
    for day in range(9, 14):
        with commit(repo, f"{day}") as store:
            append(store, day, day + 1)
        refresh(repo, **INLINE).apply()
        session = repo.readonly_session("main")
        for name in ("t", "time"):
            expected = frazil.read(session, f"data/{name}")[-length:]
            np.testing.assert_array_equal(frazil.read(session, f"newest/data/{name}"), expected)
        assert derived(repo).is_current


@pytest.mark.parametrize("group", ["out", "data/out", "data"])
def test_branches_that_both_have_fresh_results_are_merged(group: str) -> None:
    repo = archive()
    calls = {
        f"{group}/{name}".removesuffix("/mean"): name for name in ("coarsen", "mean", "plane", "pyramid")
    }
    for place, name in calls.items():
        OPERATIONS[name](repo, "data/t", to=Target(repo, group=place), **INLINE)
    repo.create_branch("side", repo.lookup_branch("main"))
    for branch, row in (("side", 2), ("main", 7)):
        with repo.transaction(branch, message=branch) as store:
            zarr.open_array(store, path="data/t")[row] = row
            if branch == "side":
                append(store, 12, 15)
        refresh(repo, branch=branch, **INLINE).apply()
    with pytest.raises(frazil.RebaseFailedError, match="DerivedSolver"):
        repo.merge("side")
    asked = list[str]()

    class Others(frazil.ConflictDetector):
        def solve(self, conflicts: Any) -> Any:
            asked.extend(each.path for each in conflicts)
            return super().solve(conflicts)

    repo.merge("side", solver=DerivedSolver(Others()))
    assert asked == []
    rows = derived(repo).arrays
    assert {each.state for each in rows} <= {DerivedState.BEHIND, DerivedState.CURRENT}
    refresh(repo, mode="strict", **INLINE).apply()
    assert derived(repo).is_current
    data = xr.open_zarr(repo.readonly_session("main").store, group="data", consolidated=False).load()
    assert (data.t[2] == 2).all()
    assert (data.t[7] == 7).all()
    assert data.time.values.tolist() == list(range(15))
    for place, name in calls.items():
        results, expected = arrays_of(repo, place), from_nothing(repo, OPERATIONS[name])
        assert {path: results[path] for path in expected} == expected


def test_an_edit_of_a_result_is_found_and_refused() -> None:
    repo = archive()
    coarsen(repo, ["data/t"], HALF, to=Target(repo, group="half"), **INLINE)
    with repo.transaction("main", message="an edit") as store:
        zarr.open_array(store, path="half/data/t")[0] = -1
    assert derived(repo).of("half/data/t").state == DerivedState.EDITED
    tip = repo.lookup_branch("main")
    with pytest.raises(SessionStateError, match="half/data/t"):
        refresh(repo, **INLINE).apply()
    assert repo.lookup_branch("main") == tip
    refresh(repo, edits="overwrite", **INLINE).apply()
    assert arrays_of(repo, "half") == from_nothing(repo, OPERATIONS["coarsen"])


def test_what_cannot_be_computed_is_broken_and_stays_readable() -> None:
    repo = archive()
    map_blocks(lambda block: block + 1, repo, ["data/t"], to=Target(repo, group="lambda"), **INLINE)
    coarsen(repo, ["data/t"], HALF, to=Target(repo, group="half"), **INLINE)
    row = derived(repo).of("lambda/data/t")
    assert row.state == DerivedState.BROKEN
    assert "function" in row.reason
    with commit(repo, "append") as store:
        append(store, 12, 13)
    refresh(repo, **INLINE).apply()
    assert [each.state for each in derived(repo).arrays] == [DerivedState.CURRENT, DerivedState.BROKEN]
    with commit(repo, "the source goes") as store:
        del zarr.open_group(store)["data"]
    assert "/data/" in derived(repo).of("half/data/t").reason


def test_states_are_a_table() -> None:
    pytest.importorskip("pyspark")
    from frazil.spark.tables import repository_tables

    repo = archive()
    coarsen(repo, ["data/t"], HALF, to=Target(repo, group="half"), **INLINE)
    with commit(repo, "append") as store:
        append(store, 12, 13)
    (row,) = repository_tables.table(repo, {"table": "derived"}).to_pylist()
    assert (row["path"], row["state"], row["chunks"], row["of_chunks"]) == ("/half/data/t", "behind", 1, 13)


def test_results_in_another_repository_are_not_derived() -> None:
    repo, other = archive(), archive()
    rechunk(repo, ["data/t"], (4, 4, 4), to=Target(other, group="copy"), **INLINE)
    assert derived(other).arrays == ()


def test_strict_refuses_what_would_be_computed_in_full() -> None:
    repo = archive()
    coarsen(repo, ["data/t"], HALF, to=Target(repo, group="half"), **INLINE)
    with commit(repo, "another packing") as store:
        zarr.open_array(store, path="data/t").attrs["scale_factor"] = 2.0
    tip = repo.lookup_branch("main")
    with pytest.raises(SessionStateError, match="strict"):
        refresh(repo, mode="strict", **INLINE).apply()
    assert repo.lookup_branch("main") == tip
    assert "data type" in refresh(repo, **INLINE).report.of("half/data/t").reason
    refresh(repo, **INLINE).apply()
    assert arrays_of(repo, "half") == from_nothing(repo, OPERATIONS["coarsen"])


def test_mode_full_computes_everything_again() -> None:
    repo = archive()
    coarsen(repo, ["data/t"], HALF, to=Target(repo, group="half"), **INLINE)
    assert refresh(repo, mode="full", **INLINE).apply().metrics.chunks == 12
    assert refresh(repo, **INLINE).apply().metrics.chunks == 0


def test_results_that_were_moved_or_deleted(tmp_path: Path) -> None:
    repo = archive()
    pyramid(repo, ["data/t"], factors=HALF, levels=3, to=Target(repo, group="levels"), **INLINE)
    coarsen(repo, ["data/t"], HALF, to=Target(repo, group="half"), **INLINE)
    session = repo.rearrange_session("main")
    session.move("/half", "/coarse")
    session.commit("move")
    with commit(repo, "append, and one level goes") as store:
        append(store, 12, 13)
        del zarr.open_group(store, path="levels/2/data")["t"]
    plan = refresh(repo, **INLINE)
    assert plan.report.of("coarse/data/t").chunks == 1
    plan.apply()
    assert sorted(each.path for each in derived(repo).arrays) == [
        "/coarse/data/t",
        "/levels/0/data/t",
        "/levels/1/data/t",
    ]
    assert arrays_of(repo, "coarse") == from_nothing(repo, OPERATIONS["coarsen"])
    assert "half" not in zarr.open_group(repo.readonly_session("main").store, mode="r")


def test_a_moved_result_with_new_labels_stays_a_source() -> None:
    """The labels of the result change, so its coordinate gets new chunks."""
    repo = archive(8)
    coarsen(repo, ["data/t"], {"time": 2}, to=Target(repo, group="a"), **INLINE)
    rechunk(repo, ["a/data/t"], {"time": -1}, to=Target(repo, group="b"), **INLINE)
    session = repo.rearrange_session("main")
    session.move("/a", "/z")
    session.commit("move")
    with commit(repo, "more") as store:
        append(store, 8, 12)
    refresh(repo, **INLINE).apply()
    assert derived(repo).is_current
    session = repo.readonly_session("main")
    times = frazil.read(session, "data/time").reshape(-1, 2).mean(axis=1)
    for group in ("z/data", "b/a/data"):
        np.testing.assert_array_equal(frazil.read(session, f"{group}/time"), times)
        assert frazil.read(session, f"{group}/t").shape == (6, 8, 12)


def test_a_call_that_runs_again_after_a_move_of_its_results() -> None:
    repo, names = archive(), ("mean", "max", "count", "std")
    for moved in ("one", "two", "three"):
        reduce(repo, "data/t", "time", names, to=Target(repo, group="all"), **INLINE)
        session = repo.rearrange_session("main")
        session.move("/all", f"/{moved}")
        session.commit("move")
    assert refresh(repo, **INLINE).report.is_current


def test_the_reference_writes_the_source(tmp_path: Path) -> None:
    storage = frazil.local_filesystem_storage(str(tmp_path / "repo"))
    repo = archive(storage=storage)
    coarsen(repo, ["data/t"], HALF, to=Target(repo, group="half"), **INLINE)
    reference = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "repo")))
    session = reference.writable_session("main")
    append(session.store, 12, 14)
    session.commit("append")
    repo = frazil.Repository.open(storage)
    assert refresh(repo, **INLINE).report.of("half/data/t").chunks == 2
    refresh(repo, engine="threads").apply()
    assert arrays_of(repo, "half") == from_nothing(repo, OPERATIONS["coarsen"])
    session = icechunk.Repository.open(
        icechunk.local_filesystem_storage(str(tmp_path / "repo"))
    ).readonly_session("main")
    assert zarr.open_array(session.store, path="half/data/t", mode="r").shape == (14, 4, 6)


def test_an_interrupted_refresh_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = archive(storage=frazil.local_filesystem_storage(str(tmp_path)))
    map_blocks(negative, repo, ["data/t"], to=Target(repo, group="out"), tasks=24, **INLINE)
    with commit(repo, "corrections") as store:
        zarr.open_array(store, path="data/t")[::2] = 5
    tip = repo.lookup_branch("main")
    calls: list[int] = []

    def failing(block: Any) -> Any:
        calls.append(1)
        if len(calls) > 3:
            raise OSError("no power")
        return -block

    monkeypatch.setattr("tests.pipeline.derivation.machine.negative", failing)
    with pytest.raises(Exception, match="no power"):
        refresh(repo, engine="threads").apply()
    assert repo.lookup_branch("main") == tip
    monkeypatch.undo()
    refresh(repo, engine="threads").apply()
    assert arrays_of(repo, "out") == from_nothing(
        repo, lambda other, path, **to: map_blocks(negative, other, [path], **to)
    )


def test_an_ingest_and_a_publication_have_the_results_in_their_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(4):
        data = steps(number, number + 1, np.random.default_rng(number))
        data.to_netcdf(f"{number}.nc", engine="h5netcdf", unlimited_dims=["time"])
    repo = frazil.Repository.create(frazil.local_filesystem_storage("repo"))
    to = Target(repo, group="data")
    ingest(["0.nc", "1.nc"], to, chunks={"time": 1}, **INLINE)
    coarsen(repo, ["data/t"], HALF, to=Target(repo, group="half"), **INLINE)
    result = ingest("2.nc", to, mode="append", refresh=True, engine="threads")
    assert derived(result.version).is_current
    assert zarr.open_array(result.version.session().store, path="half/data/t", mode="r").shape[0] == 3
    repo.create_branch("command", repo.lookup_branch("main"))
    command = ["ingest", "3.nc", "repo", "--branch", "command", "--group", "data", "--mode", "append"]
    assert main([*command, "--refresh", "--engine", "inline"]) == 0
    assert derived(Version.of(repo, branch="command")).is_current
    assert repo.lookup_snapshot(repo.lookup_branch("command")).parent_id == result.version.snapshot_id

    def work(audit: Target) -> None:
        ingest("3.nc", Target(audit.repo, audit.branch, "data"), mode="append", **INLINE)

    tip = Version.of(repo)
    published = write_audit_publish(repo, work, [Exists("/half/data/t")], refresh=True, **INLINE)
    assert published.version.snapshot_id != tip.snapshot_id
    assert derived(repo).is_current
    assert zarr.open_array(repo.readonly_session("main").store, path="half/data/t", mode="r").shape[0] == 4


@pytest.mark.parametrize("name", ["coarsen", "rechunk", "regrid", "trim"])
def test_a_refresh_reads_the_manifests_of_changes_only(name: str) -> None:
    reads = dict[int, int]()
    for count in (48, 192):
        sizes: Any = {frazil.ManifestSplitDimCondition.Axis(0): 4}
        rules = frazil.ManifestSplittingConfig.from_dict({frazil.ManifestSplitCondition.AnyArray(): sizes})
        config = frazil.RepositoryConfig(manifest=frazil.ManifestConfig(splitting=rules))
        storage = frazil.in_memory_storage()
        repo = archive(count, storage=storage, config=config)
        OPERATIONS[name](repo, "data/t", to=Target(repo, group="out"), **INLINE)
        for start in range(count, count + 9, 3):
            with commit(repo, "append") as store:
                append(store, start, start + 3)
            counting = FaultyStorage(storage, lambda key, condition: None)
            refresh(frazil.Repository.open(counting), **INLINE).apply()
        reads[count] = sum(key.startswith("manifests/") for key in counting.gets)
        assert derived(repo).is_current
        assert arrays_of(repo, "out") == from_nothing(repo, OPERATIONS[name])
    assert reads[192] < 2 * reads[48]  # four times as many steps, and as many manifests


def test_a_refresh_plans_each_call_and_reads_each_table_once(monkeypatch: pytest.MonkeyPatch) -> None:
    repo = archive()
    reduce(repo, ["data/t"], "time", "mean", to=Target(repo, group="mean"), **INLINE)
    with commit(repo, "more") as store:
        append(store, 12, 13)
    counts = Counter[str]()
    plan, read = ReductionOperation.plan, DigestTable.read

    def counted_plan(*arguments: Any) -> Any:
        counts["plan"] += 1
        return plan(*arguments)

    def counted_read(*arguments: Any) -> Any:
        counts["read"] += 1
        return read(*arguments)

    monkeypatch.setattr(ReductionOperation, "plan", counted_plan)
    monkeypatch.setattr(DigestTable, "read", staticmethod(counted_read))
    refresh(repo, **INLINE).apply()
    assert counts == {"plan": 1, "read": 1}
    assert derived(repo).is_current
