"""Series of CMIP6 as archives have them: xarray sees in the store what it sees in the files."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from tests.pipeline.ingest import netcdf_files as nc
from tests.pipeline.ingest.real_archives import EVERY, NETCDF, files, parameters

#: Models and tables: several calendars, chunks and contiguous data, years of unequal lengths.
CHOSEN = {
    "AWI-ESM-1-1-LR day",
    "BCC-CSM2-MR day",
    "CAMS-CSM1-0 Amon",
    "CESM2-FV2 Amon",
    "CMCC-CM2-SR5 day",
    "FGOALS-g3 Amon",
    "IITM-ESM Amon",
    "MPI-ESM1-2-HR Amon",
    "NorESM2-LM Amon",
}
CHOSEN_ALONE = {"KACE-1-0-G day", "IPSL-CM6A-LR day", "GFDL-CM4 day", "MRI-ESM2-0 day"}


def series(chosen: set[str], least: int, most: int) -> list[list[Path]]:
    """The files of each series, in the order of their years; series of ``least`` to ``most`` files."""
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in files("esmvaltool-sample-data", magic=NETCDF):
        folders[path.parent].append(path)
    return [
        paths
        for paths in folders.values()
        if least <= len(paths) <= most and (EVERY or _name(paths[0]) in chosen)
    ]


def _name(path: Path) -> str:
    _, table, model, *_ = path.name.split("_")
    return f"{model} {table}"


@pytest.mark.sample(2, 2)
@pytest.mark.parametrize("paths", parameters(series(CHOSEN, 2, 99)))
def test_a_series_in_two_parts(paths: list[Path], tmp_path: Path) -> None:
    repo = nc.repository(tmp_path / "repo")
    names = list(map(str, paths))
    first = nc.ingest(names[: len(names) // 2], repo)
    nc.assert_same_dataset(nc.stored_dataset(first.version), nc.files_dataset(names[: len(names) // 2]))
    every = f"{paths[0].parent}/*.nc"
    whole = nc.ingest(every, repo, mode="append")
    assert not whole.done_before
    nc.assert_same_dataset(nc.stored_dataset(whole.version), nc.files_dataset(names))
    again = nc.ingest(every, repo, mode="append")
    assert again.done_before
    assert again.snapshot_id == whole.snapshot_id


@pytest.mark.sample(3, 3)
@pytest.mark.parametrize("paths", parameters(series(CHOSEN, 2, 99)))
def test_references_to_a_series(paths: list[Path], tmp_path: Path) -> None:
    repo = nc.repository(tmp_path / "repo")
    every = f"{paths[0].parent}/*.nc"
    result = nc.ingest(every, repo, virtual=True, containers=[nc.container(paths[0].parent)])
    nc.assert_same_dataset(nc.stored_dataset(result.version), nc.files_dataset(list(map(str, paths))))
    used = set(result.version.session().all_virtual_chunk_locations())
    assert used == {path.as_uri() for path in paths}


@pytest.mark.sample(6, 6)
@pytest.mark.parametrize("paths", parameters(series(CHOSEN_ALONE, 1, 1)))
@pytest.mark.parametrize("virtual", [False, True], ids=["copy", "references"])
def test_a_file_alone(paths: list[Path], virtual: bool, tmp_path: Path) -> None:
    repo = nc.repository(tmp_path / "repo")
    containers = [nc.container(paths[0].parent)] if virtual else []
    result = nc.ingest(paths[0], repo, virtual=virtual, containers=containers)
    nc.assert_same_dataset(nc.stored_dataset(result.version), nc.files_dataset(list(map(str, paths))))
