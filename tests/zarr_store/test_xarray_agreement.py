"""Data that do not agree with the group that they are appended to, or written into, are refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import event, given
from hypothesis import strategies as st
from tests.support.tiers import deep
from xarray.testing import assert_equal, assert_identical

import frazil
from frazil.xarray import CHECKS, to_icechunk

#: xarray's annotations have no stores.
open_datatree: Any = xr.open_datatree

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
    dataset: xr.Dataset = xr.open_zarr(session.store, consolidated=False, chunks=None).load()
    return dataset


def days(start: str, count: int, step: str = "1D") -> Any:
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
        lambda: more().assign_coords(time=FEBRUARY), "order",
        ["`time`", "calendar noleap", "convert_calendar('proleptic_gregorian')"],
    ),
    "values beyond the packing": (
        lambda: assigned(packed=TEMPERATURES + 625.85), "values",
        ["`packed`", "900.0", "244.64", "-54.53 to 600.82"],
    ),
    "missing values without a fill value": (
        lambda: assigned(packed=TEMPERATURES * np.nan), "values", ["`packed`", "nan", "_FillValue"],
    ),
    "text": (lambda: assigned(number=["1", "2"]), "values", ["`number`", "int16"]),
    "mirrored coordinates": (
        lambda: more().assign_coords(x=[3, 2, 1]), "static", ["`x`", "1", "3", "drop_vars"],
    ),
    "other units": (lambda: attributed("t", units="degC"), "attributes", ["`t`", "units", "'K'", "'degC'"]),
    "other flags": (
        lambda: attributed("flag", flag_values=np.array([1, 0], "i1")), "attributes",
        ["`flag`", "flag_values"],
    ),
    "another earth": (
        lambda: attributed("crs", earth_radius=6378137.0), "attributes", ["`crs`", "6371229.0", "6378137.0"],
    ),
    "another calendar in the encoding": (
        lambda: encoded("time", calendar="noleap"), "attributes", ["`time`", "proleptic_gregorian", "noleap"],
    ),
    "another scale": (
        lambda: encoded("packed", scale_factor=np.float64(0.02), add_offset=273.15), "packing",
        ["`packed`", "0.01", "got 0.02"],
    ),
    "a variable is missing": (lambda: more().drop_vars("flag"), "variables", ["`flag`", "shorter", "time"]),
    "another variable": (lambda: more().assign(rain=more()["t"]), "variables", ["`rain`", "drop_vars"]),
    "another size": (lambda: more().isel(x=[0, 1]), "variables", ["`x`", "3", "2"]),
    "other dimensions": (lambda: more().assign(number=more()["flag"]), "variables", ["`number`", "time"]),
    "the same labels again": (lambda: weather(), "order", ["`time`", "2024-01-02", "2024-01-01", "region"]),
    "labels in disorder": (lambda: more().isel(time=[1, 0]), "order", ["`time`", "2024-01-03"]),
}  # fmt: skip


@pytest.mark.sample(10, 24)
@pytest.mark.parametrize("chunked", [False, *deep(True)], ids=["memory", "dask"])
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


@pytest.mark.parametrize("chunked", [False, *deep(True)], ids=["memory", "dask"])
def test_appended(chunked: bool) -> None:
    session = next_session(weather())
    to_icechunk(more().chunk() if chunked else more(), session, append_dim="time")
    assert_identical(read(session), weather(count=4).assign(parts()).assign_attrs(title="second"))
    # Nothing is stored of what does not grow: other sessions may append to groups with the same coordinates.
    assert sorted(session.status().updated_chunks) == ["/flag", "/number", "/packed", "/t", "/time"]


def parts() -> dict[str, xr.Variable]:
    """Both parts of what is not the same as one part of four days."""
    grown = ("t", "number")
    return {name: xr.concat([weather()[name], more()[name]], "time").variable for name in grown}


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


@pytest.mark.sample(7, 17)
@pytest.mark.parametrize("chunked", [False, *deep(True)], ids=["memory", "dask"])
@pytest.mark.parametrize("case", TAKEN)
def test_taken(case: str, chunked: bool) -> None:
    session = next_session(weather())
    dataset = TAKEN[case]()
    to_icechunk(dataset.chunk() if chunked else dataset, session, append_dim="time")
    whole = weather(count=4).assign(parts())
    np.testing.assert_allclose(read(session)["packed"], whole["packed"], atol=0.0051)
    assert_identical(
        read(session).drop_vars("packed").drop_attrs(deep=False),
        whole.drop_vars("packed").drop_attrs(deep=False),
    )


def next_session(dataset: xr.Dataset, **options: Any) -> frazil.Session:
    """A session of a repository that has a dataset."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    session = repo.writable_session("main")
    to_icechunk(dataset, session, **options)
    session.commit("first")
    return repo.writable_session("main")


