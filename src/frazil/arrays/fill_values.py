"""Chunks whose elements have one value: which chunks have only the fill value, and how boxes get one value.

The comparison with the fill value has the rules of zarr, for many chunks at once. A fill value of zero is
compared by its bits, so that -0.0 differs from 0.0. All other values are compared as numbers, and all NaN are
equal. A complex zero is compared as a number, too.

A box of whole chunks with one value costs one chunk: all its references lead to the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from frazil.cf import coding_of

if TYPE_CHECKING:
    import zarr

#: The dtypes whose elements can be "not a number".
_WITH_NAN = "fcmM"


def are_fill(chunks: NDArray[Any], fill: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether all elements of a chunk are the fill value, for each chunk."""
    if fill.dtype.kind == "f" and fill == 0 and fill.dtype.itemsize in (2, 4, 8):
        bits = np.dtype(f"u{fill.dtype.itemsize}")
        chunks, fill = chunks.view(bits), fill.view(bits)
    result = np.zeros(len(chunks), np.bool_)
    # The first and the last element tell it for most chunks.
    rows = np.flatnonzero(_equal(chunks[:, 0], fill) & _equal(chunks[:, -1], fill))
    if len(rows):
        chosen = chunks if len(rows) == len(chunks) else chunks[rows]
        result[rows] = _equal(chosen, fill).all(axis=1)
    return result


def _equal(values: NDArray[Any], fill: NDArray[Any]) -> NDArray[np.bool_]:
    equal: NDArray[np.bool_] = values == fill
    if fill.dtype.kind in _WITH_NAN and np.isnan(fill):
        equal |= np.isnan(values)
    return equal


def missing_element(array: zarr.Array[Any]) -> Any:
    """Return the element of a cell without a value.

    This is an element that the CF conventions decode as missing: ``_FillValue``, NaN or NaT. An array without
    such an element has its fill value.
    """
    element = coding_of(array.attrs.asdict(), array.dtype).missing_element()
    return array.fill_value if element is None else element


def is_fill(array: zarr.Array[Any], element: Any) -> bool:
    """Return whether the elements of chunks that are not stored are equal to an element."""
    one, fill = (np.asarray(each, array.dtype) for each in (element, array.fill_value))
    return bool(are_fill(one.reshape(1, 1), fill)[0])


#: The first element and the end of a box along each dimension of an array.
type Bounds = Sequence[tuple[int, int]]


def fill_box(array: zarr.Array[Any], box: Bounds, value: Any, *, only_whole: bool = False) -> None:
    """Set all elements of a box to one value."""
    if any(start >= stop for start, stop in box):
        return
    try:
        grid = tuple(array.shards or array.chunks)
    except NotImplementedError:  # a rectilinear grid
        if not only_whole:
            array[_slices(box)] = value
        return
    chunks = whole_chunks(box, grid, array.shape)
    core = [(stop, stop) for _, stop in box]
    if all(low < high for low, high in chunks):
        core = [
            (low * step, min(high * step, size))
            for (low, high), step, size in zip(chunks, grid, array.shape, strict=True)
        ]
        _fill_chunks(array, chunks, grid, value)
    rest = list(box)
    for axis, (first, end) in enumerate(() if only_whole else core):
        for edge in ((rest[axis][0], first), (end, rest[axis][1])):
            if edge[0] < edge[1]:
                array[_slices([*rest[:axis], edge, *rest[axis + 1 :]])] = value
        if first == end:
            return
        rest[axis] = (first, end)


def _slices(box: Bounds) -> tuple[slice, ...]:
    return tuple(slice(*each) for each in box)


def whole_chunks(box: Bounds, grid: Sequence[int], shape: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and the end of the chunks that a box contains whole, along each dimension.

    >>> whole_chunks([(1, 7), (0, 3)], (2, 2), (7, 9))
    [(1, 4), (0, 1)]
    """
    return [
        (-(-start // step), -(-stop // step) if stop >= size else stop // step)
        for (start, stop), step, size in zip(box, grid, shape, strict=True)
    ]


def _fill_chunks(
    array: zarr.Array[Any], chunks: Sequence[tuple[int, int]], grid: Sequence[int], value: Any
) -> None:
    """Give whole chunks one value: zarr writes the first chunk, and the others get its reference."""
    first = [
        (low * step, min((low + 1) * step, size))
        for (low, _), step, size in zip(chunks, grid, array.shape, strict=True)
    ]
    array[_slices(first)] = value
    counts = [high - low for low, high in chunks]
    index = np.indices(counts, np.uint32).reshape(len(counts), math.prod(counts)).T
    index = index + np.array([low for low, _ in chunks], np.uint32)
    workspace = array.store.session.workspace  # type: ignore[attr-defined]  # the store is an IcechunkStore
    path = "/" + array.path.strip("/")
    # zarr stores no chunk for the fill value: then the row of the first chunk is a deletion
    stored = workspace.refs_at(path, index[:1]).prune()
    rows = stored.select_chunks(np.zeros(len(index), np.int64))
    workspace.replace_refs(path, replace(rows, index=index), workspace.discards)
