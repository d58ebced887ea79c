"""The moves of nodes to other paths.

A change set has one ``Move`` for each moved node, by its id: from its path in the base to its path now. A
node that was moved back to its first path has a move to its own path: the change set is not empty then, but a
log does not have the move. The other changes of a change set are relative to the base after its moves.

A session moves one subtree at a time, and a program may rename thousands of nodes one by one. ``MoveTree``
checks and makes each move without a new table of nodes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import filterfalse
from operator import attrgetter, itemgetter, methodcaller

import numpy as np

from frazil.errors import AlreadyExistsError, ErrorKind, NodeNotFoundError, SessionStateError
from frazil.format.snapshot import NodeTable
from frazil.format.transaction_log import Move

#: Moves by node id.
Moves = dict[bytes, Move]

_source: Callable[[Move], str] = attrgetter("source")
_target: Callable[[Move], str] = attrgetter("target")
_is_array: Callable[[Move], bool] = attrgetter("is_array")


def moved_nodes(base: NodeTable, moves: Mapping[bytes, Move]) -> NodeTable:
    """Return the nodes of the base at their new paths."""
    if not moves:
        return base
    sources, targets = list(map(_source, moves.values())), list(map(_target, moves.values()))
    return base.renamed(base.find_nodes(sources), targets)


def composed_moves(first: Moves, then: Moves) -> Moves:
    """Return the moves ``first`` and then ``then`` as one set of moves."""
    if not first or not then:
        return dict(then or first)
    sources = dict(zip(first, map(_source, first.values()), strict=True))
    ids = list(then)
    later = list(then.values())
    starts = map(sources.get, ids, map(_source, later))
    arrays = map(_is_array, later)
    return {**first, **dict(zip(ids, map(Move, starts, map(_target, later), ids, arrays), strict=True))}


def logged_moves(moves: Moves) -> tuple[Move, ...]:
    """Return the moves that a transaction log has."""
    return tuple(filterfalse(_stays, moves.values()))


def _stays(move: Move) -> bool:
    return move.source == move.target


def moved_twice(forks: Sequence[Moves], unseen: Sequence[Moves]) -> str | None:
    """Return the old path of a node that was moved twice, or None if there is no such node.

    A node was moved twice if two forks moved it, or if a fork moved it and ``unseen`` has a move of it.
    """
    seen: Moves = {}
    for part in unseen:
        seen |= part
    for part in forks:
        for id_ in seen.keys() & part.keys():
            return seen[id_].source
        seen |= part
    return None


def misplaced(base: NodeTable, moves: Moves) -> str | None:
    """Return a target that another node has too, or whose parent is not a group. None if there is none."""
    if not moves:
        return None
    targets = list(map(_target, moves.values()))
    gone = set(map(_source, moves.values()))
    is_array = dict(zip(base.paths_list(), base.is_array.tolist(), strict=True))
    unmoved = is_array.keys() - gone
    groups = {path for path in unmoved if not is_array[path]}
    groups.update(map(_target, filterfalse(_is_array, moves.values())))
    if len(set(targets)) < len(targets) or not unmoved.isdisjoint(targets):
        return next(path for path in targets if path in unmoved or targets.count(path) > 1)
    return next((path for path in targets if parent_of(path) not in groups), None)


def pairs_of(moves: Collection[Move]) -> list[tuple[str, str]]:
    """Return the old and the new path of each move."""
    return list(zip(map(_source, moves), map(_target, moves), strict=True))


def in_order(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return moves in the order of the public interface: sorted by target, segment by segment."""
    keys = list(map(_segments, map(itemgetter(1), pairs)))
    return list(map(pairs.__getitem__, sorted(range(len(pairs)), key=keys.__getitem__)))


#: A sort key of paths that sorts them segment by segment: no character of a segment is less than "\0".
_segments: Callable[[str], str] = methodcaller("replace", "/", "\0")


