"""What a session has read: declared by its user, or tracked.

    declared   paths and regions, given to a commit or a rebase    ``declared_reads``
    tracked    noted by the session's store while it reads         ``ReadTracker``

Both are a ``ReadSet``, which a rebase compares with what others have committed. Chunks are the unit: where
elements 0 to 9 of an array were read, the chunks that hold them are compared.

Reads of what the session itself has written do not count: nobody else can change that.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from frazil.changes.node_changes import union_of_coordinates
from frazil.changes.reads import ReadSet
from frazil.changes.zarr_metadata import chunk_lengths
from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.format.columns import U32
from frazil.repository.paths import absolute

if TYPE_CHECKING:
    from frazil.format.snapshot import Node
    from frazil.repository.session.workspace import Workspace

#: What was read: a path, or a path of an array with a selection of its elements.
type Read = str | tuple[str, Any]

#: Coordinates that a queue may have before it becomes a column, at least.
_QUEUE: Final = 1 << 14


class _Coordinates:
    """Coordinates of chunks of one array: a column without repetitions, and a queue of those added since."""

    __slots__ = ("column", "queue")

    def __init__(self, ndim: int) -> None:
        self.column: U32 = np.zeros((0, ndim), np.uint32)
        self.queue: list[tuple[int, ...]] = []

    def add(self, coords: tuple[int, ...]) -> None:
        self.queue.append(coords)
        if len(self.queue) > max(_QUEUE, len(self.column)):
            self.join()

    def join(self, more: Sequence[U32] = ()) -> U32:
        """All of them as one column, with ``more``."""
        if self.queue or more:
            late = np.array(self.queue, np.uint32).reshape(len(self.queue), self.column.shape[1])
            self.queue = []
            self.column = union_of_coordinates([self.column, late, *more])
        return self.column


class ReadTracker:
    """Notes what is read: see the ``note_`` methods of ``Workspace``. Threads may share it, and it can be
    pickled.
    """

    def __init__(self, reads: ReadSet | None = None) -> None:
        #: Held while a rebase goes on: what is read meanwhile is noted, and read, when it has gone.
        self.lock = RLock()
        self._documents: set[str] = set()
        self._members: set[str] = set()
        self._trees: set[str] = set()
        self._chunks: dict[tuple[str, int], _Coordinates] = {}
        if reads is not None:
            self.add(reads)

    def __reduce__(self) -> tuple[Any, ...]:
        return (ReadTracker, (self.reads(),))

    def add(self, reads: ReadSet) -> None:
        """What a fork has read. Without boxes: those are declared, never tracked."""
        with self.lock:
            self._documents |= reads.documents
            self._members |= reads.members
            self._trees |= reads.trees
            for path, columns in reads.chunks.items():
                for column in columns:
                    self._coordinates(path, column.shape[1]).join([column])

    def reads(self) -> ReadSet:
        """All that was read until now."""
        with self.lock:
            chunks: dict[str, list[U32]] = {}
            for (path, _), coordinates in self._chunks.items():
                chunks.setdefault(path, []).append(coordinates.join())
            return ReadSet(
                frozenset(self._documents),
                frozenset(self._members),
                frozenset(self._trees),
                {path: tuple(columns) for path, columns in chunks.items()},
            )

    def document(self, path: str) -> None:
        with self.lock:
            self._documents.add(path)

    def members(self, path: str) -> None:
        with self.lock:
            self._members.add(path)

    def tree(self, path: str) -> None:
        with self.lock:
            self._trees.add(path)

    def chunk(self, path: str, coords: tuple[int, ...]) -> None:
        with self.lock:
            self._coordinates(path, len(coords)).add(coords)

    def _coordinates(self, path: str, ndim: int) -> _Coordinates:
        coordinates = self._chunks.get((path, ndim))
        if coordinates is None:
            coordinates = self._chunks[path, ndim] = _Coordinates(ndim)
        return coordinates


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
