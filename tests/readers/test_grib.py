"""GRIB, by cfgrib: what its own engine of xarray gives."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from tests.readers.comparing import same_regions
from tests.readers.gribs import LAMBERT, cubes, dataset, eccodes, field, has, message

from frazil.errors import FormatError, InvalidInputError
from frazil.readers.grib_points import SCANNING
from frazil.readers.registry import open_source


def cube(edition: int) -> bytes:
    """Two days, two steps, three levels."""
    return b"".join(
        message(
            edition,
            shortName="t",
            dataDate=day,
            step=step,
            level=level,
            values=np.arange(24.0) + day % 7 + level,
        )
        for day in (20200228, 20200229)
        for step in (0, 6)
        for level in (1000, 850, 500)
    )


#: Files of several hypercubes: messages, and variables with their dimensions that are not of the grid.
SEVERAL: dict[str, tuple[tuple[bytes, ...], dict[str, tuple[str, ...]]]] = {
    "two heights": ((field("2t", 2), field("10u", 10), field("10v", 10)), {"t2m": (), "u10": (), "v10": ()}),
    "levels, surface and sea": (
        (cube(2), field("sp", None), field("prmsl", 0, kind="meanSea"), field("2t", 2), field("10u", 10)),
        {"t": ("time", "step", "isobaricInhPa"), "sp": (), "prmsl": (), "t2m": (), "u10": ()},
    ),
    "fewer levels": (
        tuple(message(2, shortName="t", level=level) for level in (1000, 850, 500))
        + tuple(message(2, shortName="r", level=level) for level in (1000, 500)),
        {"t": ("isobaricInhPa",), "r": ("isobaricInhPa_2levels",)},
    ),
    "one parameter on several kinds of levels": (
        (
            *(message(2, shortName="t", level=level) for level in (1000, 850)),
            field("t", None),
            field("t", 80),
        ),
        {"t": ("isobaricInhPa",), "t_surface": (), "t_heightAboveGround": ()},
    ),
    "two grids": ((field("2t", 2), field("2t", 2, ni=12, nj=7)), {"t2m": (), "t2m_4x6": ()}),
    "other steps": (
        tuple(field("2t", 2, step=step) for step in (0, 6, 12))
        + tuple(field("tp", None, stepType="accum", stepRange=f"0-{step}") for step in (6, 12)),
        {"t2m": ("step",), "tp": ("step_accum",)},
    ),
    "instant and mean": (
        (field("sp", None, edition=1, step=6), field("sp", None, edition=1, stepType="avg", stepRange="0-6")),
        {"sp": (), "sp_avg": ()},
    ),
    "edition 1": (
        (message(1, shortName="t", level=500), field("2t", 2, edition=1), field("10u", 10, edition=1)),
        {"t": (), "t2m": (), "u10": ()},
    ),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", SEVERAL)
def test_several_hypercubes_are_one_dataset(name: str, tmp_path: Path) -> None:
    messages, variables = SEVERAL[name]
    path = tmp_path / "a.grib"
    path.write_bytes(b"".join(messages))
    with open_source(str(path)) as reader:
        schema = reader.schema()
        result = dataset(reader)
        for variable in result.data_vars:
            same_regions(reader, str(variable))
    assert not schema.skipped
    dims = {
        variable: tuple(dim for dim in map(str, each.dims) if not dim.startswith(("latitude", "longitude")))
        for variable, each in result.data_vars.items()
    }
    assert dims == variables
    for each in cubes(path):
        for variable, expected in each.data_vars.items():
            assert has(result, expected), variable
    assert not list(tmp_path.glob("*.idx"))
    # the order of the fields has no say in names
    path.write_bytes(b"".join(reversed(messages)))
    with open_source(str(path)) as reader:
        assert dataset(reader).equals(result)


def test_keys_without_fields(tmp_path: Path) -> None:
    path = tmp_path / "a.grib"
    path.write_bytes(cube(2) + field("2t", 2))
    with pytest.raises(InvalidInputError, match=r"the file has typeOfLevel .*isobaricInhPa"):
        open_source(str(path), filter_by_keys={"typeOfLevel": "surface"})
    with pytest.raises(InvalidInputError, match=r"filter_by_keys, squeeze.*'sqeeze'"):
        open_source(str(path), sqeeze=False)


def test_grids_of_one_size_stay_apart(tmp_path: Path) -> None:
    """cfgrib gives the coordinates of the first field to both."""
    path = tmp_path / "a.grib"
    shifted: dict[str, Any] = {
        "longitudeOfFirstGridPointInDegrees": 10,
        "longitudeOfLastGridPointInDegrees": 15,
    }
    path.write_bytes(field("2t", 2) + field("2t", 2, step=6, **shifted))
    with open_source(str(path)) as reader:
        result = dataset(reader)
    ends = sorted(
        float(each.longitude[0]) if "longitude" in each.dims else float(each.longitude_4x6[0])
        for each in result.data_vars.values()
    )
    assert ends == [0, 10]


GRIDS: dict[str, dict[str, Any]] = {"regular": {}, "rotated": {"gridType": "rotated_ll"}, "lambert": LAMBERT}


@pytest.mark.sample(12)
@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("mode", list(itertools.product((0, 1), repeat=4)))
def test_values_are_at_the_places_of_eccodes(
    edition: int, grid: str, mode: tuple[int, ...], tmp_path: Path
) -> None:
    keys: dict[str, Any] = dict(zip(SCANNING, mode, strict=True))
    if edition == 1 and keys.pop("alternativeRowScanning"):
        pytest.skip("edition 1 does not have this key")
    ends = {"latitude": (0, 3) if mode[1] else (3, 0), "longitude": (5, 0) if mode[0] else (0, 5)}
    corners: dict[str, Any] = {
        f"{name}Of{which}GridPointInDegrees": value
        for name, values in ends.items()
        for which, value in zip(("First", "Last"), values, strict=True)
    }
    path = tmp_path / "a.grib"
    path.write_bytes(message(edition, **(corners if "Nx" not in GRIDS[grid] else {}) | GRIDS[grid] | keys))
    with path.open("rb") as stream:
        points = eccodes.codes_grib_new_from_file(stream)
    expected = eccodes.codes_get_array(points, "latLonValues", float).reshape(-1, 3).round(3)
    if mode[3] and grid != "lambert":  # eccodes ignores this key
        rows = expected[:, 2].reshape((-1, 4) if mode[2] else (-1, 6))
        rows[1::2] = rows[1::2, ::-1]
    with open_source(str(path)) as reader:
        result = dataset(reader)
        same_regions(reader, str(next(iter(result.data_vars))))
    values = next(iter(result.data_vars.values()))
    places = xr.broadcast(result.latitude, result.longitude, values)
    columns = np.stack([each.values.ravel() for each in places], axis=1).round(3)
    assert np.array_equal(np.unique(columns, axis=0), np.unique(expected, axis=0))


def test_fields_of_two_scanning_modes_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "a.grib"
    path.write_bytes(field("2t", 2) + field("2t", 2, step=6, jPointsAreConsecutive=1))
    with open_source(str(path)) as reader:
        result = dataset(reader)
    rows, columns = sorted(result.data_vars.values(), key=lambda each: float(each[0, 1]))
    assert np.array_equal(rows.values.ravel(), np.arange(24))
    assert np.array_equal(columns.values.T.ravel(), np.arange(24))


def test_indistinguishable_fields_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.grib"
    path.write_bytes(field("2t", 2) + field("2t", 2, values=np.ones(24)))
    with open_source(str(path)) as reader:
        assert list(reader.schema().skipped) == ["t2m (heightAboveGround)"]


def test_parameters_without_a_number_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "a.grib"
    unknown = [
        message(
            2, discipline=0, parameterCategory=191, parameterNumber=number, values=np.full(24, float(number))
        )
        for number in (200, 201)
    ]
    path.write_bytes(b"".join(unknown))
    with open_source(str(path)) as reader:
        result = dataset(reader)
    assert sorted(float(each.max()) for each in result.data_vars.values()) == [200, 201]


def test_damaged_files(tmp_path: Path) -> None:
    whole = cube(2)
    path = tmp_path / "a.grib"
    for data, error_text in [
        (whole[:-1], "truncated"),
        (whole[: len(whole) // 2 + 5], "truncated"),
        (whole[:10], "truncated"),
        (whole[:-4] + b"xxxx", "7777"),
        (whole + whole[:8] + bytes(16), "at least 20 bytes"),
    ]:
        path.write_bytes(data)
        with pytest.raises(FormatError, match=error_text) as raised:
            open_source(str(path))
        assert path.as_uri() in str(raised.value)
    path.write_bytes(b"no grib")
    with pytest.raises(FormatError, match="a GRIB file"):
        open_source(str(path), "grib")
