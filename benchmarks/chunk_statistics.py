"""Answers from the statistics of chunks, beside full reads by Dask on icechunk and by DuckDB on Parquet."""

from __future__ import annotations

import importlib
import multiprocessing
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import zarr
from measure import Measured, peak_mib, scratch
from shared_inputs import shared_input
from workload import FRAZIL

import frazil

DASK, PARQUET = "Dask on icechunk", "DuckDB on Parquet"
WITHOUT: Final = "frazil without statistics"
FIELD: Final = 512
SUMMARY, BOX, PREDICATE = (
    "mean, maximum and count",
    "mean of a random range of steps",
    "count of 1 % of the steps",
)


def config(*, statistics: bool) -> frazil.RepositoryConfig:
    return frazil.RepositoryConfig(chunks=frazil.ChunksConfig(statistics=statistics))


def answers(implementation: str, steps: int) -> Measured:
    """Measure three questions about fields of 1 MiB. A hundredth of them have large values."""
    root = shared_input(f"statistics-{steps}", lambda folder: make(folder, steps))
    for package in PACKAGES[implementation]:
        importlib.import_module(package)
    out = Measured()
    ask = ENGINES[implementation](root)
    dice = random.Random(1)
    ranges = [tuple(sorted(dice.sample(range(steps + 1), 2))) for _ in range(5)]
    with out.seconds_of_all(f"{SUMMARY}, first"):
        ask(0, steps, None)
    with out.milliseconds_each(f"{SUMMARY}, again", 3):
        results = [ask(0, steps, None) for _ in range(3)]
    with out.milliseconds_each(BOX, len(ranges)):
        boxes = [ask(low, high, None) for low, high in ranges]
    with out.milliseconds_each(PREDICATE, 1):
        count = ask(0, steps, 1000.0)
    expected = np.load(root / "means.npy")
    np.testing.assert_allclose(results[0][0], expected.mean(), rtol=1e-6)
    for (low, high), (mean, *_) in zip(ranges, boxes, strict=True):
        np.testing.assert_allclose(mean, expected[low:high].mean(), rtol=1e-6)
    assert count == (expected > 900).sum() * FIELD * FIELD
    return out


