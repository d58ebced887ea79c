"""One local Spark for all tests of the room: its JVM takes seconds to start. And whatever repository a test
leaves in its directory, the published icechunk has to read.

Tests without the mark ``spark`` need no pyspark: `scripts/test-python --pipeline` runs some of them where
neither that nor icechunk is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import frazil.spark
from frazil.spark import Engine, Inline, Local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

readable_by_reference: Callable[[Path], object] | None = None
if find_spec("icechunk") is not None:
    from tests.spark.reference import readable_by_reference


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = frazil.spark.get_spark(cores=2)
    yield session
    session.stop()


@pytest.fixture(params=["inline", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "inline":
        return Inline()
    return frazil.spark.OnSpark(request.getfixturevalue("spark"), jobs=3)


@pytest.fixture(params=["inline", "threads", "processes", pytest.param("spark", marks=pytest.mark.spark)])
def every_engine(request: pytest.FixtureRequest) -> Engine:
    """Each back end, in turn."""
    if request.param == "spark":
        return frazil.spark.OnSpark(request.getfixturevalue("spark"), jobs=3)
    return {"inline": Inline(), "threads": Local(2), "processes": Local(2, processes=True)}[request.param]


_PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report


@pytest.fixture(autouse=True)
def read_by_the_reference(request: pytest.FixtureRequest) -> Iterator[None]:
    """See the module; ``@pytest.mark.not_for_the_reference(reason)`` where that is not to be."""
    where: Path | None = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if readable_by_reference is None or where is None or not request.node.stash.get(_PASSED, False):
        return
    if request.node.get_closest_marker("not_for_the_reference") is None:
        for found in where.rglob("repo"):
            if found.is_file() and found.with_name("snapshots").is_dir():
                readable_by_reference(found.parent)
