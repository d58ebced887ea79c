"""One array with an encoding of CF goes through every face that shows or takes values, and all agree."""

from __future__ import annotations

import base64
import json
import shlex
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import zarr

import frazil
from frazil.cf import coding_of
from frazil.cli.main import main

xr = pytest.importorskip("xarray")
pytest.importorskip("cftime")

type Run = Callable[..., str]
LATITUDES = [10.0, 20.0, 30.0]
DAYS = ["2001-02-27", "2001-02-28", "2001-03-01", "2001-03-02"]


class Case(NamedTuple):
    """An array, and for one of its cells a new value: as text, its element, and a text that is refused."""

    dtype: str
    attributes: dict[str, Any]
    elements: Any
    text: str
    element: Any
    refused: str = ""


def grid(*first: Any) -> list[list[Any]]:
    """Four rows of three cells, with the given elements first and last."""
    return [[*first][:3], [1, 2, 3], [4, 5, 6], [7, 8, first[0]]]


BOOLEANS = [[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]]
CASES = {
    "packed": Case(
        "i2",
        {"scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -32768, "units": "K"},
        [[1200, -32768, 1500], [1, 2, 3], [-32768, -500, 6], [7, 8, 9]],
        "290.12",
        1697,
        "290.123",
    ),
    "unsigned": Case(
        "i1", {"_Unsigned": "true", "_FillValue": -1, "units": "1"}, grid(-2, -1, 100), "253", -3, "255"
    ),
    "offset": Case("i4", {"add_offset": 100.0, "missing_value": 9}, grid(-9, 9, 8), "-7", -107, "0.25"),
    "float": Case(
        "f4",
        {"_FillValue": base64.b64encode(struct.pack("<d", -999.0)).decode(), "units": "mm"},
        grid(0.5, -999.0, 1.25),
        "281.3",
        np.float32(281.3),
        "1e39",
    ),
    "boolean": Case("i1", {"dtype": "bool"}, BOOLEANS, "false", 0, "2"),
    "time": Case(
        "i4",
        {"units": "hours since 2000-01-01", "_FillValue": -9},
        grid(24, -9, 7),
        "2000-01-02T03:00:00",
        27,
        "2000-01-02T03:30",
    ),
    "noleap": Case(
        "f8",
        {"units": "days since 2000-01-01", "calendar": "noleap"},
        grid(59, 58, 59.5),
        "2000-03-01T06:00:00",
        59.25,
        "2000-02-29",
    ),
    "datetime64": Case(
        "M8[s]",
        {},
        grid(86_400, 5, 0),
        "2024-03-01",
        np.datetime64("2024-03-01", "s"),
        "2024-03-01T00:00:00.5",
    ),
    "timedelta": Case(
        "i8", {"units": "seconds", "dtype": "timedelta64[s]"}, grid(90, 5, 0), "1.5 minutes", 90, "0.5 s"
    ),
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def text_of(line: str, status: int = 0) -> str:
        assert main(shlex.split(line)) == status, capsys.readouterr()
        captured = capsys.readouterr()
        return captured.out if status == 0 else captured.err

    return text_of


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """The current folder has the repository `r` with the array `v`, times of model years, and `lat`."""
    case = CASES[request.param]
    monkeypatch.chdir(tmp_path)
    repo = frazil.Repository.create(frazil.local_filesystem_storage("r"))
    with repo.transaction("main", message="create") as store:
        zarr.create_array(
            store,
            name="v",
            data=np.array(case.elements).astype(case.dtype),
            chunks=(2, 3),
            dimension_names=["time", "lat"],
            attributes=case.attributes,
        )
        coordinates: list[tuple[str, Any, dict[str, Any]]] = [
            ("time", np.arange(57, 61, dtype="i4"), {"units": "days since 2001-01-01", "calendar": "noleap"}),
            ("lat", np.array(LATITUDES), {"units": "degrees_north"}),
        ]
        for name, data, attributes in coordinates:
            zarr.create_array(store, name=name, data=data, dimension_names=[name], attributes=attributes)
    repo.create_tag("v1", "main")
    return case


def opened() -> frazil.Repository:
    return frazil.Repository.open(frazil.local_filesystem_storage("r"))


def by_xarray() -> Any:
    """The values that xarray decodes, in the form that JSON has."""
    coder = xr.coders.CFDatetimeCoder(time_unit="us")
    store = opened().readonly_session("main").store
    with xr.open_zarr(store, consolidated=False, decode_times=coder) as data:
        values = data["v"].values
    flat = [None if each is None or each != each else plain(each) for each in values.reshape(-1)]
    return np.array(flat, object).reshape(values.shape)


def plain(value: Any) -> Any:
    """One value as JSON has it: times as ISO text, durations as seconds."""
    if isinstance(value, np.datetime64):
        return str(value.astype("M8[s]"))
    if isinstance(value, np.timedelta64):
        return f"{value / np.timedelta64(1, 's'):g} s"
    return value.isoformat() if hasattr(value, "isoformat") else value.item()


def as_json(text: str) -> Any:
    """A text of a line as JSON has the value."""
    try:
        return json.loads(text.lower())
    except json.JSONDecodeError:
        return text


def same(values: Any, expected: Any) -> None:
    values = np.asarray(values, object)
    assert values.shape == expected.shape
    for mine, other in zip(values.reshape(-1).tolist(), expected.reshape(-1).tolist(), strict=True):
        assert mine == (pytest.approx(other, rel=1e-6) if isinstance(other, float) else other)


def document(run: Run, line: str) -> Any:
    return json.loads(run(f"{line} --json"))


def test_every_face_shows_the_values_of_xarray(case: Case, run: Run) -> None:
    expected = by_xarray()
    session = opened().readonly_session("main")
    # Python
    array = frazil.Array(session, "/v")
    np.testing.assert_array_equal(array[...], np.array(case.elements).astype(case.dtype))  # raw, as in zarr
    coding = coding_of(case.attributes, case.dtype)
    values, missing = coding.decode(array[...])
    hidden = np.zeros(values.shape, bool) if missing is None else missing
    flat = [
        None if lost else plain(each)
        for each, lost in zip(values.reshape(-1), hidden.reshape(-1), strict=True)
    ]
    same(np.array(flat, object).reshape(values.shape), expected)
    # the command line
    shown = document(run, "cat r:v")
    same(shown["values"], expected)
    is_time = coding.is_time
    assert shown["units"] == (None if is_time else case.attributes.get("units"))
    assert shown["coordinates"] == {"time": [f"{day}T00:00:00" for day in DAYS], "lat": LATITUDES}
    raw = document(run, "cat r:v --raw")["values"]
    if coding.dtype.kind != "M":
        np.testing.assert_array_equal(raw, np.array(case.elements).astype(case.dtype))
    lines = [line.split() for line in run("cat r:v").splitlines()]
    assert lines[-4][0] == DAYS[0]
    texts = np.array([line[1:] for line in lines[-4:]])
    if texts.shape == expected.shape:  # a duration is two words
        numbers = [None if each in ("NaN", "NaT") else as_json(each) for each in texts.reshape(-1).tolist()]
        same(np.array(numbers, object).reshape(expected.shape), expected)
    one = document(run, "cat r:v time=2001-03-01,lat=20")
    same(one["values"], np.array(expected[2, 1], object))
    history = document(run, "history r:v 2,1")
    same([each["value"] for each in history], expected[2:3, 1])


def test_a_value_is_set_and_set_back(case: Case, run: Run) -> None:
    before = by_xarray()
    where = "time=2001-03-01,lat=20"
    run(f"set r:v {where} {shlex.quote(case.text)} -m change")
    array = frazil.Array(opened().readonly_session("main"), "/v")
    assert array[2, 1] == case.element
    after = by_xarray()
    assert after[2, 1] is not None
    text = run(f"cat r:v {where}").strip()
    assert [each["change"] for each in document(run, f"history r:v {where}")] == ["changed", "created"]
    assert [each["change"] for each in document(run, "history r:v 2,0")] == ["unchanged", "created"]
    # differences
    report = opened().history.diff_values("v", from_tag="v1", to_branch="main")
    assert (report.changed, report.cells) == (1, 12)
    shown = document(run, "diff r@v1 main --values")["values"][0]
    assert (shown["changed"], shown["units"]) == (1, report.units)
    ends = before[2, 1], after[2, 1]
    if all(isinstance(each, int | float) for each in ends):
        assert report.mean == pytest.approx(float(ends[1]) - float(ends[0]))
        assert shown["max"] == pytest.approx(abs(report.mean))
    # back
    units = document(run, "cat r:v")["units"]
    old = "NaN" if before[2, 1] is None else str(before[2, 1])
    run(f"set r:v {where} {shlex.quote(old)}")
    np.testing.assert_array_equal(
        frazil.Array(opened().readonly_session("main"), "/v")[...], np.array(case.elements).astype(case.dtype)
    )
    assert (units or "") in text
    if case.refused:
        tip = opened().lookup_branch("main")
        assert "must have" in run(f"set r:v {where} {shlex.quote(case.refused)}", 1)
        assert opened().lookup_branch("main") == tip


def test_missing_values_are_set(case: Case, run: Run) -> None:
    coding = coding_of(case.attributes, case.dtype)
    if coding.missing_element() is None:
        assert "missing values" in run("set r:v 0,0 NaN", 1)
        return
    run("set r:v 1,:2 '[null, NaN]'")
    if case.attributes.get("calendar") is None:  # xarray reads NaN as a date of cftime
        assert by_xarray()[1, :2].tolist() == [None, None]
    assert document(run, "cat r:v 1,:2")["values"] == [None, None]
    run("set r:v 0,: NaN")
    assert document(run, "cat r:v 0")["values"] == [None] * 3


def test_ascending_latitudes_are_drawn_with_north_at_the_top(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    repo = frazil.Repository.create(frazil.local_filesystem_storage("r"))
    with repo.transaction("main", message="create") as store:
        values = np.array([[10] * 4, [20] * 4, [30] * 4], "i2")
        attributes: dict[str, Any] = {"scale_factor": 0.5, "units": "m"}
        zarr.create_array(store, name="v", data=values, dimension_names=["lat", "lon"], attributes=attributes)
        zarr.create_array(store, name="lat", data=np.array(LATITUDES), dimension_names=["lat"])
    picture = ["@@@@", "++++", "....", "5 to 15 m, 3 x 4 values, north at the top"]
    assert run("cat r:v --plot").splitlines() == picture
