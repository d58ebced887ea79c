"""VirtualiZarr writes to Frazil as it writes to the published icechunk, and each reads what the other has."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import netCDF4
import numpy as np
import pytest
from tests.interop.both import Side, content_of

import frazil

if importlib.util.find_spec("virtualizarr") is None:
    pytest.skip("needs virtualizarr", allow_module_level=True)

import icechunk
import iris_sample_data

pytestmark = pytest.mark.interop

STORY = Path(__file__).with_name("virtualizarr_story.py")
# Other people's: zarr, for the characters in one of the files
WARNINGS = ["-W", "error", "-W", "ignore:The data type"]


def weather(path: Path, start: int, steps: int, format: str = "NETCDF4") -> None:
    """Packed, compressed, with missing values; coordinates; a scalar."""
    rng = np.random.default_rng(start)
    classic = format != "NETCDF4"
    with netCDF4.Dataset(path, "w", format=format) as file:
        for name, size in {"time": None if classic else steps, "lat": 6, "lon": 8}.items():
            file.createDimension(name, size)
        stored: dict[str, Any] = {} if classic else {"zlib": True, "shuffle": True, "chunksizes": (1, 3, 4)}
        t = file.createVariable("t", "i2", ("time", "lat", "lon"), fill_value=-99, **stored)
        t.scale_factor, t.add_offset, t.units = 0.5, 270.0, "K"
        time = file.createVariable("time", "i4", ("time",))
        time.units = "hours since 2001-01-01"
        file.createVariable("lat", "f8", ("lat",))[:] = np.linspace(-50, 50, 6)
        file.createVariable("lon", "f4", ("lon",))[:] = np.arange(8)
        file.createVariable("crs", "i4", ())[...] = 4326
        time[:] = np.arange(start, start + steps) * 6
        t[:] = np.ma.masked_less(270 + rng.integers(-20, 20, (steps, 6, 8)) / 2, 262)
        file.title = "weather"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("virtual")
    files = directory / "files"
    files.mkdir()
    for name in ("A1B_north_america", "orca2_votemper", "hybrid_height"):
        shutil.copy(Path(iris_sample_data.path) / f"{name}.nc", files / f"real-{name}.nc")
    for n in range(3):
        weather(files / f"part-{n}.nc", 4 * n, 4)
    weather(files / "classic.nc", 0, 4, "NETCDF3_64BIT_OFFSET")
    with netCDF4.Dataset(files / "groups.nc", "w") as file:
        group = file.createGroup("inner").createGroup("most")
        group.createDimension("x", 5)
        group.createVariable("a", "f8", ("x",))[:] = np.arange(5.0)
    return directory


@pytest.fixture(scope="module")
def reports(directory: Path) -> dict[str, Any]:
    """What the story said, by package. It has compared all values with the files."""
    runs = {
        package: subprocess.Popen(
            [sys.executable, *WARNINGS, str(STORY), package, str(directory)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for package in ("frazil", "icechunk")
    }
    reports_by_package = {}
    for package, process in runs.items():
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        reports_by_package[package] = json.loads(output)
    return reports_by_package


@pytest.mark.weekly
@pytest.mark.deep
def test_it_goes_as_with_the_published_one(reports: dict[str, Any]) -> None:
    ours, theirs = reports["frazil"], reports["icechunk"]
    assert ours == theirs
    assert ours["older"] == ["StorageError", "virtual-chunk-modified"]
    assert len(ours["history"]) == 8
    assert len(ours["locations"]) == 8


@pytest.mark.weekly
def test_each_reads_what_the_other_wrote(reports: dict[str, Any], directory: Path) -> None:
    seen = {}
    for writer in reports:
        for name, package in {"frazil": frazil, "icechunk": icechunk}.items():
            side = Side(name, package, directory / writer, directory / "files").open()
            content = content_of(side.repo.readonly_session("main"))
            seen[writer, name] = {
                path: {key: value for key, value in node.items() if key != "id"}
                for path, node in content.items()
            }
    for writer in reports:
        assert seen[writer, "frazil"] == seen[writer, "icechunk"]
    # Native chunks have names of their own, and Frazil packs some: documents and values are what is the same
    for path, node in seen["frazil", "frazil"].items():
        other = seen["icechunk", "icechunk"][path]
        assert node["document"] == other["document"]
        assert node.get("values") == other.get("values")
    assert len(seen["frazil", "frazil"]) == len(seen["icechunk", "icechunk"]) > 40


@pytest.mark.deep
def test_every_public_module_of_the_wheel_exists() -> None:
    """By name, from the files of the published package; with their public classes and functions."""
    top = importlib.metadata.distribution("icechunk").locate_file("icechunk")
    below = [name for _, name, _ in pkgutil.walk_packages([str(top)], "icechunk.") if "._" not in name]
    public = [name for name in below if not name.startswith(("icechunk.vendor", "icechunk.testing"))]
    program = f"""
import importlib
import frazil.compat
frazil.compat.install_as_icechunk()
for name in {public!r}:
    module = importlib.import_module(name)
    assert module.__name__ == name.replace("icechunk", "frazil"), name
print(len({public!r}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 14


@pytest.mark.weekly
@pytest.mark.deep
def test_virtualizarrs_own_tests_go_as_with_the_published_one(tmp_path: Path) -> None:
    """Its wheel has tests of its writer and parser, without some of their fixtures and optional packages."""
    tests = Path(str(importlib.metadata.distribution("virtualizarr").locate_file("virtualizarr"))) / "tests"
    files = [tests / "test_writers" / "test_icechunk.py", tests / "test_parsers" / "test_icechunk"]
    if not all(path.exists() for path in files):
        pytest.skip("this virtualizarr comes without its tests")
    passed = {}
    for package in ("frazil", "icechunk"):
        report = tmp_path / f"{package}.xml"
        options = ["-q", "-W", "ignore", "-c", os.devnull, "--rootdir", str(tests), f"--junitxml={report}"]
        program = str(STORY.with_name("virtualizarr_fixtures.py"))
        subprocess.run(
            [sys.executable, program, package, *options, "-p", "no:cacheprovider", *map(str, files)],
            cwd=tmp_path,
            capture_output=True,
            check=False,  # some fail with both
        )
        cases = ElementTree.parse(report).getroot().iter("testcase")
        passed[package] = {(case.get("classname"), case.get("name")) for case in cases if len(case) == 0}
    assert passed["frazil"] == passed["icechunk"]
    assert len(passed["frazil"]) >= 50