@pytest.mark.parametrize("chunked", [False, *deep(True)], ids=["memory", "dask"])
def test_coordinates_with_fewer_bits_keep_those_that_are_stored(chunked: bool) -> None:
    def grid(start: str, dtype: str) -> xr.Dataset:
        x = np.array([0.1, 0.2, 1 / 3])
        height = np.array([np.nan, 0.1, 1e300])
        with np.errstate(over="ignore"):
            dataset = weather(start).assign_coords(x=x.astype(dtype))
            return dataset.assign(height=("x", height.astype(dtype)))

    session, new = next_session(grid("2024-01-01", "f8")), grid("2024-01-03", "f4")
    to_icechunk(new.chunk() if chunked else new, session, append_dim="time")
    assert_equal(read(session)["height"], grid("2024-01-01", "f8")["height"])
    last = grid("2024-01-05", "f4")
    last["height"][1] += 1e-6
    with pytest.raises(frazil.InvalidInputError, match=r"`height`.*accept=\['static'\]"):
        to_icechunk(last.chunk() if chunked else last, session, append_dim="time")


TEXTS = ["U", "U5", "O", np.dtypes.StringDType()]


@pytest.mark.sample(15, 15)
@pytest.mark.deep
@pytest.mark.parametrize("chunked", [False, *deep(True)], ids=["memory", "dask"])
@pytest.mark.parametrize(
    ("stored", "new"), [*((one, other) for one in TEXTS for other in TEXTS), ("S", "S5"), ("S5", "S")]
)
def test_texts_of_other_types(stored: Any, new: Any, chunked: bool) -> None:
    """xarray takes texts of two lengths for two types, although each text fits."""

    def named(start: str, dtype: Any, count: int = 2) -> xr.Dataset:
        name, word = (np.array(each).astype(dtype) for each in (["a", "bb", "ccc"], ["dd"] * count))
        dataset = weather(start, count)[["t"]].assign(word=("time", word))
        return dataset.assign_coords(name=("x", name), x=name, one=((), name[0]))

    session = next_session(named("2024-01-01", stored))
    dataset = named("2024-01-03", new)
    to_icechunk(dataset.chunk() if chunked else dataset, session, append_dim="time")
    whole = named("2024-01-01", stored, 4)
    names = ["word", "name", "x", "one"]
    assert {name: read(session)[name].values.tolist() for name in names} == {
        name: whole[name].values.tolist() for name in names
    }
    assert set(read(session).coords) == set(whole.coords)


def test_lazy_values_are_checked_as_they_are_computed() -> None:
    """What was written before is not in the session, and each value is computed once."""
    session, computed = next_session(weather()), []

    def compute(block: np.ndarray) -> np.ndarray:
        computed.append(block.shape)
        return block

    def days_of(last: float) -> xr.Dataset:
        values = np.full((4, 3), 274.0)
        values[3] = last
        dataset = weather("2024-01-03", 4)
        dataset["packed"] = dataset["packed"].copy(data=values)
        dataset = dataset.chunk({"time": 2})
        dataset["packed"].data = dataset["packed"].data.map_blocks(compute, meta=np.empty((0, 0)))
        return dataset

    with pytest.raises(frazil.InvalidInputError, match=r"`packed`.*999.0.*accept=\['values'\]"):
        to_icechunk(days_of(999.0), session, append_dim="time")
    assert 1 <= len(computed) <= 2
    assert not session.has_uncommitted_changes
    assert_identical(read(session), weather())
    computed.clear()
    to_icechunk(days_of(275.0), session, append_dim="time")
    assert computed == [(2, 3), (2, 3)]
    np.testing.assert_allclose(read(session)["packed"][-1], 275.0, atol=0.0051)


