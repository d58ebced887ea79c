"""Files that are compressed as a whole: the same contents as the file inside, by every program."""

from __future__ import annotations

import bz2
import gc
import gzip
import lzma
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zstandard
from tests.readers import test_geotiff, test_netcdf3
from tests.readers import test_grib as test_grib2
from tests.readers.comparing import read_all, same

import frazil
from frazil.errors import FormatError, InvalidInputError
from frazil.pipeline import Target, ingest, inspect_files
from frazil.readers import files
from frazil.readers.registry import open_source

h5py = pytest.importorskip("h5py")

PROGRAMS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.compress,
}
INLINE: dict[str, Any] = {"engine": "inline"}


def _hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=np.random.default_rng(1).random((40, 500)), chunks=(10, 500))


FILES: dict[str, Callable[[Path], object]] = {
    "hdf5": _hdf5,
    "netcdf3": lambda path: test_netcdf3.write_file(path, "NETCDF3_CLASSIC"),
    "geotiff": lambda path: test_geotiff.write_file(path, compress="deflate"),
    "grib": lambda path: path.write_bytes(test_grib2.cube(2)),
}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", FILES)
def test_the_content_is_that_of_the_file_inside(
    name: str, program: str, tmp_path: Path, temporary: Path
) -> None:
    plain, packed = tmp_path / "plain", tmp_path / f"packed.{program}"
    FILES[name](plain)
    data = plain.read_bytes()
    half = len(data) // 2
    # Programs can append to a compressed file.
    packed.write_bytes(PROGRAMS[program](data[:half]) + PROGRAMS[program](data[half:]))
    with open_source(str(plain)) as one, open_source(str(packed)) as other:
        assert one.format == other.format == name
        assert one.schema().variables.keys() == other.schema().variables.keys()
        for each in one.schema().variables:
            same(read_all(one, each), read_all(other, each))
        assert other.schema().size == packed.stat().st_size
    del other
    gc.collect()
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_damaged_file_is_an_error(
    program: str, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.nc"
    _hdf5(path)
    whole = PROGRAMS[program](path.read_bytes())
    cut = bytearray(whole)
    cut[len(cut) // 2 : len(cut) // 2 + 40] = bytes(40)
    for data in (whole[:-20], whole[: len(whole) // 2], bytes(cut)):
        path.write_bytes(data)
        with pytest.raises(FormatError, match=path.as_uri()):
            open_source(str(path))
    path.write_bytes(whole)
    monkeypatch.setattr(files, "LARGEST_COPY", 1000)
    with pytest.raises(InvalidInputError, match="at most 1000 bytes"):
        open_source(str(path))
    gc.collect()
    assert not list(temporary.iterdir())


def test_an_ingest_of_compressed_files(tmp_path: Path) -> None:
    days = [
        xr.Dataset({"t": ("time", np.arange(4.0) + 4 * day)}, {"time": np.arange(4) + 4 * day})
        for day in range(3)
    ]
    for day, (data, program) in enumerate(zip(days, PROGRAMS, strict=False)):
        content = data.to_netcdf(engine="h5netcdf")
        (tmp_path / f"{day}.nc.{program}").write_bytes(PROGRAMS[program](bytes(content)))
    repo = frazil.Repository.create(frazil.in_memory_storage())
    pattern = str(tmp_path / "*.nc.*")
    ingest(pattern, Target(repo), concat_dim="time", **INLINE)
    with xr.open_zarr(repo.readonly_session("main").store, consolidated=False) as stored:
        xr.testing.assert_equal(stored.load(), xr.concat(days, "time"))
    tip = repo.lookup_branch("main")
    ingest(pattern, Target(repo), concat_dim="time", mode="append", **INLINE)
    assert repo.lookup_branch("main") == tip
    with pytest.raises(InvalidInputError, match="compressed as a whole"):
        ingest(pattern, Target(repo, group="references"), concat_dim="time", virtual=True, **INLINE)
    (tmp_path / "0.nc.gz").write_bytes((tmp_path / "0.nc.gz").read_bytes()[:-20])
    assert [each.kind for each in inspect_files(pattern, concat_dim="time", **INLINE).problems] == ["damaged"]
