"""The ancestry of a version: the history of its branch, and the histories that were merged into it.

For every reader, a merge is an ordinary commit. Its metadata name both parents under ``__frazil``.
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

#: The key of a commit's metadata for the values of Frazil.
FRAZIL: Final = "__frazil"
PARENTS: Final = "parents"
#: The key of a commit whose chunks are in other files than before, with the same content.
COMPACTION: Final = "compaction"


def all_ancestors(info: RepoInfo, id_: bytes) -> I64:
    """Return the rows of a snapshot and all its ancestors. Empty if the snapshot is not listed."""
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
    """Return the values of Frazil in the metadata of a commit. Empty if another program uses the key."""
    origin = entry.metadata.get(FRAZIL)
    return origin if isinstance(origin, dict) else {}


def second_parents(entry: SnapshotEntry) -> Iterable[bytes]:
    """Return the ids of the snapshots that a commit has merged into its branch."""
    named = origin_of(entry).get(PARENTS)
    try:
        return list(map(id_from_text, named[1:])) if isinstance(named, list) else ()
    except (IcechunkError, AttributeError):
        return ()  # another program uses the key


def of_compaction(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a commit that a compaction makes."""
    before = metadata.get(FRAZIL)
    return {**metadata, FRAZIL: {**(before if isinstance(before, dict) else {}), COMPACTION: True}}


def is_of_compaction(metadata: Mapping[str, Any]) -> bool:
    """Return whether a compaction made the commit with these metadata."""
    values = metadata.get(FRAZIL)
    return isinstance(values, dict) and values.get(COMPACTION) is True
