"""The engine of the name "sail": the session that it takes or starts, and all operations on it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from pyspark.sql import SparkSession
from tests.pipeline.definition.test_year import run_year
from tests.pipeline.derivation import machine
from tests.pipeline.operations import CALLS, anomaly, operate
from tests.support.program_runner import FORKS

import cubed
import frazil
import frazil.pipeline as ops
import frazil.xarray
from frazil.credentials import LocalFileSystemAccess
from frazil.cubed import Executor
from frazil.engines import engine_of
from frazil.spark import OnSpark, Target

T = "data/t"


def test_a_program_of_xarray_by_cubed(grid: frazil.Repository, spark: SparkSession, tmp_path: Path) -> None:
    executor = Executor(OnSpark(spark))
    spec = cubed.Spec(work_dir=str(tmp_path / "work"), allowed_mem="100MB", executor=executor)
    options: Any = {"chunked_array_type": "cubed", "from_array_kwargs": {"spec": spec}}
    version: Any = grid
    data = xr.open_dataset(version, engine="frazil", group="data", chunks={}, **options)
    rows = data.chunk(time=-1, lat=2, chunked_array_type="cubed")
    rows.assign(mean=data.t.mean("time")).frazil.to(grid, group="rows")
    found = xr.open_dataset(version, engine="frazil", group="rows")
    expected = xr.open_dataset(version, engine="frazil", group="data")["t"]
    np.testing.assert_array_equal(found["t"], expected)
    np.testing.assert_allclose(found["mean"], expected.mean("time"), rtol=1e-6)


@pytest.fixture
def grid(tmp_path: Path) -> frazil.Repository:
    """Twelve days, four times a day."""
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "grid")))
    time = np.datetime64("2025-12-28", "ns") + np.arange(48) * np.timedelta64(6, "h")
    lat, lon = np.linspace(-70, 70, 8), np.arange(0, 360, 45.0)
    values = np.random.default_rng(0).normal(280, 5, (48, 8, 8)).astype("f4")
    data = xr.Dataset({"t": (("time", "lat", "lon"), values)}, {"time": time, "lat": lat, "lon": lon})
    data["lat"].attrs["units"], data["lon"].attrs["units"] = "degrees_north", "degrees_east"
    encoding = {"t": {"chunks": (4, 8, 8)}}
    with repo.transaction("main", message="twelve days") as store:
        data.to_zarr(store, group="data", consolidated=False, zarr_format=3, encoding=encoding)
    return repo


def contents(store: Any, group: str = "") -> dict[str, Any]:
    """Return the values and attributes of the arrays below a group."""
    members = zarr.open_group(store, path=group, mode="r").members(None)
    arrays: dict[str, Any] = {path: each for path, each in members if isinstance(each, zarr.Array)}
    return {path: (np.asarray(each[...]), dict(each.attrs)) for path, each in arrays.items()}


def target(repo: frazil.Repository, engine: object) -> Target:
    return Target(repo, group=f"of_{engine}" if isinstance(engine, str) else "of_inline")


def of_arrays(call: Callable[..., Any], repo: frazil.Repository, place: Path, engine: Any) -> object:
    to = target(repo, engine)
    call(repo, [T], to=to, engine=engine)
    return contents(repo.readonly_session("main").store, to.group)


def ingested(repo: frazil.Repository, place: Path, engine: Any) -> object:
    files = place.parent / "files"
    if not files.exists():
        files.mkdir()
        for number in range(3):
            data = xr.Dataset({"t": (("time", "x"), np.full((2, 9), number, "f4"))})
            data["time"] = [number * 2, number * 2 + 1]
            data.to_netcdf(files / f"{number}.nc", engine="h5netcdf")
    to, pattern = target(repo, engine), str(files / "*.nc")
    ops.ingest(pattern, to, concat_dim="time", engine=engine)
    report = ops.inspect_files(pattern, concat_dim="time", engine=engine)
    return contents(repo.readonly_session("main").store, to.group), str(report)


def refreshed(repo: frazil.Repository, place: Path, engine: Any) -> object:
    storage = frazil.local_filesystem_storage(str(place / "other"))
    ops.copy_repository(repo, storage, engine=engine)
    other = frazil.Repository.open(storage)
    to = target(other, engine)
    ops.coarsen(other, [T], {"lat": 2}, to=to, engine=engine)
    with other.transaction("main", message="a correction") as store:
        zarr.open_array(store, path=T, mode="r+")[0] = 1
    tasks = ops.refresh(other, mode="strict", engine=engine).apply().metrics.tasks
    return tasks, contents(other.readonly_session("main").store, to.group)


def exported(repo: frazil.Repository, place: Path, engine: Any) -> object:
    storage = frazil.local_filesystem_storage(str(place / "zarr"))
    ops.export_zarr(repo, storage, engine=engine)
    return contents(zarr.storage.LocalStore(place / "zarr"))


def validated(repo: frazil.Repository, place: Path, engine: Any) -> object:
    rules = [ops.Range(T, 200, 350), ops.Range(T, 279, 280), ops.Finite(T)]
    return str(ops.validate(repo, rules, engine=engine))


def cloned(repo: frazil.Repository, place: Path, engine: Any) -> object:
    storage = frazil.local_filesystem_storage(str(place / "clone"))
    ops.clone_repository(repo, storage, engine=engine)
    return contents(frazil.Repository.open(storage).readonly_session("main").store)


def doubled(data: xr.Dataset) -> xr.Dataset:
    return data * 2


def computed_by_cubed(repo: frazil.Repository, place: Path, engine: Any) -> object:
    to = target(repo, engine)
    with cubed.config.set({"spec.work_dir": str(place / "work")}):
        ops.map_datasets(doubled, repo, [T], to=to, engine=engine)
    return contents(repo.readonly_session("main").store, to.group)


def viewed(repo: frazil.Repository, place: Path, engine: Any) -> object:
    storage = frazil.local_filesystem_storage(str(place / "view"))
    report = ops.view_repository(repo, storage, paths=["data"], sel={"lon": slice(45, 180)}, engine=engine)
    access: Any = dict.fromkeys(report.containers, LocalFileSystemAccess)
    view = frazil.Repository.open(storage, authorize_virtual_chunk_access=access)
    return contents(view.readonly_session("main").store)


def copied_from_zarr(repo: frazil.Repository, place: Path, engine: Any) -> object:
    plain = frazil.local_filesystem_storage(str(place / "plain"))
    ops.export_zarr(repo, plain, engine="inline")
    other = frazil.Repository.create(frazil.local_filesystem_storage(str(place / "copy")))
    ops.from_zarr(plain, Target(other), engine=engine)
    return contents(other.readonly_session("main").store)


def published(repo: frazil.Repository, place: Path, engine: Any) -> object:
    def work(to: Target) -> None:
        with repo.transaction(to.branch, message="a value") as store:
            zarr.open_array(store, path=T, mode="r+")[0] = 280

    summary = ops.write_audit_publish(repo, work, [ops.Range(T, 200, 350)], engine=engine)
    assert summary.report is not None
    return summary.report.ok, contents(repo.readonly_session("main").store)


def refreshed_session(repo: frazil.Repository, place: Path, engine: Any) -> object:
    to = target(repo, engine)
    ops.mean(repo, [T], "time", to=to, engine=engine)
    session = repo.writable_session("main")
    zarr.open_array(session.store, path=T, mode="r+")[0] = 280
    ops.refresh_session(session, engine=engine)
    return contents(session.store, to.group)


def prepared(session: frazil.Session) -> ops.Tasks:
    zarr.create_array(session.store, name="squares", shape=(6,), chunks=(2,), dtype="i4", overwrite=True)
    return ops.Tasks(range(0, 6, 2))


def squares(fork: frazil.ForkSession, shared: None, start: int) -> ops.Outcome:
    zarr.open_array(fork.store, path="squares", mode="r+")[start : start + 2] = start**2
    return ops.Outcome(start)


def job_run(repo: frazil.Repository, place: Path, engine: Any) -> object:
    job = ops.Job(f"{place.name}", Target(repo), prepared, squares, writes=("/squares",))
    result = ops.run_job(job, engine_of(engine))
    return contents(result.version.session().store)["squares"]


def block_values(block: ops.Block) -> Any:
    return np.full(block.shape, block.start[0])


def blocks_written(repo: frazil.Repository, place: Path, engine: Any) -> object:
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="blocks", shape=(6,), chunks=(2,), dtype="i4")
    blocks = [ops.Block("blocks", (start,), (start + 2,)) for start in (0, 2, 4)]
    ops.write_blocks(session, block_values, blocks, engine_of(engine))
    return np.asarray(array[:])


OPERATIONS: dict[str, Callable[[frazil.Repository, Path, Any], object]] = {
    **{name: partial(of_arrays, partial(operate, call)) for name, call in CALLS.items()},
    "count": partial(of_arrays, partial(operate, (ops.count, ["time"], {}))),
    "std": partial(of_arrays, partial(operate, (ops.std, ["time"], {}))),
    "clone_repository": cloned,
    "write_audit_publish": published,
    "refresh_session": refreshed_session,
    "run_job": job_run,
    "write_blocks": blocks_written,
    "anomaly": partial(of_arrays, anomaly),
    "ingest, inspect_files": ingested,
    "copy_repository, coarsen, refresh": refreshed,
    "export_zarr": exported,
    "map_datasets": computed_by_cubed,
    "view_repository": viewed,
    "from_zarr": copied_from_zarr,
    "validate": validated,
}


def test_the_table_has_all_operations_with_an_engine() -> None:
    functions = [
        each
        for name in import_module("frazil.pipeline").__all__
        if inspect.isfunction(each := getattr(ops, name))
    ]
    assert {each.__name__ for each in functions if takes_engine(each)} <= set(
        ", ".join(OPERATIONS).split(", ")
    )


def takes_engine(function: Callable[..., object]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(each.name == "engine" or each.kind is each.VAR_KEYWORD for each in parameters)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_does_what_it_does_in_this_process(
    name: str, grid: frazil.Repository, tmp_path: Path
) -> None:
    results: list[object] = []
    for engine in ("sail", ops.Inline()):
        place = tmp_path / str(len(results))
        place.mkdir()
        results.append(OPERATIONS[name](grid, place, engine))
    np.testing.assert_equal(results[0], results[1])


def test_the_active_session_is_the_one(spark: SparkSession) -> None:
    engine = engine_of("sail")
    assert isinstance(engine, OnSpark)
    assert engine.spark is spark
    assert engine.slots == os.cpu_count()


PROGRAM = """
import sys
import frazil, numpy, zarr
from frazil.engines import engine_of
from frazil.pipeline import Target, coarsen
repo = frazil.Repository.create(frazil.local_filesystem_storage("ice"))
with repo.transaction("main", message="numbers") as store:
    data = numpy.arange(16.0).reshape(4, 4)
    zarr.create_array(store, name="data/t", data=data, chunks=(1, 4), dimension_names=["y", "x"])
