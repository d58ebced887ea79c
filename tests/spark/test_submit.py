"""``spark-submit`` with Frazil as a zip, on machines where only what it needs is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pyspark
import pytest

from frazil.spark.runtime.jvm import find_java_home

SOURCE = Path(__file__).parents[2] / "src"

JOB = """\
import numpy as np
import zarr
from pyspark.sql import SparkSession

import frazil
from frazil.spark import OnSpark, Target, mean, register

assert ".zip" in frazil.__file__, frazil.__file__
spark = SparkSession.builder.getOrCreate()
register(spark)
repo = frazil.Repository.create(frazil.local_filesystem_storage("ice"))
with repo.transaction("main", message="an array") as store:
    zarr.create_array(store, name="t", data=np.arange(4.0), chunks=(2,), dimension_names=["x"])
mean(repo, "t", "x", to=Target(repo, "main", "/mean"), engine=OnSpark(spark))
rows = spark.read.format("frazil").load("ice").where("t > 1.5").collect()
print("rows", [row["t"] for row in rows])
print("mean", float(zarr.open_array(repo.readonly_session("main").store, path="mean/t")[()]))
"""


def python_without_frazil(place: Path) -> Path:
    """A Python that has the packages of this one, but for what is installed to be edited: Frazil."""
    venv.create(place, symlinks=True)
    version = "python{}.{}".format(*sys.version_info)
    packages = place / "lib" / version / "site-packages"
    packages.joinpath("packages.pth").write_text(sysconfig.get_path("purelib"))
    return place / "bin" / "python"


@pytest.mark.weekly
@pytest.mark.deep
@pytest.mark.spark
def test_a_zip_is_enough_for_drivers_and_executors(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "frazil.zip", "w") as out:
        for path in (each for each in SOURCE.rglob("*.py*") if each.suffix in (".py", ".pyi")):
            out.write(path, path.relative_to(SOURCE))
    (tmp_path / "job.py").write_text(JOB)
    python = str(python_without_frazil(tmp_path / "venv"))
    home = Path(pyspark.__file__).parent
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"} | {
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(find_java_home()),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
    }
    assert subprocess.run(
        [python, "-c", "import frazil"], cwd=tmp_path, env=environment, check=False
    ).returncode
    submit = [
        str(home / "bin" / "spark-submit"),
        "--master",
        "local[2,4]",
        "--py-files",
        "frazil.zip",
        "job.py",
    ]
    done = subprocess.run(submit, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-5000:]
    assert "rows [2.0, 3.0]" in done.stdout.splitlines()
    assert "mean 1.5" in done.stdout.splitlines()
