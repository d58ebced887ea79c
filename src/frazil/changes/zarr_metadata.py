"""What a metadata document of zarr says about the grid, and moves of chunks in the grid.

The chunk grid is ``regular`` or ``rectilinear``. A chunk of a rectilinear grid only fits where chunks have
the same lengths, unless the lengths move, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, compress, groupby, repeat, starmap
from operator import index as as_int
from operator import ne
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, IcechunkError, InvalidInputError
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import ArrayData, Node

_MAX_CHUNKS = 2**32 - 1
#: The largest length in elements: the snapshot stores 64 bits.
_MAX_LENGTH = 2**64 - 1
#: The largest number of chunk lengths in a rectilinear grid. A run of a few bytes could mean 32 GiB of them.
_MAX_RECTILINEAR = 1 << 24
_OF_CHUNKS = ("data_type", "codecs", "storage_transformers")
#: Attributes that give the elements of an array another meaning.
_MEANING: Final = (
    *("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned"),
    *("units", "calendar", "dtype"),
)


def parse_node(document: bytes) -> ArrayData | None:
    """Return the array data of a ``zarr.json`` document, or None for a group."""
    try:
        parsed = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise _bad(f"the document is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise _bad(f"the document must be an object, got {type(parsed).__name__}")
    if parsed.get("zarr_format") != 3:
        raise _bad(f"zarr_format must be 3, got {parsed.get('zarr_format')!r:.200}")
    match parsed.get("node_type"):
        case "group":
            return None
        case "array":
            pass
        case other:
            raise _bad(f"node_type must be 'array' or 'group', got {other!r:.200}")
    shape = _lengths(parsed.get("shape"), "shape", 0)
    if "data_type" not in parsed:
        raise _bad("the document must have a data_type, got none")
    num_chunks = tuple(map(_count, shape, _edges(parsed.get("chunk_grid"), len(shape))))
    names = parsed.get("dimension_names")
    if names is not None and (
        not isinstance(names, list)
        or len(names) != len(shape)
        or not all(name is None or isinstance(name, str) for name in names)
    ):
        raise _bad(f"dimension_names must have names for {len(shape)} dimensions, got {names!r:.200}")
    return ArrayData(shape, num_chunks, None if names is None else tuple(names))


def chunk_lengths(document: bytes) -> list[int | list[int]]:
    """Return the lengths of chunks in elements for each dimension of an array."""
    parsed = json.loads(document)
    return _edges(parsed.get("chunk_grid"), len(parsed["shape"]))


def same_encoding(one: bytes, other: bytes) -> bool:
    """Return whether the chunks of two arrays of the same rank are cut and encoded in the same way."""
    ours, theirs = json.loads(one), json.loads(other)
    if any(ours.get(key) != theirs.get(key) for key in _OF_CHUNKS):
        return False
    grids = ours.get("chunk_grid"), theirs.get("chunk_grid")
    if grids[0] == grids[1] or any(grid.get("name") != "rectilinear" for grid in grids):
        return bool(grids[0] == grids[1])
    return all(
        mine == other if isinstance(mine, int) or isinstance(other, int) else not any(map(ne, mine, other))
        for mine, other in zip(chunk_lengths(one), chunk_lengths(other), strict=True)
    )


def encoding_difference(documents: Sequence[bytes], attributes: Sequence[str] = _MEANING) -> str | None:
    """Return what differs between the ``zarr.json`` documents so that elements cannot be compared."""
    base, *others = map(json.loads, documents)
    for document, other in zip(documents[1:], others, strict=True):
        if len(base.get("shape", ())) != len(other.get("shape", ())):
            return "`shape`"
        if not same_encoding(documents[0], document):
            return "`codecs`, `data_type` or `chunk_grid`"
        if base.get("fill_value") != other.get("fill_value"):
            return "`fill_value`"
        mine, yours = base.get("attributes") or {}, other.get("attributes") or {}
        for name in attributes:
            if mine.get(name) != yours.get(name):
                return f"the attribute `{name}`"
    return None


def _edges(grid: Any, ndim: int) -> list[int | list[int]]:
    """Return the length of all chunks, or a list of lengths, for each dimension."""
    name = grid.get("name") if isinstance(grid, dict) else None
    configuration = grid.get("configuration") if isinstance(grid, dict) else None
    if name not in ("regular", "rectilinear") or not isinstance(configuration, dict):
        raise _bad(f"chunk_grid must be regular or rectilinear, got {grid!r:.200}")
    if name == "regular":
        edges: list[int | list[int]] = list(_lengths(configuration.get("chunk_shape"), "chunk_shape", 1))
    else:
        shapes = configuration.get("chunk_shapes")
        if configuration.get("kind") != "inline" or not isinstance(shapes, list):
            raise _bad(
                f"a rectilinear chunk_grid must have kind 'inline' and chunk_shapes, got {grid!r:.200}"
            )
        edges = _rectilinear(shapes)
    if len(edges) != ndim:
        raise _bad(f"chunk_grid must have {ndim} dimensions, got {len(edges)}")
    return edges


def _rectilinear(shapes: list[Any]) -> list[int | list[int]]:
    """Return the chunk lengths of each dimension of a rectilinear grid."""
    axes = [
        _runs(axis) if isinstance(axis, list) else _lengths([axis], "chunk_shapes", 1)[0] for axis in shapes
    ]
    total = sum(count for axis in axes if isinstance(axis, list) for _, count in axis)
    if total > _MAX_RECTILINEAR:
        raise _bad(f"a rectilinear chunk_grid must have at most {_MAX_RECTILINEAR} chunks, got {total}")
    return [
        axis if isinstance(axis, int) else list(chain.from_iterable(starmap(repeat, axis))) for axis in axes
    ]


def _runs(axis: list[Any]) -> list[tuple[int, int]]:
    """Return the runs (length, count) of the chunks of one dimension."""
    runs = [run if isinstance(run, list) else [run, 1] for run in axis]
    if not runs or any(len(run) != 2 for run in runs):
        raise _bad(f"chunk_shapes must be chunk lengths or [length, count], got {axis!r:.200}")
    lengths = _lengths([run[0] for run in runs], "chunk_shapes", 1)
    counts = _lengths([run[1] for run in runs], "chunk_shapes", 1)
    return list(zip(lengths, counts, strict=True))


def _count(length: int, edges: int | list[int]) -> int:
    """Return the number of chunks that cover a dimension of ``length`` elements."""
    if isinstance(edges, int):
        count = -(-length // edges)
    else:
        count = 0 if length == 0 else 1 + sum(1 for end in accumulate(edges) if end < length)
        if count > len(edges):
            raise _bad(f"the chunks of a dimension must cover {length} elements, got {sum(edges)} in total")
    if count > _MAX_CHUNKS:
        raise _bad(f"a dimension must have at most {_MAX_CHUNKS} chunks, got {count}")
    return count


def _lengths(values: Any, field: str, least: int) -> tuple[int, ...]:
    if not isinstance(values, Sequence) or not all(
        type(value) is int and least <= value <= _MAX_LENGTH for value in values
    ):
        raise _bad(f"{field} must be integers from {least} to {_MAX_LENGTH}, got {values!r:.200}")
    return tuple(values)


def _bad(detail: str) -> InvalidInputError:
    return InvalidInputError(f"invalid zarr metadata (zarr.json): {detail}", ErrorKind.BAD_METADATA)


#: A function from the coordinates of a chunk to other coordinates, or None.
Rule = Callable[[list[int]], Iterable[int] | None]

_FAR: Final = 1 << 33  # outside of every grid, and small enough to add to a coordinate without overflow


def shifted(node: Node, table: ChunkTable, offset: Iterable[int]) -> tuple[ChunkTable, bytes | None]:
    """Return the edits that move all chunks of an array by ``offset``, and its new document or None.

    Chunks outside are deleted. If a chunk of a rectilinear grid does not fit where it goes, the lengths of
    chunks move with the chunks along this dimension, and those that leave the grid enter it at its other end.
    """
    array = node.array_data
    try:
        steps = list(map(as_int, offset))
    except TypeError:
        raise TypeError(f"chunk_offset must be integers, got {offset!r}") from None
    if len(steps) != len(array.num_chunks):
        raise InvalidInputError(
            f"chunk_offset must have {len(array.num_chunks)} integers, as many as `{node.path}` has "
            f"dimensions, got {steps}",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    near = np.array([min(max(step, -_FAR), _FAR) for step in steps], np.int64)
    targets = table.index.astype(np.int64) + near
    stays = ((targets >= 0) & (targets < np.array(array.num_chunks, np.int64))).all(axis=1)
    own = table.select_chunks(stays)
    axes = [axis for axis, rows in _misfits(node, own, targets[stays]) if len(rows)]
    moved = replace(own, index=targets[stays].astype(np.uint32)).sorted()
    edits = ChunkTable.merge_tables([ChunkTable.from_absent(table.index), moved])
    return edits, _with_moved_lengths(node, {axis: steps[axis] for axis in axes}) if axes else None


def _with_moved_lengths(node: Node, steps: Mapping[int, int]) -> bytes:
    """Return the document of an array whose chunk lengths along some axes move by a number of chunks."""
    array, document = node.array_data, json.loads(node.user_data)
    lengths = chunk_lengths(node.user_data)
    shapes = document["chunk_grid"]["configuration"]["chunk_shapes"]
    for axis, step in steps.items():
        every = lengths[axis]
        assert not isinstance(every, int)
        used = every[: array.num_chunks[axis]]
        if step > 0:  # the place of the last chunk has its elements in the shape, so that nothing is cut off
            used[-1] -= sum(used) - array.shape[axis]
        shapes[axis] = [[each, len(list(run))] for each, run in groupby(used[-step:] + used[:-step])]
    return json.dumps(document).encode()


def reindexed(node: Node, table: ChunkTable, forward: Rule, backward: Rule | None) -> ChunkTable:
    """Return the edits that move every chunk to the coordinates that ``forward`` returns."""
    array = node.array_data
    goes, targets = _applied(forward, "forward", table.index, len(array.num_chunks))
    outside = np.flatnonzero((targets >= np.array(array.num_chunks, np.uint64)).any(axis=1))
    if len(outside):
        raise InvalidInputError(
            f"forward must return coordinates in the grid of `{node.path}`, which has {array.num_chunks} "
            f"chunks, got {tuple(targets[outside[0]].tolist())}",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    moved = _moved(node, table.select_chunks(goes), targets)
    if backward is None:
        return moved
    rest = table.index[moved.find_chunks(table.index) < 0]
    comes, sources = _applied(backward, "backward", rest, len(array.num_chunks))
    has_source = comes.copy()
    near = (sources < _FAR >> 1).all(axis=1)
    has_source[comes] = near & (table.find_chunks(np.minimum(sources, 0xFFFF_FFFF).astype(np.uint32)) >= 0)
    return ChunkTable.merge_tables([moved, ChunkTable.from_absent(rest[~has_source])])


def _applied(
    rule: Rule, name: str, coords: NDArray[Any], ndim: int
) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
    """Return for which rows the function returned coordinates, and these coordinates."""
    try:
        results = list(map(rule, coords.tolist()))
    except Exception as error:
        raise IcechunkError(f"{name} raised {type(error).__name__}: {error}. Nothing was changed") from error
    some = np.fromiter((each is not None for each in results), bool, len(results))
    chosen: list[Any] = list(compress(results, some.tolist()))
    try:
        rows = np.array(list(map(tuple, chosen)))
    except (TypeError, ValueError):
        rows = np.zeros(0)
    fits = rows.shape == (len(chosen), ndim) and (rows.dtype.kind in "iub" or not rows.size)
    if chosen and not (fits and (not rows.size or rows.min() >= 0)):
        raise InvalidInputError(
            f"{name} must return None or {ndim} non-negative integers, got for example {chosen[0]!r}",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    return some, rows.reshape(len(chosen), ndim).astype(np.uint64)


def _moved(node: Node, table: ChunkTable, targets: NDArray[Any]) -> ChunkTable:
    """Return the references at new coordinates, which are inside of the grid."""
    for axis, misfit in _misfits(node, table, targets):
        if len(misfit):
            row = misfit[0]
            raise InvalidInputError(
                f"chunk {tuple(table.index[row].tolist())} of `{node.path}` does not fit at "
                f"{tuple(targets[row].tolist())}: its rectilinear grid has other chunk lengths there along "
                f"dimension {axis}. A chunk fits where chunks have the same lengths",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
    return replace(table, index=targets.astype(np.uint32)).sorted()


def _misfits(node: Node, table: ChunkTable, targets: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield for each axis of unequal chunks the rows whose chunks have other lengths at their targets."""
    for axis, lengths in enumerate(chunk_lengths(node.user_data)):
        if not isinstance(lengths, int):
            each = np.array(lengths, np.uint64)
            yield axis, np.flatnonzero(each[table.index[:, axis]] != each[targets[:, axis]])
