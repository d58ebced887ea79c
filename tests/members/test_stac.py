"""Members as items of STAC, and items as members."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest
import xarray as xr

import frazil
from frazil.errors import InvalidInputError, MissingExtraError

ITEM: dict[str, Any] = {
    "type": "Feature",
    "stac_version": "1.0.0",
    "id": "S2A_32UMA",
    "geometry": None,
    "bbox": [170.0, -10.0, -170.0, 10.0],
    "properties": {
        "datetime": None,
        "start_datetime": "2024-05-01T10:00:00Z",
        "end_datetime": "2024-05-01T10:05:00.5Z",
        "eo:cloud_cover": 4.5,
        "platform": "S2A",
        "instruments": ["msi"],
        "proj:epsg": 32632,
        "nothing": None,
    },
    "assets": {},
    "links": [],
}
POINT = {"type": "Point", "coordinates": [1, 2]}
DATASET = xr.Dataset({"red": (("y", "x"), np.ones((2, 3), "u2"))})


@pytest.fixture
def scenes(tmp_path: Any) -> frazil.Collection:
    return frazil.Collection.create(frazil.Repository.create(tmp_path / "ice"), "scenes")


def test_items_in_and_out(scenes: frazil.Collection, tmp_path: Any) -> None:
    pystac = pytest.importorskip("pystac")
    scenes.add_stac(ITEM, DATASET)
    scenes.add_stac(
        pystac.Item.from_dict({**ITEM, "id": "b", "bbox": [1, 2, 3, 4], "geometry": POINT}),
        DATASET,
        platform="S2B",
    )
    assert list(scenes.where("`eo:cloud_cover` < 5", bbox=(179, 0, 180, 1), time="2024-05-01T10:03")) == [
        "S2A_32UMA"
    ]
    assert list(scenes.where("platform = 'S2B' AND crs = 'EPSG:32632'")) == ["b"]
    items = list(scenes.to_stac())
    item = items[0].to_dict()
    properties = {each: item["properties"][each] for each in ("eo:cloud_cover", "platform", "instruments")}
    assert properties == {"eo:cloud_cover": 4.5, "platform": "S2A", "instruments": ["msi"]}
    assert item["properties"]["start_datetime"] == "2024-05-01T10:00:00Z"
    assert item["properties"]["end_datetime"].startswith("2024-05-01T10:05:00.5")
    assert item["properties"]["proj:code"] == "EPSG:32632"
    assert item["bbox"] == [170, -10, -170, 10]
    assert item["geometry"]["type"] == "MultiPolygon"
    assert items[1].to_dict()["geometry"]["type"] == "Polygon"
    session, path = frazil.open_address(item["assets"]["data"]["href"])
    assert path == "/scenes/S2A_32UMA"
    xr.testing.assert_equal(
        xr.open_zarr(session.store, group=path, consolidated=False, chunks=None).load(), DATASET
    )
    assert [each.id for each in scenes.to_stac(scenes.where("platform = 'S2B'"))] == ["b"]


@pytest.mark.parametrize("times", [{}, {"start_datetime": "2024-05-01T10:00:00Z"}, {"datetime": None}])
def test_an_item_without_times(scenes: frazil.Collection, times: dict[str, Any]) -> None:
    """STAC does not allow it, so `to_stac` could not return it."""
    item = {**ITEM, "properties": times}
    with pytest.raises(InvalidInputError, match="`datetime`, or `start_datetime` and `end_datetime`"):
        scenes.add_stac(item, DATASET)
    assert list(scenes.where()) == []
    scenes.add_stac(item, DATASET, time=("2024-05-01", "2024-05-02"))
    (found,) = scenes.to_stac()
    assert found.to_dict()["properties"]["end_datetime"] == "2024-05-02T00:00:00Z"


def test_an_item_with_an_interval_and_a_time_in_it(scenes: frazil.Collection) -> None:
    pytest.importorskip("pystac")
    scenes.add_stac(
        {**ITEM, "properties": {**ITEM["properties"], "datetime": "2024-05-01T10:02:00Z"}}, DATASET
    )
    scenes.add_stac({**ITEM, "id": "b"}, DATASET)
    one, other = (each.to_dict()["properties"] for each in scenes.to_stac())
    assert one["datetime"] == "2024-05-01T10:02:00Z"
    assert one["start_datetime"] == other["start_datetime"] == "2024-05-01T10:00:00Z"
    assert other["datetime"] is None


def test_infinite_numbers_are_null(scenes: frazil.Collection) -> None:
    pytest.importorskip("pystac")
    scenes.add_stac({**ITEM, "properties": {**ITEM["properties"], "ratio": float("inf")}}, DATASET)
    (item,) = scenes.to_stac()
    text = json.dumps(item.to_dict(), allow_nan=False)
    assert json.loads(text)["properties"]["ratio"] is None


def test_properties_that_are_named_like_arguments(scenes: frazil.Collection) -> None:
    more = {"message": "hello", "name": "n", "dataset": "d", "self": "s", "bbox": "b", "session": "x"}
    scenes.add_stac({**ITEM, "properties": {**ITEM["properties"], **more}}, DATASET)
    members = scenes.where()
    assert list(members) == ["S2A_32UMA"]
    assert {name: members.columns[name][0] for name in more} == more
    assert scenes.check() == {}
    for name in ("member", "west", "time", "crs", "variables"):
        item = {**ITEM, "id": "b", "properties": {**ITEM["properties"], name: "other"}}
        with pytest.raises(InvalidInputError, match=f"got `{name}`"):
            scenes.add_stac(item, DATASET)
    with pytest.raises(InvalidInputError, match="got `member`"):
        scenes.add(DATASET, name="c", member="other")
    assert list(scenes.where()) == ["S2A_32UMA"]


def test_an_item_needs_a_time(scenes: frazil.Collection) -> None:
    pytest.importorskip("pystac")
    scenes.add(DATASET, name="a")
    with pytest.raises(InvalidInputError, match="must have a time"):
        scenes.to_stac()


def test_without_pystac(scenes: frazil.Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    scenes.add_stac(ITEM, DATASET)
    monkeypatch.setitem(sys.modules, "pystac", None)
    with pytest.raises(MissingExtraError, match="stac"):
        scenes.to_stac()