first = engine_of("sail").spark
coarsen(repo, ["data/t"], {"x": 2}, to=Target(repo, group="half"), engine="sail")
assert engine_of("sail").spark is first
print(frazil.read(repo.readonly_session("main"), "/half/data/t").tolist())
first.stop()
result = coarsen(repo, ["data/t"], {"x": 4}, to=Target(repo, group="rows"), engine="sail")
print(frazil.read(result.version.session(), "/rows/data/t").ravel().tolist())
"""


def run(program: str, place: Path, **environment: str) -> Any:
    (place / "program.py").write_text(program)
    names = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    return FORKS.run(place / "program.py", cwd=place, env={**names, **environment})


@pytest.mark.parametrize("server", ["of the process", "of SPARK_REMOTE"])
def test_a_program_needs_only_the_name(server: str, sail: str, tmp_path: Path) -> None:
    """Without SPARK_REMOTE, the program starts a server, which ends with it, also after a new session."""
    environment = {"SPARK_REMOTE": sail} if server == "of SPARK_REMOTE" else {}
    done = run(PROGRAM, tmp_path, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [[0.5, 2.5], [4.5, 6.5], [8.5, 10.5], [12.5, 14.5]]
    assert done.stdout == f"{rows}\n{[1.5, 5.5, 9.5, 13.5]}\n"


def test_a_year_of_a_pipeline(tmp_path: Path, spark: SparkSession) -> None:
    run_year(tmp_path, "sail", range(1, 7))


def test_derived_arrays_are_those_from_nothing(spark: SparkSession) -> None:
    assert machine.run(range(100, 101), 12, (OnSpark(spark),))["compared results"] >= 10