@pytest.mark.sample(14, 14)
@pytest.mark.deep
@pytest.mark.parametrize("chunked", [False, *deep(True)], ids=["memory", "dask"])
@pytest.mark.parametrize("case", [case for case in REFUSED if REFUSED[case][1] != "variables"])
def test_accepted(case: str, chunked: bool) -> None:
    """With all checks accepted, xarray does what it does with any store."""
    make = REFUSED[case][0]
    outcomes: list[Any] = []
    for write in ("frazil", "xarray"):
        session, dataset = next_session(weather()), make().chunk() if chunked else make()
        try:
            if write == "frazil":
                to_icechunk(dataset, session, append_dim="time", accept=CHECKS)
            else:
                dataset.to_zarr(session.store, append_dim="time", consolidated=False, zarr_format=3)
        except (ValueError, TypeError, Warning) as error:
            outcomes.append(type(error))
        else:
            outcomes.append(
                xr.open_zarr(session.store, consolidated=False, chunks=None, decode_cf=False).load()
            )
    if isinstance(outcomes[1], type):
        assert outcomes[0] is outcomes[1]
    else:
        assert_identical(*outcomes)


def test_one_check_is_accepted() -> None:
    session = next_session(weather())
    with pytest.raises(frazil.InvalidInputError, match=r"accept=\['static'\]"):
        to_icechunk(
            attributed("t", units="degC").assign_coords(x=[3, 2, 1]),
            session,
            append_dim="time",
            accept=["attributes"],
        )
    to_icechunk(more().assign_coords(x=[3, 2, 1]), session, append_dim="time", accept={"static"})
    assert read(session)["x"].values.tolist() == [3, 2, 1]
    for accept in (["everything"], "values order", [3]):
        with pytest.raises(
            frazil.InvalidInputError, match="accept must contain names of variables, attributes"
        ):
            to_icechunk(more(), session, append_dim="time", accept=accept)  # type: ignore[arg-type]


def test_appended_to_nothing() -> None:
    session = writable()
    with pytest.raises(frazil.InvalidInputError, match=r"group `/days`.*got none"):
        to_icechunk(weather(), session, group="days", append_dim="time")
    assert not session.has_uncommitted_changes
    zarr.create_group(session.store)
    with pytest.raises(ValueError, match="append_dim='time' does not match"):
        to_icechunk(weather(), session, append_dim="time", accept=["variables"])


def test_arrays_that_xarray_cannot_open_are_left_alone() -> None:
    session = next_session(weather())
    root = zarr.open_group(session.store)
    root.create_array("other", data=np.zeros((2, 2)))
    strange = root.create_array("strange", data=np.zeros(3), dimension_names=("x",))
    strange.attrs["units"] = "days since the flood"
    to_icechunk(more(), session, append_dim="time")
    assert root["time"].shape == (4,)  # type: ignore[union-attr]


# ---- the order of labels ------------------------------------------------------------------------------

ORDERS: list[tuple[list[Any], list[Any], bool]] = [
    ([1, 2], [3], True),
    ([1, 2], [2], False),
    ([1, 2], [3, 3], False),
    ([2, 1], [0, -1], True),
    ([2, 1], [3], False),
    ([1, 3, 2], [0, 9, 4], True),
    ([1.0, 2.0], [np.nan], False),
    (["b", "c"], ["a"], True),
    (["b", "c"], ["d", "c"], False),
    ([True, False], [True], False),
]


