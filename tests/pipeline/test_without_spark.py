"""`frazil.pipeline` where pyspark is not installed: files become a dataset, and that becomes others."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.blocked import run

PROGRAM = """\
import sys

import h5py
import numpy as np

import pytest

import frazil
import frazil.spark
from frazil.pipeline import *
from frazil.pipeline import Inline, Processes, Threads, default_engine, max, min, sum

def main():
    assert default_engine() == Processes()
    for day in range(2):
        with h5py.File(f"day{day}.nc", "w") as file:
            file["time"] = np.arange(2) + 2 * day
            file["time"].attrs["units"] = "days since 2020-01-01"
            file["x"] = np.arange(3.0)
            file["t"] = np.arange(6.0).reshape(2, 3) + 6 * day
            for axis, name in enumerate(["time", "x"]):
                file[name].make_scale(name)
                file["t"].dims[axis].attach_scale(file[name])
    repo = frazil.Repository.create(frazil.local_filesystem_storage("ice"))
    result = ingest("day*.nc", Target(repo, group="/data"))  # by worker processes
    assert result.version.session().store is not None

    def values(path, version=None):
        import zarr
        session = repo.readonly_session("main")
        return zarr.open_array(session.store, path=path, mode="r")[:].tolist()

    def doubled(block):  # which no worker can import
        return 2 * block

    assert values("data/t") == np.arange(12.0).reshape(4, 3).tolist()
    for engine in (None, "processes", "inline", Threads(2), Inline()):
        name = f"/by/{type(engine).__name__}/{engine if isinstance(engine, str) else 0}"
        assert not mean(repo, "data/t", "time", to=Target(repo, "main", name), engine=engine).done_before
        assert values(f"{name}/data/t") == [4.5, 5.5, 6.5]
    map_blocks(doubled, repo, ["data/t"], to=Target(repo, "main", "/doubled"))
    assert values("doubled/data/t")[3] == [18.0, 20.0, 22.0]
    rechunk(repo, ["data/t"], {"time": 4}, to=Target(repo, "main", "/long"))
    rules = [Finite("data/t"), Range("data/t", 0, 11)]
    assert validate(repo, rules).ok

    def coarser(target):
        coarsen(repo, ["data/t"], {"x": 3}, to=Target(repo, target.branch, "/coarse"))

    write_audit_publish(repo, coarser, rules)
    assert values("coarse/data/t") == [[1.0], [4.0], [7.0], [10.0]]
    assert len(lineage_graph(repo).steps) == 9
    assert repo.upkeep.verify(engine="processes").ok
    assert job_metrics(repo)
    loaded = sorted(name for name, module in sys.modules.items() if "pyspark" in name and module is not None)
    assert loaded == [], loaded
    print("done")

main()
"""


@pytest.mark.deep
def test_operations_run_on_this_machine(tmp_path: Path) -> None:
    done = run(PROGRAM, ("pyspark", "py4j", "dask"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
