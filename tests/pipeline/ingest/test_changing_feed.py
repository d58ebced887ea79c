"""A feed that changes: variables that come and go, other units, labels that grow."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from tests.pipeline.ingest import netcdf_files as nc

import frazil
from frazil.cli.main import main
from frazil.errors import IcechunkError
from frazil.pipeline import Target, ingest, inspect_files


@pytest.fixture
def repo() -> frazil.Repository:
    """An empty repository in memory."""
    return frazil.Repository.create(frazil.in_memory_storage())


def add(repo: frazil.Repository, files: Any, mode: Any = "backfill", **options: Any) -> Any:
    """Ingest files into the group `/feed`."""
    options = {"engine": "inline", "concat_dim": "time"} | options
    return ingest(list(map(str, files)), Target(repo, "main", "/feed"), mode=mode, **options)


def contents(repo: frazil.Repository, **options: Any) -> xr.Dataset:
    """Return the group `/feed`, loaded."""
    store = repo.readonly_session("main").store
    with xr.open_zarr(store, group="feed", consolidated=False, zarr_format=3, **options) as dataset:
        found: xr.Dataset = dataset.load()
        return found


def day(number: int, *names: str, steps: int = 2) -> xr.Dataset:
    """Return the steps of a day. The values of each variable name their time."""
    times = np.arange(number * steps, (number + 1) * steps)
    values = {
        name: (("time", "x"), (times[:, None] * 10.0 + [[1, 2, 3]] + 1000 * ord(name)).astype("f4"))
        for name in names
    }
    coords = {"time": ("time", times, {"units": "hours since 2020-01-01"}), "x": [1.0, 2.0, 3.0]}
    return xr.Dataset(values, coords)


def save(folder: Path, *datasets: xr.Dataset) -> list[Path]:
    """Save each dataset as a file of its own."""
    paths = []
    for dataset in datasets:
        name = f"{len(list(folder.iterdir())):03}.nc"
        dataset.to_netcdf(folder / name, engine="h5netcdf", unlimited_dims=["time"])
        paths.append(folder / name)
    return paths


def joined(*datasets: xr.Dataset) -> xr.Dataset:
    """Return the datasets as xarray combines them: missing where a dataset has no value."""
    decoded = [xr.decode_cf(each) for each in datasets]
    return xr.concat(decoded, "time", data_vars="all", join="outer").sortby("time")


# Variables


DAYS = [day(0, "t", "q"), day(1, "t"), day(2, "t", "r"), day(3, "t", "q", "r"), day(4, "q")]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 2, 0, 3, 1]])
@pytest.mark.parametrize("calls", [1, 2, 5])
def test_variables_come_and_go(tmp_path: Path, repo: frazil.Repository, calls: int, order: list[int]) -> None:
    paths = np.array(save(tmp_path, *DAYS))[order]
    for some in np.array_split(paths, calls):
        result = add(repo, some, allow={"variables", "hole"}, chunks={"time": 2})
        assert not result.quarantined
    xr.testing.assert_identical(contents(repo).drop_attrs(), joined(*DAYS).drop_attrs())
    if calls == 1:
        notes = [each.message for each in result.report.notes if each.kind == "variables"]
        assert any("q" in note and "3 of 5" in note for note in notes)


def test_a_file_with_another_length_is_still_refused(tmp_path: Path, repo: frazil.Repository) -> None:
    wrong = day(3, "t").isel(x=slice(2))
    paths = save(tmp_path, day(0, "t", "q"), day(1, "t"), wrong, day(2, "t", "q"))
    with pytest.raises(IcechunkError, match=r"dims: .*002.nc"):
        add(repo, paths, allow={"variables"})
    result = add(repo, paths, allow={"variables", "hole"}, on_problem="quarantine")
    assert [Path(each).name for each in result.quarantined] == ["002.nc"]
    expected = joined(day(0, "t", "q"), day(1, "t"), day(2, "t", "q"))
    xr.testing.assert_identical(contents(repo).drop_attrs(), expected.drop_attrs())


def numbers(number: int, values: list[Any], dtype: str = "i2", **attrs: Any) -> xr.Dataset:
    """Return a day of `n` along `x`, without a `_FillValue` unless the attributes have one."""
    coords = {
        "time": ("time", [number], {"units": "days since 2020-01-01"}),
        "x": np.arange(len(values)) + 0.5,
    }
    return xr.Dataset({"n": (("time", "x"), np.array([values], dtype), attrs)}, coords)


def test_integers_without_a_missing_value_cannot_be_missing(tmp_path: Path, repo: frazil.Repository) -> None:
    """The cells without them would decode as numbers."""
    packed = numbers(0, [1, 2], scale_factor=0.5, add_offset=273.15)
    both = packed.assign(m=packed.n.astype("f4"))
    later = both.drop_vars("n").assign_coords(time=("time", [1], both.time.attrs))
    paths = save(tmp_path, both, later)
    text = "feed/n` must have a missing value, because 1 of its 2 steps"
    with pytest.raises(IcechunkError, match=text):
        add(repo, paths, allow={"variables"}, mode="create")
    add(repo, paths[:1])
    with pytest.raises(IcechunkError, match=text):
        add(repo, paths[1:], allow={"variables"})
    paths = save(tmp_path, numbers(2, [1, 2]), numbers(3, [1]), numbers(4, [1, 2]))
    grown = Target(repo, "main", "/grown")
    with pytest.raises(IcechunkError, match="grown/n` must have a missing value, because 1 of its 2 steps"):
        ingest(list(map(str, paths[:2])), grown, grow=["x"], engine="inline")
    whole = [str(paths[0]), str(paths[2])]  # each file has all labels
    ingest(whole, grown, grow=["x"], engine="inline", allow={"hole"})


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("missing_value", {"missing_value": np.int16(-999)}, {"missing_value": np.int16(-1)}),
        ("missing_value", {}, {"missing_value": np.int16(-1)}),
        ("_Unsigned", {"_Unsigned": "true"}, {}),
        ("flag_values", {"flag_values": [0, 1]}, {"flag_values": [1, 2]}),
        ("dtype", {}, {}),
    ],
)
def test_a_later_file_has_numbers_of_the_same_meaning(
    tmp_path: Path, repo: frazil.Repository, name: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    first, second = numbers(0, [1, 1], **before), numbers(1, [-1, 1], **after)
    if name == "dtype":
        first, second = numbers(0, [True, False], "?"), numbers(1, [-1, 1], "i1")
    paths = save(tmp_path, first, second)
    with pytest.raises(IcechunkError, match=name):
        add(repo, paths, mode="create")
    add(repo, paths[:1], mode="append")
    with pytest.raises(IcechunkError, match=f"{name} of `/feed/n` must be"):
        add(repo, paths[1:], mode="append")


def test_an_undeclared_change_is_refused(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = save(tmp_path, *DAYS[:3])
    with pytest.raises(IcechunkError, match="variables"):
        add(repo, paths)
    assert [info.message for info in repo.ancestry(branch="main")] == ["Repository initialized"]


def test_a_later_file_does_not_erase_what_it_does_not_have(tmp_path: Path, repo: frazil.Repository) -> None:
    correction = day(0, "t") + 0.5
    correction["time"].attrs = DAYS[0]["time"].attrs
    paths = save(tmp_path, DAYS[0], correction)
    add(repo, paths, allow={"variables", "overlap"})
    expected = DAYS[0].assign(t=correction["t"])
    xr.testing.assert_identical(contents(repo).drop_attrs(), xr.decode_cf(expected).drop_attrs())


# Units


needs_units = pytest.mark.skipif(find_spec("cf_units") is None, reason="the extra `units` is not installed")


def in_units(number: int, units: str, scale: float, offset: float, **encoding: Any) -> xr.Dataset:
    """Return a day of temperatures in kelvin, 250 to 300, with a missing value, in other units."""
    kelvin = np.linspace(250, 300, 6).reshape(2, 3) + number
    values = (kelvin - offset) / scale
    values[0, 1] = np.nan
    dataset = day(number, "t")
    dataset["t"] = ("time", "x"), values.astype("f8"), {"units": units, "valid_min": (200 - offset) / scale}
    dataset["t"].encoding = encoding
    return dataset


PACKED = {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -32768}


@needs_units
def test_units_are_converted(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = save(
        tmp_path,
        in_units(0, "K", 1, 0, _FillValue=-999.0),
        in_units(1, "degC", 1, 273.15, _FillValue=-999.0),
        in_units(2, "degF", 5 / 9, 459.67 * 5 / 9, _FillValue=-999.0),
    )
    with pytest.raises(IcechunkError, match="units"):
        add(repo, paths)
    add(repo, paths[:2], convert={"t": "K"})
    result = add(repo, paths[2:], convert={"t": "K"})
    assert "t from" in str(result.report)
    assert "t from degF to K" in str(
        next(iter(repo.ancestry(branch="main"))).metadata["frazil_ingest"]["changes"]
    )
    found = contents(repo)
    expected = xr.concat([xr.decode_cf(in_units(n, "K", 1, 0)) for n in range(3)], "time")
    np.testing.assert_allclose(found.t, expected.t, rtol=1e-12)
    assert found.t.units == "K"
    assert found.t.valid_min == 200


@needs_units
def test_packed_numbers_stay_and_get_another_offset(tmp_path: Path, repo: frazil.Repository) -> None:
    first = in_units(0, "degC", 1, 273.15, **PACKED)
    second = in_units(1, "K", 1, 0, **PACKED, add_offset=273.15)
    paths = save(tmp_path, first, second)
    add(repo, paths, convert={"t": "K"})
    raw = contents(repo, decode_cf=False)
    assert raw.t.dtype == np.int16
    assert raw.t.attrs["add_offset"] == 273.15
    for path, at in zip(paths, (slice(0, 2), slice(2, 4)), strict=True):
        with xr.open_dataset(path, decode_cf=False) as file:
            np.testing.assert_array_equal(raw.t[at], file.t)
    expected = xr.concat([xr.decode_cf(in_units(n, "K", 1, 0)) for n in range(2)], "time")
    np.testing.assert_allclose(contents(repo).t, expected.t, atol=0.0051)


@needs_units
def test_another_packing_is_refused_or_unpacked(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = save(
        tmp_path,
        in_units(0, "degC", 1, 273.15, **PACKED),
        in_units(1, "K", 1, 0, **PACKED | {"scale_factor": 0.02}),
    )
    with pytest.raises(IcechunkError, match="packing"):
        add(repo, paths, convert={"t": "K"})
    add(repo, paths, convert={"t": "K"}, unpack=True)
    expected = xr.concat([xr.decode_cf(in_units(n, "K", 1, 0)) for n in range(2)], "time")
    np.testing.assert_allclose(contents(repo).t, expected.t, atol=0.011)


@needs_units
@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({"units": "degC", "units_metadata": "temperature: difference"}, 1.0),
        ({"units": "degF", "units_metadata": "temperature: difference"}, 5 / 9),
        ({"units": "mK"}, 0.001),
    ],
)
def test_a_difference_of_temperatures_has_no_offset(
    tmp_path: Path, repo: frazil.Repository, attrs: dict[str, str], expected: float
) -> None:
    dataset = day(0, "t")
    dataset["t"] = dataset["t"].copy(data=np.ones((2, 3), "f4")).assign_attrs(attrs)
    add(repo, save(tmp_path, dataset), convert={"t": "K"})
    np.testing.assert_array_equal(contents(repo).t, np.full((2, 3), expected, "f4"))


@needs_units
def test_coordinates_and_their_bounds_are_converted(tmp_path: Path, repo: frazil.Repository) -> None:
    dataset = day(0, "t").assign_coords(
        x=("x", np.array([500, 700, 850]), {"units": "hPa", "bounds": "x_bnds"})
    )
    dataset["x_bnds"] = ("x", "side"), np.array([[450.0, 550], [650, 750], [800, 900]])
    add(repo, save(tmp_path, dataset), convert={"x": "Pa"})
    found = contents(repo)
    np.testing.assert_array_equal(found.x, [50000.0, 70000, 85000])
    np.testing.assert_array_equal(found.x_bnds, dataset.x_bnds * 100)


@needs_units
@pytest.mark.parametrize(
    ("units", "target", "text"),
    [
        ("m", "K", "cannot be converted"),
        (None, "K", "has no units"),
        ("quux", "K", "quux"),
        ("dBZ", "mm6 m-3", "no scale"),
    ],
)
def test_units_that_do_not_fit_are_a_problem_of_the_file(
    tmp_path: Path, repo: frazil.Repository, units: str | None, target: str, text: str
) -> None:
    wrong = in_units(1, "x", 1, 0, **PACKED | {"scale_factor": 1.0})
    wrong["t"].attrs = {} if units is None else {"units": units}
    paths = save(tmp_path, in_units(0, target, 1, 0, **PACKED | {"scale_factor": 1.0}), wrong)
    with pytest.raises(IcechunkError, match=rf"units: .*{text}"):
        add(repo, paths, convert={"t": target})
    result = add(repo, paths, convert={"t": target}, on_problem="quarantine")
    assert [Path(each).name for each in result.quarantined] == ["001.nc"]


@needs_units
@pytest.mark.parametrize(("value", "units"), [(-9.99, "cm"), (1e38, "cm")])
def test_a_converted_value_that_would_be_missing(
    tmp_path: Path, repo: frazil.Repository, value: float, units: str
) -> None:
    """It is the fill value in the new units, or no number of this type."""
    dataset = day(0, "t")
    values = np.array([[value, np.nan, 1], [2, 3, 4]], "f4" if value > 1 else "f8")
    dataset["t"] = dataset["t"].copy(data=values).assign_attrs(units="m")
    dataset["t"].encoding = {"_FillValue": -999.0}
    paths = save(tmp_path, dataset)
    with pytest.raises(IcechunkError, match="must not mean a missing value"):
        add(repo, paths, convert={"t": units})
    add(repo, paths, convert={"t": "km"})
    np.testing.assert_allclose(contents(repo).t, values / 1000)


@needs_units
def test_wrong_units_of_the_caller_are_refused(tmp_path: Path, repo: frazil.Repository) -> None:
    with pytest.raises(IcechunkError, match="convert must give t units"):
        add(repo, save(tmp_path, day(0, "t")), convert={"t": "no such unit"})


@needs_units
@pytest.mark.parametrize("options", [{"convert": {"tt": "K"}}, {"grow": ["xx"]}])
def test_a_name_that_nothing_has_is_refused(
    tmp_path: Path, repo: frazil.Repository, options: dict[str, Any]
) -> None:
    with pytest.raises(IcechunkError, match=r"must name .*(tt|xx)"):
        add(repo, save(tmp_path, day(0, "t")), **options)


@needs_units
def test_references_to_files_that_change(tmp_path: Path, repo: frazil.Repository) -> None:
    options = {"virtual": True, "containers": [nc.container(tmp_path)]}
    add(repo, save(tmp_path, *DAYS), allow={"variables"}, **options)
    xr.testing.assert_identical(contents(repo).drop_attrs(), joined(*DAYS).drop_attrs())
    packed = in_units(0, "degC", 1, 273.15, **PACKED), in_units(1, "K", 1, 0, **PACKED, add_offset=273.15)
    add(repo, save(tmp_path, *(each.rename(t="s") for each in packed)), convert={"s": "K"}, **options)
    kelvin = [in_units(number, "K", 1, 0).t for number in (0, 1)]
    np.testing.assert_allclose(contents(repo).s[:4], xr.concat(kelvin, "time"), atol=0.0051)
    with pytest.raises(IcechunkError, match=r"virtual: .*converted to other units"):
        add(repo, save(tmp_path, in_units(9, "degC", 1, 273.15).rename(t="s")), convert={"s": "K"}, **options)


# Dates


def test_references_to_scenes(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = [scene(f"s_2024010{number}.nc", tmp_path, number) for number in (1, 2)]
    options = {"virtual": True, "containers": [nc.container(tmp_path)], "dates": {"time": "s_%Y%m%d.nc"}}
    add(repo, paths[:1], **options)
    add(repo, paths[1:], **options)
    assert contents(repo).band[:, 0, 0].values.tolist() == [1, 2]


def scene(name: str, folder: Path, value: float, **attrs: str) -> Path:
    """Save a file without times."""
    dataset = xr.Dataset({"band": (("y", "x"), np.full((2, 3), value, "f4"))}, attrs=attrs)
    dataset.to_netcdf(folder / name, engine="h5netcdf")
    return folder / name


def test_dates_in_names_become_times(tmp_path: Path, repo: frazil.Repository) -> None:
    names = ["S2A_20240301T101010_T33.nc", "S2B_20240229T235959_T33.nc"]
    paths = [scene(name, tmp_path, at) for at, name in enumerate(names)]
    pattern = "S2?_%Y%m%dT%H%M%S_*.nc"
    result = add(repo, paths, dates={"time": pattern}, concat_dim=None, allow={"hole"})
    found = contents(repo)
    assert found.band.dims == ("time", "y", "x")
    assert found.band[:, 0, 0].values.tolist() == [1, 0]
    np.testing.assert_array_equal(
        found.time, np.array(["2024-02-29T23:59:59", "2024-03-01T10:10:10"], "M8[ns]")
    )
    assert pattern in str(result.report)
    later = scene("S2A_20240302T000000_T33.nc", tmp_path, 7)
    add(repo, [later], dates={"time": pattern}, concat_dim=None)
    assert contents(repo).band[:, 0, 0].values.tolist() == [1, 0, 7]


@pytest.mark.parametrize(
    ("pattern", "value", "expected"),
    [
        ("attribute:ACQUIRED", "2024-02-29T12:00:00Z", "2024-02-29T12:00:00"),
        ("attribute:ACQUIRED", "2024-02-29T12:00:00+02:00", "2024-02-29T10:00:00"),
        ("attribute:ACQUIRED", "2024:02:29 12:00:00", "2024-02-29T12:00:00"),
        ("attribute:ACQUIRED %Y/%j", "2024/060", "2024-02-29T00:00:00"),
        ("%Y/%m/scene-%d.%f.nc", "", "2024-02-29T00:00:00.250000"),
    ],
)
def test_dates_in_attributes_and_folders(
    tmp_path: Path, repo: frazil.Repository, pattern: str, value: str, expected: str
) -> None:
    folder = tmp_path / "2024" / "02"
    folder.mkdir(parents=True)
    path = scene("scene-29.25.nc", folder, 1, ACQUIRED=value)
    add(repo, [path], dates={"time": pattern})
    np.testing.assert_array_equal(contents(repo).time, np.array([expected], "M8[ns]"))


def test_a_name_without_a_date_is_a_problem_of_the_file(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = [
        scene("s_20240101.nc", tmp_path, 1),
        scene("s_20241399.nc", tmp_path, 2),
        scene("other.nc", tmp_path, 3),
    ]
    result = add(repo, paths, dates={"time": "s_%Y%m%d.nc"}, on_problem="quarantine")
    assert sorted(Path(each).name for each in result.quarantined) == ["other.nc", "s_20241399.nc"]
    assert contents(repo).sizes["time"] == 1


@pytest.mark.parametrize("pattern", ["scene.nc", "%Y-%Y.nc", "%Q.nc", "attribute:"])
def test_a_pattern_without_a_date_is_refused(tmp_path: Path, repo: frazil.Repository, pattern: str) -> None:
    with pytest.raises(IcechunkError, match="dates must give time"):
        add(repo, [scene("a.nc", tmp_path, 1)], dates={"time": pattern})


# A function of the caller


def shifted(dataset: xr.Dataset) -> xr.Dataset:
    """Select a part, compute a variable, and add a coordinate."""
    number = int(Path(dataset.encoding["source"]).stem)
    return dataset.isel(x=slice(1, None)).assign(u=dataset["t"] * 2).assign_coords(run=("time", [number] * 2))


def test_a_function_changes_each_dataset(tmp_path: Path, repo: frazil.Repository) -> None:
    first, second = (in_units(n, "K", 1, 0, **PACKED, add_offset=273.15) for n in (0, 1))
    first["name"] = second["name"] = "x", np.array(["a", "bc", "d"], object)
    paths = save(tmp_path, first, second)
    result = add(repo, paths, preprocess=shifted)
    parts = [xr.open_dataset(path, engine="h5netcdf").pipe(shifted) for path in paths]
    expected = xr.concat(parts, "time", data_vars="minimal", coords="minimal", compat="override")
    found = contents(repo)
    xr.testing.assert_equal(found[["t", "u", "run", "name"]], expected.load()[["t", "u", "run", "name"]])
    assert contents(repo, decode_cf=False).t.dtype == np.int16
    assert "shifted" in str(result.report)


def rewritten(source: Path, target: Path) -> None:
    """Write the file with other values."""
    with xr.open_dataset(source, decode_cf=False, engine="h5netcdf") as dataset:
        dataset.assign(t=dataset.t + 1).to_netcdf(target, engine="h5netcdf", unlimited_dims=["time"])


def test_a_function_changes_each_file(tmp_path: Path) -> None:
    (folder := tmp_path / "files").mkdir()
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "repository")))
    paths = save(folder, day(0, "t"), day(1, "t"))
    add(repo, paths, preprocess=rewritten, engine="processes")
    xr.testing.assert_equal(contents(repo).t, joined(day(0, "t"), day(1, "t")).t + 1)


def failing(dataset: xr.Dataset) -> xr.Dataset:
    """Refuse one of the files."""
    if dataset.encoding["source"].endswith("001.nc"):
        raise KeyError("no such band")
    return dataset


def test_a_function_that_fails_is_a_problem_of_the_file(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = save(tmp_path, *(day(number, "t") for number in range(3)))
    with pytest.raises(IcechunkError, match=r"preprocess: .*001.nc.*KeyError: 'no such band'"):
        add(repo, paths, preprocess=failing)
    result = add(repo, paths, preprocess=failing, on_problem="quarantine")
    assert [Path(each).name for each in result.quarantined] == ["001.nc"]


def test_another_function_is_another_definition(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = save(tmp_path, day(0, "t"), day(1, "t"))
    one = add(repo, paths, preprocess=lambda dataset: dataset + 1)
    same = add(repo, paths, preprocess=lambda dataset: dataset + 1)
    assert same.report.unchanged == 2
    assert same.snapshot_id == one.snapshot_id
    with pytest.raises(IcechunkError, match=r"changed: .*another `preprocess`"):
        add(repo, paths, preprocess=lambda dataset: dataset + 2)
    add(repo, paths, preprocess=lambda dataset: dataset + 2, on_change="rewrite")
    xr.testing.assert_equal(contents(repo).t, joined(day(0, "t"), day(1, "t")).t + 2)


# Data types


def of_type(number: int, dtype: str, /, **encoding: Any) -> xr.Dataset:
    """Return a day of values of a dtype, with values that need it."""
    dataset = day(number, "t")
    values = np.arange(6).reshape(2, 3) + 10 * number + (0.1 if dtype[0] == "f" else 0)
    dataset["t"] = ("time", "x"), values.astype(dtype)
    dataset["t"].encoding = encoding
    return dataset


TYPES = [
    (["f4", "f8"], "f8"),
    (["f8", "f4"], "f8"),
    (["i2", "i4", "i8"], "i8"),
    (["i2", "f4"], "f4"),
    (["i4", "f4"], "f8"),
    (["u1", "i1"], "i2"),
]


@pytest.mark.parametrize(("dtypes", "expected"), TYPES)
@pytest.mark.parametrize("calls", [1, 3])
def test_data_types_widen(
    tmp_path: Path, repo: frazil.Repository, calls: int, dtypes: list[str], expected: str
) -> None:
    datasets = [of_type(number, dtype) for number, dtype in enumerate(dtypes)]
    paths = np.array(save(tmp_path, *datasets))
    if calls == 1:
        with pytest.raises(IcechunkError, match="dtype"):
            add(repo, paths)
    for some in np.array_split(paths, min(calls, len(paths))):
        result = add(repo, some, allow={"dtype"})
    found = contents(repo, decode_cf=False).t
    assert found.dtype == expected
    np.testing.assert_array_equal(found, np.concatenate([each.t for each in datasets]))
    if calls == 1 or dtypes[0] != expected:
        assert any(each.kind == "dtype" for each in result.report.notes)


def test_a_wider_array_keeps_its_missing_values(tmp_path: Path, repo: frazil.Repository) -> None:
    fill = np.float32(9.96921e36)
    first = of_type(0, "f4", _FillValue=fill)
    first["t"][0, 1] = np.nan
    second = of_type(2, "f8", _FillValue=-1.0)
    second["t"][1, 1] = np.nan
    paths = save(tmp_path, first, second)
    add(repo, paths[:1], chunks={"time": 3, "x": 2})
    other = of_type(1, "f8")  # before the second day, so that its steps move
    add(repo, paths[1:], allow={"dtype", "hole"})
    add(repo, save(tmp_path, other), allow={"dtype"})
    expected = joined(first, other, second)
    xr.testing.assert_equal(contents(repo), expected)
    assert contents(repo).t.dtype == np.float64
    assert contents(repo).t.isnull().sum() == 2


def test_a_wider_array_takes_narrow_values_later(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = save(tmp_path, of_type(0, "f8"), of_type(1, "f4"))
    add(repo, paths[:1])
    with pytest.raises(IcechunkError, match="dtype"):
        add(repo, paths[1:])
    add(repo, paths[1:], allow={"dtype"})
    np.testing.assert_array_equal(contents(repo).t, np.concatenate([of_type(0, "f8").t, of_type(1, "f4").t]))


def test_packed_and_unpacked_files_are_unpacked_together(tmp_path: Path, repo: frazil.Repository) -> None:
    packed = of_type(0, "f4", **PACKED)
    paths = save(tmp_path, packed, of_type(1, "f8"), of_type(2, "f4"))
    with pytest.raises(IcechunkError, match="pack"):
        add(repo, paths, allow={"dtype"})
    add(repo, paths[:1], unpack=True)
    add(repo, paths[1:], unpack=True, allow={"dtype"})
    expected = xr.concat([xr.open_dataset(path, engine="h5netcdf") for path in paths], "time")
    xr.testing.assert_allclose(contents(repo).t, expected.t, rtol=1e-6)


# Labelled dimensions that grow


def stations(number: int, names: list[str], *, steps: int = 2, **more: Any) -> xr.Dataset:
    """Return a day of observations of stations. Each value depends on its time and its station."""
    times = np.arange(number * steps, (number + 1) * steps)
    codes = np.array([int(name[1:]) for name in names], "f4")
    coords: dict[str, Any] = {
        "time": ("time", times, {"units": "hours since 2020-01-01"}),
        "station": np.array(names, object),
        "lat": ("station", codes / 100),
    }
    data = {"obs": (("time", "station"), times[:, None] * 1000 + codes), "height": ("station", codes * 2)}
    return xr.Dataset(data, coords).assign(more)


def outer(*datasets: xr.Dataset) -> xr.Dataset:
    """Return the datasets as xarray combines them by label."""
    decoded = [xr.decode_cf(each) for each in datasets]
    parts = [each[["obs"]].reset_coords("lat", drop=True) for each in decoded]
    found = xr.concat(sorted(parts, key=lambda each: each.time[0]), "time", join="outer")
    return found.assign_coords(station=list(map(str, found.station.values.tolist()))).sortby("station")


def ordered(repo: frazil.Repository) -> xr.Dataset:
    """Return the group, sorted by station."""
    found = contents(repo)
    return found.assign_coords(station=list(map(str, found.station.values.tolist()))).sortby("station")


LISTS = [["s3", "s1", "s2"], ["s2", "s5", "s1"], ["s4"], ["s1", "s2", "s3", "s4", "s5", "s6"], ["s6", "s2"]]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 1, 0, 3, 2]])
@pytest.mark.parametrize("calls", [1, 2, 5])
@pytest.mark.parametrize("chunks", [{"time": 2, "station": 2}, {"time": 3, "station": 4}, None])
def test_stations_grow_while_time_grows(
    tmp_path: Path, repo: frazil.Repository, chunks: dict[str, int] | None, calls: int, order: list[int]
) -> None:
    datasets = [stations(number, names) for number, names in enumerate(LISTS)]
    paths = np.array(save(tmp_path, *datasets))[order]
    for some in np.array_split(paths, calls):
        result = add(repo, some, grow=["station"], allow={"hole"}, chunks=chunks)
        assert not result.quarantined
    found = ordered(repo)
    xr.testing.assert_equal(found[["obs"]].drop_vars("lat"), outer(*datasets))
    np.testing.assert_allclose(found.lat, np.arange(1, 7) / 100, rtol=1e-6)
    np.testing.assert_array_equal(found.height, np.arange(1, 7) * 2)
    if calls == 1:
        assert any(each.kind == "grown" for each in result.report.notes)


def test_stations_that_are_not_declared_are_refused(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = save(
        tmp_path, stations(0, ["s1", "s2"]), stations(1, ["s1", "s2", "s3"]), stations(2, ["s2", "s1"])
    )
    with pytest.raises(IcechunkError, match=r"dims|values"):
        add(repo, paths)


def test_characters_along_labels_are_texts(tmp_path: Path, repo: frazil.Repository) -> None:
    """Each file of NetCDF-3 has its own length of texts."""
    paths = []
    for number, names in enumerate((["a1", "b2"], ["stationé", "a1"], ["c"])):
        note = np.array([[f"{number} at {name}" for name in names]] * 2, object)
        place = ("station", np.array([name.upper() for name in names], object))
        dataset = xr.Dataset(
            {
                "obs": (("time", "station"), np.full((2, len(names)), float(number))),
                "note": (("time", "station"), note),
            },
            {"time": ("time", [number, number + 0.5], {"units": "days since 2020-01-01"}), "station": names},
        ).assign_coords(place=place)
        paths.append(tmp_path / f"{number}.nc")
        dataset.to_netcdf(paths[-1], engine="scipy", unlimited_dims=["time"])
    add(repo, paths[:1], grow=["station"])
    add(repo, paths[1:], grow=["station"])
    found = contents(repo)
    assert list(found.dims) == ["time", "station"]
    assert found.station.values.tolist() == ["a1", "b2", "stationé", "c"]
    assert found.place.values.tolist() == ["A1", "B2", "STATIONÉ", "C"]
    assert found.note.values[1::2].tolist() == [
        ["0 at a1", "0 at b2", "", ""],
        ["1 at a1", "", "1 at stationé", ""],
        ["", "", "", "2 at c"],
    ]
    characters = frazil.Repository.create(frazil.in_memory_storage())
    add(characters, paths[:1])
    with pytest.raises(IcechunkError, match="labels in the group have no other dimension, got 'station' on"):
        add(characters, paths[1:], grow=["station"])


def test_providers_with_other_stations_share_the_times(tmp_path: Path, repo: frazil.Repository) -> None:
    first, second = stations(0, ["s1", "s2"]), stations(0, ["s7", "s8", "s9"])
    third, late = stations(1, ["s1", "s2"]), stations(1, ["s9", "s7"])
    paths = save(tmp_path, first, second, third, late)
    add(repo, paths[:3], grow=["station"])
    add(repo, paths[3:], grow=["station"])  # its times are there already
    expected = (
        outer(xr.merge([outer(first), outer(second)]), xr.merge([outer(third), outer(late)]))
        if False
        else None
    )
    del expected
    found = ordered(repo).obs
    assert found.shape == (4, 5)
    for each in (first, second, third, late):
        part = found.sel(time=xr.decode_cf(each).time, station=each.station.astype(str))
        np.testing.assert_array_equal(part, each.obs)
    assert int(found.isnull().sum()) == 2  # s8 has no second day


def test_a_station_twice_at_a_time_is_an_overlap(tmp_path: Path, repo: frazil.Repository) -> None:
    correction = stations(0, ["s2", "s1"])
    correction["obs"] = correction.obs + 0.5
    paths = save(tmp_path, stations(0, ["s1", "s2", "s3"]), correction)
    with pytest.raises(IcechunkError, match="overlap"):
        add(repo, paths, grow=["station"])


def test_a_station_that_moves_is_a_problem_of_the_file(tmp_path: Path, repo: frazil.Repository) -> None:
    moved = stations(1, ["s1", "s2"])
    moved["lat"] = moved.lat + 1
    paths = save(tmp_path, stations(0, ["s1", "s2"]), moved, stations(2, ["s3"]))
    with pytest.raises(IcechunkError, match=r"values: .*001.nc.*lat"):
        add(repo, paths, grow=["station"])
    result = add(repo, paths, grow=["station"], on_problem="quarantine", allow={"hole"})
    assert [Path(each).name for each in result.quarantined] == ["001.nc"]
    assert ordered(repo).station.values.tolist() == ["s1", "s2", "s3"]
    add(repo, save(tmp_path, moved), grow=["station"], allow={"values", "hole"})
    np.testing.assert_allclose(ordered(repo).lat, [0.01, 0.02, 0.03], rtol=1e-6)


def test_levels_and_members_grow_together(tmp_path: Path, repo: frazil.Repository) -> None:
    def ensemble(number: int, levels: list[int], members: list[int]) -> xr.Dataset:
        times = np.arange(number * 2, number * 2 + 2)
        values = (
            times[:, None, None, None] * 1000
            + np.array(levels)[:, None, None]
            + np.array(members)[:, None] / 10
        )
        data = np.broadcast_to(values, (2, len(levels), len(members), 3)).astype("f8").copy()
        coords = {
            "time": ("time", times, {"units": "hours since 2020-01-01"}),
            "level": ("level", np.array(levels, "i4"), {"units": "hPa"}),
            "member": np.array(members),
            "x": [1.0, 2.0, 3.0],
        }
        return xr.Dataset({"t": (("time", "level", "member", "x"), data)}, coords)

    datasets = [ensemble(0, [850, 500], [0, 1]), ensemble(1, [500, 700], [2, 0, 1]), ensemble(2, [850], [1])]
    paths = save(tmp_path, *datasets)
    add(repo, paths[:1], grow=["level", "member"], chunks={"level": 1, "x": 2})
    add(repo, paths[1:], grow=["level", "member"])
    found = contents(repo).sortby(["level", "member"])
    assert found.t.shape == (6, 3, 3, 3)
    expected = joined(*datasets).sortby(["level", "member"])
    xr.testing.assert_equal(found.t, expected.t)


@needs_units
def test_the_command_has_the_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["s_20240101.nc", "s_20240102.nc"]
    for number, name in enumerate(names):
        data = xr.Dataset(
            {"b": (("station",), [1.0 + number, 2.0], {"units": "degC"})}, {"station": [number, 9]}
        )
        data.to_netcdf(tmp_path / name, engine="h5netcdf")
    (tmp_path / "corrections.py").write_text(
        "def plus(dataset):\n    return dataset.assign(b=(dataset.b + 1).assign_attrs(dataset.b.attrs))\n"
    )
    monkeypatch.chdir(tmp_path)
    options = ["--convert", "b=K", "--dates", "time=s_%Y%m%d.nc", "--grow", "station", "--engine", "inline"]
    options += ["--preprocess", "corrections:plus", "--concat-dim", "time", "--group", "feed"]
    assert main(["ingest", "s_*.nc", "ice", *options]) == 0
    found = contents(frazil.Repository.open(frazil.local_filesystem_storage("ice")))
    np.testing.assert_allclose(found.b, [[275.15, 276.15, np.nan], [np.nan, 276.15, 276.15]])
    assert main(["ingest", "s_*.nc", "ice", *options[:-2], "--preprocess", "corrections:minus"]) != 0


# Data types


def test_a_wider_dtype_does_not_hide_other_differences(tmp_path: Path, repo: frazil.Repository) -> None:
    """The kind of a problem that `allow` tolerates is not that of the others."""
    packed = {"scale_factor": 0.5, "add_offset": 0.0}
    first = numbers(0, [1, 2], "i2", **packed, missing_value=np.int16(-1))
    paths = save(tmp_path, first, numbers(1, [7, 2], "u1", **packed, missing_value=np.uint8(7)))
    text = r"packed numbers of n must be int16 .missing: .-1.., .* got uint8"
    with pytest.raises(IcechunkError, match=text) as caught:
        add(repo, paths, allow={"dtype"})
    assert "unpack=True" in str(caught.value)
    add(repo, paths, allow={"dtype"}, unpack=True)
    np.testing.assert_array_equal(contents(repo).n, [[0.5, 1], [np.nan, 1]])
    later = save(tmp_path, numbers(2, [7, 2], "f4", units="degC"), numbers(3, [1, 2], "f4", units="K"))
    other = frazil.Repository.create(frazil.in_memory_storage())
    add(other, later[:1], allow={"dtype"})
    with pytest.raises(IcechunkError, match=r"units: .*must have 'degC', as in the repository, got 'K'"):
        add(other, later[1:], allow={"dtype"})
    single = later[1].with_name("single.nc")
    wide = numbers(4, [1, 2], "f4", units="degC")
    wide["x"] = wide.x.astype("f4").assign_attrs(units="m")
    wide.to_netcdf(single, engine="h5netcdf", unlimited_dims=["time"])
    fresh = frazil.Repository.create(frazil.in_memory_storage())
    with pytest.raises(IcechunkError, match=r"attributes|units"):
        add(fresh, [later[0], single], allow={"dtype", "hole"})


def test_old_steps_stay_missing_if_an_array_gets_unpacked_values(
    tmp_path: Path, repo: frazil.Repository
) -> None:
    paths = save(
        tmp_path, numbers(0, [-7, 2], "i2", _FillValue=np.int16(-7)), numbers(1, [4, -14], scale_factor=0.5)
    )
    add(repo, paths[:1], allow={"dtype"})
    add(repo, paths[1:], allow={"dtype"}, unpack=True)
    np.testing.assert_array_equal(contents(repo).n, [[np.nan, 2], [2, -7]])


def test_a_refused_fill_value_is_a_number(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = save(tmp_path, numbers(0, [1, 2], "f4", _FillValue=np.float32(-9999)), numbers(1, [1, 2], "f4"))
    add(repo, paths[:1])
    with pytest.raises(
        IcechunkError, match=r"_FillValue of `/feed/n` must be -9999\.0, as in the repository"
    ):
        add(repo, paths[1:])


# Groups by a rule


def test_calendars_and_grids_get_groups_by_rule(tmp_path: Path, repo: frazil.Repository) -> None:
    model, coarse = day(1, "t"), day(2, "t").isel(x=slice(2))
    model["time"].attrs["calendar"] = "noleap"
    paths = save(tmp_path, day(0, "t"), model, coarse, day(3, "t"), day(4, "t").assign_attrs(provider="b"))
    with pytest.raises(IcechunkError, match=r"units|dims"):
        add(repo, paths)
    with pytest.raises(IcechunkError, match="dims"):
        add(repo, paths, groups={"/noleap": {"calendar": "noleap"}}, allow={"hole"})
    rules = {"/noleap": {"calendar": "noleap"}, "/half": {"x": 2}, "/b": {"provider": "b", "file": "*.nc"}}
    result = add(repo, paths, groups=rules, allow={"hole"})
    assert "/half: 1 file" in str(result.report)
    store = repo.readonly_session("main").store
    for group, datasets in {
        "feed": [day(0, "t"), day(3, "t")],
        "noleap": [model],
        "half": [coarse],
        "b": [day(4, "t")],
    }.items():
        with xr.open_zarr(store, group=group, consolidated=False, zarr_format=3) as found:
            np.testing.assert_array_equal(found.t, np.concatenate([each.t for each in datasets]))
    again = add(repo, paths, groups=rules, allow={"hole"})
    assert again.snapshot_id == result.snapshot_id
    assert again.report.unchanged == len(paths)
    more = save(tmp_path, day(3, "t").isel(x=slice(2)), day(5, "t"))
    assert add(repo, [*paths, *more], groups=rules, allow={"hole"}).report.unchanged == len(paths)
    with xr.open_zarr(repo.readonly_session("main").store, group="half", consolidated=False) as found:
        assert found.sizes == {"time": 4, "x": 2}


def test_an_inspection_compares_the_files_of_each_group(
    tmp_path: Path, repo: frazil.Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = save(tmp_path, day(0, "t"), day(1, "t").isel(x=slice(2)), day(2, "t"))
    assert [each.kind for each in inspect_files(paths, engine="inline").fatal()] == ["dims"]
    report = inspect_files(paths, groups={"/half": {"x": 2}}, allow={"hole"}, engine="inline")
    assert not report.fatal()
    assert "/half: 1 file" in str(report)
    place = str(tmp_path / "ice")
    options = ["--groups", "/half:x=2", "--groups", "/rest:file=*002.nc", "--engine", "inline"]
    assert main(["ingest", *map(str, paths), place, "--inspect"]) == 1
    assert main(["ingest", *map(str, paths), "--inspect", *options]) == 0
    assert "/half: 1 file" in capsys.readouterr().out
    assert main(["ingest", *map(str, paths), place, "--group", "first", *options]) == 0
    store = frazil.Repository.open(frazil.local_filesystem_storage(place)).readonly_session("main").store
    assert {
        name: xr.open_zarr(store, group=name, consolidated=False).t.shape for name in ("half", "rest")
    } == {"half": (2, 2), "rest": (2, 3)}
    assert main(["ingest", *map(str, paths), place, "--groups", "half"]) != 0


@pytest.mark.parametrize("groups", [{"coarse": {"x": 2}}, {"/coarse": {}}])
def test_a_rule_without_a_path_or_a_condition_is_refused(
    tmp_path: Path, repo: frazil.Repository, groups: dict[str, Any]
) -> None:
    with pytest.raises(IcechunkError, match="groups must"):
        add(repo, save(tmp_path, day(0, "t")), groups=groups)


@pytest.mark.skipif(find_spec("cf_units") is not None, reason="the extra `units` is installed")
def test_units_need_their_extra(tmp_path: Path, repo: frazil.Repository) -> None:
    with pytest.raises(frazil.MissingExtraError, match="units"):
        add(repo, save(tmp_path, day(0, "t")), convert={"t": "K"})


# Attributes


def test_changes_of_what_values_mean_are_named(tmp_path: Path, repo: frazil.Repository) -> None:
    limits: dict[str, Any] = {
        "valid_max": np.int16(300),
        "standard_name": "air_temperature",
        "long_name": "a",
    }
    others = {**limits, "valid_max": np.int16(400), "long_name": "b", "comment": "new"}
    del others["standard_name"]
    paths = save(tmp_path, *(numbers(at, [1, 2], **limits) for at in range(2)))
    paths += save(tmp_path, *(numbers(at, [1, 2], **others) for at in range(2, 4)))
    expected = [
        "standard_name of n stays 'air_temperature', as in {}, but is no value in {}",
        "valid_max of n stays 300, as in {}, but is 400 in {}",
    ]
    for some, where, files in (
        (paths[:3], "the first file", "1 file"),
        (paths[3:], "the repository", "1 file"),
    ):
        result = add(repo, some)
        notes = {
            kind: [each for each in result.report.notes if each.kind == kind]
            for kind in ("attributes", "descriptions")
        }
        named = [each.message for each in notes["attributes"]]
        assert sorted(named) == [each.format(where, files) for each in expected]
        assert {each.url for each in notes["attributes"]} == {str(some[-1])}
        assert [each.message for each in notes["descriptions"]] == [
            "`n.comment`, `n.long_name` differ in up to 1 file; earlier values stay"
        ]
        record = repo.lookup_snapshot(result.snapshot_id).metadata["frazil_ingest"]
        assert record["changes"] == named
    assert contents(repo, decode_cf=False).n.attrs == {**limits, "valid_max": 300}


UTM: dict[str, Any] = {
    "grid_mapping_name": "transverse_mercator",
    "longitude_of_central_meridian": 15.0,
    "standard_parallel": [50.0, 60.0],
    "crs_wkt": "PROJCS[33]",
}


@pytest.mark.parametrize(
    "change",
    [{"longitude_of_central_meridian": 21.0}, {"standard_parallel": [50.0, 61.0]}, {"semi_major_axis": 6e6}],
)
def test_a_grid_of_another_projection_is_refused(
    tmp_path: Path, repo: frazil.Repository, change: dict[str, Any]
) -> None:
    """The places in x and y are the same numbers in neighbouring zones."""
    days = [
        numbers(at, [1, 2], grid_mapping="crs").assign(crs=((), 0, attrs))
        for at, attrs in enumerate(
            [UTM, {**UTM, "crs_wkt": "PROJCRS[33]", "comment": "a later WKT"}, {**UTM, **change}]
        )
    ]
    paths = save(tmp_path, *days)
    name = next(iter(change))
    with pytest.raises(IcechunkError, match=rf"attributes: .*002\.nc: {name} of crs must be"):
        add(repo, paths)
    add(repo, paths[:2])
    with pytest.raises(IcechunkError, match=f"{name} of `/feed/crs` must be"):
        add(repo, paths[2:])
    assert contents(repo).sizes["time"] == 2


def test_a_grid_with_another_wkt_is_refused(tmp_path: Path, repo: frazil.Repository) -> None:
    days = [
        numbers(at, [1, 2], grid_mapping="crs").assign(crs=((), 0, {"crs_wkt": f"LOCAL_CS[{at}]"}))
        for at in range(2)
    ]
    with pytest.raises(IcechunkError, match="crs_wkt of crs must be"):
        add(repo, save(tmp_path, *days))


@pytest.mark.parametrize(
    ("later", "left"),
    [
        (day(1, "t"), 0),  # other values
        (day(1, "t").isel(time=[1]), 1),  # a step less
        (day(3, "t"), 2),  # other times
        (xr.concat([day(1, "t"), day(2, "t")], "time"), 0),  # more steps
    ],
)
def test_labels_that_a_changed_file_has_no_more_are_named(
    tmp_path: Path, repo: frazil.Repository, later: xr.Dataset, left: int
) -> None:
    paths = save(tmp_path, day(0, "t"), day(1, "t"))
    add(repo, paths)
    (later + 0.5).to_netcdf(paths[1], engine="h5netcdf", unlimited_dims=["time"])
    new = save(tmp_path, day(8, "t"))
    result = add(repo, [*paths, *new], on_change="rewrite", allow={"hole"})
    notes = [each.message for each in result.report.notes if each.kind == "stale"]
    assert len(notes) == (left > 0)
    assert all(each.startswith(f"{left} label") for each in notes)
    assert repo.lookup_snapshot(result.snapshot_id).metadata["frazil_ingest"].get("changes", []) == notes
    again = add(repo, [*paths, *new], on_change="rewrite")
    assert again.done_before


TEXTS, FLAGS = np.array([["a", "b"]], object), np.array([[True, False]])


@pytest.mark.parametrize("values", [TEXTS, FLAGS])
@pytest.mark.parametrize("is_first", [True, False])
def test_numbers_do_not_mix_with_other_values(
    tmp_path: Path, repo: frazil.Repository, values: Any, is_first: bool
) -> None:
    other = numbers(1 - is_first, [5, 6]).drop_vars("n").assign(n=(("time", "x"), values))
    paths = save(tmp_path, *([other, numbers(1, [5, 6])] if is_first else [numbers(0, [5, 6]), other]))
    with pytest.raises(
        IcechunkError, match=r"(mixed|attributes): .*001\.nc: .*n must be .*, as in most files, got "
    ):
        add(repo, paths, allow={"dtype"})
    add(repo, paths[:1], allow={"dtype"})
    with pytest.raises(IcechunkError, match=r"dtype of `/feed/n` must be .*, as in the repository, got"):
        add(repo, paths[1:], allow={"dtype"})
    assert contents(repo).sizes["time"] == 1


def test_a_refusal_says_what_to_do(tmp_path: Path, repo: frazil.Repository) -> None:
    packed = numbers(1, [1, 2], scale_factor=0.5)
    paths = save(
        tmp_path, numbers(0, [1, 2]), packed, numbers(2, [1, 2], "f4"), numbers(3, [1, 2], units="K")
    )
    add(repo, paths[:1])
    for path, text, remedy in (
        (
            paths[1],
            "scale_factor of `/feed/n` must be no value, as in the repository, got 0.5",
            "preprocess=",
        ),
        (paths[2], "dtype of `/feed/n` must be int16, as in the repository, got float32", "allow={'dtype'}"),
        (paths[3], "units of `/feed/n` must be no value, as in the repository, got K", "preprocess="),
    ):
        with pytest.raises(IcechunkError, match=text) as caught:
            add(repo, [path])
        assert remedy in str(caught.value)
    with pytest.raises(IcechunkError, match=r"values must have no packing, as in most files, got n\."):
        add(
            frazil.Repository.create(frazil.in_memory_storage()),
            [paths[0], paths[1], *save(tmp_path, numbers(4, [1, 2]))],
        )
    floats = frazil.Repository.create(frazil.in_memory_storage())
    add(floats, paths[2:3])
    with pytest.raises(IcechunkError, match=r"unpack=True stores the unpacked values"):
        add(floats, save(tmp_path, numbers(5, [1, 2], "f4", scale_factor=0.5)))
    add(floats, save(tmp_path, numbers(6, [1, 2], "f4", scale_factor=0.5)), unpack=True, allow={"hole"})
    celsius = frazil.Repository.create(frazil.in_memory_storage())
    add(celsius, save(tmp_path, numbers(0, [1, 2], "f4", units="degC")))
    with pytest.raises(IcechunkError, match=r"convert={'n': 'degC'} converts the values"):
        add(celsius, save(tmp_path, numbers(1, [1, 2], "f4", units="K")))


def test_days_without_steps_are_files_of_their_own(tmp_path: Path, repo: frazil.Repository) -> None:
    """Their contents are equal, and they are no copies of each other."""
    empty = day(0, "t").isel(time=slice(0))
    hours = empty.assign_coords(time=empty.time.copy().assign_attrs(units="hours since 2000-01-01"))
    paths = save(tmp_path, empty, empty, day(1, "t"), empty, hours)
    for path in paths:
        result = add(repo, [path], mode="append")
    assert contents(repo).time.size == 2
    assert add(repo, paths, mode="append").snapshot_id == result.snapshot_id


def test_labels_in_any_order_get_a_note(tmp_path: Path, repo: frazil.Repository) -> None:
    """A single file may have them. They enter an archive with a note."""
    twice = day(1, "t").isel(time=[0, 1, 1])
    paths = save(tmp_path, day(0, "t"), twice)
    add(repo, paths[:1], mode="append")
    result = add(repo, paths[1:], mode="append")
    notes = [(each.kind, each.url, each.message) for each in result.report.notes]
    assert notes == [("unordered", str(paths[1]), "labels do not all increase")]
    expected = [*day(0, "t").t.values[:, 0], *twice.t.values[:, 0]]
    assert contents(repo).t.values[:, 0].tolist() == expected


def test_missing_values_are_converted(tmp_path: Path, repo: frazil.Repository) -> None:
    fills = [np.float32(np.nan), np.float32(-999), np.float32(-9)]
    values = [[1, 2], [-999, -9], [-999, -9]]
    paths = save(
        tmp_path,
        *(
            numbers(at, row, "f4", _FillValue=fill)
            for at, (fill, row) in enumerate(zip(fills, values, strict=True))
        ),
    )
    with pytest.raises(IcechunkError, match=r"allow=\{'dtype'\} also converts missing values"):
        add(repo, paths)
    add(repo, paths[:1])
    with pytest.raises(IcechunkError, match=r"got -999.* allow=\{'dtype'\} .* and converts missing values"):
        add(repo, paths[1:2])
    result = add(repo, paths[1:], allow={"dtype"})
    np.testing.assert_array_equal(contents(repo).n, [[1, 2], [np.nan, -9], [-999, np.nan]])
    assert any("gets one missing value" in each.message for each in result.report.notes)
