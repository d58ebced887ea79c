"""The public descriptions of versions of a history, decoded together when they are read.

A loop over a long history reads the same one or two fields of every version. So the descriptions of a part of
a history share a block. The first read of a field decodes this field for all of them, with a few calls of
numpy, and sets the slots of the descriptions. All later reads are reads of slots.

    for version in repo.ancestry(branch="main"):
        print(version.message)      # the first one decodes 1,024 messages, and no times, ids or metadata
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, repeat
from threading import Lock
from typing import Any, Final

import numpy as np

from frazil.format.columns import I64
from frazil.format.ids import ids_to_text
from frazil.format.late_fields import set_decoders
from frazil.format.repo_info import RepoInfo, SnapshotTable
from frazil.repository.catalog.history import ancestry
from frazil.repository.catalog.repo_requirements import require_snapshot
from frazil.repository.catalog.snapshot_presentation import snapshot_info, snapshot_infos
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.clock import to_datetimes

#: The largest number of versions of a block. A program that has one of them has all of them in memory.
_BLOCK: Final = 1024
_SLOTS: Final = {
    name: vars(SnapshotInfo)[name].__set__
    for name in ("id", "parent_id", "written_at", "message", "metadata")
}


def history_infos(info: RepoInfo, tip: bytes) -> Iterator[SnapshotInfo]:
    """Return the public descriptions of a snapshot and all its ancestors, newest first.

    Their fields are decoded when they are read. Reads of damaged fields raise ``FormatError``.
    """
    table = info.snapshots
    if not isinstance(table, SnapshotTable):  # spec version 1, where each version is a file
        return chain.from_iterable(map(snapshot_infos, ancestry(info, tip)))
    parts = table.parts(require_snapshot(info, tip))
    blocks = (rows[at : at + _BLOCK] for rows in parts for at in range(0, len(rows), _BLOCK))
    return chain.from_iterable(_SnapshotBlock(table, rows).infos() for rows in blocks)


class _SnapshotBlock:
    """The versions in some rows of a table."""

    __slots__ = ("_infos", "_lock", "_missing", "_rows", "_table")

    def __init__(self, table: SnapshotTable, rows: I64) -> None:
        self._table = table
        self._rows = rows
        self._infos: list[SnapshotInfo] = list(map(object.__new__, repeat(SnapshotInfo, len(rows))))
        self._missing = set(_SLOTS)
        self._lock = Lock()

    def infos(self) -> list[SnapshotInfo]:
        """Return the descriptions. The block forgets them when all of their fields are decoded."""
        decoders = {name: partial(self._decode, name) for name in _SLOTS}
        _exhaust(map(set_decoders, self._infos, repeat(decoders)))
        return self._infos

    def _decode(self, name: str) -> dict[str, Any]:
        """Set the field ``name`` of all descriptions."""
        with self._lock:  # another thread may have set it, and metadata must not be replaced
            if name in self._missing:
                if name in ("message", "metadata") and self._table.is_shared(self._rows):
                    self._separate()
                else:
                    self._set(_READERS[name](self._table, self._rows))
        return {}

    def _set(self, columns: dict[str, list[Any]]) -> None:
        for name, values in columns.items():
            _exhaust(map(_SLOTS[name], self._infos, values))
        self._missing.difference_update(columns)
        if not self._missing:
            self._infos = []

    def _separate(self) -> None:
        """Let each description decode itself.

        Rows of a damaged file may share bytes so often that only one row at a time fits into memory.
        """
        for info, row in zip(self._infos, self._rows.tolist(), strict=True):
            set_decoders(info, dict.fromkeys(self._missing, partial(_fields_of_row, self._table, row)))
        self._missing.clear()
        self._infos = []


def _fields_of_row(table: SnapshotTable, row: int) -> dict[str, Any]:
    info = snapshot_info(table.entry(row))
    return {name: getattr(info, name) for name in _SLOTS}


def _ids(table: SnapshotTable, rows: I64) -> dict[str, list[Any]]:
    parents = table.parents()[rows]
    has_parent = parents >= 0
    # The parents of a line are the versions that follow, except for the last one.
    own, others = np.append(rows, parents[-1:]), np.append(rows[1:], parents[-1:])
    if not np.array_equal(parents, others):
        own = np.concatenate([rows, parents])
    texts: list[Any] = ids_to_text(table.ids()[own])
    after: list[Any] = texts[1:] if len(own) == len(rows) + 1 else texts[len(rows) :]
    for place in np.flatnonzero(~has_parent).tolist():
        after[place] = None
    return {"id": texts[: len(rows)], "parent_id": after}


def _times(table: SnapshotTable, rows: I64) -> dict[str, list[Any]]:
    return {"written_at": to_datetimes(table.flushed_at()[rows])}


def _messages(table: SnapshotTable, rows: I64) -> dict[str, list[Any]]:
    return {"message": table.messages(rows)}


def _metadata(table: SnapshotTable, rows: I64) -> dict[str, list[Any]]:
    return {"metadata": table.metadata(rows)}


#: The function that decodes a field of some rows, perhaps with other fields.
_READERS: Final[dict[str, Callable[[SnapshotTable, I64], dict[str, list[Any]]]]] = {
    "id": _ids,
    "parent_id": _ids,
    "written_at": _times,
    "message": _messages,
    "metadata": _metadata,
}


def _exhaust(calls: Iterator[object]) -> None:
    """Make all calls of a ``map``."""
    deque(calls, maxlen=0)
