"""A task takes little more memory than the chunk that it reads, or refuses a chunk for which ``max_mem`` has
no room.

numpy and zarr report what they allocate to `tracemalloc`: the peaks are the same on every machine.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
import zarr

import frazil
from frazil.errors import ErrorKind, InvalidInputError
from frazil.spark import (
    Inline,
    Range,
    Target,
    coarsen,
    crop,
    groupby,
    map_blocks,
    mean,
    pyramid,
    quantile,
    rechunk,
    reduce,
    regrid,
    select,
    validate,
)

INLINE: Final = Inline()
SHAPE: Final = (400, 150, 200)
#: Bytes of the one chunk.
CHUNK: Final = 4 * 400 * 150 * 200
#: What `zarr` needs to read a chunk is 2.
MOST: Final = 2.6


@pytest.fixture(scope="module")
def repo() -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    values = (np.arange(CHUNK // 4) % 1000).astype("f4").reshape(SHAPE)
    values[:, 3, 5] = np.nan
    with repo.transaction("main", message="one chunk of each array") as store:
        options: dict[str, Any] = {"chunks": SHAPE, "dimension_names": ["time", "lat", "lon"]}
        zarr.create_array(store, name="data/t", data=values, **options)
        for name, data in (
            ("time", np.arange(400) % 12),
            ("lat", np.linspace(-80, 80, 150)),
            ("lon", np.linspace(0, 358, 200)),
        ):
            zarr.create_array(store, name=f"data/{name}", data=data, dimension_names=[name])
    return repo


type Operation = Callable[..., object]


def to(repo: frazil.Repository, group: str) -> Target:
    repo.create_branch(group, repo.lookup_branch("main"))
    return Target(repo, group, "out")


#: Each with the bound that it takes, and the multiple of the chunk that it needs at most.
OPERATIONS: Final[dict[str, tuple[Operation, float]]] = {
    "mean": (lambda repo, to: mean(repo, "data/t", "time", to=to, engine=INLINE), MOST),
    "mean of all": (lambda repo, to: mean(repo, "data/t", to=to, engine=INLINE), MOST),
    "std": (lambda repo, to: reduce(repo, "data/t", ["lat", "lon"], "std", to=to, engine=INLINE), MOST),
    "weighted": (lambda repo, to: mean(repo, "data/t", weights="coslat", to=to, engine=INLINE), MOST),
    "groupby": (lambda repo, to: groupby(repo, "data/t", "time", "mean", to=to, engine=INLINE), MOST),
    "quantile": (lambda repo, to: quantile(repo, "data/t", 0.5, "time", to=to, engine=INLINE), MOST),
    "quantile by sketches": (
        lambda repo, to: quantile(repo, "data/t", 0.5, exact_below="1MB", to=to, engine=INLINE),
        MOST,
    ),
    "validate": (lambda repo, to: validate(repo, [Range("data/t", 0, 1)], engine=INLINE), MOST),
    "coarsen": (
        lambda repo, to, **more: coarsen(
            repo, ["data/t"], {"lat": 2, "lon": 2}, to=to, engine=INLINE, **more
        ),
        MOST,
    ),
    "pyramid": (
        lambda repo, to, **more: pyramid(
            repo, ["data/t"], factors={"lat": 2, "lon": 2}, levels=2, to=to, engine=INLINE, **more
        ),
        MOST,
    ),
    "select": (
        lambda repo, to, **more: select(repo, ["data/t"], isel={"lat": [3]}, to=to, engine=INLINE, **more),
        MOST,
    ),
    "crop": (
        lambda repo, to, **more: crop(repo, ["data/t"], latitude=(0, 9), to=to, engine=INLINE, **more),
        MOST,
    ),
    "map_blocks": (
        lambda repo, to, **more: map_blocks(np.negative, repo, ["data/t"], to=to, engine=INLINE, **more),
        4,
    ),
    "rechunk": (
        lambda repo, to, **more: rechunk(repo, ["data/t"], {"time": 10}, to=to, engine=INLINE, **more),
        4,
    ),
}
QUICK: Final = {"mean", "quantile", "validate", "coarsen", "rechunk"}
BOUNDED: Final = ("coarsen", "pyramid", "select", "crop", "map_blocks", "rechunk", "regrid")


@pytest.mark.sample(6, 6)
@pytest.mark.deep
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.deep) for name in OPERATIONS],
)
def test_peaks(repo: frazil.Repository, name: str) -> None:
    call, most = OPERATIONS[name]
    target = to(repo, name.replace(" ", "-"))
    tracemalloc.start()
    try:
        call(repo, target)
        peak = tracemalloc.get_traced_memory()[1] / CHUNK
    finally:
        tracemalloc.stop()
    assert peak < most, f"{peak:.2f} times the chunk"


@pytest.mark.parametrize("name", BOUNDED)
def test_a_chunk_that_does_not_fit_is_refused_before_the_work(repo: frazil.Repository, name: str) -> None:
    grid = {"lat": [0.0, 1.0], "lon": [0.0, 1.0]}
    call: Operation = (
        OPERATIONS[name][0]
        if name in OPERATIONS
        else lambda repo, to, **more: regrid(repo, ["data/t"], grid, to=to, engine=INLINE, **more)
    )
    before = repo.lookup_branch("main")
    target = Target(repo, "main", "out")
    with pytest.raises(InvalidInputError, match="max_mem must be at least") as error:
        call(repo, target, max_mem="10MB")
    assert error.value.kind == ErrorKind.INVALID_ARGUMENT
    assert repo.lookup_branch("main") == before
    if name in ("coarsen", "select"):  # what the error asks for is enough
        needed = int(str(error.value).partition("at least ")[2].split()[0])
        call(repo, to(repo, f"{name}-with-enough"), max_mem=needed)
