"""GRIB of many makers: what cfgrib sees in files is in the store, also if an archive is cut into files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import xarray as xr
import zarr
from tests.spark.ingest.archives import repository, seen
from tests.spark.ingest.samples import EVERY, GRIB, files, parameters

import frazil
from frazil.spark import Inline, Version, ingest

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
#: The fields of one kind, in a file for each variable and step.
PATTERN = "r_2020"


def samples() -> list[Path]:
    found = files("cfgrib", "eccodes", "earthkit-data", magic=GRIB)
    return [path for path in found if path.name not in DAMAGED and (EVERY or path.name not in SLOW)]


def sample(name: str) -> list[Any]:
    return parameters(path for path in samples() if path.name.startswith(name))


def cubes(path: Path) -> list[xr.Dataset]:
    """What cfgrib makes of a file: a Dataset for each hypercube."""
    found = cfgrib.open_datasets(str(path), backend_kwargs={"indexpath": ""}, cache=False)
    return [each.drop_attrs(deep=False).load() for each in found]


def groups(version: Version) -> Iterator[xr.Dataset]:
    """The Datasets of all groups."""
    root = zarr.open_group(version.session().store, mode="r")
    names = ["", *(name for name, node in root.members(None) if isinstance(node, zarr.Group))]
    for name in names:
        if ".frazil" not in name.split("/"):
            yield seen(version, name or None).drop_attrs(deep=False)


def same_variable(found: xr.DataArray, expected: xr.DataArray) -> None:
    """Values, dimensions, dtypes, attributes; and the coordinates that cfgrib has."""
    assert set(expected.coords) <= set(found.coords)
    kept = found.drop_vars(set(found.coords).difference(expected.coords)).transpose(*expected.dims)
    xr.testing.assert_identical(kept, expected)
    assert found.dtype == expected.dtype


def is_same(found: xr.DataArray, expected: xr.DataArray) -> bool:
    try:
        same_variable(found, expected)
    except (AssertionError, ValueError):
        return False
    return True


@pytest.mark.parametrize("path", parameters(samples()))
def test_a_file_alone(path: Path, tmp_path: Path) -> None:
    expected = cubes(path)
    found = list(groups(ingest(path, repository(tmp_path / "repo"), engine=Inline()).version))
    if len(expected) == 1:
        [whole] = expected
        assert set(found[0].data_vars) == set(whole.data_vars)
        for name in whole.data_vars:
            same_variable(found[0][name], whole[name])
        return
    for cube in expected:
        for name in cube.data_vars:
            several = [each[name] for each in found if name in each]
            assert several, f"{name} is in no group"
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
    return f"{eccodes.codes_get(handle, 'endStep'):04}"


def by_variable(handle: Any) -> str:
    return str(eccodes.codes_get(handle, "shortName"))


def whole_dataset(path: Path) -> xr.Dataset:
    [expected] = cubes(path)
    return expected


def repo_with(tmp_path: Path, *rounds: list[str]) -> xr.Dataset:
    """What is in a repository after these files, the later ones appended."""
    repo: frazil.Repository = repository(tmp_path / "repo")
    for number, paths in enumerate(rounds):
        result = ingest(paths, repo, mode="append" if number else "create", engine=Inline())
    found, *_ = groups(result.version)
    return found


@pytest.mark.parametrize("parts", [1, 2], ids=["at-once", "in-two-parts"])
@pytest.mark.parametrize(
    ("path", "key"),
    [
        pytest.param(*case.values, key, id=f"{case.id}-{key.__name__}", marks=case.marks)
        for name, key in (
            ("era5-levels-members", by_time),
            ("pl_regular_ll", by_time),
            ("t_time_series", by_step),
            ("step_60m", by_step),
            ("healpix_H8", by_step),
        )
        for case in sample(name)
    ],
)
def test_an_archive_in_files(path: Path, key: Callable[[Any], str], parts: int, tmp_path: Path) -> None:
    paths = cut(path, tmp_path / "files", key)
    assert len(paths) > 1
    if parts == 2 and len(paths) < 4:
        pytest.skip("too few files for two parts")
    half = len(paths) // 2
    rounds = [paths] if parts == 1 else [paths[:half], paths]
    found, expected = repo_with(tmp_path, *rounds), whole_dataset(path)
    assert set(found.data_vars) == set(expected.data_vars)
    for name in expected.data_vars:
        same_variable(found[name], expected[name])


@pytest.mark.parametrize("path", sample("tuv_pl"))
def test_a_variable_in_each_file(path: Path, tmp_path: Path) -> None:
    found = repo_with(tmp_path, cut(path, tmp_path / "files", by_variable))
    expected = whole_dataset(path)
    for name in expected.data_vars:
        same_variable(found[name], expected[name])


@pytest.mark.parametrize("path", sample(PATTERN)[:1])
def test_a_variable_and_a_step_in_each_file(path: Path, tmp_path: Path) -> None:
    paths = sorted(map(str, path.parent.glob("*.grib")))
    assert len(paths) == 12
    together = tmp_path / "together.grib"
    together.write_bytes(b"".join(Path(each).read_bytes() for each in paths))
    found, expected = repo_with(tmp_path, paths), whole_dataset(together)
    for name in expected.data_vars:
        same_variable(found[name], expected[name])
