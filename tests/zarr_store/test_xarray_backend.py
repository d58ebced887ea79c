"""The tests that xarray ships for its zarr backend, over Frazil's store: xarray_backend.py has the classes.

They run in a process of their own: they want another configuration of pytest, and their fixtures.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support.patience import patience

CLASSES = Path(__file__).with_name("xarray_backend.py")

#: What is skipped or known to fail in xarray itself, how often in the classes together, and why.
NOT_RUN = {
    "requires netcdf": 6,  # some other packages for other formats
    "uint8 data can't be written to non-NetCDF4 data": 2,
    "float32 will be treated as float64 in zarr": 10,
    "No unlimited_dims handled in zarr.": 2,
    "This works on pre ZDtype Zarr-Python, but fails after.": 4,
    "Bad _Unsigned attribute.": 2,
    "Broken by Zarr 3.0.7": 2,
    "zarr version 3 has no hidden attributes for dimensions": 2,
}


@pytest.mark.weekly
def test_xarrays_own_tests_pass(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    options = [
        "-q",
        "-W",
        "ignore",
        "-c",
        os.devnull,
        "--rootdir",
        str(CLASSES.parent),
        f"--junitxml={report}",
    ]
    plugins = ["--noconftest", "-p", "no:cacheprovider", "-p", "xarray.tests.conftest"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *plugins, str(CLASSES)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patience(110),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    reasons = [str(skipped.get("message")) for case in cases for skipped in case.iter("skipped")]
    not_run = {reason: reasons.count(reason) for reason in reasons}
    unexpected = {reason: count for reason, count in not_run.items() if NOT_RUN.get(reason) != count}
    assert not unexpected
    assert len(cases) - len(reasons) >= 340
