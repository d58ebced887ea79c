"""The ancestry of a version: the history of its branch, and all that was merged into that history.

A merge is an ordinary commit to every reader. Its metadata name both parents, under ``__frazil``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final

import numpy as np

from frazil.errors import IcechunkError
from frazil.format.columns import I64
from frazil.format.ids import id_from_text
from frazil.format.repo_info import RepoInfo, SnapshotEntry

#: Key of a commit's metadata, for what Frazil keeps there.
FRAZIL: Final = "__frazil"
PARENTS: Final = "parents"


def all_ancestors(info: RepoInfo, id_: bytes) -> I64:
    """Return rows of all snapshots that one comes from, itself included; none for one that is not listed."""
    table = info.snapshots
    seen = np.zeros(0, np.int64)
    todo = {id_}
    while todo:
        row = table.find_snapshot(todo.pop())
        if row < 0 or row in seen:
            continue
        rows = np.setdiff1d(table.chain(row), seen)
        seen = np.union1d(seen, rows)
        todo |= set(chain.from_iterable(map(second_parents, table.entries(table.mentioning(rows, FRAZIL)))))
    return seen


def origin_of(entry: SnapshotEntry) -> Mapping[str, Any]:
    """What Frazil keeps in the metadata of a commit; nothing where somebody else uses the key."""
    origin = entry.metadata.get(FRAZIL)
    return origin if isinstance(origin, dict) else {}


def second_parents(entry: SnapshotEntry) -> Iterable[bytes]:
    """Return the ids of what a commit has merged into its branch."""
    named = origin_of(entry).get(PARENTS)
    try:
        return list(map(id_from_text, named[1:])) if isinstance(named, list) else ()
    except (IcechunkError, AttributeError):
        return ()  # somebody else's metadata