@pytest.mark.parametrize(("stored", "new", "right"), ORDERS)
def test_order(stored: list[Any], new: list[Any], right: bool) -> None:
    def dataset(labels: list[Any]) -> xr.Dataset:
        return xr.Dataset({"a": ("x", np.zeros(len(labels)))}, {"x": labels})

    session = next_session(dataset(stored))
    if right:
        to_icechunk(dataset(new), session, append_dim="x")
        assert read(session)["x"].values.tolist()[len(stored) :] == new
    else:
        with pytest.raises(frazil.InvalidInputError, match=r"`x` must have new labels.*accept=\['order'\]"):
            to_icechunk(dataset(new), session, append_dim="x")


# ---- regions, and the mode ``a`` ------------------------------------------------------------------------


def box(**changes: Any) -> xr.Dataset:
    return weather()[["t", "packed"]].drop_vars("name").assign_coords(**changes)


@pytest.mark.parametrize(
    ("make", "check", "words"),
    [
        (lambda: box(time=days("2024-01-05", 2)), "static", ["`time`", "2024-01-01", "2024-01-05"]),
        (lambda: box() + 900, "values", ["`packed`", "1174.15"]),
        (lambda: box().assign(more=box()["t"]), "variables", ["`more`"]),
        (lambda: box().assign(t=box()["t"].assign_attrs(units="degC")), "attributes", ["`t`", "degC"]),
    ],
)
def test_regions_refused(make: Callable[[], xr.Dataset], check: str, words: list[str]) -> None:
    stored = weather(count=4)
    for name in ("t", "packed"):
        stored[name].encoding["chunks"] = (2, 3)
    session = next_session(stored)
    with pytest.raises(frazil.InvalidInputError) as raised:
        to_icechunk(make(), session, region={"time": slice(0, 2), "x": slice(0, 3)})
    message = str(raised.value)
    assert [word for word in [*words, f"accept=[{check!r}]"] if word not in message] == [], message
    assert not session.has_uncommitted_changes


def test_mode_a() -> None:
    """Coordinates are corrected, variables added, values replaced, and a group made where there is none."""
    session = next_session(weather())
    to_icechunk(xr.Dataset(coords={"x": [5, 6, 7]}), session, mode="a")
    to_icechunk(xr.Dataset({"depth": ("x", [1.0, 2.0, 3.0])}, {"x": [5, 6, 7]}), session, mode="a")
    to_icechunk(xr.Dataset({"number": ("time", [8, 9])}), session, mode="a")
    to_icechunk(more(), session, group="more", mode="a")
    after = read(session)
    assert after["x"].values.tolist() == [5, 6, 7]
    assert after["number"].values.tolist() == [8, 9]
    assert after["depth"].values.tolist() == [1.0, 2.0, 3.0]


# ---- what arrays can hold -----------------------------------------------------------------------------

HELD: list[tuple[dict[str, Any], Any, bool]] = [
    ({"dtype": "f4"}, [280.123456789, -1e-300, np.nan, np.inf], True),
    ({"dtype": "f4"}, [1e39], False),
    ({"dtype": "f8"}, [2**53], True),
    ({"dtype": "f8"}, [2**53 + 1], False),
    ({"dtype": "i8"}, [2**63 - 1, 2**53 + 1], True),
    ({"dtype": "u8"}, [-1], False),
    ({"dtype": "i8"}, np.array([2**63], "u8"), False),
    ({"dtype": "i2", "_FillValue": -1}, [np.nan, 3.0], True),
    ({"dtype": "i2", "_FillValue": -1}, [-1.0], False),
    ({"dtype": "f8", "_FillValue": -999.0}, [-999.0], False),
    ({"dtype": "i4", "missing_value": -999}, [np.nan, 3.0], True),
    ({"dtype": "u1", "scale_factor": 2.0}, [510.0, 0.0, 3.0], True),
    ({"dtype": "u1", "scale_factor": 2.0}, [512.0], False),
    ({"dtype": "i2", "scale_factor": -0.1, "_FillValue": 0}, [0.01], False),
    ({"dtype": "i4", "scale_factor": 1e-6}, [1234.567890123], True),
    ({"dtype": "i8", "units": "days since 2000-01-01"}, ["2000-02-29", "1750-01-01"], True),
    ({"dtype": "i4", "units": "days since 2000-01-01"}, ["NaT"], False),
    ({"dtype": "i8", "units": "days since 2000-01-01", "_FillValue": -9}, ["NaT", "2000-01-02"], True),
    ({"dtype": "i8", "units": "days since 2000-01-01", "_FillValue": 1}, ["2000-01-02"], False),
    ({"dtype": "i1", "units": "days since 2000-01-01"}, ["2000-12-31"], False),
    ({"dtype": "f8", "units": "days since 1900-01-01"}, ["2000-12-31T00:20:01.123"], True),
    ({"dtype": "f4", "units": "hours since 1900-01-01"}, ["2000-12-31T06"], True),
    ({"dtype": "i4", "units": "seconds since 2000-01-01"}, ["2000-12-31T00:00:00.5"], False),
    ({"dtype": "i4", "units": "seconds since 2000-01-01"}, ["2100-12-31"], False),
    ({}, [True, False], True),
]


