"""What a session has read, as its store tracks it.

A ``ReadTracker`` notes reads while they happen. The result is a ``ReadSet``, which a rebase compares with
what others have committed. Chunks are the unit: where elements 0 to 9 of an array were read, the chunks that
hold them are compared. `frazil.repository.session.declared_reads` makes the same of what a user declares.

Reads of what the session itself has written do not count: nobody else can change that.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from typing import Any, Final

import numpy as np

from frazil.changes.node_changes import union_of_coordinates
from frazil.changes.reads import ReadSet
from frazil.format.columns import U32

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
    """Notes what a session reads; ``ReadNotes`` calls it. Threads may share it, and it can be pickled."""

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
