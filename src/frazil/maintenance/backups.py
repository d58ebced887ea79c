"""Backups of ``repo`` in ``overwritten/``: which of them a garbage collection may delete.

Every update leaves a backup, and each is as large as ``repo``, so all of them together grow with the square
of the number of updates. The ops log needs few of them: ``repo`` names the backup that continues its log
(``repo_before_updates``), that one names the next, and so on.

Once the log in ``repo`` is full, that name moves on by one entry with every update. So each of the last
thousand backups may become the start of a chain of its own, and all would be needed. A collection prevents
that with its own update: it cuts the log in ``repo`` after ``LOGGED`` entries. The backups that ``repo``
names then stay, and the chains that begin there. The chains of all later backups end there, too.

The ``RECENT`` newest backups stay as well: whoever loses ``repo`` restores it from one of them. Of the last
ones that the log names, the whole log is there; the log of the others may end early.

A backup that was listed before the collection's update, and that ``repo`` does not name after it, is never
named any more: a writer that has made it and not used it meets a newer ``repo``, and makes another one. So
no clock decides what is safe to delete; the limit is only what the user asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    """n backups, sorted by name, which puts the newest of each file first.

    names  text (n,)
    sizes  int64 (n,)  bytes
    """

    names: NDArray[np.str_]
    sizes: I64

    def __len__(self) -> int:
        return len(self.sizes)

    def select_backups(self, rows: NDArray[np.bool_]) -> Backups:
        return Backups(self.names[rows], self.sizes[rows])

    def keys(self) -> list[str]:
        """Where the objects are."""
        return list(map(backup_key, self.names.tolist()))


def old_backups(storage: Storage, before: int) -> Backups:
    """The backups modified before a time, by the storage's clock; without the newest ones of each file."""
    objects = list(storage.list(OVERWRITTEN))
    names = [key[len(OVERWRITTEN) + 1 :] for key in map(attrgetter("key"), objects)]
    named = np.fromiter(map(truth, map(match_backup_name, names)), bool, len(objects))
    sizes = np.fromiter(map(attrgetter("size"), objects), np.int64, len(objects))
    modified = microseconds(map(attrgetter("modified"), objects), len(objects))
    texts = np.array(names, np.str_)
    order = np.argsort(texts, kind="stable")
    texts, sizes, old, named = texts[order], sizes[order], (modified < before)[order], named[order]
    recent = np.zeros(len(objects), bool)
    for file in (REPO, CONFIG):
        recent[np.flatnonzero(named & np.char.startswith(texts, f"{file}."))[:RECENT]] = True
    return Backups(texts, sizes).select_backups(named & old & ~recent)


def named(info: RepoInfo) -> set[str]:
    """The backups that a repo info names."""
    return {*filter(None, [*info.ops.backups.texts(), info.repo_before_updates])}


def unneeded(storage: Storage, old: Backups, names: set[str]) -> Backups:
    """Those of the ``old`` that are in no chain from one of ``names``, which ``repo`` names after the update
    of the collection.

    Raises ``FormatError`` if one that it leads to is damaged: where the log goes on is not known then.
    """
    if not len(old):
        return old
    needed = np.array(sorted(_led_to(storage, names)), np.str_)
    return old.select_backups(~np.isin(old.names, needed))


def _led_to(storage: Storage, names: set[str]) -> set[str]:
    """The backups in these chains."""
    seen: set[str] = set()
    new = names
    with thread_pool(Purpose.BACKUP_READS) as pool:
        while new:
            seen |= new
            new = set(filter(None, pool.map(lambda name: _next(storage, name), new))) - seen
    return seen


def _next(storage: Storage, name: str) -> str | None:
    """The backup that continues the log of another; None at the end, and where the file is gone."""
    key = backup_key(name)
    try:
        return decode_repo_info(storage.get(key), key).repo_before_updates
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        return None