@pytest.mark.parametrize("chunked", [False, *deep(True)], ids=["memory", "dask"])
@pytest.mark.parametrize(("encoding", "values", "right"), HELD, ids=str)
def test_held(encoding: dict[str, Any], values: Any, right: bool, chunked: bool) -> None:
    new = np.array(values, "M8[ns]") if "units" in encoding else np.asarray(values)
    session = writable()
    to_icechunk(xr.Dataset({"a": ("x", new[:1])}) if not encoding else first_of(encoding, new), session)
    dataset = xr.Dataset({"a": ("x", new)})
    if right:
        to_icechunk(dataset.chunk() if chunked else dataset, session, append_dim="x")
        back = read(session)["a"][1:].values
        step = abs(float(encoding.get("scale_factor", 0))) / 2 + 1e-12
        if new.dtype.kind == "f":
            np.testing.assert_allclose(back, new, rtol=1e-6, atol=step)
        elif encoding.get("dtype", "").startswith("f") and new.dtype.kind == "M":
            assert (np.abs(back - new) <= np.timedelta64(1, "us")).all()
        else:
            np.testing.assert_array_equal(back, new)
    else:
        with pytest.raises(frazil.InvalidInputError, match=r"`a` must have values"):
            to_icechunk(dataset.chunk() if chunked else dataset, session, append_dim="x")


def first_of(encoding: dict[str, Any], like: np.ndarray) -> xr.Dataset:
    """A dataset of one value that the encoding can hold."""
    value: Any = np.array(["2000-01-03"], "M8[ns]") if like.dtype.kind == "M" else np.array([4.0])
    dataset = xr.Dataset({"a": ("x", value)})
    dataset["a"].encoding = dict(encoding)
    return dataset


def test_texts_of_fixed_width() -> None:
    session = writable()
    root = zarr.create_group(session.store)
    root.create_array("a", data=np.array(["ab", "cd"], "U2"), dimension_names=("x",))
    with pytest.raises(ValueError, match="a"):
        to_icechunk(xr.Dataset({"a": ("x", np.array(["abc"]))}), session, append_dim="x")
    with pytest.raises(frazil.InvalidInputError, match=r"`a` must have values.*abc"):
        to_icechunk(xr.Dataset({"a": ("x", np.array(["abc"], object))}), session, append_dim="x")
    to_icechunk(xr.Dataset({"a": ("x", np.array(["ef"]))}), session, append_dim="x")
    assert read(session)["a"].values.tolist() == ["ab", "cd", "ef"]


@pytest.mark.deep
def test_a_tree() -> None:
    tree = xr.DataTree.from_dict(
        {
            "/": weather()[["height"]].drop_vars("name"),
            "/daily": weather()[["t"]].drop_vars(["x", "name"]),
            "/a/b": more()[["number"]],
        }
    )
    session = writable()
    to_icechunk(tree, session, group="first")
    to_icechunk(tree.chunk(), session, group="copy", encoding={"/daily": {"t": {"chunks": (1, 3)}}})
    for group in ("first", "copy"):
        back = open_datatree(session.store, engine="zarr", group=group, consolidated=False).load()
        xr.testing.assert_equal(back, tree)
    assert xr.open_zarr(session.store, group="copy/daily", consolidated=False)["t"].encoding["chunks"] == (
        1,
        3,
    )
    with pytest.raises(frazil.InvalidInputError, match=r"got a DataTree. Write its groups one by one"):
        to_icechunk(tree, session, append_dim="time")
    with pytest.raises(frazil.InvalidInputError, match="got '/none'"):
        to_icechunk(tree, session, encoding={"/none": {}})


