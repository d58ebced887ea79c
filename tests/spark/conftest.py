"""One local Spark for all tests of the room: its JVM takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from frazil.spark import Engine, Inline, Local, OnSpark, get_spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = get_spark(cores=2)
    yield session
    session.stop()


@pytest.fixture(params=["inline", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> Engine:
    return Inline() if request.param == "inline" else OnSpark(request.getfixturevalue("spark"), jobs=3)


@pytest.fixture(params=["inline", "threads", "processes", pytest.param("spark", marks=pytest.mark.spark)])
def every_engine(request: pytest.FixtureRequest) -> Engine:
    """Each back end, in turn."""
    if request.param == "spark":
        return OnSpark(request.getfixturevalue("spark"), jobs=3)
    return {"inline": Inline(), "threads": Local(2), "processes": Local(2, processes=True)}[request.param]
