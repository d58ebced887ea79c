"""Twice the arrays, or twice the chunks, are about twice the work, for every operation on arrays.

Work is the steps of Python (see `tests.counting`): they do not depend on how busy the machine is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
import xarray as xr
import zarr
from tests.counting import python_steps

import frazil
from frazil.spark import (
    Inline,
    Range,
    Target,
    anomaly,
    climatology,
    coarsen,
    copy_repository,
    crop,
    groupby,
    map_blocks,
    materialize,
    mean,
    pyramid,
    quantile,
    rechunk,
    recompress,
    reduce,
    regrid,
    resample,
    select,
    validate,
    zonal_stats,
)

INLINE: Final = Inline()
#: Exponents: 1 is as many steps as rows. What is done once for the job makes it smaller.
MOST: Final = 1.3

type Operation = Callable[[frazil.Repository, list[str]], object]


def to(repo: frazil.Repository) -> Target:
    return Target(repo, group="out")


OPERATIONS: Final[dict[str, Operation]] = {
    "mean": lambda repo, paths: mean(repo, paths, "time", to=to(repo), engine=INLINE),
    "reduce": lambda repo, paths: reduce(
        repo, paths, ["lat", "lon"], ["sum", "std"], weights="coslat", to=to(repo), engine=INLINE
    ),
    "groupby": lambda repo, paths: groupby(repo, paths, "time.month", to=to(repo), engine=INLINE),
    "resample": lambda repo, paths: resample(repo, paths, "2D", to=to(repo), engine=INLINE),
    "climatology": lambda repo, paths: climatology(repo, paths, "month", to=to(repo), engine=INLINE),
    "quantile": lambda repo, paths: quantile(repo, paths, 0.5, "time", to=to(repo), engine=INLINE),
    "zonal_stats": lambda repo, paths: zonal_stats(repo, paths, [-90, 0, 90], to=to(repo), engine=INLINE),
    "coarsen": lambda repo, paths: coarsen(repo, paths, {"lat": 2}, to=to(repo), engine=INLINE),
    "pyramid": lambda repo, paths: pyramid(
        repo, paths, factors={"lat": 2}, levels=2, to=to(repo), engine=INLINE
    ),
    "rechunk": lambda repo, paths: rechunk(repo, paths, {"time": -1, "lat": 2}, to=to(repo), engine=INLINE),
    "rechunk in place": lambda repo, paths: rechunk(repo, paths, {"time": -1, "lat": 2}, engine=INLINE),
    "recompress": lambda repo, paths: recompress(repo, paths, [], to=to(repo), engine=INLINE),
    "select": lambda repo, paths: select(repo, paths, isel={"lat": [0, 2]}, to=to(repo), engine=INLINE),
    "crop": lambda repo, paths: crop(repo, paths, latitude=(-40, 40), to=to(repo), engine=INLINE),
    "regrid": lambda repo, paths: regrid(
        repo, paths, {"lat": [-30, 0, 30], "lon": [0, 90]}, to=to(repo), engine=INLINE
    ),
    "map_blocks": lambda repo, paths: [
        map_blocks(np.negative, repo, paths[:1], to=to(repo), engine=INLINE),
    ],
    "materialize": lambda repo, paths: materialize(repo, paths, to=to(repo), engine=INLINE),
    "copy_repository": lambda repo, paths: copy_repository(repo, frazil.in_memory_storage(), engine=INLINE),
    "validate": lambda repo, paths: validate(
        repo, [rule for path in paths for rule in (Range(path, -9, 0), Range(path, -9, 9))], engine=INLINE
    ),
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


def steps(call: Operation, arrays: int, times: int) -> int:
    repo, paths = repository_with(arrays, times)
    return python_steps(lambda: call(repo, paths), all_threads=True)


def exponent(few: int, many: int, ratio: float) -> float:
    return math.log(many / few) / math.log(ratio)


def steps_of_both(call: Operation, *sizes: tuple[int, int]) -> list[int]:
    """The first call imports modules and fills caches: its steps are not counted."""
    call(*repository_with(1, 2))
    return [steps(call, *size) for size in sizes]


#: Those of the first tier, of different kinds: a reduction, a plan of several rounds, a pass of checks.
QUICK: Final = {"mean", "rechunk", "validate"}
NAMES: Final = [pytest.param(name, marks=() if name in QUICK else pytest.mark.deep) for name in OPERATIONS]


@pytest.mark.sample(1, 2)
@pytest.mark.deep
@pytest.mark.parametrize("name", [each for each in NAMES if each.values != ("map_blocks",)])
def test_work_grows_with_the_arrays(name: str) -> None:
    few, many = steps_of_both(OPERATIONS[name], (10, 1), (40, 1))
    assert exponent(few, many, 4) < MOST, (few, many)


@pytest.mark.sample(1, 3)
@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_work_grows_with_the_chunks(name: str) -> None:
    few, many = steps_of_both(OPERATIONS[name], (1, 100), (1, 400))
    assert exponent(few, many, 4) < MOST, (few, many)


@pytest.mark.deep
def test_anomalies_grow_with_the_arrays() -> None:
    def call(arrays: int) -> int:
        repo, paths = repository_with(arrays, 1)
        usual = climatology(repo, paths, to=Target(repo, group="usual"), engine=INLINE)
        return python_steps(
            lambda: anomaly(repo, paths, usual, group="usual", to=to(repo), engine=INLINE), all_threads=True
        )

    call(1)
    assert exponent(call(10), call(40), 4) < MOST
