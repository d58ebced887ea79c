"""`frazil.cf`: the values of xarray, and elements that decode as the values that were given."""

from __future__ import annotations

import base64
import re
import struct
import warnings
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import frazil
from frazil.cf import coding_of, decoded, fill_value
from frazil.errors import InvalidInputError
from frazil.pipeline import Finite, Inline, NanShare, Target, coarsen, reduce, validate

STORED: list[tuple[str, dict[str, Any]]] = [
    ("i2", {"_FillValue": -1, "scale_factor": 0.5, "add_offset": 10.0}),
    ("i1", {"_Unsigned": "true"}),
    ("i1", {"_Unsigned": "true", "_FillValue": -1, "scale_factor": 0.5}),
    ("u1", {"_FillValue": 255}),
    ("f4", {"missing_value": 0.1}),
    ("f4", {"_FillValue": "AAAAAAAA8L8="}),  # -1
    ("i4", {"missing_value": -1, "_FillValue": -1}),
    ("i1", {"dtype": "bool"}),  # as xarray writes booleans to NetCDF
]


@pytest.mark.filterwarnings("ignore::frazil.errors.MisalignedGroupWarning")
@pytest.mark.parametrize(("dtype", "attributes"), STORED)
def test_all_see_what_xarray_sees(dtype: str, attributes: dict[str, Any]) -> None:
    stored = np.array([[-1, 0, 1, 2], [100, -1, 3, 4]]).astype(dtype)
    if dtype == "f4":
        stored[0, 1] = 0.1
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="stored") as store:
        array = zarr.create_array(store, name="x", data=stored, chunks=(1, 2), dimension_names=["a", "b"])
        array.attrs.update(attributes)
    packing = dict(attributes)
    if isinstance(packing.get("_FillValue"), str):
        packing["_FillValue"] = fill_value(packing["_FillValue"], stored.dtype)
    if dtype == "f4" and "missing_value" in packing:  # as a float64 it would not be found
        packing["missing_value"] = np.float32(packing["missing_value"])
    expected_variable = xr.conventions.decode_cf_variable("x", xr.Variable(("a", "b"), stored, packing))
    inline = Inline()
    reduce(repo, "x", "b", ["mean", "count"], to=Target(repo, group="r"), engine=inline)
    coarsen(repo, ["x"], {"b": 2}, to=Target(repo, group="c"), engine=inline)
    root: Any = zarr.open_group(repo.readonly_session("main").store, mode="r")
    expected = xr.DataArray(expected_variable).astype("f8")
    np.testing.assert_allclose(root["r/x_mean"][:], expected.mean("b"), rtol=1e-6)
    np.testing.assert_array_equal(root["r/x_count"][:], expected.count("b"))
    np.testing.assert_allclose(root["c/x"][:], expected.coarsen(b=2).mean(), rtol=1e-6)
    assert not root["c/x"].attrs.keys() & attributes.keys()
    share = float(expected.isnull().mean())
    report = validate(repo, [NanShare("x", max=share, min=share), Finite("x", nan=True)], engine=inline)
    assert report.ok, report


def test_a_fill_value_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="got 'none'"):
        fill_value("none", np.dtype("i2"))


# ---- properties --------------------------------------------------------------------------------------

DTYPES = ["i1", "u1", "i2", "u2", ">i2", "i4", "u4", "i8", "u8", "f4", ">f4", "f8"]


def attribute_sets(dtype: np.dtype[Any], *, like_xarray: bool = True) -> st.SearchStrategy[dict[str, Any]]:
    """Attributes that files have for a data type."""
    elements = hnp.from_dtype(dtype, allow_nan=False, allow_infinity=False).map(lambda each: each.item())
    numbers = st.floats(-1e3, 1e3, width=32, allow_subnormal=False).filter(lambda each: abs(each) > 1e-3)
    parts: dict[str, st.SearchStrategy[Any]] = {
        "_FillValue": elements,
        "missing_value": elements | st.lists(elements, min_size=1, max_size=3),
        "scale_factor": numbers,
        "add_offset": numbers,
        "units": st.sampled_from(["K", "1", "m s-1"]),
    }
    if dtype.kind in "iu":
        parts |= {"dtype": st.just("bool")}
    if dtype.kind == "i":
        parts |= {"_Unsigned": st.just("true")}
    if dtype.kind == "u":
        parts |= {"_Unsigned": st.just("false")}
    sets = st.fixed_dictionaries({}, optional=parts)
    if like_xarray:
        # xarray compares such missing values with the wrong numbers, and cannot have fill values of booleans
        return sets.filter(
            lambda each: (
                not {"_Unsigned", "missing_value"} <= each.keys()
                and not ({"dtype", "scale_factor"} <= each.keys() or {"dtype", "add_offset"} <= each.keys())
            )
        )
    return sets


