"""The amended commits and the order of commits, read from the ops log.

If another implementation amends a commit, only the ops log has a trace of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from frazil.format.ids import id_keys, id_list, id_matrix
from frazil.format.repo_info import RepoInfo, UpdateKind
from frazil.repository.catalog.ops_history import older_ops_backup
from frazil.storage.base import Storage

_CREATING: Final = np.array(
    [UpdateKind.NEW_COMMIT, UpdateKind.COMMIT_AMENDED, UpdateKind.NEW_DETACHED_SNAPSHOT], np.uint8
)


@dataclass(frozen=True, slots=True, eq=False)
class Operations:
    """A part of the ops log: the amended commits, and the order in which snapshots were created."""

    amended: Mapping[bytes, Sequence[bytes]]
    age: Mapping[bytes, int]

    @staticmethod
    def back_to(info: RepoInfo, storage: Storage | None, ids: Iterable[bytes]) -> Operations:
        """Return the newest part of the ops log, back to the creation of the snapshots ``ids``."""
        wanted = id_keys(id_matrix(sorted(ids)))
        missing = np.ones(len(wanted), np.bool_)
        amended: dict[bytes, list[bytes]] = {}
        age: dict[bytes, int] = {}
        page: RepoInfo | None = info
        first = 0
        while page is not None:
            ops = page.ops
            rows = np.flatnonzero(ops.kinds == UpdateKind.COMMIT_AMENDED)
            for old, new in zip(id_list(ops.previous[rows]), id_list(ops.new[rows]), strict=True):
                amended.setdefault(old, []).append(new)
            rows = np.flatnonzero(np.isin(ops.kinds, _CREATING))
            rows = rows[np.isin(id_keys(ops.new[rows]), wanted)]
            age |= zip(id_list(ops.new[rows]), (first + rows).tolist(), strict=True)
            missing &= ~np.isin(wanted, id_keys(ops.new[rows]))
            first += len(ops)
            page = older_ops_backup(storage, page) if missing.any() and storage is not None else None
        return Operations(amended, age)

    def replacements(self, id_: bytes) -> list[bytes]:
        """Return the snapshots that replaced a snapshot, directly or through other amendments."""
        newer: list[bytes] = []
        todo = [id_]
        while todo:
            later = [each for each in self.amended.get(todo.pop(), ()) if each not in newer]
            newer += later
            todo += later
        return newer

    def is_later(self, one: bytes, other: bytes) -> bool:
        """Return whether ``one`` was created after ``other``. True if the ops log does not tell."""
        return one not in self.age or other not in self.age or self.age[one] < self.age[other]
