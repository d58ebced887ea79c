"""The histograms of a commit have the counts of numpy over the values of the chunks that it wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.ui.serving import hosted

import frazil
from frazil.cli.main import main

pytestmark = pytest.mark.browser

BINS, MOST_CHUNKS = 12, 8
SHAPE, CHUNKS = (40, 6), (2, 6)
PACKING = {"scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768, "units": "K"}
FLAGS = {"flag_values": [0, 1, 2], "flag_meanings": "sea land ice"}

ATTRIBUTES: dict[str, dict[str, Any]] = {"packed": PACKING, "flags": FLAGS, "warmth": {"units": "K"}}


def versions(name: str) -> list[np.ndarray]:
    """The stored elements of an array before and after the second commit, which changes the first rows."""
    random = np.random.default_rng(len(name))
    elements = {
        "packed": random.integers(-3000, 3000, SHAPE).astype("i2"),
        "holes": random.normal(5, 2, SHAPE).astype("f4"),
        "flags": random.integers(0, 4, SHAPE).astype("u1"),
        "even": np.full(SHAPE, 7.0),
        "many": np.arange(240.0).reshape(SHAPE),
        "warmth": random.normal(280, 9, SHAPE),
    }[name]
    missing = {"packed": -32768, "holes": np.nan}.get(name)
    if missing is not None:
        elements[random.random(SHAPE) < 0.2] = missing
    later = elements.copy()
    later[: 24 if name == "many" else 6] = random.permuted(elements, axis=0)[: 24 if name == "many" else 6]
    if name == "holes":
        later[0, :4] = [1e3, np.inf, np.nan, -np.inf]
    if name == "warmth":
        later -= 273.15
    return [elements, later]


NAMES = ("packed", "holes", "flags", "even", "many", "warmth")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("histograms")
    repo = frazil.Repository.create(str(folder / "ice"))
    with repo.transaction("main", message="first values") as store:
        root = zarr.create_group(store)
        for name in NAMES:
            array = root.create_array(name, data=versions(name)[0], chunks=CHUNKS, dimension_names=["y", "x"])
            array.attrs.update(ATTRIBUTES.get(name, {}))
        root.create_array("text", data=np.array(["a", "b"]), chunks=(1,))
        root.create_array("wide", shape=(2_000_000,), chunks=(1_000_000,), dtype="f4")
    with repo.transaction("main", message="other values") as store:
        for name in NAMES:
            rows = 24 if name == "many" else 6
            zarr.open_array(store, path=name)[:rows] = versions(name)[1][:rows]
        zarr.open_array(store, path="warmth").attrs["units"] = "degC"
        zarr.open_array(store, path="text")[0] = "c"
        zarr.open_array(store, path="wide")[:3] = 1.0
        zarr.open_group(store).create_array("new", data=np.arange(4.0), chunks=(4,))
    assert main(["ui", str(folder / "ice"), "--static", str(folder / "page")]) == 0
    with hosted(folder) as url:
        yield f"{url}page/index.html#/history"


def rows_of(page: Any, name: str) -> list[list[str]]:
    table = page.get_by_label(f"Values of /{name}", exact=True).get_by_role("table")
    table.wait_for()
    return [row.locator("td").all_inner_texts() for row in table.get_by_role("row").all()]


def expected(name: str, decode: Any) -> list[list[str]]:
    """The counts of numpy, and what is missing or NaN."""
    chunks = [at * 12 // MOST_CHUNKS for at in range(MOST_CHUNKS)] if name == "many" else range(3)
    rows = [2 * chunk + row for chunk in chunks for row in range(2)]
    sides = [side[rows].ravel() for side in versions(name)]
    missing = [int(np.sum(side == -32768)) if name == "packed" else 0 for side in sides]
    nan = [int(np.isnan(side.astype("f8")).sum()) for side in sides]
    values = [decode(side) for side in sides]
    finite = np.concatenate(values)
    finite = finite[np.isfinite(finite)]
    ends = (float(finite.min()), float(finite.max()))
    counts = [np.histogram(side[np.isfinite(side)], bins=BINS, range=ends)[0] for side in values]
    return [
        *([str(one), str(other)] for one, other in zip(*counts, strict=True)),
        [str(each) for each in missing],
        [str(each) for each in nan],
        [str(int(np.isinf(side.astype("f8")).sum())) for side in sides],
    ]


def unpacked(side: np.ndarray) -> np.ndarray:
    return np.where(side == -32768, np.nan, side.astype("f8") * 0.01 + 280.0)


def plain(side: np.ndarray) -> np.ndarray:
    return side.astype("f8")


def test_counts_of_numbers(page: Any, address: str) -> None:
    page.goto(address)
    for name, decode in (("packed", unpacked), ("holes", plain), ("even", plain), ("many", plain)):
        assert [row[1:] for row in rows_of(page, name)[1:]] == expected(name, decode), name
    packed = page.get_by_label("Values of /packed", exact=True)
    assert packed.get_by_role("columnheader").all_inner_texts() == ["K", "before", "after"]
    page.get_by_text("(8 of the 12 chunks that the commit wrote)").wait_for()


def test_counts_in_two_units(page: Any, address: str) -> None:
    """A commit that changes the unit has bins of its own for each version, with the unit of the version."""
    page.goto(address)
    head, *rows = rows_of(page, "warmth")
    warmth = page.get_by_label("Values of /warmth", exact=True)
    assert warmth.get_by_role("columnheader").all_inner_texts() == ["K", "before", "degC", "after"]
    assert not head
    for version, side in enumerate(versions("warmth")):
        counts, ends = np.histogram(side[:6], bins=BINS)
        assert [row[2 * version + 1] for row in rows] == [*map(str, counts), "0", "0", "0"]
        low = [float(row[2 * version].split(" to ")[0]) for row in rows[:BINS]]
        np.testing.assert_allclose(low, ends[:-1], rtol=1e-5, atol=1e-3)
    assert [row[2] for row in rows[BINS:]] == ["missing", "NaN", "infinite"]


def test_counts_of_flags(page: Any, address: str) -> None:
    page.goto(address)
    sides = [side[:6].ravel() for side in versions("flags")]
    rows = rows_of(page, "flags")[1:]
    for value, name in enumerate(("0 (sea)", "1 (land)", "2 (ice)", "3")):
        assert rows[value] == [name, *(str(int(np.sum(side == value))) for side in sides)]
    assert rows[4:] == [["missing", "0", "0"], ["NaN", "0", "0"], ["infinite", "0", "0"]]


def test_arrays_without_numbers_and_large_chunks(page: Any, address: str) -> None:
    page.goto(address)
    assert [row[1] for row in rows_of(page, "new")[1:]] == ["0"] * 15
    assert page.get_by_label("Values of /text", exact=True).count() == 0
    wide = page.get_by_label("Values of /wide", exact=True)
    wide.get_by_role("button", name="Read the values").click()
    rows = rows_of(page, "wide")[1:]
    assert rows[0][1:] == ["1,000,000", "999,997"]
    assert rows[11][1:] == ["0", "3"]
