"""`frazil set` and `frazil history`: values that change, and who changed them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import frazil
from frazil.xarray import to_icechunk

Run = Callable[..., str]


def test_the_author_of_upkeep(own: Path, run: Run) -> None:
    storage = frazil.local_filesystem_storage("files")
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = frazil.Repository.create(storage, config)
    with repo.transaction("main", message="create") as store:
        zarr.create_array(store, name="a", shape=(40,), chunks=(4,), dtype="i4")
    for number in range(10):
        with repo.transaction("main", message=str(number)) as store:
            zarr.open_array(store, path="a")[4 * number :] = number + 1
    run("compact files --author Ada")
    assert next(repo.ancestry(branch="main")).metadata["author"] == "Ada"
    for each in list(storage.list("chunks/")):
        storage.delete([each.key])
    run("repair files --lost fill --yes --author Grace", 1)  # older versions stay damaged
    assert next(repo.ancestry(branch="main")).metadata["author"] == "Grace"


@pytest.mark.parametrize(
    ("status", "line", "message"),
    [
        (2, "set ice:era5/t 0 '[1, 2]'", "must fit the shape [3]"),
        (2, "set ice:era5/t 0 '[[1], [2, 3]]'", "must fit the shape [3]"),
        (2, "set ice:era5/t 9,0 1", "the array has the shape [4, 3]"),
        (2, "set ice:era5/t a,0 1", "must be indices and slices such as 0,:4,::2, or labels"),
        (2, "set ice 0 1", "name an array"),
        (2, "blame ice", "name an array"),
        (2, "history ice:era5/t :,0", "name one cell"),
        (2, "cat ice:era5/t time=1 x=2", "Join the parts of a selection with commas: time=1,x=2"),
        (2, "cat ice:era5/t lat=2", "no dimension lat in /era5/t: its dimensions have time, x"),
        (1, "cat ice:era5/t time=12", "must be labels of `/era5/time`, got 12: the nearest label is 3 "),
        (1, "set ice:era5/t 0,0 warm", "/era5/t must have numbers, got warm"),
        (1, "set ice:era5/time 0 1.5", "/era5/time must have values of int64, got 1.5: the nearest is 2"),
    ],
)
def test_wrong_values(status: int, line: str, message: str, beside: Path, run: Run) -> None:
    assert message in run(line, status)


@pytest.mark.parametrize(
    ("selection", "values"),
    [
        ("time=2026-11-01T06..,lat=20", [4, 7]),
        ("time=..2026-11-01T06,lat~17", [1, 4]),
        ("time~2026-11-01T07,lat=10..20", [4, 5]),
        ("time~2026-11-01T07,lat=20..", [3, 4]),  # the labels descend
        ("time=2026-11-01T06,lat=..25", [4, 5]),
    ],
)
def test_labels_by_range_and_by_nearest(selection: str, values: list[int], own: Path, run: Run) -> None:
    times = np.array(["2026-11-01T00", "2026-11-01T06", "2026-11-01T12"], "datetime64[ns]")
    data = xr.Dataset(
        {"t": (("time", "lat"), np.arange(9).reshape(3, 3))}, {"time": times, "lat": [30.0, 20.0, 10.0]}
    )
    session = frazil.Repository.create("grid").writable_session("main")
    to_icechunk(data, session)
    session.commit("a grid")
    assert json.loads(run(f"cat grid:t {selection} --json"))["values"] == values
    assert "no label of lat in /t is in the range 11..19" in run("cat grid:t lat=11..19", 2)


@pytest.fixture
def earth(own: Path) -> frazil.Repository:
    """Fields on a grid of the whole Earth, on a region across Greenwich, and on longitudes as float32."""
    repo = frazil.Repository.create("earth")
    east = {"units": "degrees_east"}
    with repo.transaction("main", message="grids") as store:
        for name, longitudes in (
            ("globe", np.arange(0.0, 360, 60)),
            ("west", np.arange(180.0, -180, -60)),
            ("region", np.arange(-15.0, 21, 5)),
            ("single", np.array([30.1], "f4")),
            ("cut", np.array([350.0, 355, 0, 5, 10])),
            ("closed", np.array([0.0, 1, 5, 20, 360])),
        ):
            data = xr.Dataset(
                {"t": ("lon", np.round(longitudes.astype(float) % 360, 1))},
                {"lon": ("lon", longitudes, east)},
            )
            data.to_zarr(store, group=name, consolidated=False, zarr_format=3)
    return repo


@pytest.mark.parametrize(
    ("selection", "values"),
    [
        ("globe:lon~-60", 300),
        ("globe:lon~659", 300),
        ("globe:lon~331", 0),
        ("globe:lon=-60", 300),
        ("globe:lon=-120..-60", [240, 300]),
        ("globe:lon=-60..60", [300, 0, 60]),
        ("globe:lon=-180..180", [0, 60, 120, 180, 240, 300]),
        ("west:lon~240", 240),
        ("west:lon=300", 300),
        ("west:lon=60..120", [120, 60]),
        ("region:lon~355", 355),
        ("region:lon~22.5", 20),
        ("region:lon~-60~50", 345),
        ("region:lon=350..-5", [350, 355]),
        ("single:lon=30.1", 30.1),
        ("single:lon~30.1", 30.1),
        ("single:lon=390.1", 30.1),
        ("single:lon~31~1", 30.1),
        ("cut:lon~-2", 0),
        ("cut:lon~372", 10),
        ("globe:lon~30", 60),
        ("globe:lon~330", 0),
        ("closed:lon~0.4", 0),
        ("cut:lon~150", None),
        ("cut:lon~180", None),
        ("closed:lon~-4", None),
        ("region:lon~50", None),
        ("region:lon~-60", None),
        ("region:lon~-60~10", None),
        ("region:lon=-60", None),
        ("single:lon~30.2", None),
        ("single:lon=NaN", None),
    ],
)
def test_a_longitude_is_one_place(selection: str, values: Any, earth: frazil.Repository, run: Run) -> None:
    grid, cells = selection.split(":")
    if values is None:
        assert "lon" in run(f"cat earth:{grid}/t {cells}", 1)
        assert run(f"set earth:{grid}/t {cells} 7 --yes", 1)
        return
    assert json.loads(run(f"cat earth:{grid}/t {cells} --json"))["values"] == values
    if "~" in cells:
        label, value = run(f"cat earth:{grid}/t {cells}").splitlines()
        assert float(label.removeprefix("lon=")) % 360 == float(value)
        before = earth.lookup_branch("main")
        assert f"/{grid}/t at {label}" in run(f"set earth:{grid}/t {cells} 7", 3)
        assert earth.lookup_branch("main") == before
        assert f"/{grid}/t at {label}: {value} -> 7" in run(f"set earth:{grid}/t {cells} 7 --yes")
        assert f"/{grid}/t at {label}" in run(f"history earth:{grid}/t {cells}")


def test_bounds_have_the_calendar_of_their_coordinate(own: Path, run: Run) -> None:
    times = (
        "time",
        [58.5, 59.5],
        {"units": "days since 2001-01-01", "calendar": "noleap", "bounds": "edges"},
    )
    bounds = ("time", "nv"), np.array([[58.0, 59], [59, 60]])
    repo = frazil.Repository.create("bounds")
    with repo.transaction("main", message="bounds") as store:
        data = xr.Dataset({"edges": bounds, "time": times}).set_coords("time")
        data.to_zarr(store, consolidated=False, zarr_format=3)
    assert run("cat bounds:edges 0").splitlines()[-1].split()[-1] == "2001-03-01"
    run("set bounds:edges 1,1 2001-03-04")
    assert run("cat bounds:edges 1,1") == "2001-03-04\n"
    assert run("cat bounds:edges 1,1 --raw") == "62.0\n"


def test_a_time_outside_of_the_axis_has_no_nearest_label(own: Path, run: Run) -> None:
    times = {"a": np.arange("2000-01-16", "2000-01-19", dtype="M8[D]").astype("M8[ns]")}
    noleap = ("time", [58.0, 59.0], {"units": "days since 2001-01-01", "calendar": "noleap"})
    session = frazil.Repository.create("years").writable_session("main")
    to_icechunk(xr.Dataset({"t": ("time", [1, 2, 3])}, {"time": times["a"]}), session, group="a")
    to_icechunk(xr.Dataset({"t": ("time", [1, 2])}, {"time": noleap}), session, group="b")
    session.commit("times")
    for group, time, value in (
        ("a", "2000-01-16T13", 2),
        ("a", "2000-01-15T12", 1),
        ("a", "1850-01-01", None),
        ("a", "2000-01-15", None),
        ("a", "2000-01-15~1 day", 1),
        ("b", "2001-03-01T11", 2),
        ("b", "2001-03-02", None),
        ("b", "2001-03-02~30 hours", 2),
    ):
        shown = run(["cat", f"years:{group}/t", f"time~{time}", "--json"], 1 if value is None else 0)
        assert "within" in shown if value is None else json.loads(shown)["values"] == value, time


@pytest.mark.parametrize(
    ("selection", "values"),
    [
        ("time=2001-02-28,j=1,i=2", 6),
        ("time=2001-02-28,j=0..1,i=-1", [3, 7]),
        ("time~2001-03-01T10,j=..0,i=2..-1", [10, 11]),
        ("time~2001-02-28,j~1", [4, 5, 6, 7]),
    ],
)
def test_labels_of_curvilinear_grids_in_a_calendar_without_leap_days(
    selection: str, values: object, own: Path, run: Run
) -> None:
    """The rows and columns of the grid have no coordinates: their labels are indices."""
    time = ("time", [58.5, 59.5], {"units": "days since 2001-01-01", "calendar": "noleap"})
    numbers = np.arange(16).reshape(2, 2, 4)
    numbers[0] = np.arange(8).reshape(2, 4)
    session = frazil.Repository.create("ocean").writable_session("main")
    to_icechunk(xr.Dataset({"t": (("time", "j", "i"), numbers)}, {"time": time}), session)
    session.commit("a grid")
    assert json.loads(run(f"cat ocean:t {selection} --json"))["values"] == values
    assert "within the 2 elements" in run("cat ocean:t j=2", 1)
    assert "calendar noleap, got 2001-02-29" in run("cat ocean:t time~2001-02-29", 1)


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [("c8", "1+2j", "(1+2j)"), ("c16", "(0.1-2j)", "(0.1-2j)"), ("S4", "né", "né"), ("S4", "ab", "ab")],
)
def test_values_of_complex_and_byte_types(dtype: str, value: str, text: str, own: Path, run: Run) -> None:
    repo = frazil.Repository.create("types")
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(store, name="a", shape=(2,), dtype=dtype)
    run(f"set types:a 1 '{value}'")
    assert run("cat types:a 1") == f"{text}\n"
    assert text in run(f"set types:a 0 '{text}'")  # as `cat` prints it
    assert run("set types:a 0 5j,", 1 if dtype[0] == "c" else 0)


def test_a_history_tells_values_apart(repo: frazil.Repository, run: Run) -> None:
    """The value can also change with the attributes, in a commit that writes no chunk."""
    with repo.transaction("main", message="other cell") as store:
        zarr.open_array(store, path="era5/t")[0, 1] = 5
    for number in range(3):
        with repo.transaction("main", message=f"attributes {number}") as store:
            attributes = {"note": number, "scale_factor": 2.0 if number else 1.0}
            zarr.open_array(store, path="era5/t").attrs.update(attributes)
    rows = json.loads(run("history ice:era5/t 0,0 --json"))
    assert [(each["message"], each["change"], each["value"]) for each in rows] == [
        ("attributes 1", "attributes", 18.0),
        ("other cell", "unchanged", 9.0),
        ("Correct the first step", "changed", 9.0),
        ("Create the arrays", "created", 0.0),
    ]
    rows = json.loads(run("history ice:era5/t 0,0 --json --raw"))
    assert [each["change"] for each in rows] == ["unchanged", "changed", "created"]
    assert run("history ice:era5/t 0,0").splitlines()[0].split()[3:5] == ["attributes", "18.0"]


def test_a_history_of_an_array_without_dimensions_or_elements(repo: frazil.Repository, run: Run) -> None:
    for value in (7, 8):
        with repo.transaction("main", message=f"write {value}") as store:
            zarr.create_array(store, name="s", shape=(), dtype="i4", overwrite=True)[...] = value
            zarr.create_array(store, name="none", shape=(0,), dtype="i4", overwrite=True)
    assert "8" in run("history ice:s").splitlines()[0]
    assert "too many indices" in run("history ice:s 0", 2)
    assert "the shape [0]: index 0 is out of bounds" in run("history ice:none 0", 2)
    assert "the shape [0], and the selection the shape [0]" in run("history ice:none", 2)
    assert "too many indices" in run("history ice:era5/t 0,0,0", 2)


def test_shapes_and_new_cells(repo: frazil.Repository, run: Run) -> None:
    repo.create_tag("now", "main")
    with repo.transaction("main", message="grow") as store:
        zarr.open_array(store, path="era5/t").resize((6, 3))
    assert run("diff ice@now") == "~ array /era5/t  [4, 3] -> [6, 3]\n"
    document = json.loads(run("diff ice@now --values --json"))
    assert document["shapes"] == {"/era5/t": {"from": [4, 3], "to": [6, 3]}}
    assert [(each["changed"], each["new_cells"]) for each in document["values"]] == [(0, 6)]
    assert "/era5/t: 0 of 12 values differ, 6 new cells" in run("diff ice@now --values")
    assert "--values" in run("diff ice@now --raw", 2)


def test_values_that_a_codec_changes_are_refused(own: Path, run: Run) -> None:
    repo = frazil.Repository.open(frazil.local_filesystem_storage("ice"))
    numcodecs = pytest.importorskip("zarr.codecs.numcodecs")
    with repo.transaction("main", message="rounded") as store:
        zarr.create_array(
            store, name="rounded", shape=(3,), dtype="f4", filters=[numcodecs.BitRound(keepbits=2)]
        )
    tip = repo.lookup_branch("main")
    assert "got 1.3, which reads as 1.25" in run("set ice:rounded 1 1.3", 1)
    assert repo.lookup_branch("main") == tip


def test_numbers_that_json_lacks_are_null(repo: frazil.Repository, run: Run) -> None:
    run("set ice:era5/t 0,0 nan")

    def refuse(name: str) -> None:
        pytest.fail(f"JSON has no {name}")

    document = json.loads(run("diff ice@main~1:era5/t --values --json"), parse_constant=refuse)
    assert document["values"][0]["changed"] == 1
    assert document["values"][0]["mean"] is None
