"""What a session has read, and what of it others have changed.

A rebase compares writes with writes (`frazil.changes.conflicts`). Here the writes of others are compared with
reads:

    others                                  a read that is stale then
    ------                                  -------------------------
    changed the metadata of a node          its document, any part of the array, a tree above
    wrote chunks of an array                those chunks, a tree above
    created, deleted or moved a node        all of these, and the members of the group around it

Paths are those of the version that was read. So a node is compared where it was, wherever it is now, and a
path where nothing was is stale when somebody puts a node there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np

from frazil.changes.edits import Edits, ancestors, in_both, parent_of, parents, union
from frazil.format.columns import U32

#: Chunks that a message lists before it only counts.
_LISTED: Final = 5


@dataclass(frozen=True, slots=True, eq=False)
class ReadSet:
    """What was read.

    documents  paths of nodes whose ``zarr.json`` was read, or was not there
    members    paths of groups whose members were listed
    trees      paths of nodes that were read with all that is below them
    chunks     path of an array -> coordinates of chunks, uint32 (k, ndim); a column for each number of
               dimensions that was asked for
    boxes      path of an array -> boxes of chunks, uint32 (k, 2, ndim): first coordinates, and one more than
               the last
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
    """Something that was read, and that others have changed.

    ``path`` is that of the node or group that was read, ``change`` says what others did there, ``chunks`` are
    the coordinates of the chunks, uint32 (k, ndim), where it is about chunks.
    """

    path: str
    change: str
    chunks: U32 | None = None

    def __str__(self) -> str:
        if self.chunks is None:
            return f"`{self.path}`: {self.change}"
        some = ", ".join(map(str, self.chunks[:_LISTED].tolist()))
        more = f" and {len(self.chunks) - _LISTED} more" if len(self.chunks) > _LISTED else ""
        return f"`{self.path}`: {self.change} {some}{more}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaleRead) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((self.path, self.change))

    def _identity(self) -> tuple[Any, ...]:
        return self.path, self.change, None if self.chunks is None else self.chunks.tolist()


def stale_reads(reads: ReadSet, theirs: Edits) -> list[StaleRead]:
    """What of ``reads``, of the version that ``theirs`` leads away from, is not as it was; by path.

    ``theirs`` is the difference between two versions (``edits_between``).
    """
    if not reads:
        return []
    sources = {id_: source for id_, (source, _) in theirs.moved.items()}
    updated = {sources.get(id_, path) for id_, path in theirs.updated.items()}
    written = {sources.get(id_, path): theirs.chunks[id_] for id_, path in theirs.written.items()}
    # At most one word for a path: that a node is gone says more than that another one is there.
    placed = {
        **dict.fromkeys(theirs.created.values(), "a node was created here"),
        **dict.fromkeys((target for _, target in theirs.moved.values()), "a node was moved here"),
        **dict.fromkeys(sources.values(), "it was moved to another path"),
        **dict.fromkeys(theirs.deleted.values(), "it was deleted"),
    }
    nodes = {**dict.fromkeys(updated, "its metadata were changed"), **placed}
    read_nodes = reads.documents | reads.chunks.keys() | reads.boxes.keys()
    found = {path: StaleRead(path, nodes[path]) for path in read_nodes & nodes.keys()}
    for each in chain(
        _members(reads.members, placed),
        _trees(reads.trees, nodes, written),
        _chunks(reads.chunks, written),
        _boxes(reads.boxes, written),
    ):
        found.setdefault(each.path, each)
    return sorted(found.values(), key=lambda each: each.path)


def _members(members: frozenset[str], placed: Mapping[str, str]) -> Iterator[StaleRead]:
    for path in members & placed.keys():
        yield StaleRead(path, placed[path])
    for path in members & parents(placed.keys() - {"/"}):
        name = min(child for child in placed if parent_of(child) == path != child)
        yield StaleRead(path, f"among its members, `{name}`: {placed[name]}")


def _trees(
    trees: frozenset[str], nodes: Mapping[str, str], written: Mapping[str, U32]
) -> Iterator[StaleRead]:
    changed = nodes.keys() | written.keys()
    for path in trees & changed:
        if path in nodes:
            yield StaleRead(path, nodes[path])
        else:
            yield StaleRead(path, "others wrote the chunks", written[path])
    for path in trees & ancestors(changed - {"/"}):
        prefix = path.rstrip("/") + "/"
        inside = min(each for each in changed if each.startswith(prefix) and each != path)
        yield StaleRead(path, f"below it, `{inside}`: {nodes.get(inside, 'others wrote chunks')}")


def _chunks(chunks: Mapping[str, Sequence[U32]], written: Mapping[str, U32]) -> Iterator[StaleRead]:
    for path in chunks.keys() & written.keys():
        for read in chunks[path]:
            both = in_both(written[path], read)
            if both.any():
                yield StaleRead(path, "others wrote the chunks", written[path][both])


def _boxes(boxes: Mapping[str, U32], written: Mapping[str, U32]) -> Iterator[StaleRead]:
    for path in boxes.keys() & written.keys():
        theirs, inside = written[path], np.zeros(len(written[path]), bool)
        if boxes[path].shape[2] != theirs.shape[1]:
            continue
        for low, high in boxes[path]:
            inside |= ((theirs >= low) & (theirs < high)).all(axis=1)
        if inside.any():
            yield StaleRead(path, "others wrote the chunks", theirs[inside])


def joined_reads(parts: Sequence[ReadSet]) -> ReadSet:
    """All that one of these has."""
    if len(parts) < 2:
        return parts[0] if parts else NOTHING_READ
    chunks: dict[str, dict[int, list[U32]]] = {}
    boxes: dict[str, list[U32]] = {}
    for part in parts:
        for path, columns in part.chunks.items():
            for column in columns:
                chunks.setdefault(path, {}).setdefault(column.shape[1], []).append(column)
        for path, some in part.boxes.items():
            boxes.setdefault(path, []).append(some)
    return ReadSet(
        frozenset().union(*(part.documents for part in parts)),
        frozenset().union(*(part.members for part in parts)),
        frozenset().union(*(part.trees for part in parts)),
        {path: tuple(map(union, by_rank.values())) for path, by_rank in chunks.items()},
        {path: np.concatenate(some) for path, some in boxes.items()},
    )
