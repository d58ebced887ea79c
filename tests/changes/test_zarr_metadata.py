"""What a zarr.json document means: a table of documents, and of those that are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frazil.changes.zarr_metadata import parse_node
from frazil.errors import ErrorKind, InvalidInputError


def document(shape: Any = (10, 6), grid: dict[str, Any] | None = None, **more: Any) -> bytes:
    node = {"zarr_format": 3, "node_type": "array", "shape": list(shape), "data_type": "int32"}
    return json.dumps({**node, "chunk_grid": grid or regular(4, 6), **more}).encode()


def rectilinear(*axes: Any) -> dict[str, Any]:
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": list(axes)}}


def regular(*shape: int) -> dict[str, Any]:
    return {"name": "regular", "configuration": {"chunk_shape": list(shape)}}


@pytest.mark.parametrize(
    ("shape", "grid", "counts"),
    [
        ((10, 6), regular(4, 6), (3, 1)),
        ((0, 6), regular(4, 4), (0, 2)),
        ((), regular(), ()),
        ((10, 6), rectilinear([2, 3, 5], [4, 2]), (3, 2)),
        ((10, 6), rectilinear(1, [1, 5]), (10, 2)),
        ((3, 1, 1), rectilinear([[1, 3]], 1, 1), (3, 1, 1)),
        ((4,), rectilinear([2, 3, 5]), (2,)),
        ((0,), rectilinear([2]), (0,)),
        ((2**32 - 1,), regular(1), (2**32 - 1,)),
    ],
)
def test_number_of_chunks(shape: Any, grid: dict[str, Any], counts: tuple[int, ...]) -> None:
    array = parse_node(document(shape, grid))
    assert array is not None
    assert array.num_chunks == counts


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"zarr_format": 2, "node_type": "group"}',
        b'{"zarr_format": 3, "node_type": "table"}',
        document(shape=(-1, 6)),
        document(shape=(1.5, 6)),
        document(shape=(10,)),
        document(grid={"name": "hexagonal", "configuration": {}}),
        document(grid=regular(0, 1)),
        document(grid=rectilinear([2, 3], 6)),
        document(grid=rectilinear([], 6)),
        document(grid=rectilinear([[1, 2, 3]], 6)),
        document(dimension_names=["y"]),
        document((2**33,), regular(1)),
    ],
)
def test_other_documents_are_refused(bad: bytes) -> None:
    with pytest.raises(InvalidInputError) as error:
        parse_node(bad)
    assert error.value.kind == ErrorKind.BAD_METADATA
