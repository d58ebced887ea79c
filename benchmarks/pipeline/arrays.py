"""Ingest, rechunk and reduce."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from measure import Measured, scratch

import frazil
from frazil.spark import Engine, Target, ingest, mean, rechunk
from pipeline import alternatives
from pipeline.engines import WORKERS, engine_of
from pipeline.inputs import archive, grid
from pipeline.names import DASK, NAIVE, NUMPY, ONE, PROCESSES, SPARK

#: Operations run with a little data before the measurement, for imports, workers and connections.
WARM = 2


def opened(path: str) -> frazil.Repository:
    return frazil.Repository.open(frazil.local_filesystem_storage(path))


def created(path: str) -> frazil.Repository:
    return frazil.Repository.create(frazil.local_filesystem_storage(path))


def ingested(implementation: str, files: int, steps: int, lat: int, lon: int) -> Measured:
    """Measure ingest of NetCDF-4 files with the chunks of the files, as copies and as references."""
    paths = archive(files, steps, lat, lon)
    copy, refer = _ingests(implementation, steps)
    # These processes are new in each run, so only this process can be prepared.
    warm, warm_refer = _ingests(ONE, steps) if implementation == PROCESSES else (copy, refer)
    out = Measured()
    with scratch() as root:
        warm(paths[:WARM], f"{root}/warm")
        warm_refer(paths[:WARM], f"{root}/warm references")
        with out.seconds("copies"):
            copy(paths, f"{root}/copies")
        out["copies, MiB stored"] = _mib(Path(root) / "copies")
        with out.seconds("references"):
            refer(paths, f"{root}/references")
        first = zarr.open_array(opened(f"{root}/copies").readonly_session("main").store, path="tas", mode="r")
        assert first.shape == (files * steps, lat, lon)
        assert first.chunks == (steps, lat, lon)
        session = opened(f"{root}/references").readonly_session("main")
        assert len(session.all_virtual_chunk_locations()) == files
    return out


type _Ingest = Callable[[Sequence[str], str], object]


def _ingests(implementation: str, steps: int) -> tuple[_Ingest, _Ingest]:
    if implementation == DASK:
        return alternatives.ingest_copies, alternatives.ingest_references
    engine = engine_of(implementation)

    def copy(paths: Sequence[str], to: str) -> None:
        ingest(
            paths, created(to), concat_dim="time", chunks={"time": steps, "lat": -1, "lon": -1}, engine=engine
        )

    def refer(paths: Sequence[str], to: str) -> None:
        folder = str(Path(paths[0]).parent)
        container = frazil.VirtualChunkContainer(f"file://{folder}/", frazil.local_filesystem_store(folder))
        ingest(paths, created(to), concat_dim="time", virtual=True, containers=[container], engine=engine)

    return copy, refer


def _mib(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20


def rechunked(
    implementation: str, shape: list[int], old: list[int], new: list[int], max_mem: list[int]
) -> Measured:
    """Measure rechunking of one array with bounded memory. The naive plan has no bound."""
    source = grid(tuple(shape), tuple(old))
    warm = grid(tuple(map(min, shape, (8, 20, 40))), tuple(map(min, old, (4, 10, 20))))
    chunks, small = tuple(new), tuple(map(min, new, (8, 5, 10)))
    out = Measured()
    with scratch() as root:
        if implementation in (DASK, NAIVE):
            naive = implementation == NAIVE
            alternatives.rechunk(warm, f"{root}/w", f"{root}/w2", small, None if naive else 64_000_000)
            for memory in max_mem:
                with out.seconds(f"{memory / 1e6:g} MB"):
                    name = f"{root}/{memory}"
                    alternatives.rechunk(source, name, f"{name} 2", chunks, None if naive else memory)
        else:
            engine = engine_of(implementation)
            _rechunk(warm, f"{root}/w", small, "64MB", engine)
            for memory in max_mem:
                with out.seconds(f"{memory / 1e6:g} MB"):
                    _rechunk(source, f"{root}/{memory}", chunks, memory, engine)
        found = opened(f"{root}/{max_mem[0]}").readonly_session("main")
        array: Any = zarr.open_array(found.store, path="tas", mode="r")
        before: Any = zarr.open_array(opened(source).readonly_session("main").store, path="tas", mode="r")
        assert array.chunks == chunks
        np.testing.assert_array_equal(array[:, :50], before[:, :50])
    return out


def _rechunk(source: str, to: str, chunks: tuple[int, ...], max_mem: int | str, engine: Engine) -> None:
    rechunk(opened(source), ["tas"], chunks, max_mem=max_mem, to=Target(created(to)), engine=engine)


def averaged(implementation: str, shape: list[int], chunks: list[int]) -> Measured:
    """Measure the mean over time, written as an array and committed."""
    source = grid(tuple(shape), tuple(chunks))
    warm = grid((8, 20, 40), (4, 10, 20))
    out = Measured()
    average = _average(implementation)
    with scratch() as root:
        average(warm, f"{root}/warm")
        with out.seconds_of_all("mean"):
            average(source, f"{root}/mean")
        if implementation not in (DASK, NUMPY):
            del out["mean, processor s"]  # other processes do the work
        found: Any = zarr.open_array(
            opened(f"{root}/mean").readonly_session("main").store, path="tas", mode="r"
        )
        assert 250 < float(np.mean(found[:])) < 310
    return out


def _average(implementation: str) -> Callable[[str, str], object]:
    if implementation == DASK:
        return alternatives.mean
    if implementation == NUMPY:
        return _by_hand
    engine = engine_of(implementation)
    return lambda source, to: mean(opened(source), ["tas"], "time", to=Target(created(to)), engine=engine)


def _by_hand(source: str, to: str) -> None:
    """Compute the mean slab by slab, in threads."""
    array: Any = zarr.open_array(opened(source).readonly_session("main").store, path="tas", mode="r")
    step = array.chunks[0]

    def total(start: int) -> np.ndarray:
        return np.asarray(array[start : start + step]).sum(axis=0, dtype="f8")

    with ThreadPoolExecutor(WORKERS) as pool:
        result = sum(pool.map(total, range(0, array.shape[0], step))) / array.shape[0]
    with created(to).transaction("main", message="mean") as store:
        zarr.create_array(store, name="tas", data=np.asarray(result, "f4"))


def scaled(
    implementation: str, files: list[int], grids: list[list[int]], max_mem: int, slots: bool = True
) -> Measured:
    """Measure the same work with several numbers of slots.

    Without ``slots``, one session runs all of it. ``files`` is the archive: number, steps, latitudes,
    longitudes.
    """
    implementation = implementation if slots else SPARK
    engine = engine_of(implementation)
    count, steps, lat, lon = files
    paths = archive(count, steps, lat, lon)
    shape, old, new = map(tuple, grids)
    source = grid(shape, old)
    copy, _ = _ingests(implementation, steps)
    out = Measured()
    with scratch() as root:
        copy(paths[: 2 * WARM], f"{root}/warm")
        with out.seconds("ingest"):
            copy(paths, f"{root}/copies")
        with out.seconds("rechunk"):
            _rechunk(source, f"{root}/rechunked", new, max_mem, engine)
    return out


def break_even(implementation: str, megabytes: list[int], files: list[int]) -> Measured:
    """Measure a mean over time and copies of files, for several sizes."""
    engine = engine_of(implementation)
    count, steps, lat, lon = files
    paths = archive(count, steps, lat, lon)
    each = steps * lat * lon * 4 / 1e6
    copy, _ = _ingests(implementation, steps)
    out = Measured()
    with scratch() as root:
        copy(paths[:WARM], f"{root}/warm")
        mean(opened(f"{root}/warm"), ["tas"], "time", to=Target(created(f"{root}/warm mean")), engine=engine)
        for size in megabytes:
            some = paths[: max(round(size / each), 2)]
            with out.seconds(f"copies of {size} MB"):
                copy(some, f"{root}/{size}")
        for size in megabytes:
            with out.seconds(f"mean of {size} MB"):
                mean(
                    opened(f"{root}/{size}"),
                    ["tas"],
                    "time",
                    to=Target(created(f"{root}/{size} mean")),
                    engine=engine,
                )
    return out
