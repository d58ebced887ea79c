"""Files of real archives, of many makers and decades: ``scripts/install-test-data`` fetches them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import xarray as xr
from tests.pipeline.ingest.real_archives import NETCDF, files, parameters
from tests.readers.comparing import same_as_xarray, same_by_references

from frazil.readers.base_reader import ChunkReferences
from frazil.readers.registry import open_source

pytest.importorskip("h5py")
pytest.importorskip("netCDF4")
pytestmark = [
    pytest.mark.filterwarnings("ignore:numpy.ndarray size changed"),
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
]
#: Larger files, and variables with more chunks, take too long to be worth it.
LARGEST, MOST_CHUNKS = 1_500_000, 100
PACKAGES = ("libncarg-data", "gmt-gshhg-low", "r-cran-stars", "earthkit-data")


def chosen(*magic: bytes) -> list[Any]:
    paths = files(*PACKAGES, magic=magic, largest=LARGEST)
    # of files that differ in their dates alone a few are enough
    return parameters(path for path in paths if not path.name[:8].isdigit())


@pytest.mark.sample(36, 36)
@pytest.mark.parametrize("path", chosen(*NETCDF))
def test_files(path: Path) -> None:
    with (
        xr.open_dataset(path, decode_cf=False, engine="netcdf4") as original,
        open_source(str(path)) as reader,
    ):
        same_as_xarray(reader, original)
        for name in reader.schema().variables:
            references = reader.references(name)
            assert isinstance(references, ChunkReferences)
            if len(references.offset) <= MOST_CHUNKS:
                same_by_references(reader, name)


@pytest.mark.parametrize(
    "path", [each for each in chosen(b"\x89HDF") if str(each.id).endswith((".he5", "none"))]
)
def test_groups(path: Path) -> None:
    with open_source(str(path)) as reader:
        groups = reader.schema().groups
    assert len(groups) > 5
    for group in groups:
        with (
            xr.open_dataset(path, decode_cf=False, engine="netcdf4", group=group) as original,
            open_source(str(path), group=group) as reader,
        ):
            # the library goes on counting from group to group, and reads what is after the end of a string
            names = {dim: f"phony_dim_{at}" for at, dim in enumerate(sorted(map(str, original.sizes)))}
            renamed = original.rename_dims({old: new for old, new in names.items() if old != new})
            if "HDFEOSVersion" in renamed.attrs:
                renamed.attrs["HDFEOSVersion"] = renamed.attrs["HDFEOSVersion"][:13]
            same_as_xarray(reader, renamed)
            for name, variable in reader.schema().variables.items():
                if variable.dtype.kind != "T":
                    same_by_references(reader, name)
