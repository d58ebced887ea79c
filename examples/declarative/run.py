"""A declarative pipeline of Spark that writes into a repository.

It makes empty arrays and two files of observations, writes the specification of the pipeline, and runs it
with `spark-pipelines`. It needs `pip install "frazil[connect]"`, and Java.

Run it:  python examples/declarative/run.py [FOLDER]
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import zarr

import frazil

SPECIFICATION = """
name: weather
storage: {folder}/checkpoints
libraries:
  - glob:
      include: weather.py
"""


def prepare(folder: Path) -> frazil.Repository:
    """Return a repository with empty arrays. Write the files of the pipeline beside it."""
    repo = frazil.Repository.create(str(folder / "repository"))
    with repo.transaction("main", message="empty arrays") as store:
        root = zarr.create_group(store)
        time = root.create_array("time", shape=(0,), chunks=(24,), dtype="i8", dimension_names=["time"])
        time.attrs["units"] = "hours since 2024-01-01"
        root.create_array("station", data=np.array([10, 20]), dimension_names=["station"])
        names = ["time", "station"]
        root.create_array(
            "t", shape=(0, 2), chunks=(24, 2), dtype="f4", fill_value=np.nan, dimension_names=names
        )
    (folder / "arriving").mkdir()
    (folder / "arriving" / "1.csv").write_text("2024-01-01 06:00,10,271.5\n2024-01-01 06:00,20,268.0\n")
    (folder / "arriving" / "2.csv").write_text("2024-01-01 07:00,20,268.5\n")
    # Spark wants an absolute URL for its checkpoints.
    (folder / "spark-pipeline.yml").write_text(SPECIFICATION.format(folder=folder.as_uri()))
    shutil.copy(Path(__file__).with_name("weather.py"), folder)
    return repo


def main(folder: Path) -> None:
    repo = prepare(folder)
    subprocess.run(["spark-pipelines", "run"], cwd=folder, check=True)
    root = zarr.open_group(repo.readonly_session("main").store, mode="r")
    print("times:", np.asarray(root["time"]).tolist())
    print("values:", np.asarray(root["t"]).tolist())
    print("commits:", len(list(repo.ancestry(branch="main"))) - 2)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).resolve())
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(Path(directory))
