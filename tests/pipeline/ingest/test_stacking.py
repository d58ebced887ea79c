"""Scalar coordinates stay as they are in one file; in several files one becomes the dimension."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.counting import python_steps
from tests.pipeline.ingest.netcdf_files import container, ingest, report_of, stored_dataset

import frazil
from frazil.errors import InvalidInputError
from frazil.pipeline import Inline, Target
from frazil.pipeline.ingest.dataset import Dataset
from frazil.pipeline.ingest.inspection import InspectionSpec, inspect_all
from frazil.pipeline.ingest.options import SourceFiles, expand
from frazil.readers.registry import FileAccess

ENGINES = {"NETCDF3_64BIT": "scipy", "NETCDF4": "h5netcdf"}


def forecast(time: int, step: int = 0, *, height: float = 2.0, **more: Any) -> xr.Dataset:
    """A file as cfgrib and iris see many: scalar coordinates, one of them with bounds."""
    data = xr.Dataset(
        {
            "t": (("lat", "lon"), np.arange(6.0).reshape(2, 3) + 100 * time + 7 * step),
            "count": ((), np.int32(time), {"long_name": "a scalar that is data"}),
        },
        {
            "lat": [10.0, 20.0],
            "lon": [1.0, 2.0, 3.0],
            "time": (
                (),
                time,
                {"units": "hours since 2020-01-01", "standard_name": "time", "bounds": "time_bnds"},
            ),
            "time_bnds": (("nv",), [time, time + 1]),
            "step": ((), step, {"units": "hours", "standard_name": "forecast_period"}),
            "valid_time": ((), time + step, {"units": "hours since 2020-01-01"}),
            "height": ((), height, {"units": "m"}),
            **more,
        },
        {"title": "forecasts"},
    )
    data.time_bnds.encoding["dtype"] = "i4"
    for name in ("time", "step", "valid_time"):
        data[name].encoding["dtype"] = "i4"
    return data


def write(path: Path, data: xr.Dataset, format: str = "NETCDF4") -> str:
    path.parent.mkdir(exist_ok=True)
    data.to_netcdf(path, engine=ENGINES[format], format=format)  # type: ignore[call-overload]
    return str(path)


def decoded(path: str, format: str = "NETCDF4") -> xr.Dataset:
    """What xarray sees in one file."""
    with xr.open_dataset(path, engine=ENGINES[format]) as data:
        return data.load()


def nested(paths: list[str], dim: str, format: str = "NETCDF4") -> xr.Dataset:
    """What xarray makes of them, with its own words."""
    return xr.open_mfdataset(
        paths, engine=ENGINES[format], combine="nested", concat_dim=dim, data_vars="all", coords="different",
        compat="equals", join="exact", combine_attrs="override",
    ).load()  # fmt: skip


def assert_same_dataset(dataset: xr.Dataset, expected: xr.Dataset) -> None:
    """The order of dimensions of one-dimensional coordinates aside, all is equal."""
    xr.testing.assert_identical(dataset, expected)
    assert {name: each.dims for name, each in dataset.variables.items()} == {
        name: each.dims for name, each in expected.variables.items()
    }


# One file


ALONE = {
    "scalars": forecast(3),
    "a time of one step": forecast(3).drop_vars("time_bnds").expand_dims("time"),
    "several equal times": xr.Dataset({"x": ("time", [1.0, 2, 3])}, {"time": ("time", [4, 4, 5])}),
    "times that go up and down": xr.Dataset({"x": ("time", [1.0, 2, 3])}, {"time": ("time", [5.0, 4, 6])}),
    "times that are missing": xr.Dataset(
        {"x": ("time", [1.0, 2, 3])}, {"time": ("time", [np.nan, 4, np.nan])}
    ),
    "a gap": xr.Dataset({"x": ("time", np.arange(6.0))}, {"time": ("time", [0, 1, 2, 3, 9, 10])}),
    "levels": xr.Dataset({"x": ("lev", np.arange(5.0))}, {"lev": ("lev", [10.0, 12, 15, 20, 50])}),
    "names twice": xr.Dataset({"x": ("station", [1.0, 2])}, {"station": ("station", ["a", "a"])}),
}


@pytest.mark.sample(5, 5)
@pytest.mark.deep
@pytest.mark.parametrize("format", ENGINES)
@pytest.mark.parametrize("case", ALONE)
def test_one_file_is_what_xarray_sees_in_it(
    tmp_path: Path, repo: frazil.Repository, case: str, format: str
) -> None:
    data = ALONE[case]
    if "time" in data.dims and "units" not in data.time.attrs:
        data.time.attrs["units"] = "hours since 2020-01-01"
    path = write(tmp_path / "files" / "one.nc", data, format)
    expected = decoded(path, format)
    result = ingest(path, repo)
    assert_same_dataset(stored_dataset(result.version), expected)
    assert not [each for each in report_of(result).problems if each.kind != "unordered"]
    if "station" not in data.dims:
        containers = [container(tmp_path / "files")]
        target = Target(repo, group="virtual")
        result = ingest(path, target, virtual=True, containers=containers)
        assert_same_dataset(stored_dataset(result.version, "virtual"), expected)
    data["x" if "x" in data else "t"] += 1
    write(tmp_path / "files" / "one.nc", data, format)
    again = ingest(path, repo, mode="upsert", on_change="rewrite")
    assert_same_dataset(stored_dataset(again.version), decoded(path, format))


@pytest.mark.sample(1)
@pytest.mark.parametrize("unlimited", [True, False], ids=["unlimited", "fixed"])
def test_what_follows_a_file_without_order(tmp_path: Path, repo: frazil.Repository, unlimited: bool) -> None:
    """Rays of a radar: several in a second; the next file begins later."""
    paths = []
    for number in range(2):
        times = xr.Variable(
            "time", [10 * number, 10 * number, 10 * number + 1], {"units": "seconds since 2020-01-01"}
        )
        data = xr.Dataset({"x": ("time", np.arange(3.0) + number)}, {"time": times})
        path = tmp_path / f"{number}.nc"
        data.to_netcdf(path, engine="h5netcdf", unlimited_dims=["time"] if unlimited else [])
        paths.append(str(path))
    ingest(paths[0], repo)
    result = ingest(paths[1], repo, mode="append")
    assert stored_dataset(result.version).x.values.tolist() == [0, 1, 2, 1, 2, 3]
    with xr.open_dataset(paths[0], engine="h5netcdf", decode_times=False) as data:
        changed = data.load()
    changed.x[0] = 5
    changed.to_netcdf(paths[0], engine="h5netcdf")
    with pytest.raises(InvalidInputError, match=r"each label once.*mode='append'"):
        ingest(paths[0], repo, mode="upsert", on_change="rewrite")
    target = Target(repo, group="both")
    with pytest.raises(InvalidInputError, match=r"allow=\{'unordered'\} keeps"):
        ingest(paths, target)
    result = ingest(paths, target, allow={"unordered"})
    assert stored_dataset(result.version, "both").x.values.tolist() == [5, 1, 2, 1, 2, 3]


# Several files


@st.composite
def archives(draw: st.DrawFn) -> tuple[list[tuple[int, int, float]], str, str, bool]:
    """Times, steps and heights of files; which of them differs; the format; references or not."""
    count = draw(st.integers(1, 4))
    labels = draw(st.permutations(range(8)))[:count]
    which = draw(st.sampled_from(["time", "step", "height", "all"]))
    files = [
        (label if which in ("time", "all") else 3, label if which in ("step", "all") else 1,
         float(label) if which in ("height", "all") else 2.0)
        for label in labels
    ]  # fmt: skip
    dim = "time" if which == "all" else which
    return files, dim, draw(st.sampled_from(list(ENGINES))), draw(st.booleans())


@pytest.mark.deep
@settings(max_examples=12)
@given(archives(), st.booleans())
def test_stacked_as_xarray_stacks_them(
    archive: tuple[list[tuple[int, int, float]], str, str, bool], explicit: bool
) -> None:
    files, dim, kind, virtual = archive
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [
            write(folder / f"{i}.nc", forecast(time, step, height=height), kind)
            for i, (time, step, height) in enumerate(files)
        ]
        repo = frazil.Repository.create(frazil.in_memory_storage())
        more: dict[str, Any] = {"allow": {"hole"}}  # labels such as 0, 1, 2, 7
        if virtual:
            more |= {"virtual": True, "containers": [container(folder)]}
        result = ingest(paths, repo, concat_dim=dim if explicit else None, **more)
        order = np.argsort([each[("time", "step", "height").index(dim)] for each in files])
        in_order = [paths[i] for i in order.tolist()]
        if len(paths) == 1 and not explicit:
            assert_same_dataset(stored_dataset(result.version), decoded(paths[0], kind))
        else:
            assert_same_dataset(stored_dataset(result.version), nested(in_order, dim, kind))


@pytest.mark.sample(3, 3)
@pytest.mark.deep
@pytest.mark.parametrize("promoted", [False, True], ids=["many first", "one first"])
@pytest.mark.parametrize("mode", ["append", "upsert", "backfill"])
def test_an_archive_that_grows_by_a_file(
    tmp_path: Path, repo: frazil.Repository, mode: Any, promoted: bool
) -> None:
    """What was the same in all files so far becomes a coordinate along the dimension when it differs."""
    paths = [write(tmp_path / f"{time}.nc", forecast(time, height=2.0 + time // 3)) for time in range(4)]
    first = 1 if promoted else 2
    ingest(paths[:first], repo, concat_dim="time" if promoted else None)
    for path in paths[first:]:
        result = ingest(path, repo, mode=mode)
    assert_same_dataset(stored_dataset(result.version), nested(paths, "time"))
    assert ingest(paths, repo, mode=mode).done_before


@pytest.mark.deep
def test_a_file_alone_has_no_dimension_to_grow_in(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = [write(tmp_path / f"{time}.nc", forecast(time)) for time in range(3)]
    ingest(paths[0], repo)
    for files in (paths[1], paths):
        with pytest.raises(InvalidInputError, match=r"into a new group with concat_dim='time'"):
            ingest(files, repo, mode="append")
    with pytest.raises(InvalidInputError, match="values of `/"):
        ingest(paths[1], repo, mode="upsert")
    assert_same_dataset(stored_dataset(ingest(paths[0], repo, mode="append").version), decoded(paths[0]))
    # A job that appends from the first day on needs no option.
    target = Target(repo, group="daily")
    for path in paths:
        result = ingest(path, target, mode="append")
    assert_same_dataset(stored_dataset(result.version, "daily"), nested(paths, "time"))


@pytest.mark.deep
def test_a_file_of_several_of_which_the_others_are_damaged(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = [write(tmp_path / f"{time}.nc", forecast(time)) for time in range(3)]
    Path(paths[0]).write_bytes(b"CDF")
    ingest(paths[:2], repo, on_problem="skip")
    result = ingest(paths[2], repo, mode="append")
    assert_same_dataset(stored_dataset(result.version), nested(paths[1:], "time"))


@pytest.mark.deep
def test_other_variables_join_on_their_own_terms(tmp_path: Path, repo: frazil.Repository) -> None:
    """Two families that follow each other, and a field of which there is one."""
    paths = [write(tmp_path / f"{time}.nc", forecast(time)) for time in range(2)]
    # Integers without a _FillValue have no missing value for the step of `later`.
    other = [forecast(time).drop_vars("count").rename(t="u") for time in range(2)]
    paths += [write(tmp_path / f"u{time}.nc", each) for time, each in enumerate(other)]
    fixed = xr.Dataset({"orog": (("lat", "lon"), np.ones((2, 3)))}, {"lat": [10.0, 20.0], "lon": [1.0, 2, 3]})
    paths.append(write(tmp_path / "orog.nc", fixed))
    dataset = stored_dataset(ingest(paths[:4], repo).version)
    assert (dataset.t.dims, dataset.u.dims, dataset.valid_time.dims) == (("time", "lat", "lon"),) * 2 + (
        ("time",),
    )
    ingest(paths[4], repo, mode="append")
    later = write(tmp_path / "later.nc", forecast(2))
    dataset = stored_dataset(ingest(later, repo, mode="append", allow={"hole"}).version)
    assert (dataset.orog.dims, dataset.t.sizes["time"]) == (("lat", "lon"), 3)
    dataset = stored_dataset(
        ingest([*paths, later], Target(repo, group="all"), allow={"hole"}).version, "all"
    )
    assert (dataset.orog.dims, dataset.t.sizes["time"]) == (("lat", "lon"), 3)


@pytest.mark.deep
def test_scalars_of_files_that_have_the_dimension(tmp_path: Path, repo: frazil.Repository) -> None:
    """A run of a model in each file: its reference time goes along the times."""
    paths = []
    for run in range(3):
        times = xr.Variable("time", [2 * run, 2 * run + 1], {"units": "hours since 2020-01-01"})
        frt = xr.Variable(
            (), 2 * run, {"units": "hours since 2020-01-01", "standard_name": "forecast_reference_time"}
        )
        data = xr.Dataset({"t": ("time", [1.0 * run, 2.0])}, {"time": times, "frt": frt, "height": 2.0})
        paths.append(write(tmp_path / "files" / f"{run}.nc", data))
    expected = nested(paths, "time")
    options: dict[str, Any] = {
        "copies": {"chunks": {"time": 3}},
        "virtual": {"virtual": True, "containers": [container(tmp_path / "files")]},
    }
    for group, more in options.items():
        result = ingest(paths, Target(repo, group=group), **more)
        assert_same_dataset(stored_dataset(result.version, group), expected)


@pytest.mark.deep
def test_runs_with_the_same_steps_and_members_with_the_same_times(
    tmp_path: Path, repo: frazil.Repository
) -> None:
    paths = []
    for member in range(3):
        times = xr.Variable("time", [0, 1], {"units": "hours since 2020-01-01"})
        data = xr.Dataset({"t": ("time", [1.0 * member, 2.0])}, {"time": times, "realization": member})
        paths.append(write(tmp_path / f"{member}.nc", data))
    dataset = stored_dataset(ingest(paths, repo).version)
    assert_same_dataset(dataset, nested(paths, "realization"))
    runs = []
    for time in range(3):
        data = forecast(time).expand_dims(step=[0, 6]).drop_vars(["valid_time"])
        data["valid_time"] = ("step", [time, time + 6], {"units": "hours since 2020-01-01"})
        runs.append(write(tmp_path / f"run{time}.nc", data.set_coords("valid_time")))
    dataset = stored_dataset(ingest(runs, Target(repo, group="runs")).version, "runs")
    assert_same_dataset(dataset, nested(runs, "time"))
    assert dataset.valid_time.dims == ("time", "step")


GRIB: dict[str, tuple[str, list[list[dict[str, Any]]]]] = {
    "times": ("time", [[{"dataDate": 20200101 + day}] for day in range(3)]),
    "levels": ("isobaricInhPa", [[{"level": level}] for level in (500, 700, 850)]),
    "runs of steps": (
        "time",
        [[{"dataDate": 20200101 + day, "step": step} for step in (0, 6)] for day in range(3)],
    ),
}


@pytest.mark.sample(3, 3)
@pytest.mark.deep
@pytest.mark.parametrize("case", GRIB)
def test_grib_is_stacked_as_cfgrib_and_xarray_do(tmp_path: Path, repo: frazil.Repository, case: str) -> None:
    grib = pytest.importorskip("tests.readers.test_grib")
    dim, files = GRIB[case]
    paths = []
    for number, messages in enumerate(files):
        path = tmp_path / f"{number}.grib"
        path.write_bytes(b"".join(grib.message(2, **{"dataDate": 20200101, **each}) for each in messages))
        paths.append(str(path))
    expected = xr.open_mfdataset(
        paths, engine="cfgrib", combine="nested", concat_dim=dim, data_vars="all", coords="different",
        compat="equals", join="exact", combine_attrs="override", backend_kwargs={"indexpath": ""},
    ).load()  # fmt: skip
    one_by_one = Target(repo, group="growing")
    for number, each in enumerate(paths):
        mode: Any = "append" if number else "create"
        grown = ingest(each, one_by_one, concat_dim=dim, mode=mode)
    for dataset in (stored_dataset(ingest(paths, repo).version), stored_dataset(grown.version, "growing")):
        xr.testing.assert_equal(dataset, expected)
        assert {name: each.dims for name, each in dataset.variables.items()} == {
            name: each.dims for name, each in expected.variables.items()
        }


@pytest.mark.deep
def test_a_grid_of_files_is_refused_with_what_helps(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = [
        write(tmp_path / f"{time}_{step}.nc", forecast(time, step).drop_vars("valid_time"))
        for time, step in itertools.product(range(2), range(3))
    ]
    with pytest.raises(InvalidInputError, match=r"step \(3 values\), time \(2 values\). concat_dim='run'"):
        ingest(paths, repo)
    dataset = stored_dataset(ingest(paths, repo, concat_dim="run").version)
    assert (dataset.time.dims, dataset.step.dims, dataset.t.dims) == (
        ("run",),
        ("run",),
        ("run", "lat", "lon"),
    )
    # Accumulations: no two fields are valid at the same time, and that time tells all.
    paths = [
        write(tmp_path / f"valid{time}_{step}.nc", forecast(time, step))
        for time, step in itertools.product((0, 12), (3, 6, 9, 12))
    ]
    dataset = stored_dataset(ingest(paths, Target(repo, group="best")).version, "best")
    assert_same_dataset(dataset, nested(paths, "valid_time"))


@pytest.mark.deep
def test_files_that_nothing_tells_apart(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = [
        write(tmp_path / f"{i}.nc", xr.Dataset({"x": ("lat", [1.0 * i, 2.0])}, {"lat": [1, 2]}))
        for i in range(3)
    ]
    with pytest.raises(InvalidInputError, match=r"(?s)A new name.*concat_dim"):
        ingest(paths, repo)
    dataset = stored_dataset(ingest(paths, repo, concat_dim="file").version)
    assert_same_dataset(dataset, nested(paths, "file"))
    path = write(tmp_path / "aux.nc", xr.Dataset({"x": ("y", [1.0])}, {"z": ("y", [1.0])}))
    with pytest.raises(InvalidInputError, match="concat_dim must be a dimension, a scalar or a new name"):
        ingest(path, repo, concat_dim="z")


@pytest.mark.deep
def test_work_grows_with_the_files(tmp_path: Path) -> None:
    """What the driver does: ten times the files are about ten times the steps."""
    template = inspect_all(
        expand([write(tmp_path / f"{time}.nc", forecast(time)) for time in range(2)]),
        InspectionSpec(FileAccess()),
        Inline(),
    )

    def many(count: int) -> Any:
        first = np.zeros(count, np.int32)
        times = np.arange(count)
        scalars = {name: np.full(count, column[0], object) for name, column in template.scalars.items()}
        scalars |= {"time": times.astype(object), "valid_time": times.astype(object)}
        individuals = tuple(
            tuple(
                (name, digest + str(i) if name != "step" else digest)
                for name, digest in template.individuals[0]
            )
            for i in range(count)
        )
        return replace(
            template, files=SourceFiles(tuple(map(str, times))), size=times, length=np.ones(count, np.int64),
            fingerprint=np.zeros((count, 16), np.uint8), contents=np.zeros((count, 16), np.uint8),
            modified=(None,) * count, etag=(None,) * count, label_start=np.zeros(count + 1, np.int64),
            scalars=scalars, individual=np.arange(count, dtype=np.int32), individuals=individuals,
            layout=first, own=first,
        )  # fmt: skip

    steps: list[int] = []
    overlapping: list[int] = []
    for count in (300, 3000):
        inspection = many(count)
        assert Dataset.reconcile(inspection).steps.length == count
        steps.append(python_steps(partial(Dataset.reconcile, inspection)))
        scalars = {**inspection.scalars, "time": np.arange(count).astype(object) // 2}
        pairs = replace(inspection, scalars=scalars, dim="time")
        overlapping.append(python_steps(partial(Dataset.reconcile, pairs)))
    for few, more in (steps, overlapping):
        assert np.log10(more / few) < 1.3
