"""What the page copies: lines of code, which run, and files."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from tests.ui.serving import Client, served

import frazil
from frazil.chunks.virtual import VirtualSources
from frazil.cli.main import main
from frazil.repository.target import Target
from frazil.ui.server import Site

pytestmark = pytest.mark.browser

#: Packed temperatures, of which one is missing.
STORED = np.arange(120, dtype="i2").reshape(4, 5, 6)
STORED[1, 2, 3] = -1
#: Integers that numbers of the page do not have in full.
WIDE = np.array([[2**53, 1, 2], [3, 2**60, 5]])
TEXTS = np.array([["a", "b", "c"], ["d", "e", "f"]])
#: Times that numbers of milliseconds do not tell apart: a coordinate, and values along it.
START = np.datetime64("2026-10-24T12:00:00.123456", "us")
MICROSECONDS = START + np.arange(3)
NANOSECONDS = START.astype("M8[ns]") - np.arange(3)
SQUARE = np.arange(9.0).reshape(3, 3)
WAVES = SQUARE * (1 + 2j)
#: Arrays of one dimension or two, by their paths, with the titles of the lines that run for a part of them.
ARRAYS: dict[str, tuple[Any, list[str], set[str]]] = {
    "era5/time": (np.arange(4) * 6, ["time"], {"xarray", "Frazil", "NetCDF"}),
    "square/covariance": (SQUARE, ["x", "x"], {"Frazil"}),
    "square/other": (np.arange(3.0), ["x"], {"xarray", "Frazil", "SQL", "NetCDF"}),
    "sizes/covariance": (SQUARE[:2], ["x", "x"], {"Frazil"}),
    "sizes/other": (np.arange(4.0), ["y"], {"Frazil", "SQL"}),
    "letters/T": (np.arange(3.0), ["t"], {"xarray", "Frazil", "NetCDF"}),
    "letters/waves": (WAVES, ["y", "x"], {"xarray", "Frazil", "SQL"}),
    "empty/line": (np.zeros(0), ["time"], set()),
    "empty/plane": (np.zeros((0, 3)), ["time", "x"], set()),
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = str(tmp_path_factory.mktemp("copy") / "it's ice")
    repo = frazil.Repository.create(folder)
    with repo.transaction("main", message="first") as store:
        group = zarr.create_group(store, path="era5")
        group.create_array(
            "t", data=STORED, chunks=(1, 5, 6), dimension_names=["time", "lat", "lon"]
        ).attrs.update({"scale_factor": 0.1, "_FillValue": -1})
        hours: dict[str, Any] = {"units": "hours since 2020-01-01"}
        group.create_array("time", data=np.arange(4) * 6, dimension_names=["time"], attributes=hours)
        lat = np.linspace(0.1, 0.5, 5, dtype="f4")
        group.create_array("lat", data=lat, dimension_names=["lat"], attributes={"units": "degrees_north"})
        zarr.create_array(store, name="wide", data=WIDE, dimension_names=["y", "x"])
        zarr.create_array(store, name="texts", data=TEXTS, dimension_names=["y", "x"])
        for path, times, unit in (("t", MICROSECONDS, "us"), ("v", NANOSECONDS, "ns")):
            data = (times - np.datetime64("2000-01-01")).astype("i8")
            zarr.create_array(
                store,
                name=f"times/{path}",
                data=data,
                dimension_names=["t"],
                attributes={"units": f"{unit} since 2000-01-01"},
            )
        for path, (data, dims, _) in ARRAYS.items():
            if not path.startswith("era5/"):
                zarr.create_array(store, name=path, data=data, dimension_names=dims)
    with repo.transaction("main", message="second") as store:
        zarr.open_array(store, path="wide")[:] = WIDE + WIDE // 2**53
        zarr.open_array(store, path="era5/t")[1, :3] = STORED[1, :3] + 1
        zarr.create_array(store, name="bare", data=np.arange(3.0))
    storage = frazil.local_filesystem_storage(folder)
    with served(Site(Target(folder), storage, 2, VirtualSources([], {}))) as each:
        yield each


def shown(page: Any, client: Client, address: str) -> None:
    page.goto("about:blank")
    page.goto(client.server.url)
    page.get_by_role("link", name="History").wait_for()
    page.evaluate(f"location.hash = '#/{address}'")
    page.get_by_role("button", name="Copy as…").click()
    page.get_by_role("button", name="CSV").wait_for()


def lines(page: Any, title: str) -> str:
    page.get_by_role("button", name=title, exact=True).click()
    return str(page.get_by_label("Copy as").locator("pre").inner_text())


def table(page: Any) -> list[list[str]]:
    """The file of the button CSV."""
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert download.value.suggested_filename in {"t.csv", "bare.csv", "wide.csv", "texts.csv", "v.csv"}
    return list(csv.reader(Path(download.value.path()).read_text().splitlines()))


def values_of(rows: list[list[str]]) -> list[float]:
    return [float(each[-1] or "nan") for each in rows[1:]]


def run(code: str) -> Any:
    names: dict[str, Any] = {}
    exec(code, names)
    return np.asarray(names["values"], "f8").ravel()


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("i=1,0,0", np.s_[1, :, :]),
        ("i=2,0,0&r1=1-4&r2=2-5", np.s_[2, 1:4, 2:5]),
        ("x=0&y=none&i=0,4,2", np.s_[:, 4, 2]),
        ("x=0&y=1&i=0,0,3", np.s_[:, :, 3]),  # a section
    ],
)
def test_lines_read_what_is_shown(
    page: Any, client: Client, query: str, wanted: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(page, client, f"v/main/era5/t?view=data&proj=grid&{query}")
    stored = STORED.copy()
    stored[1, :3] += 1
    stored[1, 2, 3] = 0
    expected = np.where(stored == -1, np.nan, stored * 0.1)[wanted]
    rows = table(page)
    across = rows[0][:-1]
    dims = [each for each in ("time", "lat", "lon") if each in across]
    plane = xr.DataArray(expected, dims=dims).transpose(*across).values.ravel()
    np.testing.assert_allclose(values_of(rows), plane, rtol=1e-12)
    np.testing.assert_allclose(run(lines(page, "xarray")), expected.ravel(), rtol=1e-12)
    np.testing.assert_array_equal(run(lines(page, "Frazil")), stored[wanted].ravel())
    command = shlex.split(lines(page, "SQL"))
    assert command[:2] == ["frazil", "sql"]
    assert main([*command[1:], "--csv"]) == 0
    answer = list(csv.reader(capsys.readouterr().out.splitlines()))
    np.testing.assert_allclose(sorted(values_of(answer)), sorted(expected.ravel()), rtol=1e-12)


def test_random_parts(page: Any, client: Client) -> None:
    """The values that the page shows are those of xarray, for any axes and any part."""
    random = np.random.default_rng(20)
    for _ in range(6):
        x, y = random.permutation(3)[:2]
        low = [int(random.integers(0, length)) for length in STORED.shape]
        high = [int(random.integers(at + 1, n + 1)) for at, n in zip(low, STORED.shape, strict=True)]
        parts = "".join(f"&r{d}={low[d]}-{high[d]}" for d in (x, y))
        index = ",".join(map(str, low))
        shown(page, client, f"v/main/era5/t?view=data&proj=grid&x={x}&y={y}&i={index}{parts}")
        rows = table(page)
        read = run(lines(page, "xarray")).reshape([high[d] - low[d] if d in (x, y) else 1 for d in range(3)])
        plane = read.transpose(y, x, 3 - x - y).ravel()
        np.testing.assert_allclose(values_of(rows), plane, rtol=1e-12, err_msg=index + parts)
        assert rows[0] == [("time", "lat", "lon")[y], ("time", "lat", "lon")[x], "t"]


def test_wide_integers(page: Any, client: Client) -> None:
    shown(page, client, "v/main/wide?view=data&x=0&y=1")
    assert [int(each[-1]) for each in table(page)[1:]] == (WIDE + WIDE // 2**53).T.ravel().tolist()
    shown(page, client, "diff/main~1/main/wide?view=data")
    page.get_by_text("2 of 6 values differ; mean of the values that differ +64.5").wait_for()
    assert [int(each[-1]) for each in table(page)[1:]] == (WIDE // 2**53).ravel().tolist()


def test_wide_integers_under_the_pointer(page: Any, client: Client) -> None:
    shown(page, client, "v/main/wide?view=data&x=1&y=0")
    for key in ("ArrowRight", "ArrowLeft"):
        page.locator(".image").press(key)
    page.locator(".readout").get_by_text("x 0, y 0: 9007199254740993", exact=True).wait_for()


def test_complex_numbers(page: Any, client: Client) -> None:
    """The page shows both parts, and draws the modulus."""
    shown(page, client, "v/main/letters/waves?view=data&p=1.2&along=0")
    page.locator(".image").press("ArrowRight")
    page.locator(".readout").get_by_text("x 1, y 0: 1+2i", exact=True).wait_for()
    page.get_by_text("Values of 1 point").click()
    assert page.locator("details table.values td").all_inner_texts()[1:] == ["2+4i", "5+10i", "8+16i"]
    shown(page, client, "v/main/letters/waves?view=data&show=table")
    parts = [f"{real:g}+{2 * real:g}i" for real in SQUARE.ravel()]
    assert page.locator("table.values td").all_inner_texts()[1:] == parts
    page.evaluate("location.hash = '#/v/main/letters/waves?view=chunks&cell=0,0'")
    page.get_by_role("group", name="First values").wait_for()
    assert page.get_by_role("group", name="First values").locator("td").all_inner_texts() == parts


def test_times_finer_than_milliseconds(page: Any, client: Client) -> None:
    """Texts as numpy writes them, with a space."""
    shown(page, client, "v/main/times/v?view=data")
    texts = [[str(each).replace("T", " ") for each in times] for times in (MICROSECONDS, NANOSECONDS)]
    assert table(page) == [["t", "v"], *map(list, zip(*texts, strict=True))]
    page.get_by_role("combobox", name="Show").select_option("table")
    cells = page.locator("table.values").first
    cells.wait_for()
    assert cells.inner_text().split("\n") == ["\t".join(each) for each in zip(*texts, strict=True)]


@pytest.mark.parametrize(("axes", "expected"), [("x=0&y=1", TEXTS.T), ("x=1&y=0", TEXTS)])
def test_texts_along_any_axes(page: Any, client: Client, axes: str, expected: Any) -> None:
    shown(page, client, f"v/main/texts?view=data&{axes}")
    assert [each[-1] for each in table(page)[1:]] == expected.ravel().tolist()


@pytest.mark.filterwarnings("ignore:Duplicate dimension names:UserWarning")
@pytest.mark.parametrize("path", ARRAYS)
def test_only_lines_that_run(
    page: Any, client: Client, path: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    data, dims, titles = ARRAYS[path]
    part = tuple(slice(1, 3) if n > 2 else slice(0, n) for n in data.shape)
    query = "".join(f"&r{d}={each.start}-{each.stop}" for d, each in enumerate(part))
    shown(page, client, f"v/main/{path}?view=data{query}")
    every = ["xarray", "Frazil", "SQL", "NetCDF"]
    buttons = {each for each in every if page.get_by_role("button", name=each, exact=True).count()}
    assert buttons == titles
    for title in buttons - {"SQL"}:
        names: dict[str, Any] = {}
        exec(lines(page, title), names)
        values = np.asarray(names["values"])
        if values.dtype.kind == "M":
            values = (values - np.datetime64("2020-01-01")) // np.timedelta64(1, "h")
        np.testing.assert_array_equal(values, data[part])
    if "SQL" in buttons:
        assert main([*shlex.split(lines(page, "SQL"))[1:], "--csv"]) == 0
        answer = list(csv.reader(capsys.readouterr().out.splitlines()))
        assert answer[0] == [*dims, path.split("/")[-1]]
        if data.dtype.kind == "f":
            assert values_of(answer) == data[part].ravel().tolist()


def test_difference_and_files(page: Any, client: Client, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    shown(page, client, "diff/main~1/main/era5/t?view=data&proj=grid&i=1,0,0")
    change = run(lines(page, "xarray"))
    np.testing.assert_allclose(change[:12], 0.1, rtol=1e-9)
    np.testing.assert_array_equal(change[18:], 0)
    np.testing.assert_allclose(values_of(table(page))[:12], 0.1, rtol=1e-9)
    assert page.get_by_role("button", name="SQL").count() == 0
    run(lines(page, "NetCDF"))
    with xr.open_dataset(tmp_path / "t.nc", engine="h5netcdf") as data:
        np.testing.assert_allclose(data["t"].values.ravel(), change, rtol=1e-9)
    with page.expect_download() as download:
        page.get_by_role("button", name="PNG").click()
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")


def test_array_without_names_of_dimensions(page: Any, client: Client) -> None:
    """xarray opens no group with such an array, and SQL has no column for its dimension."""
    shown(page, client, "v/main/bare?view=data")
    assert [page.get_by_role("button", name=each).count() for each in ("xarray", "NetCDF", "SQL")] == [0] * 3
    np.testing.assert_array_equal(run(lines(page, "Frazil")), [0, 1, 2])
    assert re.fullmatch(r"http://.*#/v/main/bare\?view=data", lines(page, "Link"))
