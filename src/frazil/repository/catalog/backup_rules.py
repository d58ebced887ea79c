"""Which backups of ``repo`` stay, for updates and for collections.

Every update leaves a backup, which is as large as ``repo``. An update of a large ``repo`` gives backups up
when ``repo`` names more than ``MOST``. The newest ones stay, and older ones at distances that
grow. The entry of the ops log loses the name of its backup, so no writer can continue its log there: the
reference, too, cuts a log only at an entry that names a backup. When the log in ``repo`` is full, the backup
of the update gets all of the older log, and ``repo`` only the new entry. So one backup continues the log,
however long the history is.

A file that ``repo`` does not name any more is never named again, because the next update starts from this
``repo``. So no clock decides whether a deletion is safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from frazil.format.columns import I64, Ragged, set_rows
from frazil.format.repo_info import OpsLog, RepoInfo

#: A collection keeps this number of the newest backups for a user who loses ``repo``.
RECENT: Final = 5
#: Updates keep all backups if the configured log is shorter. Then ``repo`` never names many.
SHORTEST_LOG: Final = 64
#: The largest number of entries of a log in one file.
MOST_ENTRIES: Final = 200_000
#: The distance of the next older backup that stays, in entries, by that of the last one.
_GROWTH: Final = 2.5


#: How many backups a large ``repo`` may name, and how many of the newest always stay.
MOST: Final = 12
NEWEST: Final = 6
#: Updates of a smaller ``repo``, in bytes, keep all backups: they are small, and undo reads them.
_LARGE_REPO: Final = 128 << 10


def is_large(size: int) -> bool:
    """Return whether updates of a ``repo`` of ``size`` bytes give backups up."""
    return size > _LARGE_REPO


def named(info: RepoInfo) -> set[str]:
    """Return the names of the backups that a repo info names."""
    return {*filter(None, [*info.ops.backups.texts(), info.repo_before_updates])}


def without_surplus(info: RepoInfo) -> RepoInfo:
    """Return the repo info without the names of the backups that an update gives up."""
    rows = np.flatnonzero(info.ops.backups.lengths)
    if len(rows) <= MOST:
        return info
    stay = rows[:NEWEST].tolist()
    for row in rows[NEWEST:].tolist():
        if row >= _GROWTH * stay[-1] and len(stay) < MOST:
            stay.append(row)
    surplus: I64 = np.setdiff1d(rows, stay)
    empty = set_rows(info.ops.backups, surplus, Ragged.empty(len(surplus)))
    return replace(info, ops=replace(info.ops, backups=empty))


def with_log(info: RepoInfo, older: Sequence[RepoInfo]) -> RepoInfo:
    """Return the repo info with the logs of the backups that continue its log."""
    parts = [info, *older]
    log = OpsLog.concat([part.ops for part in parts])
    return replace(info, ops=log, repo_before_updates=parts[-1].repo_before_updates)
