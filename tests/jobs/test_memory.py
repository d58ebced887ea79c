"""A task takes little more memory than the chunk that it reads, or refuses a chunk for which ``max_mem`` has
no room.

numpy and zarr report what they allocate to `tracemalloc`: the peaks are the same on every machine.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import pytest
import zarr

import frazil
import frazil.pipeline as ops
from frazil.errors import ErrorKind, InvalidInputError

INLINE: Final = ops.Inline()
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


def to(repo: frazil.Repository, group: str) -> ops.Target:
    repo.create_branch(group, repo.lookup_branch("main"))
    return ops.Target(repo, group, "out")


#: Operations, their arguments after the source, and the multiple of the chunk that they need at most.
OPERATIONS: Final[dict[str, tuple[Callable[..., object], list[Any], dict[str, Any], float]]] = {
    "mean": (ops.mean, ["data/t", "time"], {}, MOST),
    "mean of all": (ops.mean, ["data/t"], {}, MOST),
    "std": (ops.reduce, ["data/t", ["lat", "lon"], "std"], {}, MOST),
    "weighted": (ops.mean, ["data/t"], {"weights": "coslat"}, MOST),
    "groupby": (ops.groupby, ["data/t", "time", "mean"], {}, MOST),
    "quantile": (ops.quantile, ["data/t", 0.5, "time"], {}, MOST),
    "quantile by sketches": (ops.quantile, ["data/t", 0.5], {"exact_below": "1MB"}, MOST),
    "validate": (ops.validate, [[ops.Range("data/t", 0, 1)]], {}, MOST),
    "coarsen": (ops.coarsen, [["data/t"], {"lat": 2, "lon": 2}], {}, MOST),
    "pyramid": (ops.pyramid, [["data/t"]], {"factors": {"lat": 2, "lon": 2}, "levels": 2}, MOST),
    "select": (ops.select, [["data/t"]], {"isel": {"lat": [3]}}, MOST),
    "crop": (ops.crop, [["data/t"]], {"latitude": (0, 9)}, MOST),
    "map_blocks": (partial(ops.map_blocks, np.negative), [["data/t"]], {}, 4),
    "rechunk": (ops.rechunk, [["data/t"], {"time": 10}], {}, 4),
    "regrid": (ops.regrid, [["data/t"], {"lat": [0.0, 1.0], "lon": [0.0, 1.0]}], {}, 4),
}


def call(name: str, repo: frazil.Repository, to: ops.Target, **more: Any) -> object:
    function, arguments, keywords, _ = OPERATIONS[name]
    target = {} if name == "validate" else {"to": to}
    return function(repo, *arguments, engine=INLINE, **target, **keywords, **more)


BOUNDED: Final = ("coarsen", "pyramid", "select", "crop", "map_blocks", "rechunk", "regrid")


@pytest.mark.sample(6, 6)
@pytest.mark.deep
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "regrid"])
def test_peaks(repo: frazil.Repository, name: str) -> None:
    most = OPERATIONS[name][3]
    target = to(repo, name.replace(" ", "-"))
    tracemalloc.start()
    try:
        call(name, repo, target)
        peak = tracemalloc.get_traced_memory()[1] / CHUNK
    finally:
        tracemalloc.stop()
    assert peak < most, f"{peak:.2f} times the chunk"


@pytest.mark.parametrize("name", BOUNDED)
def test_a_chunk_that_does_not_fit_is_refused_before_the_work(repo: frazil.Repository, name: str) -> None:
    before = repo.lookup_branch("main")
    target = ops.Target(repo, "main", "out")
    with pytest.raises(InvalidInputError, match="max_mem must be at least") as error:
        call(name, repo, target, max_mem="10MB")
    assert error.value.kind == ErrorKind.INVALID_ARGUMENT
    assert repo.lookup_branch("main") == before
    if name in ("coarsen", "select"):  # what the error asks for is enough
        needed = int(str(error.value).partition("at least ")[2].split()[0])
        call(name, repo, to(repo, f"{name}-with-enough"), max_mem=needed)
