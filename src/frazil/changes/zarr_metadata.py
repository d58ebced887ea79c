"""What a ``zarr.json`` document means to Icechunk: group or array, shape, chunk grid, dimension names.

The document itself is stored verbatim; this is what the snapshot keeps beside it. Chunk grids:
``regular``, and ``rectilinear`` with its three ways to write the edges of a dimension: a list of lengths,
runs ``[length, count]`` inside that list, or one integer that repeats.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.snapshot import ArrayData

_MAX_CHUNKS = 2**32 - 1
_OF_CHUNKS = ("data_type", "chunk_grid", "codecs", "storage_transformers")


def parse_node(document: bytes) -> ArrayData | None:
    """What is stored beside a ``zarr.json``: None for a group.

    Raises ``InvalidInputError`` (``bad-metadata``) if the document is no zarr v3 metadata.

    >>> parse_node(b'{"zarr_format": 3, "node_type": "group"}')
    """
    try:
        parsed = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise _bad(f"not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise _bad(f"expected an object, found {type(parsed).__name__}")
    if parsed.get("zarr_format") != 3:
        raise _bad(f"expected zarr_format 3, found {parsed.get('zarr_format')!r}")
    match parsed.get("node_type"):
        case "group":
            return None
        case "array":
            return _array(parsed)
        case other:
            raise _bad(f"expected node_type 'array' or 'group', found {other!r}")


def chunk_lengths(document: bytes) -> list[int | list[int]]:
    """For each dimension of an array the length of all its chunks, in elements, or the length of each.

    >>> grid = b'{"name": "regular", "configuration": {"chunk_shape": [2, 3]}}'
    >>> chunk_lengths(b'{"shape": [4, 4], "chunk_grid": ' + grid + b"}")
    [2, 3]
    """
    parsed = json.loads(document)
    return _edges(parsed.get("chunk_grid"), len(parsed["shape"]))


def same_encoding(one: bytes, other: bytes) -> bool:
    """Whether the chunks of one array are chunks of the other as well: cut and encoded in the same way.

    Both documents are of arrays with the same number of dimensions. Their shapes do not matter.
    """
    ours, theirs = json.loads(one), json.loads(other)
    return all(ours.get(key) == theirs.get(key) for key in _OF_CHUNKS)


def _array(parsed: dict[str, Any]) -> ArrayData:
    shape = _lengths(parsed.get("shape"), "shape", 0)
    if "data_type" not in parsed:
        raise _bad("expected data_type, found none")
    num_chunks = tuple(map(_count, shape, _edges(parsed.get("chunk_grid"), len(shape))))
    names = parsed.get("dimension_names")
    if names is not None and (
        not isinstance(names, list)
        or len(names) != len(shape)
        or not all(name is None or isinstance(name, str) for name in names)
    ):
        raise _bad(f"expected dimension_names for {len(shape)} dimensions, found {names!r}")
    return ArrayData(shape, num_chunks, None if names is None else tuple(names))


def _edges(grid: Any, ndim: int) -> list[int | list[int]]:
    """For each dimension the length of all its chunks, or the length of each."""
    name = grid.get("name") if isinstance(grid, dict) else None
    configuration = grid.get("configuration") if isinstance(grid, dict) else None
    if name not in ("regular", "rectilinear") or not isinstance(configuration, dict):
        raise _bad(f"expected a regular or rectilinear chunk_grid, found {grid!r}")
    if name == "regular":
        edges: list[int | list[int]] = list(_lengths(configuration.get("chunk_shape"), "chunk_shape", 1))
    else:
        shapes = configuration.get("chunk_shapes")
        if configuration.get("kind") != "inline" or not isinstance(shapes, list):
            raise _bad(
                f"expected a rectilinear grid of kind 'inline' with chunk_shapes, found {configuration!r}"
            )
        edges = [_rectilinear(axis) for axis in shapes]
    if len(edges) != ndim:
        raise _bad(f"expected a chunk grid of {ndim} dimensions, found {len(edges)}")
    return edges


def _rectilinear(axis: Any) -> int | list[int]:
    if not isinstance(axis, list):
        return _lengths([axis], "chunk_shapes", 1)[0]
    runs = [run if isinstance(run, list) else [run, 1] for run in axis]
    if not runs or any(len(run) != 2 for run in runs):
        raise _bad(f"expected chunk lengths or [length, count], found {axis!r}")
    lengths = _lengths([run[0] for run in runs], "chunk_shapes", 1)
    counts = _lengths([run[1] for run in runs], "chunk_shapes", 1)
    if sum(counts) > _MAX_CHUNKS:
        raise _bad(f"expected at most {_MAX_CHUNKS} chunks along a dimension, found {sum(counts)}")
    return [length for length, count in zip(lengths, counts, strict=True) for _ in range(count)]


def _count(length: int, edges: int | list[int]) -> int:
    """Return how many chunks cover a dimension of ``length`` elements."""
    if isinstance(edges, int):
        count = -(-length // edges)
    else:
        count = 0 if length == 0 else 1 + sum(1 for end in accumulate(edges) if end < length)
        if count > len(edges):
            raise _bad(f"chunks of {sum(edges)} elements in all do not cover {length}")
    if count > _MAX_CHUNKS:
        raise _bad(f"expected at most {_MAX_CHUNKS} chunks along a dimension, found {count}")
    return count


def _lengths(values: Any, field: str, least: int) -> tuple[int, ...]:
    if not isinstance(values, Sequence) or not all(type(value) is int and value >= least for value in values):
        raise _bad(f"{field}: expected integers of at least {least}, found {values!r}")
    return tuple(values)


def _bad(detail: str) -> InvalidInputError:
    return InvalidInputError(f"invalid zarr metadata (zarr.json): {detail}", ErrorKind.BAD_METADATA)
