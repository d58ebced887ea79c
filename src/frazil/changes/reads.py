"""The comparison of the reads of a session with the changes of other writers.

A rebase compares writes with writes (`frazil.changes.conflicts`). This module compares reads with the writes
of others:

    change of another writer                stale reads
    ------------------------                -----------
    changed the metadata of a node          its document, any part of the array, a tree above
    wrote chunks of an array                those chunks, a tree above
    created, deleted or moved a node        all of these, and the members of its group

Paths are paths of the version that was read. So a moved node is compared at its old path. A read of a path
without a node is stale if another writer creates a node there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np

from frazil.changes.moves import parent_of
from frazil.changes.node_changes import (
    NodeChanges,
    ancestors,
    in_both,
    parents,
    union_of_coordinates,
)
from frazil.format.columns import U32

#: A message lists this number of chunks, and the number of the others.
_LISTED: Final = 5


@dataclass(frozen=True, slots=True, eq=False)
class ReadSet:
    """The reads of a session.

    Attributes:
        documents: The paths of nodes whose ``zarr.json`` was read or was missing.
        members: The paths of groups whose members were listed.
        trees: The paths of nodes that were read with all nodes below them.
        chunks: The coordinates of chunks by the path of the array, uint32 of shape (k, ndim), with a column
            for each number of dimensions that was used.
        boxes: Half-open boxes of chunks by the path of the array, uint32 of shape (k, 2, ndim).
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
        return isinstance(other, StaleRead) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((self.path, self.change))

    def _identity(self) -> tuple[Any, ...]:
        return self.path, self.change, None if self.chunks is None else self.chunks.tolist()


def stale_reads(reads: ReadSet, theirs: NodeChanges) -> list[StaleRead]:
    """Return the stale reads, sorted by path.

    ``theirs`` is the difference between the version that was read and a later version
    (``node_changes_of_logs``).
    """
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
    first = _first_below(paths) if groups else {}
    for path in groups:
        below = first[path]
        yield StaleRead(path, f"below it, `{below}`: {nodes.get(below, 'another session wrote chunks')}")


def _first_below(paths: Set[str]) -> dict[str, str]:
    """Return all groups above some paths, each with the first of the paths below it."""
    first: dict[str, str] = {}
    for path in sorted(paths - {"/"}):
        group = parent_of(path)
        while group not in first:  # if a group is in the result, so are all groups above it
            first[group] = path
            group = parent_of(group)
    return first


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
