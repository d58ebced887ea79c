"""What people do with VirtualiZarr and ``icechunk``, as a program:

    python virtualizarr_story.py frazil|icechunk DIRECTORY

It says ``icechunk`` everywhere. With ``frazil`` the first thing it does is to install Frazil under that name.
The files that references lead to are in DIRECTORY/files, the repository goes to DIRECTORY/<package>. What it
read is compared with the files here; what it prints, as JSON, has to be the same with both.
"""

from __future__ import annotations

import json
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

if "frazil" in sys.argv[1:2]:
    import frazil.compat

    frazil.compat.install_as_icechunk()

import icechunk
import xarray as xr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr import open_virtual_dataset, open_virtual_datatree
from virtualizarr.parsers import HDFParser, IcechunkParser, KerchunkJSONParser, NetCDF3Parser

REGISTRY = ObjectStoreRegistry({"file://": LocalStore("/")})


def virtual(path: Path, parser: Any = None, **options: Any) -> xr.Dataset:
    return open_virtual_dataset(
        f"file://{path}",
        registry=REGISTRY,
        parser=parser or HDFParser(),
        **{"loadable_variables": [], **options},
    )


def original(path: Path, **options: Any) -> xr.Dataset:
    with xr.open_dataset(path, **options) as dataset:
        return dataset.load()


def read(session: icechunk.Session, group: str, **options: Any) -> xr.Dataset:
    with xr.open_zarr(session.store, group=group, consolidated=False, chunks=None, **options) as dataset:
        return dataset.load()


def check(session: icechunk.Session, group: str, expected: xr.Dataset, **options: Any) -> None:
    xr.testing.assert_equal(read(session, group, **options), expected)


def write_region(fork: bytes, path: str, start: int, steps: int) -> bytes:
    """In another process: one file's references into their place."""
    session = pickle.loads(fork)
    assert isinstance(session, icechunk.ForkSession)
    part = virtual(Path(path)).drop_vars(["lat", "lon", "crs"])
    part.vz.to_icechunk(session.store, group="series", region={"time": slice(start, start + steps)})
    return pickle.dumps(session)


def along_time(parts: list[xr.Dataset]) -> xr.Dataset:
    return xr.concat(parts, "time", data_vars="minimal", coords="minimal", compat="override", join="override")


def error_lines(error: BaseException) -> list[str]:
    return [type(error).__name__, getattr(error, "kind", None) or ""]


def main(directory: Path) -> dict[str, Any]:
    files = directory / "files"
    prefix = f"file://{files}/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(files)))
    )
    access = {prefix: icechunk.credentials.LocalFileSystemAccess}
    storage = icechunk.local_filesystem_storage(str(directory / sys.argv[1]))
    repo = icechunk.Repository.create(storage, config, authorize_virtual_chunk_access=access)
    report: dict[str, Any] = {"version": icechunk.__version__}
    parts = sorted(files.glob("part-*.nc"))
    whole = along_time([original(part) for part in parts])

    # Real files, and the formats that VirtualiZarr reads by itself
    session = repo.writable_session("main")
    for path in sorted([*files.glob("real-*.nc"), files / "classic.nc"]):
        parser = NetCDF3Parser() if path.name == "classic.nc" else HDFParser()
        virtual(path, parser).vz.to_icechunk(session.store, group=path.stem)
        check(session, path.stem, original(path))
    classic = virtual(files / "classic.nc", NetCDF3Parser()).drop_vars("crs")  # no scalars in kerchunk
    classic.vz.to_kerchunk(str(directory / "k.json"), format="json")
    virtual(directory / "k.json", KerchunkJSONParser()).vz.to_icechunk(session.store, group="kerchunk")
    check(session, "kerchunk", original(files / "classic.nc").drop_vars("crs"))
    tree = open_virtual_datatree(
        f"file://{files / 'groups.nc'}", registry=REGISTRY, parser=HDFParser(), loadable_variables=[]
    )
    tree.vz.to_icechunk(session.store, mode="a")
    check(session, "inner/most", original(files / "groups.nc", group="inner/most"))
    session.commit("formats")

    # Coordinates in memory beside references; append; one file over another
    with repo.transaction("main", message="first") as store:
        loaded = virtual(parts[0], loadable_variables=["time", "lat", "lon"])
        loaded.vz.to_icechunk(store, group="series")
    for part in parts[1:]:
        session = repo.writable_session("main")
        appended = virtual(part, loadable_variables=["time", "lat", "lon"]).drop_vars("crs")
        appended.vz.to_icechunk(session.store, group="series", append_dim="time")
        session.commit(f"append {part.name}")
    check(repo.readonly_session("main"), "series", whole)
    check(
        repo.readonly_session(snapshot_id=list(repo.ancestry(branch="main"))[2].id),
        "series",
        original(parts[0]),
    )

    # All at once
    session = repo.writable_session("main")
    along_time([virtual(part) for part in parts]).vz.to_icechunk(session.store, group="joined")
    check(session, "joined", whole)
    session.commit("joined")

    # In other processes, by forks, swapped in place
    session = repo.writable_session("main")
    steps = original(parts[0]).sizes["time"]
    forks = [pickle.dumps(session.fork()) for _ in parts]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        starts = range(0, steps * len(parts), steps)
        back = list(pool.map(write_region, forks, map(str, reversed(parts)), starts, [steps] * len(parts)))
    session.merge(*map(pickle.loads, back))
    session.commit("regions")
    turned = along_time([original(part) for part in reversed(parts)])
    check(repo.readonly_session("main"), "series", turned)

    # A repository is a source of references itself; xarray writes these chunks, so that some are native
    session = repo.writable_session("main")
    whole.to_zarr(session.store, group="copied", consolidated=False, zarr_format=3)
    session.commit("copied")
    for group in ("joined", "copied"):
        again = virtual(
            directory / sys.argv[1], IcechunkParser(group=group), loadable_variables=list(whole.variables)
        )
        xr.testing.assert_equal(again.load(), whole)

    # Files that changed since, and what must not be written
    modified = datetime.fromtimestamp((files / "classic.nc").stat().st_mtime, UTC)
    for name, at in {"older": modified - timedelta(hours=1), "newer": modified + timedelta(hours=1)}.items():
        session = repo.writable_session("main")
        source = virtual(files / "classic.nc", NetCDF3Parser())
        source.vz.to_icechunk(session.store, group="checked", last_updated_at=at)
        try:
            check(session, "checked", original(files / "classic.nc"))
            report[name] = "equal"
        except icechunk.StorageError as error:
            report[name] = error_lines(error)
    outside = directory / "outside.nc"
    outside.write_bytes((files / "classic.nc").read_bytes())
    for options in ({}, {"validate_containers": False}):
        session = repo.writable_session("main")
        try:
            virtual(outside, NetCDF3Parser()).vz.to_icechunk(session.store, group="outside", **options)
            read(session, "outside")
        except Exception as error:
            report[f"outside {options}"] = error_lines(error)
    try:
        source.vz.to_icechunk(repo.readonly_session("main").store)
    except ValueError as error:
        report["read only"] = error_lines(error)
    report["locations"] = sorted(set(repo.readonly_session("main").all_virtual_chunk_locations()))
    report["history"] = [snapshot.message for snapshot in repo.ancestry(branch="main")]
    return report


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[2]))))
