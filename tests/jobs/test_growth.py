"""Twice the arrays, or twice the chunks, are about twice the work, for every operation on arrays.

Work is the steps of Python (see `tests.counting`): they do not depend on how busy the machine is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import pytest
import xarray as xr
import zarr
from tests.counting import python_steps
from tests.pipeline.operations import CALLS, anomaly, operate

import frazil
import frazil.pipeline as ops

INLINE: Final = ops.Inline()
#: Exponents: 1 is as many steps as rows. What is done once for the job makes it smaller.
MOST: Final = 1.3


def validate(repo: frazil.Repository, paths: list[str], **_: Any) -> object:
    rules = [rule for path in paths for rule in (ops.Range(path, -9, 0), ops.Range(path, -9, 9))]
    return ops.validate(repo, rules, engine=INLINE)


OPERATIONS: Final[dict[str, Callable[..., object]]] = {
    **{name: partial(operate, call) for name, call in CALLS.items()},
    "weighted": partial(operate, CALLS["mean of a plane"], weights="coslat"),
    "rechunk in place": lambda repo, paths, **_: operate(CALLS["rechunk"], repo, paths),
    "map_blocks": lambda repo, paths, to: operate(CALLS["map_blocks"], repo, paths[:1], to=to),
    "copy_repository": lambda repo, paths, **_: ops.copy_repository(
        repo, frazil.in_memory_storage(), engine=INLINE
    ),
    "validate": validate,
    "anomaly": partial(anomaly, engine=INLINE),
}


def repository_with(arrays: int, times: int) -> tuple[frazil.Repository, list[str]]:
    """Arrays in one group, with a chunk for each time."""
    repo = frazil.Repository.create(
        frazil.in_memory_storage(), frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    )
    names = [f"a{number}" for number in range(arrays)]
    time = np.datetime64("2001-01-01", "ns") + np.arange(times) * np.timedelta64(10, "D")
    coords: dict[str, Any] = {
        "time": time,
        "lat": ("lat", np.linspace(-60, 60, 4), {"standard_name": "latitude"}),
        "lon": ("lon", [0.0, 90.0], {"standard_name": "longitude"}),
    }
    with repo.transaction("main", message="made") as store:
        xr.Dataset(coords=coords).to_zarr(store, group="data", consolidated=False, zarr_format=3)
        for name in names:
            zarr.create_array(
                store,
                name=f"data/{name}",
                data=np.ones((times, 4, 2), "f4"),
                chunks=(1, 4, 2),
                dimension_names=["time", "lat", "lon"],
            )
    return repo, [f"data/{name}" for name in names]


def to(repo: frazil.Repository) -> ops.Target:
    return ops.Target(repo, group="out")


def steps(call: Callable[..., object], arrays: int, times: int) -> int:
    repo, paths = repository_with(arrays, times)
    return python_steps(lambda: call(repo, paths, to=to(repo)), all_threads=True)


def exponent(few: int, many: int, ratio: float) -> float:
    return math.log(many / few) / math.log(ratio)


def steps_of_both(call: Callable[..., object], *sizes: tuple[int, int]) -> list[int]:
    """The first call imports modules and fills caches: its steps are not counted."""
    repo, paths = repository_with(1, 2)
    call(repo, paths, to=to(repo))
    return [steps(call, *size) for size in sizes]


@pytest.mark.sample(1, 2)
@pytest.mark.deep
@pytest.mark.parametrize("name", [each for each in OPERATIONS if each != "map_blocks"])
def test_work_grows_with_the_arrays(name: str) -> None:
    few, many = steps_of_both(OPERATIONS[name], (10, 1), (40, 1))
    assert exponent(few, many, 4) < MOST, (few, many)


@pytest.mark.sample(1, 3)
@pytest.mark.deep
@pytest.mark.parametrize("name", OPERATIONS)
def test_work_grows_with_the_chunks(name: str) -> None:
    few, many = steps_of_both(OPERATIONS[name], (1, 100), (1, 400))
    assert exponent(few, many, 4) < MOST, (few, many)
