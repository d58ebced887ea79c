"""Shuffled windows of an array, as a training of a model reads them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import zarr
from measure import Measured, scratch

BATCH = 32


def windows(implementation: str, steps: int, window: int) -> Measured:
    """Measure an epoch of batches of windows, by a loader or by a loop over zarr."""
    read = READERS[implementation]
    out = Measured()
    values = np.random.default_rng(0).normal(size=(steps, 64, 128)).astype("f4")
    with scratch() as root:
        if implementation == "beluga":
            _write_zarr(root, values)
        else:
            is_frazil = implementation.startswith("frazil")
            library = importlib.import_module("frazil" if is_frazil else "icechunk")
            session = library.Repository.create(library.local_filesystem_storage(root)).writable_session(
                "main"
            )
            array = zarr.create_array(
                session.store, name="t", shape=values.shape, chunks=(16, 64, 128), dtype="f4"
            )
            array[:] = values
            session.commit("fields")
        total = 0
        with out.seconds("an epoch"):
            for batch in read(root, steps, window):
                total += len(batch)
        assert total == steps - window + 1
    return out


def _frazil(root: str, steps: int, window: int) -> Iterator[Any]:
    loader = importlib.import_module("frazil.loader")
    return (batch["t"] for batch in loader.TrainingWindows(root, ["t"], window=window, batch_size=BATCH))


def _loop(package: str, root: str, steps: int, window: int) -> Iterator[Any]:
    """Read one window after the other with zarr."""
    array = zarr.open_array(_store(package, root), path="t", mode="r")
    starts = _starts(steps, window)
    for begin in range(0, len(starts), BATCH):
        yield np.stack([array[start : start + window] for start in starts[begin : begin + BATCH]])


def _insitubatch(root: str, steps: int, window: int) -> Iterator[Any]:
    """Read a repository of icechunk. Each step of the windows is an array of a batch."""
    peer = importlib.import_module("insitubatch")
    store = _store("icechunk", root)
    array = peer.open_geometries(store, ["t"])["t"]
    views = {f"t{step}": array.shift(step) for step in range(window)}
    split = peer.split_by_chunk(array, fractions=(1.0, 0.0, 0.0))
    data = peer.InSituDataset(store, split, geometries=views, batch_size=BATCH)
    for batch in data.train:
        yield batch.arrays["t0"]
    data.close()


def _beluga(root: str, steps: int, window: int) -> Iterator[Any]:
    """Read a group of zarr version 2: the package does not read repositories."""
    reader = importlib.import_module("beluga").open_zarr_group(root, "t.zarr", variables=["t"])
    batch: list[Any] = []
    for sample in reader.stream(_starts(steps, window), frames=window):
        batch.append(np.from_dlpack(sample))
        if len(batch) == BATCH:
            yield np.stack(batch)
            batch = []
    if batch:
        yield np.stack(batch)


def _starts(steps: int, window: int) -> list[int]:
    starts: list[int] = np.random.default_rng(0).permutation(steps - window + 1).tolist()
    return starts


def _store(package: str, root: str) -> Any:
    library = importlib.import_module(package)
    return library.Repository.open(library.local_filesystem_storage(root)).readonly_session("main").store


def _write_zarr(root: str, values: np.ndarray) -> None:
    import numcodecs  # type: ignore[import-untyped]
    import xarray as xr

    time = np.datetime64("2026-01-01", "ns") + np.arange(len(values)) * np.timedelta64(6, "h")
    coordinates = {"time": time, "latitude": np.arange(64.0), "longitude": np.arange(128.0)}
    dataset = xr.Dataset({"t": (tuple(coordinates), values)}, coordinates)
    encoding = {"t": {"chunks": (16, 64, 128), "compressors": [numcodecs.Zstd()]}}
    dataset.to_zarr(f"{root}/t.zarr", zarr_format=2, encoding=encoding)


READERS: dict[str, Callable[[str, int, int], Iterator[Any]]] = {
    "frazil": _frazil,
    "frazil, zarr": partial(_loop, "frazil"),
    "icechunk": partial(_loop, "icechunk"),
    "insitubatch": _insitubatch,
    "beluga": _beluga,
}
