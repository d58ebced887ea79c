"""Peers that only read: plain files, and zarrista. They read the files of zarr's LocalStore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import zarr
from measure import Measured

PLAIN_FILES, ZARRISTA = "plain files", "zarrista"
#: The package of each peer.
PACKAGES = {PLAIN_FILES: "numpy"}


def read(peer: str, root: str, data: np.ndarray, chunk: int, compressor: Any, points: list[int]) -> Measured:
    """Measure the read of an array of one dimension, and of points. ``chunk`` is the length of a chunk."""
    store = zarr.storage.LocalStore(root)
    zarr.create_array(store, name="a", data=data, chunks=(chunk,), compressors=compressor, filters=None)
    out = Measured()
    if peer == PLAIN_FILES:
        if compressor is not None:
            return out
        with out.seconds_of_all("read"):
            values = _plain(Path(root, "a", "c"), data, chunk)
        with out.microseconds_each("read a point", len(points)):
            for point in points:
                _plain_point(Path(root, "a", "c"), data.dtype, *divmod(point, chunk))
    else:
        import zarrista
        from zarrista.store import FilesystemStore

        array = zarrista.Array.open(FilesystemStore(root), "/a")
        with out.seconds_of_all("read"):
            values = array[:].to_numpy()
        with out.microseconds_each("read a point", len(points)):
            for point in points:
                array[point].to_numpy()
    assert np.array_equal(values, data)
    return out


def _plain(folder: Path, data: np.ndarray, chunk: int) -> np.ndarray:
    """Return the values of all chunk files, which are read into their places."""
    values = np.empty_like(data)
    for number, begin in enumerate(range(0, len(data), chunk)):
        with open(folder / str(number), "rb", buffering=0) as file:
            file.readinto(memoryview(values[begin : begin + chunk]))
    return values


def _plain_point(folder: Path, dtype: np.dtype, number: int, element: int) -> Any:
    with open(folder / str(number), "rb", buffering=0) as file:
        file.seek(element * dtype.itemsize)
        return np.frombuffer(file.read(dtype.itemsize), dtype)[0]