# ---- any dataset ------------------------------------------------------------------------------------

UNITS = (
    "days since 2000-01-01",
    "hours since 2000-01-01",
    "seconds since 1999-12-30T12:00",
    "hours since 2000-02-01",
)
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
REALS = st.sampled_from(
    [0.0, 0.5, 1.0, -1.0, 1.5, 20.0, 255.0, 273.15, 280.123, -999.0, 4e4, 3e9, 1e300, np.nan, np.inf]
)
INTEGERS = st.sampled_from([0, 1, 2, 100, 127, 200, 255, 40_000, 2**31, 2**53 + 1])


@st.composite
def parts_of_one(draw: st.DrawFn) -> tuple[xr.Dataset, xr.Dataset]:
    """A dataset, and another one that may go on in it, or nearly."""
    rarely = st.integers(0, 9).map(lambda n: n == 9)
    tame = st.sampled_from([0.0, 1.0, 20.0, 22.0]) if draw(st.booleans()) else REALS
    units, packing = draw(st.sampled_from(UNITS)), draw(st.sampled_from(PACKINGS))
    calendar = draw(st.sampled_from(["standard", "standard", "noleap", "360_day"]))
    x = draw(st.permutations([10, 20, 30]))
    types = {name: draw(st.sampled_from(NUMBERS)) for name in ("count", "level")}

    def part(start: int, hours: int, *, other: bool) -> xr.Dataset:
        def changed[T](strategy: st.SearchStrategy[T], value: T) -> T:
            return draw(strategy) if other and draw(rarely) else value

        size = draw(st.integers(1, 3))
        count = draw(
            st.lists(INTEGERS if draw(rarely) else st.integers(0, 100), min_size=size, max_size=size)
        )
        dtype = changed(st.sampled_from(NUMBERS), types["count"])
        real = np.array(draw(st.lists(tame, min_size=size * 3, max_size=size * 3))).reshape(size, 3)
        text = draw(st.lists(st.sampled_from(["a", "bb", "ü", ""]), min_size=size, max_size=size))
        dates = xr.date_range(
            "2000-01-01", periods=start + size, freq=f"{hours}h",
            calendar=changed(st.just("noleap"), calendar),
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
        dataset["real"].encoding = (
            dict(changed(st.sampled_from(PACKINGS), packing)) if not other or draw(rarely) else {}
        )
        dataset["time"].encoding = {"units": changed(st.sampled_from(UNITS), units), "dtype": "i8"}
        if other and draw(rarely):
            dataset = dataset.drop_vars(
                draw(st.sampled_from(["real", "count", "text", "level", "time", "x"]))
            )
        if other and draw(rarely):
            dataset = dataset.transpose()
        if other and draw(rarely):
            dataset = dataset.chunk(dict.fromkeys(draw(st.sampled_from([["time"], ["x"], ["time", "x"]])), 1))
        return dataset

    first = part(0, 24, other=False)
    start = draw(st.sampled_from([first.sizes["time"]] * 4 + [0, first.sizes["time"] + 3]))
    return first, part(start, draw(st.sampled_from([24, 24, 24, 6])), other=True)


@pytest.mark.deep
@given(parts_of_one())
def test_appended_is_what_xarray_concatenates_or_nothing_is_changed(
    parts: tuple[xr.Dataset, xr.Dataset],
) -> None:
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
        assert second.get("real", after["real"]).attrs == after["real"].attrs == before["real"].attrs
        labels = after.indexes["time"]
        assert labels.is_unique
        assert labels.is_monotonic_increasing
