"""Virtual chunks: read files of other formats through a repository, without a copy.

A repository can refer to byte ranges of existing files, for example NetCDF files. The first part sets
references by hand. The second part uses VirtualiZarr, which finds the references in a file. It needs `pip
install virtualizarr h5py`.

Run it:  python examples/how_to/virtual_datasets.py
"""

from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import xarray as xr
import zarr

import frazil
from frazil.credentials import LocalFileSystemAccess


def by_hand(repo: frazil.Repository, files: Path) -> None:
    """Write a file with ten rows of numbers, and a reference for each row."""
    path = files / "rows.bin"
    path.write_bytes(np.arange(1000, dtype="<i4").tobytes())
    session = repo.writable_session("main")
    zarr.create_array(
        session.store, name="rows", shape=(10, 100), chunks=(1, 100), dtype="<i4", compressors=None
    )
    session.store.set_virtual_refs_arr(
        "rows",
        chunk_grid_shape=(10, 1),
        locations=[f"file://{path}"] * 10,
        offsets=np.arange(10, dtype=np.uint64) * 400,
        lengths=np.full(10, 400, np.uint64),
        validate_containers=True,
        checksum=datetime.fromtimestamp(path.stat().st_mtime + 1, UTC),
    )
    session.commit("References into rows.bin")
    store = repo.readonly_session("main").store
    print("row 7:", zarr.open_array(store, path="rows", mode="r")[7, :4])

    # If a file changes after it was referenced, reading its chunks raises an error.
    later = path.stat().st_mtime + 3600
    os.utime(path, (later, later))
    try:
        zarr.open_array(repo.readonly_session("main").store, path="rows", mode="r")[7]
    except frazil.StorageError as error:
        print("changed:", error.kind)


def with_virtualizarr(repo: frazil.Repository, files: Path) -> None:
    """Make one dataset of two NetCDF files. The second file is appended later."""
    # VirtualiZarr imports `icechunk`. After this call, it gets Frazil.
    from frazil.compat import install_as_icechunk

    install_as_icechunk()
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_dataset
    from virtualizarr.parsers import HDFParser

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    for n in range(2):
        values = np.random.default_rng(n).normal(15, 5, (24, 4, 5))
        time = np.arange(24 * n, 24 * n + 24)
        day = xr.Dataset({"t": (("time", "lat", "lon"), values)}, {"time": time})
        day.to_netcdf(files / f"day{n}.nc", engine="h5netcdf", encoding={"t": {"chunksizes": (12, 4, 5)}})
    for n in range(2):
        session = repo.writable_session("main")
        found = open_virtual_dataset(f"file://{files}/day{n}.nc", registry=registry, parser=HDFParser())
        found.vz.to_icechunk(session.store, group="days", append_dim="time" if n else None)
        session.commit(f"Day {n}")

    session = repo.readonly_session("main")
    days = xr.open_zarr(session.store, group="days", consolidated=False)
    with xr.open_dataset(files / "day1.nc") as file:
        print("equal:", days["t"][24:].equals(file["t"].load()), dict(days.sizes))
    print("kinds:", session.chunk_type("days/t", [2, 0, 0]), session.chunk_type("days/time", [0]))
    print("files:", sorted({Path(url).name for url in session.all_virtual_chunk_locations()}))


def main(folder: Path) -> None:
    files = folder / "files"
    files.mkdir()
    prefix = f"file://{files}/"
    # The saved configuration names the locations of virtual chunks. Each reader authorises the locations that
    # it trusts, with credentials. A repository alone cannot make a reader open a file.
    config = frazil.RepositoryConfig.default()
    store = frazil.local_filesystem_store(str(files))
    config.set_virtual_chunk_container(frazil.VirtualChunkContainer(prefix, store))
    repo = frazil.Repository.create(
        frazil.local_filesystem_storage(str(folder / "repo")),
        config,
        authorize_virtual_chunk_access={prefix: LocalFileSystemAccess},
    )
    by_hand(repo, files)
    with_virtualizarr(repo, files)
    stranger = frazil.Repository.open(frazil.local_filesystem_storage(str(folder / "repo")))
    try:
        zarr.open_array(stranger.readonly_session("main").store, path="days/t", mode="r")[0]
    except frazil.InvalidInputError as error:
        print("not authorised:", error.kind)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
