"""One more step in an archive: a refresh of its results, and the same operations in full."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import dask
import numpy as np
import xarray as xr
import zarr
from icechunk.xarray import to_icechunk
from measure import Measured, peak_mib, scratch

import frazil
from frazil.pipeline import JobResult, Target, climatology, coarsen, mean, pyramid, rechunk, refresh, regrid
from pipeline import alternatives
from pipeline.arrays import created, opened
from pipeline.inputs import field, grid
from pipeline.names import CUBED, DASK, FULL

HALF: Final = {"lat": 2, "lon": 2}
INLINE: Final[dict[str, Any]] = {"engine": "inline"}

#: What is computed of the array, by the name of the measurement.
OPERATIONS: Final[Mapping[str, Callable[[frazil.Repository, Target], JobResult]]] = {
    "mean": lambda repo, to: mean(repo, "tas", "time", to=to, **INLINE),
    "climatology": lambda repo, to: climatology(repo, "tas", "month", to=to, **INLINE),
    "coarsen": lambda repo, to: coarsen(repo, ["tas"], HALF, to=to, **INLINE),
    "pyramid": lambda repo, to: pyramid(repo, ["tas"], factors=HALF, levels=3, to=to, **INLINE),
    "regrid": lambda repo, to: regrid(repo, ["tas"], _new_grid(repo), to=to, **INLINE),
    "rechunk": lambda repo, to: rechunk(repo, ["tas"], {"time": 365, "lat": 20, "lon": 20}, to=to, **INLINE),
}
WITH_XARRAY: Final[Mapping[str, Callable[[xr.Dataset], list[xr.Dataset]]]] = {
    "mean": lambda data: [data.mean("time")],
    "climatology": lambda data: [data.groupby("time.month").mean("time")],
    "coarsen": lambda data: [data.coarsen(lat=2, lon=2).mean()],
    "pyramid": lambda data: [data.coarsen(lat=n, lon=n).mean() for n in (2, 4)],
    "regrid": lambda data: [data.interp(lat=_every_third(data.lat), lon=_every_third(data.lon))],
    "rechunk": lambda data: [data.chunk(time=365, lat=20, lon=20)],
}
#: A task of Dask and of Cubed reads so many steps: with one step, they need minutes.
MANY: Final = {"time": 100}
#: What Cubed computes without help.
_OF_CUBED: Final = ("mean", "coarsen")


def _new_grid(repo: frazil.Repository) -> dict[str, np.ndarray[Any, Any]]:
    store = repo.readonly_session("main").store
    labels: list[Any] = [zarr.open_array(store, path=name, mode="r")[:] for name in ("lat", "lon")]
    return {name: _every_third(values) for name, values in zip(("lat", "lon"), labels, strict=True)}


def _every_third(values: Any) -> np.ndarray[Any, Any]:
    return np.asarray(values)[1::3] + 0.5


def _archive(folder: str, steps: int, lat: int, lon: int) -> frazil.Repository:
    """Return a repository of its own with the array. Files of chunks never change, so they are links.

    Its manifests split themselves, as in all new repositories of Frazil.
    """
    source = grid((steps, lat, lon), (1, lat, lon), "days since 2000-01-01")

    def copy(old: str, new: str) -> None:
        (os.link if "/chunks/" in old else shutil.copy2)(old, new)

    shutil.copytree(source, folder, copy_function=copy)
    automatic = frazil.RepositoryConfig(manifest=frazil.ManifestConfig(splitting="auto"))
    repo = frazil.Repository.open(frazil.local_filesystem_storage(folder), automatic)
    repo.save_config()
    repo.rewrite_manifests("manifests that split themselves", branch="main")
    return repo


def _change(folder: str, *, correction: bool) -> int:
    """Append one step, or write one again. Return the number of steps."""
    repo = opened(folder)
    with repo.transaction("main", message="a change") as store:
        array: Any = zarr.open_array(store, path="tas")
        count = array.shape[0]
        if correction:
            array[count // 2] = field(count, 1, *array.shape[1:])[0] + 1
            return int(count)
        time: Any = zarr.open_array(store, path="time")
        for each in (array, time):
            each.resize((count + 1, *each.shape[1:]))
        array[count] = field(count, 1, *array.shape[1:])[0]
        time[count] = count
    return int(count) + 1


def followed(implementation: str, steps: int, lat: int, lon: int, names: Sequence[str] = ()) -> Measured:
    """Measure operations after one more step: by a refresh, or of all steps. Without ``names``, all."""
    operations = {name: OPERATIONS[name] for name in names or OPERATIONS}
    out = Measured()
    with scratch() as root:
        folder = f"{root}/archive"
        repo = _archive(folder, steps, lat, lon)
        if implementation in (DASK, CUBED):
            _change(folder, correction=False)
            _with_xarray(implementation, out, folder, root)
            return out
        full: dict[str, float] = {}
        for name, compute in operations.items():
            full[name] = _timed(out, name, partial(compute, repo, Target(repo, group=name)))
        if implementation == FULL:
            return out
        for kind in ("a first step", "a step", "a correction"):
            _change(folder, correction=kind == "a correction")
            for name in operations:
                label = name if kind == "a step" else f"{name}, {kind}"
                size = _timed(out, label, partial(_refreshed, opened(folder), name))
                if kind != "a first step":
                    out[f"{label}, bytes, % of all"] = 100 * size / full[name]
    return {name: value for name, value in out.items() if "first" not in name and not name.endswith(", s")}  # type: ignore[return-value]


def _refreshed(repo: frazil.Repository, group: str) -> JobResult:
    return refresh(repo, [group], **INLINE).apply()


def _timed(out: Measured, name: str, call: Callable[[], JobResult]) -> float:
    """Measure a call. Return the stored bytes that it has read and written."""
    with out.seconds_of_all(name):
        result = call()
    return float(result.metrics.stored_bytes_read + result.metrics.stored_bytes_written)


def _with_xarray(implementation: str, out: Measured, folder: str, root: str) -> None:
    names = WITH_XARRAY if implementation == DASK else {name: WITH_XARRAY[name] for name in _OF_CUBED}
    options: dict[str, Any] = {}
    if implementation == CUBED:
        cubed = importlib.import_module("cubed")
        spec = cubed.Spec(work_dir=f"{root}/work", allowed_mem="2GB", executor_name="threads")
        options = {"chunked_array_type": "cubed", "from_array_kwargs": {"spec": spec}}
    for name, compute in names.items():
        with out.seconds_of_all(name), dask.config.set(alternatives.SCHEDULER):
            data = xr.open_zarr(alternatives.opened(folder).store, consolidated=False, chunks=MANY, **options)
            session = alternatives.create(f"{root}/{name}").writable_session("main")
            for level, result in enumerate(compute(data[["tas"]])):
                for variable in result.variables.values():
                    variable.encoding = {}
                if implementation == CUBED:
                    result = result.compute(**_executor())
                to_icechunk(result, session, group=f"level{level}")
            session.commit(name)


def _executor() -> dict[str, Any]:
    executors = importlib.import_module("cubed.runtime.create")
    return {"executor": executors.create_executor("threads", {"max_workers": 2})}


def grown(implementation: str, steps: list[int], lat: int, lon: int) -> Measured:
    """Measure refreshes after one more step in a short and in a long archive."""
    out = Measured()
    for count in steps:
        with scratch() as root:
            folder = f"{root}/archive"
            repo = _archive(folder, count, lat, lon)
            for name in ("mean", "coarsen"):
                OPERATIONS[name](repo, Target(repo, group=name))
            for kind in ("a first step", "a step"):
                _change(folder, correction=False)
                for name in ("mean", "coarsen"):
                    repo, timed = opened(folder), Measured()
                    with timed.seconds_of_all(name):
                        refresh(repo, [name], **INLINE).apply()
                    if kind == "a step":
                        out[f"{name} of {count:,} steps, processor s"] = timed[f"{name}, processor s"]
    for name in ("mean", "coarsen"):
        short, long = (out[f"{name} of {count:,} steps, processor s"] for count in steps)
        out[f"{name}, long of short"] = long / short
    return out


def planned(implementation: str, chunks: int) -> Measured:
    """Measure the plan of a refresh of so many chunks, all of which have changed."""
    out = Measured()
    with scratch() as root:
        repo = created(f"{root}/archive")
        with repo.transaction("main", message="few chunks") as store:
            zarr.create_array(
                store, name="t", shape=(4, 8), chunks=(1, 8), dtype="f4", dimension_names=["time", "x"]
            )[...] = 1
        coarsen(repo, ["t"], {"x": 2}, to=Target(repo, group="half"), **INLINE)
        with repo.transaction("main", message="many chunks") as store:
            array: Any = zarr.open_array(store, path="t")
            array.resize((chunks, 8))
            numbers = np.arange(chunks)
            locations = np.array([f"file:///data/{number}.bin" for number in range(1000)])[numbers % 1000]
            offsets, lengths = (numbers // 1000 * 32).astype("u8"), np.full(chunks, 32, "u8")
            store.set_virtual_refs_arr(
                "t", (chunks, 1), locations.tolist(), offsets, lengths, validate_containers=False
            )
        repo, before = opened(f"{root}/archive"), peak_mib()
        with out.seconds_of_all("plan"):
            report = refresh(repo, **INLINE).report
        assert report.arrays[0].of_chunks == chunks
        out["memory of the plan, MiB"] = peak_mib() - before
    return out
