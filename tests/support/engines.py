"""Fixtures of jobs, pipelines and Spark, as one plugin.

All tests share one local Spark, because its JVM takes seconds to start. The published icechunk reads every
repository that a test leaves in its directory.

Tests without the mark ``spark`` need no pyspark: `scripts/test-python --pipeline` runs some of them where
neither that nor icechunk is installed.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.pipeline import Engine

#: The folders of the tests that get these fixtures.
FOLDERS = [Path(__file__).parents[1] / name for name in ("cubed", "jobs", "readers", "pipeline", "spark")]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    import frazil.spark

    session = frazil.spark.get_spark(cores=2)
    yield session
    session.stop()


_SPARK = pytest.param("spark", marks=pytest.mark.spark)


@pytest.fixture(params=["inline", _SPARK])
def engine(request: pytest.FixtureRequest) -> Engine:
    return _engine(request)


@pytest.fixture(params=["inline", "threads", "processes", _SPARK])
def every_engine(request: pytest.FixtureRequest) -> Engine:
    """Each back end, in turn."""
    return _engine(request)


def _engine(request: pytest.FixtureRequest) -> Engine:
    from frazil.pipeline import Inline, Processes, Threads

    if request.param == "spark":
        import frazil.spark

        return frazil.spark.OnSpark(request.getfixturevalue("spark"), jobs=3)
    engines: dict[str, Engine] = {"inline": Inline(), "threads": Threads(2), "processes": Processes(2)}
    return engines[request.param]


@cache
def in_folders(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in FOLDERS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Results below their data are no error in tests; those of the warning expect it."""
    for item in items:
        if in_folders(item.path):
            item.add_marker(pytest.mark.filterwarnings("ignore::frazil.errors.MisalignedGroupWarning"))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Remove the variable of pytest that differs from test to test.

    An idle process of `Processes` serves only later runs in the same environment. With the variable, each
    test starts its own processes.
    """
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    return (yield)


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
    judged = (
        in_folders(request.node.path)
        and "tmp_path" in request.fixturenames
        and request.node.get_closest_marker("not_for_the_reference") is None
        and find_spec("icechunk") is not None
    )
    directory: Path | None = request.getfixturevalue("tmp_path") if judged else None
    yield
    if directory is None or not request.node.stash.get(_PASSED, False):
        return
    from tests.support.judge import readable_by_reference

    for repo_file in directory.rglob("repo"):
        if repo_file.is_file() and repo_file.with_name("snapshots").is_dir():
            readable_by_reference(repo_file.parent)
