"""Appending to a group, and writing a region of it: what does not agree with it is refused, and changes nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import event, given
from hypothesis import strategies as st
from xarray.testing import assert_equal, assert_identical

import frazil
from frazil.xarray import CHECKS, to_icechunk


# xarray warns of integers without a fill value, and of times that it would store in other units.
pytestmark = pytest.mark.filterwarnings(
    "ignore:saving variable:xarray.SerializationWarning", "ignore:Times can't be serialized:UserWarning"
)


@pytest.fixture(autouse=True)
def _in_this_thread() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


def writable() -> frazil.Session:
    return frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")


def read(session: frazil.Session) -> xr.Dataset:
    return xr.open_zarr(session.store, consolidated=False, chunks=None).load()


def days(start: str, count: int, step: str = "1D") -> np.ndarray:
    return xr.date_range(start, periods=count, freq=step).values


def weather(start: str = "2024-01-01", count: int = 2) -> xr.Dataset:
    """Temperatures, packed and not, and all that may go with them."""
    dims, shape = ("time", "x"), (count, 3)
    dataset = xr.Dataset(
        {
            "t": (dims, np.linspace(280, 290, count * 3).reshape(shape), {"units": "K"}),
            "packed": (dims, np.full(shape, 274.15), {"units": "K"}),
            "number": ("time", np.arange(count, dtype="i2")),
            "flag": (dims, np.zeros(shape, "i1"), {"flag_values": np.array([0, 1], "i1")}),
            "height": ("x", [1.0, 2.0, 3.0], {"units": "m", "positive": "up"}),
            "crs": ((), 0, {"grid_mapping_name": "latitude_longitude", "earth_radius": 6371229.0}),
        },
        coords={"time": days(start, count), "x": [1, 2, 3], "name": ("x", ["a", "b", "c"])},
        attrs={"title": "first"},
    )
    dataset["packed"].encoding = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 273.15}
    dataset["time"].encoding = {"units": "days since 2024-01-01", "dtype": "i8"}
    return dataset


def more() -> xr.Dataset:
    return weather("2024-01-03").assign_attrs(title="second")


def assigned(**values: Any) -> xr.Dataset:
    """What comes next, with some variables replaced; arrays keep the dimensions and attributes."""
    dataset = more()
    for name, value in values.items():
        dataset[name] = (dataset[name].dims, np.asarray(value), dataset[name].attrs)
    return dataset


def retyped(**types: str) -> xr.Dataset:
    dataset = more()
    return dataset.assign({name: dataset[name].astype(dtype) for name, dtype in types.items()})


def attributed(name: str, **attrs: Any) -> xr.Dataset:
    dataset = more()
    dataset[name].attrs.update(attrs)
    return dataset


def encoded(name: str, **encoding: Any) -> xr.Dataset:
    dataset = more()
    dataset[name].encoding = encoding
    return dataset


TEMPERATURES = np.full((2, 3), 274.15)
FEBRUARY = xr.date_range("2024-02-28", periods=2, calendar="noleap", use_cftime=True)

#: Data that do not agree -> the check that finds it, and what the message has to say.
REFUSED: dict[str, tuple[Callable[[], xr.Dataset], str, list[str]]] = {
    "times between the steps of the units": (
        lambda: weather("2024-01-03T06:00"), "order", ["`time`", "days since 2024-01-01", "2024-01-03T06"],
    ),
    "missing times": (
        lambda: assigned(time=np.array(["2024-01-03", "NaT"], "M8[ns]")), "order", ["`time`", "NaT"],
    ),
    "numbers for times": (lambda: assigned(time=[5, 6]), "order", ["`time`", "days since 2024-01-01", "5"]),
    "numbers in other units of time": (
        lambda: more().assign_coords(time=("time", [48, 72], {"units": "hours since 2024-01-01"})),
        "attributes", ["`time`", "days since 2024-01-01", "hours since 2024-01-01"],
    ),
    "another calendar": (
        lambda: more().assign_coords(time=FEBRUARY), "order", ["`time`", "calendar"],
    ),
    "values beyond the packing": (
        lambda: assigned(packed=TEMPERATURES + 625.85), "values", ["`packed`", "900.0", "244.64", "-54.53 to 600.82"],
    ),
    "one value beyond the packing": (
        lambda: assigned(packed=TEMPERATURES + np.eye(2, 3) * 1e9), "values", ["`packed`", "1000000274.15"],
    ),
    "missing values without a fill value": (
        lambda: assigned(packed=TEMPERATURES * np.nan), "values", ["`packed`", "nan", "_FillValue"],
    ),
    "infinite values": (lambda: assigned(packed=TEMPERATURES * np.inf), "values", ["`packed`", "inf"]),
    "fractions in integers": (lambda: assigned(number=[1.0, 2.5]), "values", ["`number`", "int16", "2.5"]),
    "large integers": (lambda: assigned(number=[1, 70_000]), "values", ["`number`", "int16", "70000"]),
    "missing values in integers": (lambda: assigned(number=[1, np.nan]), "values", ["`number`", "nan"]),
    "booleans": (lambda: assigned(number=[True, False]), "values", ["`number`", "bool"]),
    "text": (lambda: assigned(number=["1", "2"]), "values", ["`number`", "int16"]),
    "complex numbers": (lambda: assigned(t=TEMPERATURES + 1j), "values", ["`t`", "complex128"]),
    "mirrored coordinates": (lambda: more().assign_coords(x=[3, 2, 1]), "static", ["`x`", "1", "3", "drop_vars"]),
    "other coordinates of text": (
        lambda: more().assign_coords(name=("x", ["a", "b", "d"])), "static", ["`name`", "c", "d"],
    ),
    "other static data": (lambda: assigned(height=[1.0, 2.0, 2.5]), "static", ["`height`", "3.0", "2.5"]),
    "other units": (lambda: attributed("t", units="degC"), "attributes", ["`t`", "units", "'K'", "'degC'"]),
    "other flags": (
        lambda: attributed("flag", flag_values=np.array([1, 0], "i1")), "attributes", ["`flag`", "flag_values"],
    ),
    "the other direction": (lambda: attributed("height", positive="down"), "attributes", ["`height`", "'down'"]),
    "another earth": (
        lambda: attributed("crs", earth_radius=6378137.0), "attributes", ["`crs`", "6371229.0", "6378137.0"],
    ),
    "another calendar in the encoding": (
        lambda: encoded("time", calendar="noleap"), "attributes", ["`time`", "proleptic_gregorian", "noleap"],
    ),
    "another scale": (
        lambda: encoded("packed", scale_factor=0.02, add_offset=273.15), "packing", ["`packed`", "0.01", "0.02"],
    ),
    "another offset": (
        lambda: encoded("packed", scale_factor=0.01, add_offset=0.0), "packing", ["`packed`", "273.15", "0.0"],
    ),
    "no scale": (lambda: encoded("packed", add_offset=273.15), "packing", ["`packed`", "0.01", "1.0"]),
    "a variable is missing": (lambda: more().drop_vars("flag"), "variables", ["`flag`", "shorter", "time"]),
    "the coordinate is missing": (lambda: more().drop_vars("time"), "variables", ["`time`", "shorter"]),
    "another variable": (lambda: more().assign(rain=more()["t"]), "variables", ["`rain`", "drop_vars"]),
    "labels for a dimension without": (
        lambda: more().assign_coords(label=("x", ["p", "q", "r"])), "variables", ["`label`"],
    ),
    "another size": (lambda: more().isel(x=[0, 1]), "variables", ["`x`", "3", "2"]),
    "other dimensions": (lambda: more().assign(number=more()["flag"]), "variables", ["`number`", "time"]),
    "the same labels again": (lambda: weather(), "order", ["`time`", "2024-01-02", "2024-01-01", "region"]),
    "labels that overlap": (lambda: weather("2024-01-02"), "order", ["`time`", "2024-01-02"]),
    "labels before": (lambda: weather("2023-01-02"), "order", ["`time`", "2023-01-02"]),
    "labels in disorder": (lambda: more().isel(time=[1, 0]), "order", ["`time`", "2024-01-03"]),
}  # fmt: skip


@pytest.mark.parametrize("chunked", [False, True], ids=["memory", "dask"])
@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, chunked: bool) -> None:
    make, check, words = REFUSED[case]
    dataset = make().chunk() if chunked else make()
    session = next_session(weather())
    with pytest.raises(frazil.InvalidInputError) as raised:
        to_icechunk(dataset, session, append_dim="time")
    assert raised.value.kind == "data-mismatch"
    assert not session.has_uncommitted_changes
    message = str(raised.value)
    assert [word for word in [*words, f"accept=[{check!r}]"] if word not in message] == [], message
    assert_identical(read(session), weather())


@pytest.mark.parametrize("chunked", [False, True], ids=["memory", "dask"])
def test_appended(chunked: bool) -> None:
    session = next_session(weather())
    to_icechunk(more().chunk() if chunked else more(), session, append_dim="time")
    assert_identical(read(session), weather(count=4).assign(parts()).assign_attrs(title="second"))


def parts() -> dict[str, xr.Variable]:
    """Both parts of what is not the same as one part of four days."""
    grown = ("t", "number")
    return {
        name: xr.Variable.concat([weather().variables[name], more().variables[name]], "time") for name in grown
    }


#: What is left out, or differs in what is for readers.
TAKEN: dict[str, Callable[[], xr.Dataset]] = {
    "nothing but what grows": lambda: more().drop_vars(["height", "crs", "name", "x"]),
    "no attributes": lambda: more().drop_attrs(),
    "no encoding": lambda: more().drop_encoding(),
    "other words": lambda: attributed("t", long_name="temperature", history="now", units=" K "),
    "other units of time": lambda: encoded("time", units="hours since 1970-01-01"),
    "another order of dimensions": lambda: more().transpose(),
    "half precision": lambda: retyped(packed="f4"),
    "packed to no packing": lambda: encoded("t", dtype="i2", scale_factor=0.1, _FillValue=-1),
    "whole numbers as floats": lambda: assigned(number=[0.0, 1.0]),
    "more bits": lambda: retyped(number="i8", x="f4", height="f4"),
}


@pytest.mark.parametrize("chunked", [False, True], ids=["memory", "dask"])
@pytest.mark.parametrize("case", TAKEN)
def test_taken(case: str, chunked: bool) -> None:
    session = next_session(weather())
    dataset = TAKEN[case]()
    to_icechunk(dataset.chunk() if chunked else dataset, session, append_dim="time")
    whole = weather(count=4).assign(parts())
    np.testing.assert_allclose(read(session)["packed"], whole["packed"], atol=0.0051)
    assert_identical(read(session).drop_vars("packed").drop_attrs(deep=False), whole.drop_vars("packed").drop_attrs(deep=False))


def next_session(dataset: xr.Dataset, **options: Any) -> frazil.Session:
    """A session of a repository that has a dataset."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    session = repo.writable_session("main")
    to_icechunk(dataset, session, **options)
    session.commit("first")
    return repo.writable_session("main")


