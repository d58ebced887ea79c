"""Coordinates that each file encodes in its own way: the store decodes to what `open_mfdataset` reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]  # it ships no types
import netCDF4
import numpy as np
import pytest
import xarray as xr
from tests.pipeline.ingest.netcdf_files import ingest, inspect_files, repository, stored_dataset

import frazil
from frazil.errors import InvalidInputError
from frazil.pipeline import Target

DAYS = "days since 2000-01-01"
NO_FILL = False


def write(
    path: Path,
    time: Any,
    *,
    dtype: str = "f8",
    fill: Any = NO_FILL,
    units: str = DAYS,
    form: Any = "NETCDF4",
    calendar: str = "standard",
    extra: Mapping[str, tuple[str, Any, Any]] | None = None,
) -> str:
    """One NetCDF file. ``extra``: further coordinates along time, as (dtype, fill value, values)."""
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.createDimension("time", None)
        labels = file.createVariable("time", dtype, ("time",), fill_value=fill)
        labels.setncatts({"units": units, "calendar": calendar})
        labels[:] = np.ma.masked_array(time, np.isnan(np.asarray(time, "f8")))
        data = file.createVariable("t", "f4", ("time",))
        data[:] = 280 + np.arange(len(time))
        for name, (kind, missing, values) in (extra or {}).items():
            variable = file.createVariable(name, kind, ("time",), fill_value=missing)
            variable[:] = values
            data.coordinates = " ".join(extra or {})
    return str(path)


def read_by_xarray(paths: list[str]) -> xr.Dataset:
    datasets = [xr.load_dataset(path) for path in paths]
    return xr.concat(datasets, "time", combine_attrs="override", coords="minimal", compat="override")


ORIGIN = "since 2000-01-01"
#: What the files of one dataset have for their times.
FILES: dict[str, list[dict[str, Any]]] = {
    "dtype": [{"time": [0, 1], "dtype": "i4"}, {"time": [2.25, 3.5]}, {"time": [4, 5], "dtype": "i2"}],
    "wider integers": [{"time": [0, 1], "dtype": "i2"}, {"time": [70_000, 70_001], "dtype": "i4"}],
    "precision": [{"time": [0.5, 1], "dtype": "f4"}, {"time": [2 + 1 / 24, 3]}],
    "fill value": [
        {"time": [0.0, 1.0]},
        {"time": [2.0, 3.0], "fill": np.nan},
        {"time": [4.0, 5.0], "fill": -9.0},
    ],
    "fill value and dtype": [{"time": [0, 1], "dtype": "i4", "fill": -9}, {"time": [2, 3], "fill": np.nan}],
    "integers with a fill value": [
        {"time": [0, 1], "dtype": "i4"},
        {"time": [2, 3], "dtype": "i8", "fill": -1},
    ],
    "byte order": [{"time": [0, 1]}, {"time": [2, 3], "form": "NETCDF3_CLASSIC"}],
    "units and dtype": [
        {"time": [0, 1], "dtype": "i4"},
        {"time": [30.0, 42.5, 54], "units": "hours since 2000-01-02"},
    ],
    "parts of days": [
        {"time": [0.0, 1 / 24]},
        {"time": [1 / 3, 11 / 24], "units": "days since 2001-03-01"},
        {"time": [7 / 24, 1 / 3], "units": "days since 2019-11-05"},
    ],
    "another calendar": [
        {"time": [0, 1], "dtype": "i4", "calendar": "360_day"},
        {"time": [2.5, 3.25], "calendar": "360_day", "units": "days since 2000-01-05"},
    ],
    "microseconds": [
        {"time": [0, 1_000_003], "dtype": "i8", "units": f"microseconds {ORIGIN}"},
        {"time": [2_000_005, 3_000_000], "units": f"microseconds {ORIGIN}"},
    ],
}
#: The array of the first file cannot hold the times of the others.
TOO_NARROW = {"dtype", "wider integers", "precision", "units and dtype", "another calendar"}


@pytest.mark.parametrize("files", FILES.values(), ids=FILES.keys())
def test_files_have_times_of_their_own(
    files: list[dict[str, Any]], tmp_path: Path, repo: frazil.Repository, request: pytest.FixtureRequest
) -> None:
    paths = [write(tmp_path / f"{at}.nc", **each) for at, each in enumerate(files)]
    expected = read_by_xarray(paths)
    result = ingest(paths, repo, allow={"hole"})
    stored = stored_dataset(result.version)
    xr.testing.assert_equal(stored, expected)
    assert stored.time.encoding["calendar"] == files[0].get("calendar", "standard")
    # An append gets the encoding of the repository.
    more = repository(tmp_path / "more")
    ingest(paths[0], more, concat_dim="time")
    if request.node.callspec.id in TOO_NARROW:
        with pytest.raises(InvalidInputError, match="no exact form"):
            ingest(paths[1:], more, mode="append", allow={"hole"})
    else:
        appended = ingest(paths[1:], more, mode="append", allow={"hole"})
        xr.testing.assert_equal(stored_dataset(appended.version), expected)


def test_other_coordinates_have_their_own_encoding_too(tmp_path: Path, repo: frazil.Repository) -> None:
    gap = np.ma.masked_array([3, 4], [False, True])
    paths = [
        write(tmp_path / "0.nc", [0.0, 1.0], extra={"lead": ("i4", -9, gap), "run": ("i2", NO_FILL, [1, 2])}),
        write(
            tmp_path / "1.nc",
            [2.0, 3.0],
            extra={"lead": ("f8", NO_FILL, [5.5, 6]), "run": ("i4", NO_FILL, [3, 90_000])},
        ),
    ]
    result = ingest(paths, repo)
    stored, expected = stored_dataset(result.version), read_by_xarray(paths)
    xr.testing.assert_equal(stored, expected)
    assert {name: each.dtype for name, each in stored.coords.items()} == {
        name: each.dtype for name, each in expected.coords.items()
    }


@pytest.mark.parametrize(
    ("labels", "value"),
    [([2.0, 3.5], "3.5"), ([2, -9], "-9"), ([2.0, 4e9], "4000000000")],
    ids=["a part of a day", "the missing value of the repository", "too large"],
)
def test_a_value_without_an_exact_form_is_refused(
    labels: list[float], value: str, tmp_path: Path, repo: frazil.Repository
) -> None:
    first = write(tmp_path / "0.nc", [0, 1], dtype="i4", fill=-9)
    ingest(first, repo, concat_dim="time")
    second = write(tmp_path / "1.nc", labels)
    with pytest.raises(InvalidInputError) as error:
        ingest(second, repo, mode="append", allow={"hole", "unordered"})
    assert second in error.value.message
    assert value in error.value.message


def test_integers_that_floats_cannot_hold_are_refused(tmp_path: Path) -> None:
    large = (1 << 60) + 1
    paths = [
        write(tmp_path / "0.nc", [1.0, 2.0], units="nanoseconds since 1970-01-01"),
        write(tmp_path / "1.nc", [large, large + 2], dtype="i8", units="nanoseconds since 1970-01-01"),
    ]
    problems = inspect_files(paths).fatal()
    assert [(each.kind, each.url) for each in problems] == [("dtype", paths[1])]
    assert str(large) in problems[0].message


def test_data_of_another_dtype_are_refused(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{at}.nc", [at, at + 0.5]) for at in range(3)]
    with netCDF4.Dataset(paths[1], "w") as file:
        file.createDimension("time", None)
        file.createVariable("time", "f8", ("time",)).setncatts({"units": DAYS, "calendar": "standard"})
        file.createVariable("t", "f8", ("time",))
        file["time"][:], file["t"][:] = [1.0, 1.5], [1.0, 2.0]
    problems = inspect_files(paths).fatal()
    assert {(each.kind, each.url) for each in problems} >= {("dtype", paths[1])}


def test_units_that_are_no_times_have_to_agree(tmp_path: Path, repo: frazil.Repository) -> None:
    for at, units in enumerate(["hPa", "Pa"]):
        data = xr.Dataset(
            {"t": ("lev", [1.0, 2.0])}, {"lev": ("lev", [2.0 * at, 2.0 * at + 1], {"units": units})}
        )
        data.to_netcdf(tmp_path / f"{at}.nc", unlimited_dims=["lev"])
    ingest(str(tmp_path / "0.nc"), repo, concat_dim="lev")
    with pytest.raises(InvalidInputError, match="lev must have 'hPa', as in the repository, got 'Pa'"):
        ingest(str(tmp_path / "1.nc"), repo, mode="append")


def test_calendars_have_to_agree(tmp_path: Path, repo: frazil.Repository) -> None:
    ingest(write(tmp_path / "0.nc", [0.0, 1.0]), repo, concat_dim="time")
    later = write(
        tmp_path / "1.nc", [2.0, 3.0], calendar="proleptic_gregorian", units="days since 2000-01-03"
    )
    result = ingest(later, repo, mode="append", allow={"hole"})
    assert stored_dataset(result.version).time.dt.day.values.tolist() == [1, 2, 5, 6]
    for wrong, units in (("noleap", DAYS), ("proleptic_gregorian", "days since 0001-01-01")):
        path = write(tmp_path / f"{wrong}.nc", [1e6, 1e6 + 1], calendar=wrong, units=units)
        with pytest.raises(InvalidInputError, match="cannot be converted"):
            ingest(path, repo, mode="append", allow={"hole"})


def test_gregorian_calendars_are_one_dataset(tmp_path: Path, repo: frazil.Repository) -> None:
    calendars = ["standard", "gregorian", "proleptic_gregorian", "standard"]
    paths = [write(tmp_path / f"{day}.nc", [float(day)], calendar=each) for day, each in enumerate(calendars)]
    data = stored_dataset(ingest(paths, repo).version)
    assert data.time.dt.day.values.tolist() == [1, 2, 3, 4]
    paths[1] = write(tmp_path / "other.nc", [1.0], calendar="noleap")
    with pytest.raises(InvalidInputError, match=r"other\.nc: time .*noleap"):
        ingest(paths, repo, mode="backfill")


CALENDARS = {
    "noleap": ("noleap", "365_day", "NOLEAP", "360_day"),
    "all_leap": ("366_day", "all_leap", "366_day", "noleap"),
    "standard": ("gregorian", "Standard", "proleptic_gregorian", "julian"),
}


@pytest.mark.parametrize("name", CALENDARS)
def test_calendars_with_two_names(name: str, tmp_path: Path, repo: frazil.Repository) -> None:
    """Labels, another time along them, and bounds with a calendar, as one dataset and one by one."""
    names, paths = CALENDARS[name], []
    for day, calendar in enumerate(names):
        paths.append(write(tmp_path / f"{day}.nc", [500.0 + day], calendar=calendar))
        with netCDF4.Dataset(paths[-1], "a") as file:
            file.createDimension("nv", 2)
            file.createVariable("made", "f8", ("time",)).setncatts({"units": DAYS, "calendar": calendar})
            file.createVariable("bounds", "f8", ("time", "nv")).calendar = calendar
            file["made"][:], file["bounds"][:] = [501.0 + day], [[day, day + 1.0]]
            file["time"].bounds = "bounds"
            file["t"].coordinates = "made"
    expected = xr.concat([xr.load_dataset(path) for path in paths[:3]], "time", coords="minimal")
    together = Target(repo, "main", "/together")
    ingest(paths[:3], together)
    for path in paths[:3]:
        version = ingest(path, Target(repo, "main", "/each"), mode="append", concat_dim="time").version
    for group in ("together", "each"):
        data = stored_dataset(version, group)
        for each in ("time", "made"):
            assert list(map(str, data[each].values)) == list(map(str, expected[each].values))
        assert data.time.encoding["calendar"] == names[0]
    with pytest.raises(InvalidInputError, match=r"3\.nc: (time|made|bounds) .*" + names[3]):
        ingest(paths[3], Target(repo, "main", "/each"), mode="append")
    rules = {"/named": {"calendar": names[0]}}
    version = ingest([*paths[:2], paths[3]], Target(repo, "main", "/others"), groups=rules).version
    assert stored_dataset(version, "named").sizes["time"] == 2


def test_a_missing_value_that_no_element_can_have(tmp_path: Path, repo: frazil.Repository) -> None:
    """300 is 44 in eight bits, and 44 is a value."""
    paths = [write(tmp_path / "0.nc", [43, 44], dtype="i1"), write(tmp_path / "1.nc", [45.0, 46.0])]
    with h5py.File(paths[0], "a") as file:
        file["time"].attrs["missing_value"] = np.int16(300)
    expected = [43, 44, 45, 46]
    result = ingest(paths, repo)
    data = stored_dataset(result.version)
    assert ((data.time - np.datetime64("2000-01-01")) / np.timedelta64(1, "D")).values.tolist() == expected


ZONES = ["00:00:00 -6:00", "00:00 -6", "00:00:00.0 -06:00", "06:00:00 UTC", "00:00:00 -0600"]


@pytest.mark.parametrize("zone", ZONES)
def test_a_time_zone_of_units(zone: str, tmp_path: Path, repo: frazil.Repository) -> None:
    """The zone counts in units that are converted, in each form that xarray reads."""
    units = ["hours since 2020-01-01 06:00:00", f"hours since 2020-01-01 {zone}"]
    paths = [write(tmp_path / f"{at}.nc", [at], units=each) for at, each in enumerate(units)]
    ingest(paths[0], repo, concat_dim="time")
    data = stored_dataset(ingest(paths[1], repo, mode="append").version)
    np.testing.assert_array_equal(data.time.values, read_by_xarray(paths).time.values)
    with pytest.raises(InvalidInputError, match="already has 2020-01-01 07:00:00"):
        ingest(write(tmp_path / "2.nc", [1, 2], units=units[1]), repo, mode="append")


def test_labels_that_are_nan_are_named(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = [write(tmp_path / f"{at}.nc", [at, at + 0.5]) for at in range(2)]
    with netCDF4.Dataset(paths[1], "a") as file:
        file["time"][1] = np.nan
    (problem,) = inspect_files(paths).fatal()
    assert (problem.url, problem.message) == (paths[1], "has labels that are NaN")
    ingest(paths[0], repo, concat_dim="time")
    for mode in ("append", "upsert", "backfill"):
        with pytest.raises(InvalidInputError, match=f"'{mode}' needs a label for each step, but some .* NaN"):
            ingest(paths[1], repo, mode=mode)


def test_a_fill_value_of_nan_is_none(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = [
        write(tmp_path / f"{at}.nc", [at], extra={"q": ("f4", fill, [at])})
        for at, fill in enumerate([np.nan, None])
    ]
    assert stored_dataset(ingest(paths, repo).version).t.values.tolist() == [280, 280]


def test_characters_in_another_encoding_are_refused(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = []
    for day, encoding in enumerate(["utf-8", "utf-8", "latin-1"]):
        paths.append(write(tmp_path / f"{day}.nc", [day]))
        with netCDF4.Dataset(paths[-1], "a") as file:
            file.createDimension("letters", 4)
            name = file.createVariable("name", "S1", ("time", "letters"))
            name[0, :] = np.frombuffer("é".encode(encoding).ljust(4, b"\0"), "S1")
            name._Encoding = encoding
    with pytest.raises(
        InvalidInputError, match="_Encoding of name must be 'utf-8', as in most files, got 'l"
    ):
        ingest(paths, repo)
    data = stored_dataset(ingest(paths[:2], repo).version)
    assert data.name.values.tolist() == ["é", "é"]
    with pytest.raises(InvalidInputError, match="_Encoding of `/name` must be utf-8"):
        ingest(paths[2], repo, mode="append")