def make(folder: Path, steps: int) -> None:
    """Write the fields, and those of few steps as Parquet too."""
    rng = np.random.default_rng(0)
    base = rng.integers(0, 64, (16, FIELD, FIELD)).astype("f4")
    offsets = rng.integers(0, 300, steps).astype("f4")
    offsets[rng.choice(steps, max(1, steps // 100), replace=False)] += 2000
    repo = frazil.Repository.create(
        frazil.local_filesystem_storage(str(folder / "ice")), config=config(statistics=True)
    )
    session = repo.writable_session("main")
    zarr.create_array(
        session.store, name="t", shape=(steps, FIELD, FIELD), chunks=(1, FIELD, FIELD), dtype="f4"
    )
    array = frazil.Array(session, "/t")  # whatever pipeline zarr has
    means = np.empty(steps)
    for start in range(0, steps, 16):
        part = base[: steps - start] + offsets[start : start + 16, None, None]
        array[start : start + len(part)] = part
        means[start : start + len(part)] = part.mean(axis=(1, 2), dtype="f8")
    session.commit("fields")
    np.save(folder / "means.npy", means)
    if steps <= 512:
        pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
        with pq.ParquetWriter(
            folder / "t.parquet", pa.schema([("step", pa.int32()), ("t", pa.float32())])
        ) as out:
            for step in range(steps):
                field = base[step % 16] + offsets[step]
                columns = [np.full(field.size, step, np.int32), field.reshape(-1)]
                out.write_table(pa.table(columns, names=["step", "t"]))


def with_frazil(root: Path) -> Any:
    repo = frazil.Repository.open(frazil.local_filesystem_storage(str(root / "ice")))
    array = frazil.Array(repo.readonly_session("main"), "/t")

    def ask(low: int, high: int, above: float | None) -> Any:
        if above is not None:
            return frazil.where(array, f"> {above}", slice(low, high)).count()
        summary = frazil.reduce(array, slice(low, high))
        assert summary.chunks_read == 0
        return summary.mean, summary.max, summary.count

    return ask


def with_dask(root: Path) -> Any:
    icechunk, dask_array = importlib.import_module("icechunk"), importlib.import_module("dask.array")
    dask = importlib.import_module("dask")
    storage = icechunk.local_filesystem_storage(str(root / "ice"))
    store = icechunk.Repository.open(storage).readonly_session("main").store
    array = dask_array.from_zarr(zarr.open_array(store, path="t"))

    def ask(low: int, high: int, above: float | None) -> Any:
        part = array[low:high]
        if above is not None:
            return int((part > above).sum().compute())
        return dask.compute(part.mean(dtype="f8"), part.max(), (part == part).sum())

    return ask


def with_parquet(root: Path) -> Any:
    connection = importlib.import_module("duckdb").connect()
    file = f"FROM '{root / 't.parquet'}'"

    def ask(low: int, high: int, above: float | None) -> Any:
        if above is not None:
            return connection.sql(f"SELECT COUNT(*) {file} WHERE t > {above}").fetchall()[0][0]
        where = f"WHERE step >= {low} AND step < {high}"
        return connection.sql(f"SELECT AVG(t), MAX(t), COUNT(t) {file} {where}").fetchall()[0]

    return ask


ENGINES = {FRAZIL: with_frazil, DASK: with_dask, PARQUET: with_parquet}
PACKAGES = {FRAZIL: (), DASK: ("icechunk", "dask.array"), PARQUET: ("duckdb",)}


def writes(implementation: str, chunks: int) -> Measured:
    """Measure writes of chunks of 1 MiB, compressed and not, and the size of the statistics."""
    out = Measured()
    rng = np.random.default_rng(0)
    for dtype in ("f4", "f8", "i2"):
        shape = (chunks, (1 << 20) // np.dtype(dtype).itemsize)
        data = np.cumsum(rng.integers(-9, 9, shape), axis=1).astype(dtype)
        compressors: Literal["auto"] | None
        for name, compressors in (("zstd", "auto"), ("without compression", None)):
            with scratch() as folder:
                storage = frazil.local_filesystem_storage(folder)
                repo = frazil.Repository.create(storage, config=config(statistics=implementation == FRAZIL))
                session = repo.writable_session("main")
                array = zarr.create_array(
                    session.store,
                    name="t",
                    shape=shape,
                    chunks=(1, shape[1]),
                    dtype=dtype,
                    compressors=compressors,
                )
                with out.seconds_of_all(f"{dtype}, {name}"):
                    array[:] = data
                    session.commit("data")
    return out


def memory(implementation: str, chunks: int) -> Measured:
    """Measure the mean of an array of many chunks: time and memory."""
    # Another process writes the references, because this one measures its memory.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        root = pool.submit(_memory_input, chunks).result()
    out = Measured()
    repo = frazil.Repository.open(frazil.local_filesystem_storage(str(root / "ice")))
    array = frazil.Array(repo.readonly_session("main"), "/t")
    before = peak_mib()
    with out.seconds("mean, maximum and count"):
        summary = frazil.reduce(array)
    assert (summary.count, summary.max, summary.chunks_read) == (chunks * 4, 3.0, 0)
    out["peak memory, MiB"] = peak_mib()
    out["of it for the answer, MiB"] = peak_mib() - before
    size = sum(each.stat().st_size for each in (root / "ice" / "statistics").iterdir())
    out["statistics of a chunk, bytes"] = size / chunks
    return out


def _memory_input(chunks: int) -> Path:
    return shared_input(f"statistics-memory-{chunks}", lambda folder: _many(folder, chunks))


def _many(folder: Path, chunks: int) -> None:
    """Write one chunk, and references to it from all places of an array."""
    storage = frazil.local_filesystem_storage(str(folder / "ice"))
    options = replace(config(statistics=True), inline_chunk_threshold_bytes=0)
    repo = frazil.Repository.create(storage, config=options)
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="t", shape=(chunks * 4,), chunks=(4,), dtype="f4")
    frazil.Array(session, "/t")[:4] = np.arange(4)
    workspace = session.workspace
    one = workspace.refs_at("/t", np.zeros((1, 1), np.uint32))
    for start in range(0, chunks, 1 << 20):
        numbers = np.arange(start, min(start + (1 << 20), chunks), dtype=np.uint32)
        table = replace(one.select_chunks(np.zeros(len(numbers), np.int64)), index=numbers[:, None])
        workspace.set_refs("/t", table)
    session.commit("references")