# ---- any dataset ------------------------------------------------------------------------------------

UNITS = ("days since 2000-01-01", "hours since 2000-01-01", "seconds since 1999-12-30T12:00", "hours since 2000-02-01")
NUMBERS = ("i1", "u1", "i2", "i4", "u4", "i8", "f4", "f8")
PACKINGS: list[dict[str, Any]] = [
    {},
    {"dtype": "i2", "scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -32768},
    {"dtype": "i2", "scale_factor": 0.5},
    {"dtype": "u1", "scale_factor": -2.0, "add_offset": 100.0, "_FillValue": 255},
    {"dtype": "i4", "_FillValue": -1},
    {"dtype": "i2"},
    {"dtype": "f4", "_FillValue": -999.0},
    {"dtype": "f4"},
]
REALS = st.sampled_from([0.0, 0.5, 1.0, -1.0, 1.5, 20.0, 255.0, 273.15, 280.123, -999.0, 4e4, 3e9, 1e300, np.nan, np.inf])
INTEGERS = st.sampled_from([0, 1, 2, 100, 127, 200, 255, 40_000, 2**31, 2**53 + 1])


@st.composite
def parts_of_one(draw: st.DrawFn) -> tuple[xr.Dataset, xr.Dataset]:
    """A dataset, and another one that may go on in it, or nearly."""
    rarely = st.sampled_from([False, False, False, True])
    units, packing = draw(st.sampled_from(UNITS)), draw(st.sampled_from(PACKINGS))
    calendar = draw(st.sampled_from(["standard", "standard", "noleap", "360_day"]))
    x = draw(st.permutations([10, 20, 30]))
    types = {name: draw(st.sampled_from(NUMBERS)) for name in ("count", "level")}

    def part(start: int, hours: int, *, other: bool) -> xr.Dataset:
        def changed[T](strategy: st.SearchStrategy[T], here: T) -> T:
            return draw(strategy) if other and draw(rarely) else here

        size = draw(st.integers(1, 3))
        count = draw(st.lists(INTEGERS, min_size=size, max_size=size))
        dtype = changed(st.sampled_from(NUMBERS), types["count"])
        real = np.array(draw(st.lists(REALS, min_size=size * 3, max_size=size * 3))).reshape(size, 3)
        text = draw(st.lists(st.sampled_from(["a", "bb", "ü", ""]), min_size=size, max_size=size))
        dates = xr.date_range(
            "2000-01-01", periods=start + size, freq=f"{hours}h", calendar=changed(st.just("noleap"), calendar),
            use_cftime=None if calendar == "standard" else True,
        )[start:]  # fmt: skip
        dataset = xr.Dataset(
            {
                "real": (("time", "x"), real, {"units": changed(st.just("degC"), "K")}),
                "count": ("time", np.array(count, "i8").astype(dtype)),
                "text": ("time", np.array(text, object)),
                "level": ("x", np.array([1, 2, changed(st.just(4), 3)], types["level"])),
            },
            coords={"time": dates, "x": changed(st.permutations([10, 20, 30]), x)},
        )
        dataset["real"].encoding = dict(changed(st.sampled_from(PACKINGS), packing)) if not other or draw(rarely) else {}
        dataset["time"].encoding = {"units": changed(st.sampled_from(UNITS), units), "dtype": "i8"}
        if other and draw(rarely):
            dataset = dataset.drop_vars(draw(st.sampled_from(["real", "count", "text", "level", "time", "x"])))
        if other and draw(rarely):
            dataset = dataset.transpose()
        if other and draw(rarely):
            dataset = dataset.chunk({name: 1 for name in draw(st.sampled_from([["time"], ["x"], ["time", "x"]]))})
        return dataset

    first = part(0, 24, other=False)
    start = draw(st.sampled_from([first.sizes["time"]] * 4 + [0, first.sizes["time"] + 3]))
    return first, part(start, draw(st.sampled_from([24, 24, 24, 6])), other=True)


@given(parts_of_one())
def test_appended_is_what_xarray_concatenates_or_nothing_is_changed(parts: tuple[xr.Dataset, xr.Dataset]) -> None:
    first, second = parts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = next_session(first, encoding={"real": {**first["real"].encoding, "chunks": (1, 3)}})
        before = read(session)
        try:
            to_icechunk(second, session, append_dim="time")
        except ValueError as error:
            event(str(getattr(error, "kind", "xarray")))
            assert not session.has_uncommitted_changes
            assert_identical(read(session), before)
            return
        after = read(session)
        event("appended")
        same = [name for name in ("level", "x") if name not in second.variables]
        second = second.assign({name: before[name] for name in same}).transpose("time", "x")
        whole = xr.concat(
            [before, second.load()], "time", data_vars="minimal", coords="minimal", compat="no_conflicts",
            join="exact", combine_attrs="no_conflicts",
        )  # fmt: skip
        packing = after["real"].encoding
        step = abs(packing.get("scale_factor", 0)) if np.dtype(packing["dtype"]).kind in "iu" else 0
        np.testing.assert_allclose(after["real"], whole["real"], rtol=1e-6, atol=step / 2 * 1.0001)
        np.testing.assert_array_equal(after["count"].values, whole["count"].values)
        assert_equal(after.drop_vars(["real", "count"]), whole.drop_vars(["real", "count"]))
        assert dict(after["real"].attrs) == dict(before["real"].attrs)
