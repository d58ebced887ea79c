"""All operations on arrays of all kinds: no dimensions, no elements, no numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import zarr
from tests.pipeline.transform import shared

import frazil
from frazil.pipeline import Target

SHAPES = {"scalar": (), "empty": (0, 4), "row": (7,), "shards": (9, 8)}


@pytest.fixture(scope="module")
def repo() -> frazil.Repository:
    repo = shared.new_repository()
    with repo.transaction("main", message="made") as store:
        for name, shape in SHAPES.items():
            for dtype in shared.TYPES:
                data = shared.values(shape, dtype)
                options: dict[str, Any] = {
                    "dimension_names": ["x", "y"][: len(shape)],
                    "chunks": (2,) * len(shape),
                }
                if name == "shards":
                    options["shards"] = (4, 4)
                path = f"{name}/{shared.TYPES.index(dtype)}"
                array = zarr.create_array(store, name=path, shape=shape, dtype=data.dtype, **options)
                if data.size:
                    array[...] = data
    return repo


def same(block: np.ndarray) -> np.ndarray:
    return block


@pytest.mark.deep
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", ["U3", "record", "M8[ns]", "c8"])
def test_blocks_of_anything(repo: frazil.Repository, name: str, dtype: str) -> None:
    path = f"{name}/{shared.TYPES.index(dtype)}"
    expected = shared.values(SHAPES[name], dtype)
    mapped = shared.map_blocks(same, repo, [path], halo=1, to=Target(repo, group="m"))
    np.testing.assert_array_equal(shared.read(mapped, f"m/{path}")[...], expected)
    if name == "scalar":
        with pytest.raises(frazil.InvalidInputError, match="'x'"):
            shared.coarsen(repo, [path], {"x": 2}, "first", to=Target(repo, group="c"))
        return
    coarse = shared.coarsen(repo, [path], {"x": 2}, "first", boundary="pad", to=Target(repo, group="c"))
    np.testing.assert_array_equal(shared.read(coarse, f"c/{path}")[...], expected[::2])


def test_a_rectilinear_grid_is_refused_or_taken_as_it_is() -> None:
    repo = shared.new_repository()
    with zarr.config.set({"array.rectilinear_chunks": True}), repo.transaction("main", message="r") as store:
        data = np.array([5, 6, 7, 8, 9], "i1")
        zarr.create_array(
            store, name="r", data=data, chunks=[[2, 3]], compressors=None, dimension_names=["x"]
        )
    in_chunks = partial(pytest.raises, frazil.InvalidInputError, match="chunks of one shape")
    with in_chunks():
        shared.rechunk(repo, ["r"], (1,))
    with in_chunks():
        shared.coarsen(repo, ["r"], {"x": 2}, boundary="trim", to=Target(repo, group="c"))
    with in_chunks():
        shared.map_blocks(same, repo, ["r"], to=Target(repo, group="m"))
    for other in (repo, shared.new_repository()):
        session = shared.materialize(repo, ["r"], to=Target(other, group="taken")).version.session()
        assert bytes(session.workspace.read_chunk("/taken/r", (1,)) or b"") == bytes([7, 8, 9])
