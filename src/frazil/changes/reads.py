"""The reads of a session: their values, their tracker, and the reads that the changes of others make stale.

A rebase compares the reads with the commits of other writers, at the paths of the version that was read.
Reads of the session's own changes do not count, because no other writer can change them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from threading import RLock
from typing import Any, Final, Literal

import numpy as np

from frazil.changes.change_set import parent_of, union_of_coordinates
from frazil.changes.diff import NodeChanges, ancestors, in_both, parents
from frazil.format.columns import U32

#: A message lists this number of chunks, and the number of the others.
_LISTED: Final = 5


@dataclass(frozen=True, slots=True, eq=False)
class ReadSet:
    """The reads of a session, by path.

    ``documents`` are nodes whose ``zarr.json`` was read or was missing, ``members`` groups that were listed,
    and ``trees`` nodes that were read with all nodes below. ``chunks`` has coordinates, a column for each
    number of dimensions, and ``boxes`` half-open boxes of chunks, of shape (k, 2, ndim).
    """

    documents: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    trees: frozenset[str] = frozenset()
    chunks: Mapping[str, Sequence[U32]] = field(default_factory=dict)
    boxes: Mapping[str, U32] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.documents or self.members or self.trees or self.chunks or self.boxes)


NOTHING_READ: Final = ReadSet()


@dataclass(frozen=True, slots=True, eq=False)
class StaleRead:
    """A read of data that another writer has changed.

    Attributes:
        path: The path of the node that was read.
        change: The change of the other writer, as text.
        chunks: The coordinates of the changed chunks, uint32 of shape (k, ndim). None if other parts of the
            node were changed.
    """

    path: str
    change: str
    chunks: U32 | None = None

    def __str__(self) -> str:
        if self.chunks is None:
            return f"`{self.path}`: {self.change}"
        listing = ", ".join(map(str, self.chunks[:_LISTED].tolist()))
        rest = f" and {len(self.chunks) - _LISTED} more" if len(self.chunks) > _LISTED else ""
        return f"`{self.path}`: {self.change} {listing}{rest}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StaleRead):
            return NotImplemented
        mine, yours = (None if each.chunks is None else each.chunks.tolist() for each in (self, other))
        return (self.path, self.change, mine) == (other.path, other.change, yours)

    def __hash__(self) -> int:
        return hash((self.path, self.change))


def stale_reads(reads: ReadSet, theirs: NodeChanges) -> list[StaleRead]:
    """Return the stale reads, sorted by path. ``theirs`` has the changes since the version that was read."""
    if not reads:
        return []
    sources = {id_: source for id_, (source, _) in theirs.moved.items()}
    documents = {sources.get(id_, path) for id_, path in theirs.updated.items()}
    writes = {sources.get(id_, path): theirs.chunks[id_] for id_, path in theirs.chunk_paths.items()}
    # There is one text for a path. The deletion of a node is more important than a new node at its path.
    places = {
        **dict.fromkeys(theirs.created.values(), "a node was created here"),
        **dict.fromkeys((target for _, target in theirs.moved.values()), "a node was moved here"),
        **dict.fromkeys(sources.values(), "it was moved to another path"),
        **dict.fromkeys(theirs.deleted.values(), "it was deleted"),
    }
    nodes = {**dict.fromkeys(documents, "its metadata were changed"), **places}
    read_nodes = reads.documents | reads.chunks.keys() | reads.boxes.keys()
    stale = {path: StaleRead(path, nodes[path]) for path in read_nodes & nodes.keys()}
    for each in chain(
        _members(reads.members, places),
        _trees(reads.trees, nodes, writes),
        _chunks(reads.chunks, writes),
        _boxes(reads.boxes, writes),
    ):
        stale.setdefault(each.path, each)
    return sorted(stale.values(), key=lambda each: each.path)


def _members(members: frozenset[str], places: Mapping[str, str]) -> Iterator[StaleRead]:
    for path in members & places.keys():
        yield StaleRead(path, places[path])
    if groups := members & parents(places.keys() - {"/"}):
        # The message names the first of several children.
        first = {parent_of(child): child for child in sorted(places.keys() - {"/"}, reverse=True)}
        for path in groups:
            yield StaleRead(path, f"among its members, `{first[path]}`: {places[first[path]]}")


def _trees(trees: frozenset[str], nodes: Mapping[str, str], writes: Mapping[str, U32]) -> Iterator[StaleRead]:
    paths = nodes.keys() | writes.keys()
    for path in trees & paths:
        yield StaleRead(path, nodes[path]) if path in nodes else _chunks_of(path, writes[path])
    groups = trees & ancestors(paths - {"/"})
    # The first of the paths below each group. If a group has one, so have all groups above it.
    first: dict[str, str] = {}
    for path in sorted(paths - {"/"}) if groups else ():
        group = parent_of(path)
        while group not in first:
            first[group] = path
            group = parent_of(group)
    for path in groups:
        below = first[path]
        yield StaleRead(path, f"below it, `{below}`: {nodes.get(below, 'another session wrote chunks')}")


def _chunks(chunks: Mapping[str, Sequence[U32]], writes: Mapping[str, U32]) -> Iterator[StaleRead]:
    for path in chunks.keys() & writes.keys():
        for column in chunks[path]:
            overlap = in_both(writes[path], column)
            if overlap.any():
                yield _chunks_of(path, writes[path][overlap])


def _boxes(boxes: Mapping[str, U32], writes: Mapping[str, U32]) -> Iterator[StaleRead]:
    for path in boxes.keys() & writes.keys():
        coords = writes[path]
        if boxes[path].shape[2] != coords.shape[1]:
            continue
        overlap = np.zeros(len(coords), bool)
        for low, high in boxes[path]:
            overlap |= ((coords >= low) & (coords < high)).all(axis=1)
        if overlap.any():
            yield _chunks_of(path, coords[overlap])


def _chunks_of(path: str, coords: U32) -> StaleRead:
    return StaleRead(path, "another session wrote the chunks", coords)


def joined_reads(parts: Sequence[ReadSet]) -> ReadSet:
    """Return the union of several read sets."""
    if len(parts) < 2:
        return parts[0] if parts else NOTHING_READ
    chunks: dict[str, dict[int, list[U32]]] = {}
    boxes: dict[str, list[U32]] = {}
    for part in parts:
        for path, columns in part.chunks.items():
            for column in columns:
                chunks.setdefault(path, {}).setdefault(column.shape[1], []).append(column)
        for path, column in part.boxes.items():
            boxes.setdefault(path, []).append(column)
    return ReadSet(
        frozenset().union(*(part.documents for part in parts)),
        frozenset().union(*(part.members for part in parts)),
        frozenset().union(*(part.trees for part in parts)),
        {path: tuple(map(union_of_coordinates, by_rank.values())) for path, by_rank in chunks.items()},
        {path: np.concatenate(columns) for path, columns in boxes.items()},
    )


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
