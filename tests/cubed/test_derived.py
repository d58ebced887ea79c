"""Results of functions of datasets follow their sources: a refresh computes what a change reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr
from tests.cubed import programs

import cubed
import frazil
import frazil.xarray
from frazil.errors import InvalidInputError
from frazil.pipeline import DerivedState, Target, derived, map_datasets, refresh, refresh_session

INLINE: dict[str, Any] = {"engine": "inline"}


def rolling(ds: xr.Dataset) -> Any:
    steps = ds.sizes["time"] - 2
    parts = [ds.isel(time=slice(shift, shift + steps)).drop_vars("time") for shift in range(3)]
    return ((parts[0] + parts[1] + parts[2]) / 3).assign_coords(time=ds.time[1:-1])


def resample(ds: xr.Dataset) -> Any:
    return programs.without_flox(programs.resample)(ds)


def climatology(ds: xr.Dataset) -> Any:
    return programs.without_flox(programs.climatology)(ds)


def anomalies(ds: xr.Dataset) -> Any:
    return programs.without_flox(programs.anomalies)(ds)


def where(ds: xr.Dataset) -> xr.Dataset:
    return programs.where_with_arrays(ds)


def share_of_steps(ds: xr.Dataset) -> xr.Dataset:
    return ds / ds.sizes["time"]


def whole_mean(ds: xr.Dataset) -> xr.Dataset:
    return ds.mean("time")


def regrouped(ds: xr.Dataset) -> xr.Dataset:
    return ds.chunk(time=-1, lat=2, lon=2)


def shuffled(ds: xr.Dataset) -> xr.Dataset:
    return ds.isel(lat=[4, 1, 0, 5], time=slice(2, None, 3))


def in_two_parts(ds: xr.Dataset) -> xr.Dataset:
    return xr.concat([ds.isel(lon=slice(5, 8)), ds.isel(lon=slice(0, 3))], "lon")


def both(one: xr.Dataset, other: xr.Dataset) -> xr.Dataset:
    return (one["t"].drop_vars("time") + other["u"].drop_vars("time")).to_dataset(name="sum")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        *(rolling, resample, climatology, anomalies, where),
        *(share_of_steps, whole_mean, regrouped, shuffled, in_two_parts),
    )
}
DAYS = 90


@pytest.fixture(autouse=True)
def _spec(tmp_path: Path) -> Iterator[None]:
    with cubed.config.set({"spec.work_dir": str(tmp_path / "work"), "spec.allowed_mem": "200MB"}):
        yield


def archive(data: xr.Dataset, storage: frazil.Storage | None = None) -> frazil.Repository:
    repo = frazil.Repository.create(storage or frazil.in_memory_storage())
    encoding = {"t": {"chunks": (10, 3, 8)}, "time": {"chunks": (500,)}}
    data.frazil.to(repo, group="data", encoding=encoding)
    return repo


def opened(repo: frazil.Repository, group: str) -> xr.Dataset:
    session = repo.readonly_session("main")
    opened: xr.Dataset = xr.open_zarr(session.store, group=group, consolidated=False, chunks=None).load()
    return opened


def append(repo: frazil.Repository) -> None:
    """Three days more, which end within a chunk."""
    programs.daily(150).isel(time=slice(DAYS, DAYS + 3)).frazil.append(repo, "time", group="data")


def correct(repo: frazil.Repository) -> None:
    with repo.transaction("main", message="a correction") as store:
        zarr.open_array(store, path="data/t")[37, 1, 2] = 400


def crop(repo: frazil.Repository) -> None:
    with repo.transaction("main", message="fewer days") as store:
        for name in ("t", "time"):
            array = zarr.open_array(store, path=f"data/{name}")
            array.resize((DAYS - 15, *array.shape[1:]))


def shift_days(repo: frazil.Repository) -> None:
    """Two days later: the months have other days, some of the same chunks, and no chunk changes."""
    with repo.transaction("main", message="other days") as store:
        array = zarr.open_array(store, path="data/time")
        array[:] = np.asarray(array[:]) + 2


CHANGES = (append, correct, crop, shift_days)


@pytest.mark.sample(4, 10)
@pytest.mark.parametrize("change", CHANGES, ids=lambda each: str(each.__name__))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_refresh_has_the_bits_of_a_run_from_nothing(
    name: str, change: Callable[[frazil.Repository], None]
) -> None:
    repo, function = archive(programs.daily(DAYS)), FUNCTIONS[name]
    map_datasets(function, repo, ["data/t"], to=Target(repo, group="followed"), **INLINE)
    assert derived(repo).is_current
    change(repo)
    plan = refresh(repo, **INLINE)
    plan.apply()
    assert derived(repo).is_current
    map_datasets(function, repo, ["data/t"], to=Target(repo, group="fresh"), **INLINE)
    xr.testing.assert_identical(opened(repo, "followed"), opened(repo, "fresh"))


@pytest.mark.parametrize("name", ["rolling", "climatology", "in_two_parts"])
def test_the_first_run_has_the_values_of_xarray(name: str) -> None:
    repo = archive(programs.daily(DAYS, missing=False))
    map_datasets(FUNCTIONS[name], repo, ["data"], to=Target(repo, group="out"), **INLINE)
    expected = FUNCTIONS[name](opened(repo, "data"))
    xr.testing.assert_allclose(opened(repo, "out"), expected, rtol=1e-5)


#: What a change of three more days, and of one value on day 37, reaches: chunks of the result.
REACHED = {"rolling": (4, 2), "resample": (4, 2), "where": (2, 1)}


@pytest.mark.parametrize("name", REACHED)
def test_a_plan_has_only_the_chunks_that_a_change_reaches(name: str) -> None:
    repo = archive(programs.daily(DAYS, missing=False))
    map_datasets(FUNCTIONS[name], repo, ["data/t"], to=Target(repo, group="out"), **INLINE)
    append_chunks, correct_chunks = REACHED[name]
    for change, most in ((append, append_chunks), (correct, correct_chunks)):
        change(repo)
        plan = refresh(repo, **INLINE)
        state = plan.report.of("out/t")
        assert state.state == DerivedState.BEHIND
        assert 0 < state.chunks <= most < state.of_chunks
        assert state.bytes_read > 0
        before = repo.readonly_session("main").chunk_table("/out/t")
        plan.apply()
        after = repo.readonly_session("main").chunk_table("/out/t")
        rows = before.find_chunks(after.index)
        stored = np.flatnonzero(rows >= 0)
        assert np.count_nonzero(~after.same(stored, before, rows[stored])) <= state.chunks
    assert not refresh(repo, **INLINE).report.of("out/t").chunks


def test_a_constant_of_the_length_changes_all_chunks() -> None:
    repo = archive(programs.daily(DAYS))
    map_datasets(share_of_steps, repo, ["data/t"], to=Target(repo, group="out"), **INLINE)
    append(repo)
    state = derived(repo).of("out/t")
    assert state.chunks == state.of_chunks


def test_sources_may_be_renamed_and_written_by_the_reference(tmp_path: Path) -> None:
    path = str(tmp_path / "repo")
    repo = archive(programs.daily(DAYS), frazil.local_filesystem_storage(path))
    map_datasets(rolling, repo, ["data/t"], to=Target(repo, group="out"), **INLINE)
    session = repo.rearrange_session("main")
    session.move("/data", "/moved")
    session.commit("moved")
    assert derived(repo).is_current
    other = icechunk.Repository.open(icechunk.local_filesystem_storage(path)).writable_session("main")
    zarr.open_array(other.store, path="moved/t")[50] = 1.5
    other.commit("by the reference")
    assert derived(repo).of("out/t").chunks <= 4
    refresh(repo, **INLINE).apply()
    expected = rolling(opened(repo, "moved"))
    xr.testing.assert_allclose(opened(repo, "out"), expected, rtol=1e-5)


def test_packed_values_are_decoded() -> None:
    data = programs.daily(40, missing=False)
    data["t"].encoding = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -999}
    data["t"][3, 2] = np.nan
    repo = archive(data)
    map_datasets(where, repo, ["data/t"], to=Target(repo, group="out"), **INLINE)
    xr.testing.assert_allclose(opened(repo, "out"), where(opened(repo, "data")))
    with repo.transaction("main", message="another packing") as store:
        zarr.open_array(store, path="data/t").update_attributes({"add_offset": 281.0})
    plan = refresh(repo, **INLINE)
    assert plan.report.of("out/t").reason
    plan.apply()
    xr.testing.assert_allclose(opened(repo, "out"), where(opened(repo, "data")))


def test_a_function_of_two_groups_in_the_session_of_a_writer(tmp_path: Path) -> None:
    storage = frazil.local_filesystem_storage(str(tmp_path / "repo"))
    repo = archive(programs.daily(DAYS, missing=False), storage)
    other = programs.daily(DAYS, missing=False).rename(t="u")
    other.frazil.to(repo, group="other", encoding={"u": {"chunks": (10, 3, 8)}})
    map_datasets(both, repo, ["data/t", "other/u"], to=Target(repo, group="out"), engine="processes")
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="other/u")[11] = 5
    refresh_session(session, engine="threads")
    session.commit("a correction, and what follows from it")
    assert derived(repo).is_current
    correct(repo)
    refresh(repo, engine="processes").apply()
    expected = opened(repo, "data")["t"].values + opened(repo, "other")["u"].values
    np.testing.assert_array_equal(opened(repo, "out")["sum"].values, expected)


def test_coordinates_of_two_dimensions_follow_their_source() -> None:
    data = programs.daily(40, missing=False)
    places = np.arange(48.0).reshape(6, 8)
    repo = archive(data.assign_coords(height=(("lat", "lon"), places)))
    map_datasets(where, repo, ["data/t"], to=Target(repo, group="out"), **INLINE)
    np.testing.assert_array_equal(opened(repo, "out")["height"], places)
    with repo.transaction("main", message="another height") as store:
        zarr.open_array(store, path="data/height")[2, 3] = -1
    refresh(repo, **INLINE).apply()
    assert opened(repo, "out")["height"][2, 3] == -1
    xr.testing.assert_allclose(opened(repo, "out"), where(opened(repo, "data")), rtol=1e-5)


def test_a_function_without_a_name_is_broken_and_the_result_stays() -> None:
    repo = archive(programs.daily(DAYS))
    map_datasets(lambda ds: ds * 2, repo, ["data/t"], to=Target(repo, group="out"), **INLINE)
    state = derived(repo).of("out/t")
    assert state.state == DerivedState.BROKEN
    assert "under a name" in state.reason
    assert opened(repo, "out").sizes["time"] == DAYS


def computed(ds: xr.Dataset) -> xr.Dataset:
    return ds.load()


def numbers(ds: xr.Dataset) -> Any:
    return np.zeros(3)


def in_intervals(ds: xr.Dataset) -> xr.Dataset:
    with xr.set_options(use_flox=False):  # type: ignore[no-untyped-call]
        return ds.groupby_bins("lat", [-90, 0, 90]).mean()


@pytest.mark.parametrize(
    ("function", "text"),
    [(computed, "not computed yet"), (numbers, "got a ndarray"), (in_intervals, "intervals in `lat_bins`")],
)
def test_wrong_results_are_refused(function: Callable[..., Any], text: str) -> None:
    repo = archive(programs.daily(DAYS))
    before = repo.lookup_branch("main")
    with pytest.raises(InvalidInputError, match=text):
        map_datasets(function, repo, ["data/t"], to=Target(repo, group="out"), **INLINE)
    assert repo.lookup_branch("main") == before


def test_a_bound_of_memory_is_kept() -> None:
    repo = archive(programs.daily(DAYS))
    with pytest.raises(ValueError, match="exceeds"):
        map_datasets(regrouped, repo, ["data/t"], to=Target(repo, group="out"), max_mem="1kB", **INLINE)
