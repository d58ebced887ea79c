"""What a session has read, as its user declares it: paths, and selections of the elements of arrays.

A user declares reads to a commit or a rebase. The result is a ``ReadSet`` of the chunks that hold the
elements, as a ``ReadTracker`` makes one of the reads that it tracks.
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

#: What was read: a path, or a path of an array with a selection of its elements.
type Read = str | tuple[str, Any]


def declared_reads(reads: Sequence[Read | ReadSet], origin: Workspace, current: Workspace) -> list[ReadSet]:
    """What somebody says that a session has read.

    ``origin`` has the nodes that the session was opened with, ``current`` those that it has now. Nodes that
    the session itself has created do not count. Raises ``NodeNotFoundError`` for a path that neither has,
    ``InvalidInputError`` (``invalid-path``; ``not-an-array`` for a selection of a group;
    ``invalid-chunk-index`` for a selection that the array does not have).
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
            if current.nodes.node(path) is None:
                raise NodeNotFoundError(
                    f"reads: expected paths of nodes that the session has, or was opened with, found `{path}`"
                )
        elif selection is None:
            trees.add(path)
        else:
            box = chunk_box(origin.nodes.require_array(path), selection)
            boxes.setdefault(path, []).append(box)
    columns = {path: np.stack(corners) for path, corners in boxes.items()}
    read_set = ReadSet(trees=frozenset(trees), boxes=columns)
    return [*([read_set] if read_set else []), *(read for read in reads if isinstance(read, ReadSet))]


def _parts(read: Any) -> tuple[str, Any]:
    path, selection = read if isinstance(read, tuple) and len(read) == 2 else (read, None)
    if not isinstance(path, str):
        raise TypeError(f"reads: expected a path, or a pair of a path and a selection, found {read!r}")
    return path, selection


def chunk_box(node: Node, selection: Any) -> U32:
    """The chunks that hold a selection of an array's elements: first coordinates, and one more than the last.

    A selection is a slice, an integer, or a tuple of these and of one ``...``; dimensions that it does not
    name are whole. Of a slice with a step everything between its ends counts.
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
    """First element of one dimension, and one more than the last; the same for none."""
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
            f"reads: expected an index of a dimension of `{path}` that has {length} elements, found {number}",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    return number % length, number % length + 1


def _chunks_of(low: int, high: int, edges: int | list[int]) -> tuple[int, int]:
    """The chunks of one dimension that hold the elements from ``low`` up to ``high``."""
    if low == high:
        return 0, 0
    if isinstance(edges, int):
        return low // edges, (high - 1) // edges + 1
    first, last = np.searchsorted(np.cumsum(edges), [low, high - 1], side="right").tolist()
    return first, last + 1


def _bad_selection(path: str, ndim: int | None, selection: Any) -> InvalidInputError:
    dimensions = "" if ndim is None else f" of at most {ndim} dimensions"
    return InvalidInputError(
        f"reads: expected a selection{dimensions} of `{path}` made of slices and integers, found "
        f"{selection!r}",
        ErrorKind.INVALID_CHUNK_INDEX,
    )
