"""Statistics of the months of the year, for dates of the CF conventions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import zarr
from measure import Measured, scratch

from frazil.spark import Target, climatology
from pipeline import alternatives
from pipeline.arrays import created, opened
from pipeline.engines import engine_of
from pipeline.inputs import grid
from pipeline.names import DASK

#: The group of the result of Frazil.
GROUP = "climatology"
UNITS = "days since 2000-01-01"


def monthly(implementation: str, shape: list[int], chunks: list[int]) -> Measured:
    """Measure the mean of each month of the year, written as an array and committed."""
    source = grid(tuple(shape), tuple(chunks), UNITS)
    warm = grid((60, 20, 40), (30, 10, 20), UNITS)
    compute = _climatology(implementation)
    out = Measured()
    with scratch() as root:
        compute(warm, f"{root}/warm")
        with out.seconds("climatology"):
            compute(source, f"{root}/climatology")
        session = opened(f"{root}/climatology").readonly_session("main")
        path = "tas" if implementation == DASK else f"{GROUP}/tas"
        found: Any = zarr.open_array(session.store, path=path, mode="r")
        before: Any = zarr.open_array(opened(source).readonly_session("main").store, path="tas", mode="r")
        days = np.datetime64("2000-01-01") + np.arange(shape[0])
        is_january = days.astype("M8[M]").astype(int) % 12 == 0
        expected = before[:, :4, :4][is_january].mean(axis=0, dtype="f8")
        np.testing.assert_allclose(found[0, :4, :4], expected, rtol=1e-5)
    return out


def _climatology(implementation: str) -> Callable[[str, str], object]:
    if implementation == DASK:
        return alternatives.climatology
    engine = engine_of(implementation)

    def compute(source: str, to: str) -> None:
        target = Target(created(to), group=f"/{GROUP}")
        climatology(opened(source), ["tas"], "month", to=target, engine=engine)

    return compute
