"""Plans of Cubed on each engine of Frazil, and their writes into a repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cubed.array_api as xp
import numpy as np
import pytest
import xarray as xr
import zarr
from tests.cubed import functions
from tests.cubed.programs import daily

import cubed
import frazil
from frazil.cubed import Executor, store_cubed
from frazil.dask import store_dask
from frazil.errors import InvalidInputError, StorageError, TaskFailedError
from frazil.pipeline import Engine, Processes, Progress
from frazil.xarray import to_icechunk


def spec(folder: Path, engine: Any = "inline", **options: Any) -> cubed.Spec:
    executor = options.pop("executor", None) or Executor(engine)
    return cubed.Spec(work_dir=str(folder / "work"), allowed_mem="100MB", executor=executor, **options)


def temporary(folder: Path) -> list[Path]:
    return [
        path for path in (folder / "work").rglob("*") if path.is_file() and path.parent.parent.name != "work"
    ]


@pytest.fixture
def data() -> xr.Dataset:
    return daily(100)


@pytest.fixture
def repo(tmp_path: Path, data: xr.Dataset) -> frazil.Repository:
    data.frazil.to(tmp_path / "repo", encoding={"t": {"chunks": (30, 3, 4)}}, message="first")
    return frazil.Repository.open(frazil.local_filesystem_storage(str(tmp_path / "repo")))


def opened(repo: Any, made: cubed.Spec, group: str | None = None) -> xr.Dataset:
    options: Any = {"chunked_array_type": "cubed", "from_array_kwargs": {"spec": made}}
    return xr.open_dataset(repo, engine="frazil", group=group, chunks={}, **options)


def values_of(array: zarr.Array[Any]) -> Any:
    return np.asarray(array[:]).tolist()


def stored(repo: frazil.Repository, group: str | None = None) -> xr.Dataset:
    version: Any = repo
    return xr.open_dataset(version, engine="frazil", group=group).load()


def messages(repo: frazil.Repository) -> list[str]:
    return [each.message for each in repo.ancestry(branch="main")]


def test_every_engine(
    every_engine: Engine, repo: frazil.Repository, data: xr.Dataset, tmp_path: Path
) -> None:
    lazy = opened(repo, spec(tmp_path, every_engine))
    rows = lazy.chunk(time=-1, lat=1, lon=8, chunked_array_type="cubed").assign(mean=lazy.t.mean("time"))
    rows.frazil.to(repo, group="rows", message="rows", encoding={"t": {"chunks": (100, 1, 8)}})
    assert messages(repo) == ["rows", "first", "Repository initialized"]
    assert not temporary(tmp_path)
    result = stored(repo, "rows")
    np.testing.assert_array_equal(result.t, data.t)
    np.testing.assert_allclose(result["mean"], data.t.mean("time"), rtol=1e-6)
    assert zarr.open_array(repo.readonly_session("main").store, path="rows/t").chunks == (100, 1, 8)


def test_appends_and_regions_inside_of_chunks(
    repo: frazil.Repository, data: xr.Dataset, tmp_path: Path
) -> None:
    lazy = opened(repo, spec(tmp_path))
    more = lazy.assign_coords(time=lazy.time + np.timedelta64(100, "D"))
    more.frazil.append(repo, "time", message="more")
    expected = np.concatenate([data.t, data.t])
    np.testing.assert_array_equal(stored(repo).t, expected)
    part = (lazy.isel(time=slice(10, 50), lat=slice(1, 5)) * 2).drop_vars("lon")
    part["t"].attrs = data.t.attrs
    part.frazil.to(
        repo, region={"time": slice(110, 150), "lat": slice(1, 5)}, accept=["static"], message="part"
    )
    expected[110:150, 1:5] = data.t[10:50, 1:5] * 2
    np.testing.assert_array_equal(stored(repo).t, expected)
    assert messages(repo)[:2] == ["part", "more"]
    assert not temporary(tmp_path)


def test_chunks_of_fill_values_are_not_stored(tmp_path: Path) -> None:
    session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(6,), chunks=(2,), dtype="i8", fill_value=0)
    made: Any = {"chunks": 2, "spec": spec(tmp_path), "dtype": "i8"}
    source = xp.concat([xp.zeros(4, **made), xp.ones(2, **made)])
    store_cubed(sources=[source], targets=[array])
    assert values_of(array) == [0, 0, 0, 0, 1, 1]
    assert len(session.chunk_table("/a")) == 1


def test_a_dataset_of_the_session_itself(repo: frazil.Repository, data: xr.Dataset, tmp_path: Path) -> None:
    session = repo.writable_session("main")
    (data + 1).frazil.to(session, mode="r+", accept=["attributes"])
    warmer = opened(session, spec(tmp_path)) + 1
    warmer.frazil.to(session, mode="w")
    session.commit("warmer")
    np.testing.assert_array_equal(stored(repo).t, data.t + 1 + 1)


def test_checks_of_appends(repo: frazil.Repository, tmp_path: Path) -> None:
    lazy = opened(repo, spec(tmp_path))
    later = lazy.assign_coords(time=lazy.time + np.timedelta64(100, "D"))
    with pytest.raises(TaskFailedError, match="must have values that the stored array"):
        (later.astype("f8") * 1e39).frazil.append(repo, "time")
    moved = later.assign_coords(height=("lat", np.arange(6.0)))
    with pytest.raises(InvalidInputError, match="stored variables"):
        moved.frazil.append(repo, "time")
    assert messages(repo)[0] == "first"
    assert not temporary(tmp_path)


def test_a_task_that_fails_changes_nothing(repo: frazil.Repository, tmp_path: Path) -> None:
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="x", shape=(10,), chunks=(2,), dtype="i8")
    source = xp.arange(10, chunks=2, spec=spec(tmp_path))
    failing = cubed.map_blocks(functions.refused, source, dtype=source.dtype)
    with pytest.raises(TaskFailedError, match="a value above 6"):
        store_cubed(sources=[source, failing], targets=[array, array])
    assert values_of(array) == [0] * 10
    kept = Executor("inline", resume=True)
    with pytest.raises(TaskFailedError):
        store_cubed(sources=[failing.rechunk(5)], targets=[array], executor=kept)
    assert temporary(tmp_path)


@pytest.mark.parametrize("engine", [Processes(2)], ids=["processes"])
def test_a_killed_worker(engine: Engine, repo: frazil.Repository, data: xr.Dataset, tmp_path: Path) -> None:
    lazy = opened(repo, spec(tmp_path, engine))
    values = cubed.map_blocks(
        functions.killed_once, lazy.t.data, dtype=lazy.t.dtype, mark=str(tmp_path / "mark")
    )
    lazy.t.copy(data=values).rename("u").frazil.to(repo, group="u", message="u")
    assert (tmp_path / "mark").exists()
    assert messages(repo) == ["u", "first", "Repository initialized"]
    np.testing.assert_array_equal(stored(repo, "u").u, data.t)


def test_plans_that_need_too_much_memory(repo: frazil.Repository, tmp_path: Path) -> None:
    small = cubed.Spec(work_dir=str(tmp_path / "work"), allowed_mem="1kB", executor=Executor("inline"))
    with pytest.raises(ValueError, match="exceeds allowed_mem"):
        opened(repo, small).frazil.to(repo, group="again")
    assert messages(repo)[0] == "first"


def test_shards_and_chunks_of_any_length(tmp_path: Path) -> None:
    session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    values = np.arange(54.0).reshape(9, 6)
    made = spec(tmp_path)
    for number, (chunks, shards, source) in enumerate(
        [((2, 3), (4, 6), (3, 2)), ((4, 3), None, (8, 6)), ((5, 6), None, (9, 1)), ((9, 6), None, (2, 2))]
    ):
        array = zarr.create_array(
            session.store, name=f"a{number}", shape=(12, 7), chunks=chunks, shards=shards, dtype="f8"
        )
        array[:] = -1
        lazy = cubed.from_array(values, chunks=source, spec=made)
        store_cubed(sources=[lazy], targets=[array], regions=[(slice(2, 11), slice(1, None))])
        expected = np.full((12, 7), -1.0)
        expected[2:11, 1:] = values
        np.testing.assert_array_equal(array[:], expected)
    scalar = zarr.create_array(session.store, name="s", shape=(), dtype="f8")
    store_cubed(sources=[xp.sum(cubed.from_array(values, spec=made))], targets=[scalar])
    assert scalar[()] == values.sum()


def test_targets_of_cubed_itself(tmp_path: Path) -> None:
    """`cubed.store` on arrays of a session, and `to_zarr` of xarray on its store."""
    session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(6,), chunks=(2,), dtype="i8")
    made = spec(tmp_path, "threads")
    cubed.store([xp.arange(6, chunks=2, spec=made)], [array])
    assert values_of(array) == [0, 1, 2, 3, 4, 5]
    grid = xr.Dataset({"g": ("x", xp.arange(6, chunks=2, spec=made))})
    grid.to_zarr(session.store, group="grid", consolidated=False, zarr_format=3)
    assert values_of(zarr.open_array(session.store, path="grid/g")) == [0, 1, 2, 3, 4, 5]


class Events(cubed.Callback):
    """The events of a run."""

    def __init__(self) -> None:
        self.operations: list[str] = []
        self.tasks: list[Any] = []

    def on_compute_start(self, event: Any) -> None:
        """Nothing to do."""

    def on_compute_end(self, event: Any) -> None:
        """Nothing to do."""

    def on_operation_start(self, event: Any) -> None:
        """Keep the name."""
        self.operations.append(event.name)

    def on_task_end(self, event: Any) -> None:
        """Keep the event."""
        self.tasks.append(event)


def test_progress_and_events(repo: frazil.Repository, tmp_path: Path) -> None:
    progress, events = Progress("mean", 0), Events()
    lazy = opened(repo, spec(tmp_path))
    with progress:
        lazy.mean("time").load(executor=Executor("inline", progress=progress), callbacks=[events])
    assert progress.chunks == len(events.tasks) == progress.done >= 4
    assert {each.name for each in events.tasks} == set(events.operations) - {"create-arrays"}
    assert all(each.peak_measured_mem_end > 0 for each in events.tasks)
    assert cubed.measure_reserved_mem(Executor("inline"), str(tmp_path / "work")) > 10_000_000


def test_what_cannot_be_stored(repo: frazil.Repository, tmp_path: Path) -> None:
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="x", shape=(4,), chunks=(2,), dtype="i8")
    source = xp.arange(4, chunks=2, spec=spec(tmp_path))
    of_cubed = spec(tmp_path, executor=cubed.Spec(executor_name="threads").executor)
    one: dict[str, Any] = {"sources": [source], "targets": [array]}
    part = one | {"sources": [source[:2]]}
    refusals: list[tuple[type[Exception], str, Any]] = [
        (InvalidInputError, "sources must be Cubed arrays", one | {"sources": [np.arange(4)]}),
        (InvalidInputError, "of one session", one | {"targets": [np.arange(4)]}),
        (InvalidInputError, "got none", one | {"targets": []}),
        (InvalidInputError, "same length", one | {"regions": []}),
        (InvalidInputError, "must select the shape", part | {"regions": [(slice(0, 3),)]}),
        (InvalidInputError, "without steps", part | {"regions": [(slice(0, 4, 2),)]}),
        (InvalidInputError, "a tuple of slices", one | {"regions": [(3,)]}),
        (TypeError, "Executor", one | {"sources": [xp.arange(4, chunks=2, spec=of_cubed)]}),
    ]
    for kind, message, arguments in refusals:
        with pytest.raises(kind, match=message):
            store_cubed(**arguments)
    other: Any = source
    with pytest.raises(InvalidInputError, match="dask arrays"):
        store_dask(sources=[other], targets=[array])
    assert values_of(array) == [0] * 4


def test_a_repository_in_memory_and_processes(data: xr.Dataset, tmp_path: Path) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    data.frazil.to(repo)
    with pytest.raises((StorageError, TaskFailedError), match="in-memory storage"):
        opened(repo, spec(tmp_path, Processes(1))).frazil.to(repo, group="again")
    assert len(messages(repo)) == 2


def test_arrays_of_cubed_and_dask_in_one_dataset(repo: frazil.Repository, tmp_path: Path) -> None:
    lazy = opened(repo, spec(tmp_path))
    both = lazy.assign(u=lazy.t.copy(data=stored(repo).t.chunk(time=30).data))
    with pytest.raises(InvalidInputError, match=r"must be Cubed arrays, got .*dask\.array"):
        to_icechunk(both, repo.writable_session("main"), group="both")
