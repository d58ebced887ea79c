"""The rules for the moves in a transaction log, as far as the log alone shows them.

Specification: *MoveOperation*.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np

from frazil.format.flatbuffer import Tables
from frazil.format.ids import NODE_ID_BYTES, id_keys
from frazil.format.rules.violation import Violation, absent_fields

_MOVES: Final = 8
_FROM, _TO, _ID, _TYPE = range(4)


def fields_of_moves(root: Tables) -> Iterator[Violation]:
    """A move has its paths and its node. A group is the default type, and writers may leave it out."""
    names = absent_fields(root.children(_MOVES)[0], {_FROM: "from", _TO: "to", _ID: "node_id"})
    if names:
        yield Violation("move-fields", f"a move lacks these fields: {', '.join(names)}")


def order_of_moves(root: Tables) -> Iterator[Violation]:
    """Moves are sorted by target, segment by segment."""
    targets = [text.split("/") for text in root.children(_MOVES)[0].vectors(_TO).texts()]
    if any(one >= two for one, two in pairwise(targets)):
        yield Violation("moves-sorted", "moves must be sorted by the field to, each once")


def single_moves(root: Tables) -> Iterator[Violation]:
    """A node moves once, and to another path."""
    moves = root.children(_MOVES)[0]
    sources, targets = moves.vectors(_FROM).texts(), moves.vectors(_TO).texts()
    same = [one for one, two in zip(sources, targets, strict=True) if one == two]
    if same:
        yield Violation("move-identity", f"a move must change the path, got {same[0]!r} twice")
    keys = id_keys(moves.structs(_ID, NODE_ID_BYTES))
    if len(np.unique(keys)) != len(keys):
        yield Violation("moves-collapsed", "a node must have at most one move, got more")


RULES: Final = (fields_of_moves, order_of_moves, single_moves)