def parent_of(path: str) -> str:
    """Return the path of the group of a node. The parent of the root is the root."""
    return path.rpartition("/")[0] or "/"


class MoveTree:
    """The paths of the base's nodes after some moves, and a method for more moves.

    The methods change ``moves`` in place.
    """

    def __init__(self, base: NodeTable, moves: Moves) -> None:
        self._base = base
        self._moves = moves
        sources = list(map(_source, moves.values()))
        rows = base.find_nodes(sources).tolist()
        self._left = set(sources)
        self._came = dict(zip(map(_target, moves.values()), rows, strict=True))
        self._places = sorted(self._came)  # sorted, so that all paths below a node are consecutive

    def find_node(self, path: str) -> int:
        """Return the row in the base of the node that is at ``path`` now, or -1 if there is none."""
        row = self._came.get(path)
        if row is None:
            row = -1 if path in self._left else self._base.find_node(path)
        return row

    def move(self, source: str, target: str) -> None:
        """Move a node and all nodes below it.

        Raises ``NodeNotFoundError``, ``AlreadyExistsError`` (``move-wont-overwrite``), and
        ``SessionStateError`` (``move-into-self-or-descendant``, ``move-destination-parent-missing``,
        ``move-destination-parent-not-group``).
        """
        row = self.find_node(source)
        self._check(row, source, target)
        base, came = self._base, self._came
        below = base.below(source)
        stayed = dict(zip(base.paths_list()[below], range(below.start, below.stop), strict=True))
        for gone in stayed.keys() & self._left:
            del stayed[gone]
        arrived = self._taken(source)
        subtree = {source: row, **stayed, **dict(zip(arrived, map(came.__getitem__, arrived), strict=True))}
        rows = list(subtree.values())
        origins = list(map(base.paths_list().__getitem__, rows))
        rests = map(itemgetter(slice(len(source), None)), subtree)
        targets = list(map(target.__add__, rests))
        ids, are_arrays = base.identities(np.array(rows, np.int64))
        for path in came.keys() & subtree.keys():
            del came[path]
        came.update(zip(targets, rows, strict=True))
        insort(self._places, target)
        at = bisect_left(self._places, f"{target}/")
        self._places[at:at] = sorted(targets[1:])
        self._left.update(origins)
        self._moves.update(zip(ids, map(Move, origins, targets, ids, are_arrays), strict=True))

    def _taken(self, path: str) -> list[str]:
        """Remove ``path`` and the paths below it from the paths of moved nodes. Return those below it."""
        places = self._places
        below = slice(bisect_left(places, f"{path}/"), bisect_left(places, f"{path}0"))
        taken = places[below]
        del places[below]
        if path in self._came:
            del places[bisect_left(places, path)]
        return taken

    def _check(self, row: int, source: str, target: str) -> None:
        if row < 0:
            raise NodeNotFoundError(f"there is no group or array at `{source}` to move")
        if source == "/" or f"{target}/".startswith(f"{source}/"):
            raise SessionStateError(
                f"cannot move `{source}` to `{target}`: a node cannot be below itself",
                ErrorKind.MOVE_INTO_SELF_OR_DESCENDANT,
            )
        if self.find_node(target) >= 0:
            raise AlreadyExistsError(
                f"cannot move `{source}` to `{target}`: there is already a node at the target. Delete it "
                "first, or move to another path",
                ErrorKind.MOVE_WONT_OVERWRITE,
            )
        parent = parent_of(target)
        above = self.find_node(parent)
        if above < 0:
            raise SessionStateError(
                f"cannot move `{source}` to `{target}`: there is no group `{parent}`. Create and commit it "
                "in a writable session first",
                ErrorKind.MOVE_DESTINATION_PARENT_MISSING,
            )
        if self._base.is_array[above]:
            raise SessionStateError(
                f"cannot move `{source}` to `{target}`: `{parent}` is an array. Only groups have children",
                ErrorKind.MOVE_DESTINATION_PARENT_NOT_GROUP,
            )