def elements_of(
    data: st.DataObject, dtype: np.dtype[Any], attributes: dict[str, Any]
) -> np.ndarray[Any, Any]:
    """Random elements, with fill values among them."""
    elements = data.draw(hnp.arrays(dtype, hnp.array_shapes(max_dims=2, max_side=4), fill=st.nothing()))
    fills = np.ravel([attributes.get("_FillValue", 0), *np.ravel(attributes.get("missing_value", 0))])
    for at, fill in zip(np.ndindex(elements.shape), fills, strict=False):
        elements[at] = np.asarray(fill).astype(dtype)
    return elements


def by_xarray(elements: np.ndarray[Any, Any], attributes: dict[str, Any]) -> np.ndarray[Any, Any]:
    typed = dict(attributes)
    if elements.dtype.kind == "f":
        for name in {"_FillValue", "missing_value"} & attributes.keys():
            typed[name] = np.asarray(attributes[name], elements.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        variable = xr.Variable([f"d{axis}" for axis in range(elements.ndim)], elements, typed)
        return np.asarray(xr.conventions.decode_cf_variable("x", variable, decode_times=False).values)


@given(st.data(), st.sampled_from(DTYPES).map(np.dtype))
def test_decoded_values_are_those_of_xarray(data: st.DataObject, dtype: np.dtype[Any]) -> None:
    attributes = data.draw(attribute_sets(dtype))
    elements = elements_of(data, dtype, attributes)
    with np.errstate(all="ignore"):
        ours, theirs = decoded(elements, attributes), by_xarray(elements, attributes)
    np.testing.assert_array_equal(ours, theirs)
    if not coding_of(attributes, dtype).is_plain:
        assert ours.dtype == theirs.dtype


@given(st.data(), st.sampled_from(DTYPES).map(np.dtype))
def test_values_come_back_from_their_elements(data: st.DataObject, dtype: np.dtype[Any]) -> None:
    """Decoded values encode to elements that decode equally, missing values included."""
    attributes = data.draw(attribute_sets(dtype, like_xarray=False))
    if dtype.itemsize == 8 and dtype.kind in "iu":  # float64 cannot count them
        attributes = {
            name: each for name, each in attributes.items() if name not in ("scale_factor", "add_offset")
        }
    coding = coding_of(attributes, dtype)
    elements = elements_of(data, dtype, attributes)
    if coding.boolean:
        elements = (elements != 0).astype(dtype)
    with np.errstate(all="ignore"):
        values, missing = coding.decode(elements)
        try:
            again = coding.encode(values, np.zeros(values.shape, bool) if missing is None else missing)
        except InvalidInputError:
            # only numbers near the limits of floats do not come back
            assert dtype.kind == "f"
            assert coding.floating == np.float64
            return
        values_again, missing_again = coding.decode(again)
    assert again.dtype == dtype
    hidden = np.zeros(values.shape, bool) if missing is None else missing
    np.testing.assert_array_equal(hidden, False if missing_again is None else missing_again)
    np.testing.assert_allclose(
        values_again[~hidden], values[~hidden], rtol=1e-5, atol=1e-3 * (dtype.kind == "f")
    )


@given(
    st.sampled_from(["days", "hours", "Minutes", "seconds", "milliseconds", "microsecond", "day", "h"]),
    st.sampled_from(
        ["2000-01-01", "1850-1-1 00:00:0.0", "1900-01-01T06:30:00Z", "2001-02-03 04:05 +01:00", "0001-01-01"]
    ),
    st.sampled_from(
        ["standard", "gregorian", "proleptic_gregorian", "noleap", "365_day", "360_day", "julian", "all_leap"]
    ),
    hnp.arrays(
        st.sampled_from(["i2", "i4", "f8"]).map(np.dtype), 3, elements={"min_value": 0, "max_value": 30_000}
    ),
)
def test_times_are_those_of_xarray_and_come_back(
    unit: str, reference: str, calendar: str, numbers: np.ndarray[Any, Any]
) -> None:
    units = f"{unit} since {reference}"
    attributes = {"units": units, "calendar": calendar}
    coding = coding_of(attributes, numbers.dtype)
    ours, missing = coding.decode(numbers)
    assert missing is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        coder = xr.coders.CFDatetimeCoder(time_unit="us")
        theirs = coder.decode(xr.Variable("t", numbers, attributes)).values
    if theirs.dtype.kind == "M":
        assert np.abs(ours - theirs).max() <= np.timedelta64(8, "us")  # the rounding of days in float64
    else:
        seconds = [(mine - other).total_seconds() for mine, other in zip(ours, theirs, strict=True)]
        assert np.abs(seconds).max() <= 1e-5
    microsecond = {"d": 1 / 86_400, "h": 1 / 3600, "M": 1 / 60, "s": 1, "milli": 1e3, "micro": 1e6}
    tolerance = 1e-6 * next(
        microsecond[start] for start in ("milli", "micro", unit[0]) if unit.startswith(start)
    )
    np.testing.assert_allclose(coding.encode(ours), numbers, rtol=1e-12, atol=max(tolerance, 1e-11))
    if numbers.dtype.kind == "i":
        texts = [each.isoformat() if hasattr(each, "isoformat") else str(each) for each in ours]
        np.testing.assert_array_equal(coding.encode(texts), numbers)


# ---- values that an array cannot hold ------------------------------------------------------------------

PACKED = {"scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -32768}
NAN = base64.b64encode(struct.pack("<d", np.nan)).decode()


@pytest.mark.parametrize(
    ("dtype", "attributes", "value", "nearest"),
    [
        ("i2", PACKED, 290.123, "290.12"),
        ("i2", PACKED, 1000.0, "600.82"),
        ("i2", PACKED, -1000.0, "-54.52"),  # the lowest element means a missing value
        ("i2", PACKED, -54.53, "-54.52"),
        ("i2", PACKED, np.inf, "600.82"),
        ("i2", {"scale_factor": 0.0, "add_offset": 5.0}, 1.0, "5.0"),
        ("i2", {}, 1.5, "2"),
        ("i2", {}, 70_000, "32767"),
        ("u1", {}, -1, "0"),
        ("u8", {}, 1e20, "18446744073709551615"),
        ("i1", {"_Unsigned": "true", "_FillValue": -1}, 256, "254"),
        ("i1", {"_Unsigned": "true", "_FillValue": -1}, 255, "254"),
        ("i1", {"dtype": "bool"}, 2, "True"),
        ("f4", {}, 1e39, "3.4028235e+38"),
        ("f4", {"_FillValue": -999.0}, -999.0, "-998.99994"),
        ("i4", {"units": "days since 2000-01-01"}, "2000-03-01T07", "2000-03-01T00:00:00"),
        (
            "i4",
            {"units": "days since 2000-01-01", "calendar": "noleap"},
            "2000-03-01T07",
            "2000-03-01T00:00:00",
        ),
        ("i4", {"units": "seconds", "dtype": "timedelta64[s]"}, np.timedelta64(1500, "ms"), "2 s"),
        ("M8[D]", {}, "2000-03-01T07", "2000-03-01T00:00:00"),
    ],
)
def test_both_numbers_are_named(dtype: str, attributes: dict[str, Any], value: Any, nearest: str) -> None:
    coding = coding_of(attributes, dtype)
    with pytest.raises(InvalidInputError, match=f"nearest is {re.escape(nearest)}$") as error:
        coding.encode(value)
    assert coding.text(value).rstrip("0") in str(error.value)


@pytest.mark.parametrize(
    ("dtype", "attributes", "value"),
    [
        ("i2", PACKED, "warm"),
        ("i2", {}, None),  # no element is missing
        ("i1", {"dtype": "bool"}, None),
        ("i4", {"units": "days since 2000-01-01", "calendar": "noleap"}, "2000-02-29"),
        ("i4", {"units": "days since 2000-01-01"}, 5),
        ("i4", {"units": "days since 2000-01-01"}, "soon"),
        ("U2", {}, "abc"),
        ("S2", {}, "abc"),
        ("M8[s]", {}, 5),
        ("i4", {"units": "seconds", "dtype": "timedelta64[s]"}, "long"),
    ],
)
def test_other_values_are_refused(dtype: str, attributes: dict[str, Any], value: Any) -> None:
    with pytest.raises(InvalidInputError, match="must"):
        coding_of(attributes, dtype).encode(value)


def test_numbers_between_steps_are_rounded_on_request() -> None:
    coding = coding_of(PACKED, "i2")
    assert coding.encode([290.123, np.nan], nearest=True).tolist() == [1697, -32768]
    with pytest.raises(InvalidInputError, match="nearest"):
        coding.encode(1000.0, nearest=True)


@pytest.mark.parametrize(
    ("dtype", "attributes", "expected"),
    [
        ("i2", {"missing_value": -1, "_FillValue": -2}, -2),
        ("i2", {"missing_value": [-1, -2]}, -1),
        ("i2", {}, None),
        ("i2", {"_FillValue": 1e20}, None),
        ("i1", {"_Unsigned": "true", "_FillValue": 255}, -1),
        ("f4", {}, np.nan),
        ("f4", {"_FillValue": "AAAAAAAA8L8="}, -1),
        ("f4", {"_FillValue": NAN, "missing_value": -9.0}, np.nan),
        ("f8", {"_FillValue": "-Infinity"}, -np.inf),
        ("S1", {"_FillValue": "AA=="}, b"\0"),
        ("U1", {"_FillValue": "x"}, "x"),
        ("b", {}, None),
        ("M8[s]", {}, np.datetime64("NaT")),
    ],
)
def test_the_element_of_a_missing_value(dtype: str, attributes: dict[str, Any], expected: Any) -> None:
    element = coding_of(attributes, dtype).missing_element()
    np.testing.assert_equal(element, expected)
    if element is not None:
        missing = coding_of(attributes, dtype).decode(np.array([element], dtype))[1]
        assert np.isnan(expected) if missing is None else missing.tolist() == [True]


@pytest.mark.parametrize("calendar", ["standard", "noleap"])
def test_missing_times(calendar: str) -> None:
    coding = coding_of({"units": "days since 2000-01-01", "calendar": calendar, "_FillValue": -1}, "i4")
    times, missing = coding.decode(np.array([1, -1], "i4"))
    assert missing is not None
    assert missing.tolist() == [False, True]
    assert coding.text(times[0]) == "2000-01-02T00:00:00"
    assert (
        coding.encode(times).tolist()
        == [1, -1]
        == coding.encode(np.array(["2000-01-02", None], object)).tolist()
    )


def test_missing_elements_of_a_mask_are_not_nan() -> None:
    """A writer of rows can write NaN beside missing values."""
    elements = coding_of({"_FillValue": -9.0}, "f4").encode(
        [np.nan, 1.0, 2.0], np.array([False, True, False])
    )
    np.testing.assert_array_equal(elements, np.array([np.nan, -9, 2], "f4"))


def test_times_in_nanoseconds() -> None:
    coding = coding_of({"units": "nanoseconds since 2000-01-01"}, "i8")
    times = coding.decode(np.array([1, 10**9]))[0]
    assert times.dtype == np.dtype("M8[ns]")
    assert coding.encode(times).tolist() == [1, 10**9]
    with pytest.raises(InvalidInputError, match="range"):
        coding.encode("3000-01-01")
    days = coding_of({"units": "days since 2000-01-01"}, "i4")
    assert days.encode(np.array(["2000-01-03"], "M8[ns]")).tolist() == [2]


def test_masked_arrays() -> None:
    given = np.ma.masked_array([1, 2], [False, True])
    assert coding_of({"_FillValue": -1}, "i2").encode(given).tolist() == [1, -1]


@pytest.mark.parametrize(
    "attributes",
    [
        *({"scale_factor": each} for each in ("0.5", [0.5, 0.5])),
        {"scale_factor": 2.0, "add_offset": "x"},
        *(
            {"units": f"days since {each}", "calendar": "standard"}
            for each in ("1582-10-14", "1501-02-29", "1500-02-30", "1500-13-01")
        ),
    ],
)
def test_what_xarray_refuses_is_refused(attributes: dict[str, Any]) -> None:
    numbers = np.arange(3, dtype="i2")
    with pytest.raises((TypeError, ValueError)):
        xr.decode_cf(xr.Dataset({"a": ("x", numbers, attributes)})).a.load()
    with pytest.raises(InvalidInputError, match=r"must be numbers|units of times"):
        coding_of(attributes, numbers.dtype).decode(numbers)


def test_a_missing_value_that_is_a_text_masks_no_number() -> None:
    numbers = np.arange(3, dtype="i2")
    assert coding_of({"missing_value": "2"}, numbers.dtype).decode(numbers)[1] is None


@pytest.mark.parametrize(
    "attributes", [{"units": "days since 2000-01-01"}, {"units": "days", "dtype": "timedelta64[ns]"}]
)
def test_the_smallest_int64_is_no_time(attributes: dict[str, Any]) -> None:
    """It stands for NaT in the files of xarray, and newer versions read it so."""
    elements = np.array([1, np.iinfo(np.int64).min])
    coding = coding_of(attributes, "i8")
    values, missing = coding.decode(elements)
    assert np.isnat(values).tolist() == [False, True]
    assert missing is not None
    assert missing.tolist() == [False, True]
    assert np.array_equal(coding.encode(values), elements)
    assert coding_of(attributes, "i4").missing_element() is None
