"""Every operation names the array, the chunk and the object where a chunk cannot be decoded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
import zarr
from zarr.codecs import BytesCodec
from zarr.core.buffer import cpu

import frazil
import frazil.pipeline as ops
from frazil.arrow.grid import Selection, grid_of
from frazil.errors import FormatError, TaskFailedError
from frazil.spark import write_table
from frazil.spark.tables.scan import plan_scan, table

ENGINE: Final = ops.Inline()


@pytest.fixture(scope="module")
def repo() -> frazil.Repository:
    """The chunk ``[1, 0]`` of ``/g/t`` is damaged."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="an array") as store:
        group = zarr.create_group(store, path="g")
        for name, size in (("y", 8), ("x", 6)):
            group.create_array(name, data=np.arange(float(size)), chunks=(size,), dimension_names=[name])
        values = np.random.default_rng(0).random((8, 6))
        group.create_array("t", data=values, chunks=(4, 3), dimension_names=["y", "x"])
        chunk = store.get_sync("g/t/c/1/0")
        assert chunk is not None
        data = bytes(20) + chunk.to_bytes()[20:]
        store.set_sync("g/t/c/1/0", cpu.Buffer.from_bytes(data))
    return repo


def _rows(repo: frazil.Repository) -> pa.Table:
    session = repo.readonly_session("main")
    grid = grid_of(session, Selection("/g"))
    scan, parts = plan_scan(session, grid, [])
    return table(scan, parts)


def _made(function: Callable[..., Any], *arguments: Any, **more: Any) -> Callable[[frazil.Repository], Any]:
    return lambda repo: function(repo, *arguments, to=ops.Target(repo, group="o"), engine=ENGINE, **more)


OPERATIONS: Final[dict[str, Callable[[frazil.Repository], Any]]] = {
    "mean": _made(ops.mean, "g/t", "y"),
    "quantile": _made(ops.quantile, "g/t", 0.5, "y"),
    "rechunk": _made(ops.rechunk, ["g/t"], {"y": 8, "x": 2}),
    "recompress": _made(ops.recompress, ["g/t"], codecs=[BytesCodec()]),
    "map_blocks": _made(partial(ops.map_blocks, np.negative), ["g/t"]),
    "coarsen": _made(ops.coarsen, ["g/t"], {"y": 2}, "mean"),
    "select": _made(ops.select, ["g/t"], isel={"y": slice(1, 8)}),
    "validate": lambda repo: ops.validate(repo, [ops.Range("/g/t", 0, 1)], engine=ENGINE),
    "rows": _rows,
    "write_table": lambda repo: write_table(
        pa.table({"y": [5.0], "x": [1.0], "t": [0.5]}), ops.Target(repo, group="g"), mode="upsert"
    ),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_the_chunk_is_named(repo: frazil.Repository, operation: Callable[[frazil.Repository], Any]) -> None:
    tip = repo.lookup_branch("main")
    with pytest.raises((TaskFailedError, FormatError)) as caught:
        operation(repo)
    assert caught.value.kind == "undecodable-chunk"
    assert "cannot decode the chunk [1, 0] of the array `/g/t`: RuntimeError: " in caught.value.message
    assert repo.lookup_branch("main") == tip
