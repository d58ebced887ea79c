"""The tracker of the reads of a session, which notes reads while they happen.

A rebase compares the chunks that were read with the commits of other writers. Reads of the session's own
changes do not count, because no other writer can change them.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from typing import Any, Final, Literal

import numpy as np

from frazil.changes.change_set import union_of_coordinates
from frazil.changes.node_changes import ReadSet
from frazil.format.columns import U32

#: The parts of a ``ReadSet`` that consist of paths.
type PathKind = Literal["documents", "members", "trees"]

#: A queue with more coordinates is joined with the column.
_QUEUE: Final = 1 << 14


class _ReadCoordinates:
    """The coordinates of the chunks of one array: a sorted column, and a queue of later additions."""

    __slots__ = ("column", "queue")

    def __init__(self, ndim: int) -> None:
        self.column: U32 = np.zeros((0, ndim), np.uint32)
        self.queue: list[tuple[int, ...]] = []

    def add(self, coords: tuple[int, ...]) -> None:
        """Add the coordinates of one chunk."""
        self.queue.append(coords)
        if len(self.queue) > max(_QUEUE, len(self.column)):
            self.join()

    def join(self, more: Sequence[U32] = ()) -> U32:
        """Return all coordinates as one column, with the columns ``more`` added."""
        if self.queue or more:
            late = np.array(self.queue, np.uint32).reshape(len(self.queue), self.column.shape[1])
            self.queue = []
            self.column = union_of_coordinates([self.column, late, *more])
        return self.column


class ReadTracker:
    """The reads of a session until now. A ``Workspace`` calls it. Threads may share it; it can be pickled."""

    def __init__(self, reads: ReadSet | None = None) -> None:
        #: A rebase holds this lock. Reads of other threads wait until the rebase is done.
        self.lock: Final = RLock()
        self._paths: dict[PathKind, set[str]] = {"documents": set(), "members": set(), "trees": set()}
        self._chunks: dict[tuple[str, int], _ReadCoordinates] = {}
        if reads is not None:
            self.add(reads)

    def __reduce__(self) -> tuple[Any, ...]:
        return (ReadTracker, (self.reads(),))

    def add(self, reads: ReadSet) -> None:
        """Add the reads of a fork. They have no boxes: only declared reads have boxes."""
        with self.lock:
            for kind, paths in self._paths.items():
                paths |= getattr(reads, kind)
            for path, columns in reads.chunks.items():
                for column in columns:
                    self._coordinates(path, column.shape[1]).join([column])

    def reads(self) -> ReadSet:
        """Return all reads until now."""
        with self.lock:
            chunks: dict[str, list[U32]] = {}
            for (path, _), coordinates in self._chunks.items():
                chunks.setdefault(path, []).append(coordinates.join())
            columns_of = {path: tuple(columns) for path, columns in chunks.items()}
            documents, members, trees = map(frozenset, self._paths.values())
            return ReadSet(documents, members, trees, columns_of)

    def path(self, kind: PathKind, path: str) -> None:
        """Add a path to a part of the read set."""
        with self.lock:
            self._paths[kind].add(path)

    def chunk(self, path: str, coords: tuple[int, ...]) -> None:
        """Add a read of one chunk."""
        with self.lock:
            self._coordinates(path, len(coords)).add(coords)

    def chunks(self, path: str, index: U32) -> None:
        """Add reads of many chunks, whose coordinates are rows of ``index``."""
        with self.lock:
            self._coordinates(path, index.shape[1]).join([index])

    def _coordinates(self, path: str, ndim: int) -> _ReadCoordinates:
        coordinates = self._chunks.get((path, ndim))
        if coordinates is None:
            coordinates = self._chunks[path, ndim] = _ReadCoordinates(ndim)
        return coordinates
