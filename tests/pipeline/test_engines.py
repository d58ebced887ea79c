"""Which engine an operation uses, and options that no operation has."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest
import zarr

import frazil
from frazil import pipeline
from frazil.pipeline import Inline, Processes, Target


@pytest.fixture
def repo() -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(store, name="t", data=np.ones((1, 2)), chunks=(1, 1), dimension_names=["y", "x"])
    return repo


type Operation = Callable[[frazil.Repository, Any], Any]


def to(repo: frazil.Repository) -> Target:
    return Target(repo, "main", "/new")


OPERATIONS: dict[str, Operation] = {
    "map_blocks": lambda repo, engine: pipeline.map_blocks(abs, repo, ["t"], to=to(repo), engine=engine),
    "mean": lambda repo, engine: pipeline.mean(repo, "t", "x", to=to(repo), engine=engine),
    "validate": lambda repo, engine: pipeline.validate(repo, [pipeline.Finite("t")], engine=engine),
    "verify": lambda repo, engine: repo.upkeep.verify(engine=engine),
    "inspect_files": lambda repo, engine: pipeline.inspect_files(["none.nc"], engine=engine),
    "copy_repository": lambda repo, engine: pipeline.copy_repository(
        repo, frazil.in_memory_storage(), engine=engine
    ),
    "export_zarr": lambda repo, engine: pipeline.export_zarr(repo, frazil.in_memory_storage(), engine=engine),
    "compact": lambda repo, engine: repo.upkeep.compact("small files", branch="main", engine=engine).apply(),
}


class SparkSession:
    """Not an engine, though it runs things."""


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "text": (
        "fast",
        frazil.InvalidInputError,
        r"engine must be 'inline', 'processes', 'sail', 'spark' or 'threads', got 'fast'$",
    ),
    "local": ("local", frazil.InvalidInputError, r"got 'local'\. Did you mean `threads` or `processes`\?$"),
    "number": (3, TypeError, r"engine must be Engine or None, got int$"),
    "class": (Inline, TypeError, r"got type\. Pass an instance, such as Inline\(\)$"),
    "session": (SparkSession(), TypeError, r"got SparkSession\. Pass OnSpark\(spark\)$"),
}


@pytest.mark.sample(32, 55)
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
@pytest.mark.parametrize(("engine", "error", "text"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_engine_is_refused(
    operation: Operation, engine: Any, error: type[Exception], text: str, repo: frazil.Repository
) -> None:
    with pytest.raises(error, match=text):
        operation(repo, engine)
    assert len(list(repo.ancestry(branch="main"))) == 2


class Counting:
    """An engine that counts its runs, and needs no base class."""

    def __init__(self) -> None:
        self.runs = 0

    def run(self, task: Any, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        self.runs += 1
        return Inline().run(task, tasks, shared)


def test_an_engine_is_what_runs_tasks(repo: frazil.Repository) -> None:
    engine = Counting()
    OPERATIONS["mean"](repo, engine)
    assert engine.runs >= 1


def test_the_default_is_processes_where_spark_is_not_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_REMOTE", "SPARK_MASTER", "MASTER", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.delitem(sys.modules, "pyspark.sql", raising=False)  # another test may have a session
    assert pipeline.default_engine() == Processes()


@pytest.mark.spark
def test_the_default_is_spark_in_a_process_with_a_session(spark: object) -> None:
    assert type(pipeline.default_engine()).__name__ == "OnSpark"


@pytest.mark.parametrize("name", ["SPARK_REMOTE", "SPARK_MASTER", "PYSPARK_GATEWAY_PORT"])
def test_the_default_is_spark_if_the_environment_names_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    engine = Counting()
    monkeypatch.setattr(EntryPoint, "load", lambda self: lambda: engine)  # instead of a session
    monkeypatch.delitem(sys.modules, "pyspark.sql", raising=False)
    monkeypatch.setenv(name, "sc://127.0.0.1")
    assert pipeline.default_engine() is engine


@pytest.mark.parametrize(
    "call",
    [
        lambda repo, **options: pipeline.quantile(repo, "t", 0.5, **options),
        lambda repo, **options: pipeline.map_blocks(abs, repo, ["t"], to=pipeline.Target(repo), **options),
        lambda repo, **options: pipeline.anomaly(repo, "t", repo, **options),
    ],
)
def test_an_unknown_option_is_refused_with_a_suggestion(call: Any, repo: frazil.Repository) -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'enigne'\. Did you mean `engine`\?"):
        call(repo, enigne="inline")
