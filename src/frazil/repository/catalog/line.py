"""The snapshots that a version contains: its history, and the snapshots that expirations removed from it."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import I64, U8
from frazil.format.ids import OBJECT_ID_BYTES, id_keys, id_matrix
from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.repo_requirements import require_snapshot


class BranchHistory:
    """Some rows of the table of snapshots, newest first, and the removed snapshots between them."""

    def __init__(self, info: RepoInfo, rows: I64) -> None:
        self._info = info
        self._own = rows

    @staticmethod
    def of(info: RepoInfo, tip: bytes) -> BranchHistory:
        """Return the line of a snapshot and its ancestors."""
        return BranchHistory(info, info.snapshots.chain(require_snapshot(info, tip)))

    @cached_property
    def _pruned(self) -> tuple[U8, I64]:
        """The ids of the removed snapshots, shape (k, 12), and for each the row that names it, (k,)."""
        if self._info.spec_version == 1:
            return np.zeros((0, OBJECT_ID_BYTES), np.uint8), np.zeros(0, np.int64)
        lists = self._info.table.pruned().take(self._own).compact()
        ids = np.ascontiguousarray(lists.values).view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
        return ids, np.repeat(self._own, lists.lengths)

    @cached_property
    def rows(self) -> I64:
        """All rows of the history. Some removed snapshots are still listed, because of other refs."""
        skipped = self._info.snapshots.find_snapshots(self._pruned[0])
        return np.union1d(self._own, skipped[skipped >= 0])

    def contains(self, ids: list[bytes]) -> NDArray[np.bool_]:
        """Return whether snapshots are in the history, removed snapshots included; bool, shape (k,)."""
        matrix = id_matrix(ids)
        rows = self._info.snapshots.find_snapshots(matrix)
        return np.isin(rows, self.rows) | np.isin(id_keys(matrix), id_keys(self._pruned[0]))

    def holder(self, id_: bytes) -> bytes:
        """Return the oldest listed snapshot that has the changes of a snapshot of the line."""
        if self._info.snapshots.find_snapshot(id_) >= 0:
            return id_
        ids, rows = self._pruned
        place = np.flatnonzero(id_keys(ids) == id_keys(id_matrix([id_])))[-1]
        return self._info.snapshots.id_of(int(rows[place]))
