"""Shuffled windows of an array, as a training of a model reads them."""

from __future__ import annotations

import importlib

import numpy as np
import zarr
from measure import Measured, scratch


def windows(implementation: str, steps: int, window: int) -> Measured:
    """Measure an epoch of batches of windows, by `frazil.loader` or by a loop over zarr."""
    package = "frazil" if implementation.startswith("frazil") else "icechunk"
    library = importlib.import_module(package)
    out = Measured()
    with scratch() as root:
        repo = library.Repository.create(library.local_filesystem_storage(root))
        session = repo.writable_session("main")
        array = zarr.create_array(
            session.store, name="t", shape=(steps, 64, 128), chunks=(16, 64, 128), dtype="f4"
        )
        random = np.random.default_rng(0)
        for begin in range(0, steps, 256):
            count = min(256, steps - begin)
            array[begin : begin + count] = random.normal(size=(count, 64, 128)).astype("f4")
        session.commit("fields")
        count, total = steps - window + 1, 0
        with out.seconds("an epoch"):
            if implementation == "frazil":
                loader = importlib.import_module("frazil.loader")
                for batch in loader.Windows(root, ["t"], window=window, batch_size=32):
                    total += len(batch["t"])
            else:
                store = (
                    library.Repository.open(library.local_filesystem_storage(root))
                    .readonly_session("main")
                    .store
                )
                array = zarr.open_array(store, path="t", mode="r")
                starts = random.permutation(count)
                for begin in range(0, count, 32):
                    chosen = starts[begin : begin + 32].tolist()
                    total += len(np.stack([array[start : start + window] for start in chosen]))
        assert total == count
    return out
