"""Files whose variables and dimensions have other names than the dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from tests.pipeline.ingest import netcdf_files as nc

import frazil
from frazil.errors import InvalidInputError
from frazil.pipeline import Target, ingest, inspect_files

INLINE: dict[str, Any] = {"engine": "inline"}
NAMES = {"T2": "tas", "Times": "time", "south_north": "y", "XLAT": "lat", "nothing": "unused"}


def old(day: int) -> xr.Dataset:
    """The data of the first provider."""
    dice = np.random.default_rng(day)
    return xr.Dataset(
        {
            "T2": (
                ("Times", "south_north"),
                dice.random((2, 3)),
                {"ancillary_variables": "quality T2_other"},
            ),
            "quality": (("Times", "south_north"), dice.integers(0, 9, (2, 3))),
        },
        {
            "Times": ("Times", 2 * day + np.arange(2), {"units": "days since 2000-01-01"}),
            "XLAT": ("south_north", [10.0, 20.0, 30.0], {"units": "degrees_north"}),
        },
    )


def new(day: int) -> xr.Dataset:
    """The data of the second one."""
    return old(day).rename(
        {name: each for name, each in NAMES.items() if name in old(day).variables or "_" in name}
    )


def written(folder: Path, datasets: list[xr.Dataset]) -> str:
    folder.mkdir()
    for day, data in enumerate(datasets):
        data.to_netcdf(
            folder / f"{day}.nc", engine="h5netcdf", unlimited_dims=[next(iter(data["quality"].dims))]
        )
    return str(folder / "*.nc")


@pytest.mark.parametrize("virtual", [False, True])
def test_old_and_new_names_are_one_dataset(virtual: bool, tmp_path: Path) -> None:
    mixed = written(tmp_path / "mixed", [old(0), new(1), old(2)])
    same = written(tmp_path / "same", [new(0), new(1), new(2)])
    repo = nc.repository(tmp_path / "repo")
    options: dict[str, Any] = {"virtual": virtual, "containers": [nc.container(tmp_path)] * virtual, **INLINE}
    report = ingest(mixed, Target(repo, group="mixed"), rename=NAMES, **options).report
    ingest(same, Target(repo, group="same"), **options)
    store = repo.readonly_session("main").store
    with (
        xr.open_zarr(store, group="mixed", consolidated=False) as one,
        xr.open_zarr(store, group="same", consolidated=False) as other,
    ):
        xr.testing.assert_identical(one.load(), other.load())
        assert one["tas"].attrs["ancillary_variables"] == "quality T2_other"
        assert "lat" in one.coords
    assert report is not None
    notes = [each.message for each in report.notes if each.kind == "renamed"]
    assert len(notes) == 1
    assert "(2 such files)" in notes[0]
    assert "T2 to tas" in notes[0]
    # Known files are not read again. A further day has the new names.
    more = [mixed, written(tmp_path / "more", [new(3)])]
    report = ingest(more, Target(repo, group="mixed"), mode="append", rename=NAMES, **options).report
    assert report is not None
    assert report.unchanged == 3


def test_names_that_two_variables_would_have(tmp_path: Path) -> None:
    files = written(tmp_path / "files", [old(0), new(1)])
    problems = inspect_files(files, rename={"T2": "quality"}, **INLINE).problems
    assert [each.kind for each in problems if each.fatal][:1] == ["options"]
    assert "`T2` and `quality`" in str(problems[0])
    # A swap gives each its own name.
    report = inspect_files(
        str(tmp_path / "files" / "0.nc"), rename={"T2": "quality", "quality": "T2"}, **INLINE
    )
    assert not report.fatal()
    with pytest.raises(InvalidInputError, match="without `/`"):
        inspect_files(files, rename={"T2": "a/b"}, **INLINE)


def test_a_coordinate_becomes_that_of_its_dimension(tmp_path: Path) -> None:
    data = old(0).rename({"Times": "step"}).drop_vars("step").assign(t=("step", np.arange(2.0)))
    data["T2"].attrs["cell_methods"] = "step: mean (interval: step)"
    path = tmp_path / "a.nc"
    data.to_netcdf(path, engine="h5netcdf")
    repo = frazil.Repository.create(frazil.in_memory_storage())
    ingest(str(path), Target(repo), concat_dim="time", rename={"step": "time", "t": "time"}, **INLINE)
    with xr.open_zarr(repo.readonly_session("main").store, consolidated=False) as stored:
        assert stored["time"].dims == ("time",)
        assert stored["time"].values.tolist() == [0, 1]
        assert stored["T2"].attrs["cell_methods"] == "time: mean (interval: step)"
