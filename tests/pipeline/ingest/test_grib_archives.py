"""GRIB of many makers: what cfgrib sees in files is in the store, even if an archive is cut into files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import xarray as xr
import zarr
from tests.pipeline.ingest.netcdf_files import ingest, repository, stored_dataset
from tests.pipeline.ingest.real_archives import EVERY, GRIB, files, parameters

import frazil
from frazil.pipeline import Version

cfgrib = pytest.importorskip("cfgrib")
eccodes = pytest.importorskip("eccodes")
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
]

#: They take cfgrib longer than a second.
SLOW = {"nam.t00z.awp21100.tm00.grib2", "ncep-seasonal-monthly.grib", "ds.waveh.5.grib"}
#: cfgrib opens neither.
DAMAGED = {"era5-levels-corrupted.grib", "regular_gg_wrong_increment.grib"}
#: File -> length of a row. cfgrib leaves the rows of these grids of one dimension in alternating directions.
ALTERNATING = {"ds.waveh.5.grib": 2517, "mercator.grib": 339}
#: Of a package with many files of one kind: other grids, levels, members, padding between messages.
CHOSEN = (
    "O32_global.grib2", "ens_50", "healpix_H8", "mercator", "ml_data", "pl_regular_ll",
    "r_2020-09-22T12-00-00_0", "rotated_wind", "shifted_ll_subarea", "t_time_series",
    "t_year_missing", "test_icon", "test_padding", "tuv_pl", "unstructured", "wave_spectra",
)  # fmt: skip


@cache
def samples() -> list[Path]:
    alone = files("cfgrib", "eccodes", magic=GRIB)
    many = [path for path in files("earthkit-data", magic=GRIB) if EVERY or path.name.startswith(CHOSEN)]
    return [path for path in alone + many if path.name not in DAMAGED and (EVERY or path.name not in SLOW)]


def sample(name: str) -> list[Any]:
    return parameters(path for path in samples() if path.name.startswith(name))


def cubes(path: Path) -> list[xr.Dataset]:
    """What cfgrib makes of a file: a Dataset for each hypercube."""
    options: dict[str, Any] = {"backend_kwargs": {"indexpath": ""}, "cache": False}
    datasets = cfgrib.open_datasets(str(path), **options)
    if len(datasets) == 1:  # as users of xarray open it: `open_datasets` has no dimensions of length 1
        datasets = [xr.open_dataset(path, engine="cfgrib", **options)]
    for array in [each for dataset in datasets for each in dataset.data_vars.values()]:
        if path.name in ALTERNATING:  # the field is smooth after this
            rows = array.values.reshape(*array.shape[:-1], -1, ALTERNATING[path.name])
            rows[..., 1::2, :] = rows[..., 1::2, ::-1]
            array.values = rows.reshape(array.shape)
    return [each.drop_attrs(deep=False).load() for each in datasets]


def groups(version: Version) -> Iterator[xr.Dataset]:
    """The Datasets of all groups."""
    root = zarr.open_group(version.session().store, mode="r")
    names = ["", *(name for name, node in root.members(None) if isinstance(node, zarr.Group))]
    for name in names:
        if ".frazil" not in name.split("/"):
            yield stored_dataset(version, name or None).drop_attrs(deep=False)


def same_variable(array: xr.DataArray, expected: xr.DataArray) -> None:
    """Values, dimensions, dtypes, attributes; and the coordinates that cfgrib has."""
    assert set(expected.coords) <= set(array.coords)
    common = array.drop_vars(set(array.coords).difference(expected.coords)).transpose(*expected.dims)
    xr.testing.assert_identical(common, expected)
    assert array.dtype == expected.dtype


def as_named(array: xr.DataArray, expected: xr.DataArray) -> xr.DataArray:
    """Under the names of the file: what several hypercubes have in common is told apart by ends of names."""
    coords = list(map(str, expected.coords))
    own = {*array.dims, *array.encoding.get("coordinates", "").split()}
    names = {
        name: max((each for each in coords if f"{name}_".startswith(f"{each}_")), key=len, default=None)
        for name in own
    }
    variable = array.drop_vars(set(array.coords).difference(own))
    return variable.rename({name: each for name, each in names.items() if each not in (None, name)})


def is_same(array: xr.DataArray, expected: xr.DataArray) -> bool:
    try:
        same_variable(as_named(array, expected).rename(expected.name), expected)
    except (AssertionError, ValueError):
        return False
    return True


@pytest.mark.sample(4, 4)
@pytest.mark.parametrize("path", parameters(samples()))
def test_a_file_alone(path: Path, tmp_path: Path) -> None:
    expected = cubes(path)
    datasets = list(groups(ingest(path, repository(tmp_path / "repo")).version))
    if len(expected) == 1:
        [whole] = expected
        assert set(datasets[0].data_vars) == set(whole.data_vars)
        for name in whole.data_vars:
            same_variable(datasets[0][name], whole[name])
        return
    for cube in expected:
        for name in cube.data_vars:
            several = [
                variable
                for dataset in datasets
                for variable in dataset.data_vars.values()
                if f"{variable.name}_".startswith(f"{name}_")
            ]
            assert any(is_same(each, cube[name]) for each in several), (several, cube[name])


# An archive that is cut into files


def cut(path: Path, folder: Path, key: Callable[[Any], str]) -> list[str]:
    """The messages of a file in a file for each key."""
    folder.mkdir()
    parts: dict[str, list[bytes]] = {}
    with path.open("rb") as file:
        while (handle := eccodes.codes_grib_new_from_file(file)) is not None:
            parts.setdefault(key(handle), []).append(eccodes.codes_get_message(handle))
            eccodes.codes_release(handle)
    for name, messages in parts.items():
        (folder / f"{name}.grib").write_bytes(b"".join(messages))
    return sorted(map(str, folder.iterdir()))


def by_time(handle: Any) -> str:
    return f"{eccodes.codes_get(handle, 'dataDate')}{eccodes.codes_get(handle, 'dataTime'):04}"


def by_step(handle: Any) -> str:
    return f"{eccodes.codes_get(handle, 'validityDate')}{eccodes.codes_get(handle, 'validityTime'):04}"


def whole_dataset(path: Path) -> xr.Dataset:
    [expected] = cubes(path)
    return expected


def repo_with(tmp_path: Path, *parts: list[str]) -> xr.Dataset:
    """What is in a repository after these files, the later ones appended."""
    repo: frazil.Repository = repository(tmp_path / "repo")
    for number, paths in enumerate(parts):
        result = ingest(paths, repo, mode="append" if number else "create")
    dataset, *_ = groups(result.version)
    return dataset


#: Beginnings of names of files, what tells their parts from each other, and in how many rounds these come.
ARCHIVES = (
    ("era5-levels-members", by_time, (1, 2)),
    ("pl_regular_ll", by_time, (1, 2)),
    ("t_time_series", by_step, (1, 2)),
    ("step_60m", by_step, (1, 2)),
    ("healpix_H8", by_step, (1,)),
)


@pytest.mark.sample(2, 2)
@pytest.mark.parametrize(
    ("path", "key", "rounds"),
    [
        pytest.param(*case.values, key, rounds, id=f"{case.id}-{key.__name__}-{rounds}", marks=case.marks)
        for name, key, several in ARCHIVES
        for rounds in several
        for case in sample(name)
    ],
)
def test_an_archive_in_files(path: Path, key: Callable[[Any], str], rounds: int, tmp_path: Path) -> None:
    paths = cut(path, tmp_path / "files", key)
    assert len(paths) > rounds
    half = len(paths) // 2
    parts = [paths] if rounds == 1 else [paths[:half], paths]
    dataset, expected = repo_with(tmp_path, *parts), whole_dataset(path)
    assert set(dataset.data_vars) == set(expected.data_vars)
    for name in expected.data_vars:
        same_variable(dataset[name], expected[name])
