"""A driver in a process of its own: a process has one Spark, and one kind of it, at a time.

`Case` is something to do at every place where Spark runs. Its function runs in the driver, with a repository
and a `Site`; what it returns comes back and is checked in the process of the test.

The engine of a site may lose one task in the middle: its work is done, its chunks are written, and then the
executor that did it is killed, before it can tell. With a Spark inside of this driver only the worker is.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.support.losses import Losing, Victim

import frazil
from frazil.spark import Engine, OnSpark, get_spark, ready


@dataclass(frozen=True)
class Site:
    """Where a case runs: a Spark, an engine on it that may lose a task, a directory for files."""

    spark: SparkSession
    engine: Engine
    directory: Path
    victim: Victim | None

    @property
    def marks(self) -> Path:
        """For `tests.support.losses.lose_the_second`, in a case that has tasks of its own."""
        return self.directory / "marks"


@dataclass(frozen=True)
class Case:
    """``run`` in the driver; ``check`` here, with what it returned."""

    name: str
    run: Callable[[frazil.Repository, Site], Any]
    check: Callable[[frazil.Repository, Any], None]
    commits: int = 1


@dataclass(frozen=True)
class Driver:
    """A process with a Spark session."""

    pool: ProcessPoolExecutor
    victim: Victim

    def call[R](self, function: Callable[..., R], *arguments: Any) -> R:
        """``function(*arguments)`` over there: both can be pickled, and so can what it returns or raises."""
        return self.pool.submit(function, *arguments).result()

    def run(self, case: Case, storage: frazil.Storage, directory: Path, *, losing: bool = True) -> Any:
        return self.call(_run, case.run, storage, directory, self.victim if losing else None)


@contextmanager
def driver(environment: Mapping[str, str], victim: Victim) -> Iterator[Driver]:
    """Start one. Its Spark starts with the first call."""
    pool = ProcessPoolExecutor(1, get_context("spawn"), _begin, (dict(environment),))
    try:
        yield Driver(pool, victim)
        pool.submit(_end).result()
    finally:
        pool.shutdown()


def _begin(environment: dict[str, str]) -> None:
    os.environ.update(environment)
    warnings.simplefilter("error", UserWarning)


def _end() -> None:
    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()


def _run(
    function: Callable[[frazil.Repository, Site], Any],
    storage: frazil.Storage,
    directory: Path,
    victim: Victim | None,
) -> Any:
    spark = get_spark()
    engine: Engine = OnSpark(spark, jobs=2)
    marks = directory / "marks"
    marks.mkdir()
    if victim is not None:
        engine = Losing(engine, marks, victim)
    return function(frazil.Repository.open(storage), Site(spark, engine, directory, victim))


def describe() -> tuple[str, str, tuple[str, ...]]:
    """The version of the Spark over there, what kind of session it is, and what could be better."""
    spark = get_spark()
    return spark.version, type(spark).__module__, ready(spark)
