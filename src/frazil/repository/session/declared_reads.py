"""Reads that the caller declares: paths, and selections of the elements of arrays.

The caller passes ``reads=`` to a commit or a rebase. This module converts them to a ``ReadSet`` of the chunks
that hold the elements. A ``ReadTracker`` makes a ``ReadSet`` of the reads that it tracks.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from frazil.changes.reads import ReadSet
from frazil.changes.zarr_metadata import chunk_lengths
from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.format.columns import U32
from frazil.format.snapshot import Node
from frazil.repository.paths import absolute
from frazil.repository.session.workspace import Workspace

#: A declared read: a path, or the path of an array with a selection of its elements.
type Read = str | tuple[str, Any]


def declared_reads(reads: Sequence[Read | ReadSet], origin: Workspace, current: Workspace) -> list[ReadSet]:
    """Convert the declared reads of a session to read sets.

    ``origin`` is the version that the session was opened with, ``current`` the version that it sees now.
    Reads of nodes that the session itself has created are left out. Raises ``NodeNotFoundError`` for a path
    that neither version has, and ``InvalidInputError`` (``invalid-path``; ``not-an-array`` for a selection of
    a group; ``invalid-chunk-index`` for a selection outside of the array).
    """
    trees: set[str] = set()
    boxes: dict[str, list[U32]] = {}
    nodes = origin.snapshot.nodes
    for read in reads:
        if isinstance(read, ReadSet):
            continue
        name, selection = _parts(read)
        path = absolute(name)
        row, below = nodes.find_node(path), nodes.below(path)
        if row < 0 and path != "/" and below.start == below.stop:
            if current.node(path) is None:
                raise NodeNotFoundError(
                    f"reads must be paths of nodes that the session has or was opened with, got `{path}`"
                )
        elif selection is None:
            trees.add(path)
        else:
            box = chunk_box(origin.require_array(path), selection)
            boxes.setdefault(path, []).append(box)
    columns = {path: np.stack(corners) for path, corners in boxes.items()}
    read_set = ReadSet(trees=frozenset(trees), boxes=columns)
    return [*([read_set] if read_set else []), *(read for read in reads if isinstance(read, ReadSet))]


def _parts(read: Any) -> tuple[str, Any]:
    path, selection = read if isinstance(read, tuple) and len(read) == 2 else (read, None)
    if not isinstance(path, str):
        raise TypeError(f"reads must be paths, or pairs of a path and a selection, got {read!r}")
    return path, selection


def chunk_box(node: Node, selection: Any) -> U32:
    """Return the box of chunks that hold a selection of an array's elements, (2, ndim), half-open.

    A selection is a slice, an integer, or a tuple of these and of at most one ``...``. Dimensions that it
    does not name are selected as a whole. For a slice with a step, all elements between its ends count.
    """
    assert node.array is not None
    lengths = node.array.shape
    parts = selection if isinstance(selection, tuple) else (selection,)
    if sum(part is Ellipsis for part in parts) > 1:
        raise _bad_selection(node.path, len(lengths), selection)
    at = next((number for number, part in enumerate(parts) if part is Ellipsis), len(parts))
    head, tail = parts[:at], parts[at + 1 :]
    missing = len(lengths) - len(head) - len(tail)
    if missing < 0:
        raise _bad_selection(node.path, len(lengths), selection)
    axes = (*head, *[slice(None)] * missing, *tail)
    spans = [_span(node.path, each, length) for each, length in zip(axes, lengths, strict=True)]
    edges = chunk_lengths(node.user_data)
    bounds = [_chunks_of(*span, each) for span, each in zip(spans, edges, strict=True)]
    return np.array(bounds, np.uint32).reshape(len(lengths), 2).T


def _span(path: str, part: Any, length: int) -> tuple[int, int]:
    """Return the half-open range of elements of one dimension; (0, 0) if it is empty."""
    if isinstance(part, slice):
        try:
            numbers = range(*part.indices(length))
        except (TypeError, ValueError):
            raise _bad_selection(path, None, part) from None
        return (min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1]) + 1) if numbers else (0, 0)
    try:
        number = index(part)
    except TypeError:
        raise _bad_selection(path, None, part) from None
    if isinstance(part, bool | np.bool_):
        raise _bad_selection(path, None, part)
    if not -length <= number < length:
        raise InvalidInputError(
            f"reads must select elements that `{path}` has, got index {number} of a dimension with {length} "
            "elements",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    return number % length, number % length + 1


def _chunks_of(low: int, high: int, edges: int | list[int]) -> tuple[int, int]:
    """Return the range of chunks of one dimension that hold the elements from ``low`` up to ``high``."""
    if low == high:
        return 0, 0
    if isinstance(edges, int):
        return low // edges, (high - 1) // edges + 1
    first, last = np.searchsorted(np.cumsum(edges), [low, high - 1], side="right").tolist()
    return first, last + 1


def _bad_selection(path: str, ndim: int | None, selection: Any) -> InvalidInputError:
    dimensions = "" if ndim is None else f" of at most {ndim} dimensions"
    return InvalidInputError(
        f"reads must select elements of `{path}` with slices and integers{dimensions}, got {selection!r}",
        ErrorKind.INVALID_CHUNK_INDEX,
    )
