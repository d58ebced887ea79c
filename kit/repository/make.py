"""Make the small public repository: `python kit/repository/make.py` writes `weather.zip` beside this script.

The archive has one folder for each version of the format, `expected.json` with what a reader must find, and
`archive/pressure.bin`, to which virtual chunks refer. Ids and times differ in every run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import frazil
from frazil.credentials import LocalFileSystemAccess

HERE = Path(__file__).resolve().parent
LATITUDES, LONGITUDES = np.arange(90.0, -91, -10), np.arange(0.0, 360, 10)
#: The prefix in the references. A reader gives the container `archive` its own prefix.
PREFIX = "https://example.org/weather/archive/"


def wave(number: int, day: int) -> np.ndarray:
    """Return a wave around the globe that moves to the east, day by day."""
    longitudes, latitudes = np.radians(number * (LONGITUDES - 12 * day)), np.radians(LATITUDES)
    return np.outer(np.cos(latitudes), np.cos(longitudes))


def temperature(day: int) -> np.ndarray:
    """Return a field in degrees Celsius."""
    return np.asarray(30 * np.cos(np.radians(LATITUDES))[:, None] - 12 + 6 * wave(3, day), "f4")


AXES = (
    ("latitude", LATITUDES, 19, "degrees_north", "latitude"),
    ("longitude", LONGITUDES, 36, "degrees_east", "longitude"),
    ("time", np.arange(4), 1, "days since 2026-01-01", "time"),
)


def write(folder: Path, version: int) -> dict[str, str]:
    """Write the story of one repository, and return its notable snapshots."""
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=200)
    if version == 2:
        archive = frazil.VirtualChunkContainer(PREFIX, frazil.http_store(), name="archive")
        config.set_virtual_chunk_container(archive)
    storage = frazil.local_filesystem_storage(str(folder))
    repo = frazil.Repository.create(storage, config, spec_version=version)
    ids: dict[str, str] = {}
    session = repo.writable_session("main")
    root = zarr.create_group(session.store, attributes={"Conventions": "CF-1.11", "title": "A small world"})
    for name, values, chunk, units, standard in AXES:
        array = root.create_array(
            name, data=values, chunks=(chunk,), dimension_names=[name], compressors=None
        )
        array.attrs.update({"units": units, "standard_name": standard})
    data, names = np.stack([temperature(day) for day in range(4)]), ["time", "latitude", "longitude"]
    options: dict[str, Any] = {"dimension_names": names, "compressors": None}
    attributes: dict[str, Any] = {"units": "degC", "standard_name": "air_temperature"}
    root.create_array("temperature", data=data, chunks=(1, 10, 12), attributes=attributes, **options)
    ids["first"] = session.commit("Four days of temperature", metadata={"author": "A. Scientist", "days": 4})
    repo.create_tag("v1", ids["first"])
    repo.create_tag("withdrawn", ids["first"])
    repo.delete_tag("withdrawn")

    if version == 2:  # a branch whose first commits expired: the last one still names their transaction logs
        repo.create_branch("old", ids["first"])
        for number in range(3):
            session = repo.writable_session("old")
            zarr.open_group(session.store).attrs["pass"] = number
            ids[f"old_{number}"] = session.commit(f"Pass {number}")
        tip = next(iter(repo.ancestry(branch="old")))
        repo.expire_snapshots(tip.written_at)

    session = repo.writable_session("main")
    zarr.open_array(session.store, path="temperature")[2, 5, 7] = 999
    ids["damaged"] = session.commit("Day 2 again, with a bad value")
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="temperature")[2] = temperature(2)
    ids["corrected"] = session.commit("Correct day 2")
    repo.create_branch("experiment", ids["corrected"])
    session = repo.writable_session("experiment")
    warm = zarr.open_array(session.store, path="temperature")
    warm[:] = np.asarray(warm[:]) + 2
    ids["experiment"] = session.commit("Two degrees warmer")
    if version == 1:
        return ids

    session = repo.writable_session("main")
    attributes = {"units": "hPa", "standard_name": "air_pressure_at_mean_sea_level"}
    shape: dict[str, Any] = {"shape": (4, 19, 36), "chunks": (1, 19, 36), "dtype": "<f4"}
    zarr.create_array(session.store, name="raw/pressure", attributes=attributes, **shape, **options)
    size = 19 * 36 * 4
    offsets, lengths = np.arange(4, dtype="u8") * size, np.full(4, size, "u8")
    locations = ["vcc://archive/pressure.bin"] * 4
    session.store.set_virtual_refs_arr(
        "raw/pressure", (4, 1, 1), locations, offsets, lengths, validate_containers=False
    )
    ids["virtual"] = session.commit("Pressure, as references to an archive")
    session = repo.writable_session("main")
    zarr.open_group(session.store).attrs["history"] = "pressure added"
    ids["before_amend"] = session.commit("Add a history")
    session = repo.writable_session("main")
    zarr.open_group(session.store).attrs["history"] = "pressure added on 2026-11-28"
    ids["amended"] = session.amend("Add a history with its date")
    session = repo.rearrange_session("main")
    session.move("/raw", "/surface")
    ids["moved"] = session.commit("Move raw to surface")
    repo.create_tag("v2", ids["moved"])
    return ids


def expected(folder: Path, archive: Path) -> dict[str, Any]:
    """Return what a reader must find: references, history, nodes, and a digest of each array."""
    prefix = f"file://{archive}/"
    config = frazil.RepositoryConfig.default()
    store = frazil.local_filesystem_store(str(archive))
    container = frazil.VirtualChunkContainer(prefix, store, name="archive")
    config.set_virtual_chunk_container(container)
    storage = frazil.local_filesystem_storage(str(folder))
    repo = frazil.Repository.open(storage, config, {prefix: LocalFileSystemAccess})
    versions = {}
    for kind, names in (("branch", repo.list_branches()), ("tag", repo.list_tags())):
        for name in sorted(names):
            version: Any = {kind: name}
            log = [[each.id, each.message] for each in repo.ancestry(**version)]
            group = zarr.open_group(repo.readonly_session(**version).store, mode="r")
            arrays = {
                f"/{path}": hashlib.sha256(np.ascontiguousarray(node[...]).tobytes()).hexdigest()
                for path, node in sorted(group.members(max_depth=None))
                if isinstance(node, zarr.Array)
            }
            versions[f"{kind} {name}"] = {"snapshot": log[0][0], "log": log, "arrays": arrays}
    return versions


def main(target: Path = HERE / "weather.zip") -> None:
    """Write the archive."""
    scratch = Path(tempfile.mkdtemp())
    try:
        archive = scratch / "archive"
        archive.mkdir()
        pressure = np.stack([1013 + 10 * wave(2, day) for day in range(4)])
        (archive / "pressure.bin").write_bytes(pressure.astype("<f4").tobytes())
        document: dict[str, Any] = {"made": datetime.now(UTC).date().isoformat()}
        for version in (1, 2):
            folder = scratch / f"version-{version}"
            snapshots = write(folder, version)
            document[folder.name] = {"notable": snapshots, "versions": expected(folder, archive)}
        (scratch / "expected.json").write_text(json.dumps(document, indent=1) + "\n")
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
            for path in sorted(scratch.rglob("*")):
                if path.is_file():
                    out.write(path, path.relative_to(scratch))
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
