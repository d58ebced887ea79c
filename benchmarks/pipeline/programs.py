"""Programs of xarray by Cubed on the engines of Frazil, and by Cubed and by Dask on icechunk."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final

import dask
import numpy as np
import xarray as xr
import zarr
from cubed.icechunk import store_icechunk
from cubed.runtime.create import create_executor
from icechunk.xarray import to_icechunk
from measure import Measured, peak_mib, scratch

import cubed
import frazil.xarray
from frazil.cubed import Executor
from frazil.jobs.engine import IDLE_PROCESSES
from frazil.spark import Processes
from pipeline import alternatives
from pipeline.arrays import created, opened
from pipeline.engines import WORKERS
from pipeline.inputs import grid
from pipeline.names import DASK, PROCESSES

UNITS: Final = "days since 2000-01-01"


def _mean(data: xr.Dataset, chunks: Mapping[str, int]) -> xr.Dataset:
    return data.mean("time")


def _climatology(data: xr.Dataset, chunks: Mapping[str, int]) -> xr.Dataset:
    with xr.set_options(use_flox=False):  # type: ignore[no-untyped-call]  # Cubed fails with flox
        return data.groupby("time.month").mean("time")


def _rechunk(data: xr.Dataset, chunks: Mapping[str, int]) -> xr.Dataset:
    return data.chunk(chunks)


PROGRAMS: Final[dict[str, Callable[[xr.Dataset, Mapping[str, int]], xr.Dataset]]] = {
    "mean": _mean,
    "rechunk": _rechunk,
    "climatology": _climatology,
}


class _Memory(cubed.Callback):
    """The largest memory of a worker after a task."""

    peak: float = 0.0

    def on_compute_start(self, event: Any) -> None:
        """Nothing to do."""

    def on_compute_end(self, event: Any) -> None:
        """Nothing to do."""

    def on_task_end(self, event: Any) -> None:
        """Keep the largest memory of a child of this process. The value of Cubed includes the parent."""
        children = (path.read_text().split() for path in Path("/proc/self/task").glob("*/children"))
        self.peak = max([self.peak, *(peak_mib(each) for each in chain.from_iterable(children))])


def by_xarray(implementation: str, shape: list[int], old: list[int], new: list[int]) -> Measured:
    """Measure the programs: read, compute, write into a repository, commit."""
    source = grid(tuple(shape), tuple(old), UNITS)
    chunks = dict(zip(("time", "lat", "lon"), new, strict=True))
    out = Measured()
    with scratch() as root, xr.set_options(chunk_manager="dask" if implementation == DASK else "cubed"):  # type: ignore[no-untyped-call]
        for name, program in PROGRAMS.items():
            memory = _Memory()
            with _seconds_of_processes(out, name):
                _run(implementation, source, f"{root}/{name}", f"{root}/work", memory, program, chunks)
            out[f"{name}, memory of a worker, MiB"] = memory.peak or peak_mib()
        expected = _mean(xr.open_dataset(source, engine="frazil"), chunks)["tas"].values
        found: Any = xr.open_dataset(f"{root}/mean", engine="frazil")
        np.testing.assert_allclose(found["tas"], expected, rtol=1e-4)
    return out


def _run(
    implementation: str, source: str, path: str, work: str, memory: _Memory, program: Any, chunks: Any
) -> None:
    if implementation == DASK:
        data = xr.open_zarr(alternatives.opened(source).store, consolidated=False, chunks={})
        session = alternatives.create(path).writable_session("main")
        with dask.config.set(alternatives.SCHEDULER):
            to_icechunk(_plain(program(data[["tas"]], chunks)), session)
        session.commit("done")
        return
    if implementation == PROCESSES:
        executor: Any = Executor(Processes(WORKERS))
        store: Any = opened(source).readonly_session("main").store
    else:
        executor = create_executor("processes", {"max_workers": WORKERS})
        store = alternatives.opened(source).store
    spec = cubed.Spec(work_dir=work, allowed_mem="1GB", executor=executor)
    options: Any = {"from_array_kwargs": {"spec": spec}}
    data = xr.open_zarr(store, consolidated=False, chunks={}, **options)
    result = _plain(program(data[["tas"]], chunks))
    if implementation == PROCESSES:
        to: Any = frazil.xarray.FrazilAccessor(result)
        to.to(created(path), mode="w", chunkmanager_store_kwargs={"callbacks": [memory]})
        return
    session = alternatives.create(path).writable_session("main")
    array: Any = result["tas"].variable
    lengths = tuple(max(each) for each in array.chunks)
    empty = xr.Dataset({"tas": (array.dims, dask.array.zeros(array.shape, dtype="f4", chunks=lengths))})
    empty.to_zarr(session.store, compute=False, consolidated=False, zarr_format=3)
    fork = session.fork()
    target = zarr.open_array(fork.store, path="tas", mode="r+")
    session.merge(store_icechunk(sources=[array.data], targets=[target], callbacks=[memory]))
    session.commit("done")


def _plain(result: xr.Dataset) -> xr.Dataset:
    for variable in result.variables.values():
        variable.encoding = {}
    return result


@contextmanager
def _seconds_of_processes(out: Measured, name: str) -> Iterator[None]:
    """Measure wall time, and processor time of this process and of the workers that have ended."""

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + children.ru_utime + children.ru_stime

    before = used()
    with out.seconds(name):
        yield
    IDLE_PROCESSES.end_processes()
    for child in multiprocessing.active_children():  # of the executor of Cubed
        child.join()
    out[f"{name}, processor s"] = used() - before
