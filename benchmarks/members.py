"""Collections with many members: an added member beside a commit of its dataset only, and searches."""

from __future__ import annotations

import importlib
import json
import shutil
import time
from pathlib import Path

import numpy as np
import xarray as xr
from measure import Measured, scratch
from shared_inputs import shared_input
from workload import FRAZIL

import frazil
from frazil.storage.checks import TRAFFIC

PLAIN = "a plain commit"
_BANDS = ("blue", "green", "red", "infrared")


def add(implementation: str, members: int) -> Measured:
    """Measure a commit of a scene with four bands: as a member, or as a group that no table describes."""
    ready = shared_input(f"members-{members}", lambda folder: make(folder, members))
    to_icechunk = importlib.import_module("frazil.xarray").to_icechunk
    axes = {"lat": 50 + np.arange(256) / 1000, "lon": 8 + np.arange(256) / 1000}
    values = np.random.default_rng(0).integers(0, 10_000, (256, 256)).astype("u2")
    scene = xr.Dataset(dict.fromkeys(_BANDS, (("lat", "lon"), values)), axes)
    scene = scene.assign_coords(time=np.datetime64("2024-05-01", "ns"))
    out = Measured()
    with scratch() as root:
        shutil.copytree(ready / "ice", f"{root}/ice")
        repo = frazil.Repository.open(f"{root}/ice")
        scenes = frazil.Collection(repo, "scenes")

        def write(name: str) -> None:
            if implementation == FRAZIL:
                scenes.add(scene, name=name, cloud=1.0)
                return
            session = repo.writable_session("main")
            to_icechunk(scene, session, group=f"plain/{name}")
            session.commit(name)

        write("first")
        with out.milliseconds_each("a commit", 5):
            for number in range(5):
                write(f"scene {number}")
    return out


def where(implementation: str, members: int) -> Measured:
    """Measure searches for members by cloud cover, time and box: with a new handle, and again."""
    ready = shared_input(f"members-{members}", lambda folder: make(folder, members))
    assert implementation == FRAZIL
    out = Measured()
    box, condition = (0, 0, 90, 60), "cloud < 10 AND time >= '2022-01-01'"
    session = frazil.Repository.open(ready / "ice").readonly_session("main")
    TRAFFIC.take_counts()
    with out.milliseconds_each("where, new handle", 1):
        found = frazil.Collection(session, "scenes").where(condition, bbox=box)
    out["requests of a new handle"] = TRAFFIC.take_counts().requests
    scenes = frazil.Collection(session, "scenes")
    assert list(scenes.where(condition, bbox=box)) == list(found)
    start = time.process_time()
    for _ in range(10):
        scenes.where(condition, bbox=box)
    out["where, again, processor ms"] = (time.process_time() - start) * 100
    return out


def make(folder: Path, members: int) -> None:
    """Write a collection whose rows are added by columns; its groups are empty."""
    repo = frazil.Repository.create(folder / "ice")
    frazil.Collection.create(repo, "scenes", schema={"columns": {"cloud": "float64", "platform": "string"}})
    names = [f"S2A_MSIL2A_{number:07}" for number in range(members)]
    session = repo.writable_session("main")
    document = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}}).encode()
    for name in names:
        session.workspace.set_node(f"/scenes/{name}", document)
    random = np.random.default_rng(0)
    west, south = random.uniform(-180, 179, members), random.uniform(-90, 89, members)
    times = np.datetime64("2020-01-01", "us") + random.integers(0, 5 * 365 * 86400, members).astype("m8[s]")
    texts = {"crs": "EPSG:4326", "shape": "lat=256 lon=256", "variables": " ".join(_BANDS), "platform": "S2A"}
    box = {"west": west, "south": south, "east": west + 1, "north": south + 1}
    columns = {
        "member": names,
        **box,
        "time": times,
        "time_end": times,
        "cloud": random.uniform(0, 100, members),
    }
    columns |= {name: np.full(members, text) for name, text in texts.items()}
    frazil.Collection(session, "scenes").add_rows(columns)
    session.commit("rows by columns")
