"""The backups of ``repo`` in ``overwritten/``, and which of them a garbage collection may delete.

Every update leaves a backup that is as large as ``repo``. Together, the backups grow with the square of the
number of updates. The ops log needs few of them: ``repo`` names the backup that continues its log
(``repo_before_updates``), this backup names the next one, and so on.

When the log in ``repo`` is full, every update moves this name by one entry. Then each of the last thousand
backups may become the start of its own chain, and all of them would be needed. A collection prevents this
with its own update: it shortens the log in ``repo`` to ``LOGGED`` entries. The backups that ``repo`` names
and their chains are kept. The chains of all later backups end there, too.

The ``RECENT`` newest backups are kept as well, because a user who loses ``repo`` restores it from one of
them. The whole log exists for those of them that the log in ``repo`` names. For the others it may end early.

A backup that was listed before the collection's update, and that ``repo`` does not name after it, is never
named again. (A writer that created it without using it finds a newer ``repo`` and creates another backup.) So
no clock decides whether a deletion is safe. The time limit is only the wish of the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import attrgetter, truth
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, StorageError
from frazil.format.columns import I64
from frazil.format.keys import CONFIG, OVERWRITTEN, REPO, backup_key, match_backup_name
from frazil.format.repo_info import RepoInfo, decode_repo_info
from frazil.maintenance.listing import microseconds
from frazil.storage.base import Storage
from frazil.threads import Purpose, thread_pool

RECENT: Final = 5
LOGGED: Final = 1

_READERS: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class Backups:
    """n backups, sorted by name. The newest backup of each file comes first.

    names  text (n,)
    sizes  int64 (n,)  bytes
    modified  int64 (n,)  microseconds since 1970, by the storage's clock
    """

    names: NDArray[np.str_]
    sizes: I64
    modified: I64

    def __len__(self) -> int:
        return len(self.sizes)

    def select_backups(self, rows: NDArray[np.bool_]) -> Backups:
        """Return the rows where ``rows`` is true."""
        return Backups(self.names[rows], self.sizes[rows], self.modified[rows])

    def part(self, start: int, stop: int) -> Backups:
        """Return the rows from ``start`` to ``stop``."""
        return Backups(self.names[start:stop], self.sizes[start:stop], self.modified[start:stop])

    def keys(self) -> list[str]:
        """Return the keys of the objects."""
        return list(map(backup_key, self.names.tolist()))


def old_backups(storage: Storage, before: int) -> Backups:
    """Return backups older than a time (by the storage's clock), except the newest of each file."""
    objects = list(storage.list(OVERWRITTEN))
    names = [key[len(OVERWRITTEN) + 1 :] for key in map(attrgetter("key"), objects)]
    named = np.fromiter(map(truth, map(match_backup_name, names)), bool, len(objects))
    sizes = np.fromiter(map(attrgetter("size"), objects), np.int64, len(objects))
    modified = microseconds(map(attrgetter("modified"), objects), len(objects))
    texts = np.array(names, np.str_)
    order = np.argsort(texts, kind="stable")
    texts, sizes, modified, named = texts[order], sizes[order], modified[order], named[order]
    recent = np.zeros(len(objects), bool)
    for file in (REPO, CONFIG):
        of_file = np.array([text.startswith(f"{file}.") for text in texts.tolist()], bool)
        recent[np.flatnonzero(named & of_file)[:RECENT]] = True
    return Backups(texts, sizes, modified).select_backups(named & (modified < before) & ~recent)


def named(info: RepoInfo) -> set[str]:
    """Return the names of the backups that a repo info names."""
    return {*filter(None, [*info.ops.backups.texts(), info.repo_before_updates])}


def unneeded(storage: Storage, old: Backups, names: set[str]) -> Backups:
    """Return the old backups that are in no chain from ``names``.

    ``names`` are the backups that ``repo`` names after the update of the collection.
    """
    if not len(old):
        return old
    needed = np.array(sorted(_led_to(storage, names)), np.str_)
    return old.select_backups(~np.isin(old.names, needed))


def _led_to(storage: Storage, names: set[str]) -> set[str]:
    """Return the backups in the chains from ``names``."""
    seen: set[str] = set()
    new = names
    with thread_pool(Purpose.BACKUP_READS) as pool:
        while new:
            seen |= new
            new = set(filter(None, pool.map(partial(_next, storage), sorted(new)))) - seen
    return seen


def _next(storage: Storage, name: str) -> str | None:
    """Return the backup that continues the log of another one. None at the end or for a missing file."""
    key = backup_key(name)
    try:
        return decode_repo_info(storage.get(key), key).repo_before_updates
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        return None
