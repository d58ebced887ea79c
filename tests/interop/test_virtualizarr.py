"""VirtualiZarr writes to Frazil and reads it as it does with the published icechunk."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

if importlib.util.find_spec("virtualizarr") is None:
    pytest.skip("needs virtualizarr", allow_module_level=True)

pytestmark = pytest.mark.interop


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
        program = str(Path(__file__).with_name("virtualizarr_fixtures.py"))
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
