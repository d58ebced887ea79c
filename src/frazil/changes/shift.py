"""Moves of the chunks of an array within its grid, which change the coordinates of references only.

Both functions get all references of an array, and return the edits. A chunk of a regular grid fits
everywhere. A chunk of a rectilinear grid only fits where chunks have the same lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import compress
from operator import index as as_int
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.changes.zarr_metadata import chunk_lengths
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import Node

#: A function from the coordinates of a chunk to other coordinates, or None.
Rule = Callable[[list[int]], Iterable[int] | None]

_FAR: Final = 1 << 33  # outside of every grid, and small enough to add to a coordinate without overflow


def shifted(node: Node, table: ChunkTable, offset: Iterable[int]) -> ChunkTable:
    """Return the edits that move all chunks of an array by ``offset``. Chunks outside the grid are deleted.

    Raises ``InvalidInputError`` if the numbers of offsets and dimensions differ (``invalid-chunk-index``), or
    if a chunk does not fit at its new place (``invalid-array-metadata``).
    """
    array = node.array
    assert array is not None
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
    moved = _moved(node, table.select_chunks(stays), targets[stays])
    return ChunkTable.merge_tables([ChunkTable.from_absent(table.index), moved])


def reindexed(node: Node, table: ChunkTable, forward: Rule, backward: Rule | None) -> ChunkTable:
    """Return the edits that move every chunk to the coordinates that ``forward`` returns.

    A chunk for which ``forward`` returns None stays. If several chunks get the same coordinates, the last one
    is used. A stored chunk whose place gets no other chunk stays; with ``backward``, it only stays if there
    is a chunk at the coordinates that ``backward`` returns for the place.

    Raises the errors of ``shifted``, ``InvalidInputError`` (``invalid-chunk-index``) for coordinates outside
    of the grid, and ``IcechunkError`` (``unknown``) if a function raises an error, which is the cause.
    """
    array = node.array
    assert array is not None
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
        given = list(map(rule, coords.tolist()))
    except Exception as error:
        raise IcechunkError(
            f"{name} raised {type(error).__name__}: {error}. Nothing was changed", ErrorKind.UNKNOWN
        ) from error
    some = np.fromiter((each is not None for each in given), bool, len(given))
    return some, _coordinates(list(compress(given, some.tolist())), name, ndim)


def _coordinates(given: Sequence[Any], name: str, ndim: int) -> NDArray[np.uint64]:
    try:
        rows = np.array(list(map(tuple, given)))
    except (TypeError, ValueError):
        rows = np.zeros(0)
    fits = rows.shape == (len(given), ndim) and (rows.dtype.kind in "iub" or not rows.size)
    if given and not (fits and (not rows.size or rows.min() >= 0)):
        raise InvalidInputError(
            f"{name} must return None or {ndim} non-negative integers, got for example {given[0]!r}",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    return rows.reshape(len(given), ndim).astype(np.uint64)


def _moved(node: Node, table: ChunkTable, targets: NDArray[Any]) -> ChunkTable:
    """Return the references at new coordinates, which are inside of the grid."""
    for axis, lengths in enumerate(chunk_lengths(node.user_data)):
        if isinstance(lengths, int):
            continue
        each = np.array(lengths, np.uint64)
        misfit = np.flatnonzero(each[table.index[:, axis]] != each[targets[:, axis]])
        if len(misfit):
            row = misfit[0]
            raise InvalidInputError(
                f"chunk {tuple(table.index[row].tolist())} of `{node.path}` does not fit at "
                f"{tuple(targets[row].tolist())}: chunks of its rectilinear grid have other lengths there",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
    return replace(table, index=targets.astype(np.uint32)).sorted()
