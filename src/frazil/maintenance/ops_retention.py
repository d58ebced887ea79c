"""The length of the ops log, which a collection bounds by a policy.

Older parts of the log are in backups, each as large as ``repo`` at its time: ``repo`` names a backup, which
names the next one (``backups``). Each collection adds at least one link to this chain.

After its update of ``repo``, a collection can write the first link again, with all entries that stay, and
without the name of a next link. No other backup is needed then. The entries and their order stay the same for
every reader. If entries are removed, the metadata of the new link have the time of the newest of them
(``OPS_START``). Each write replaces one object, so a reader gets the old link or the new one. If the process
dies in between, the chain is as long as before, and the next collection tries again.

The log also decides two questions: whether a collection ran since a session was opened, and whether an
update whose answer was lost took effect. If the log does not reach back far enough, the session checks its
files, and the update reports ``outcome-unknown``. So entries of the last hour always stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import Ragged
from frazil.format.keys import backup_key
from frazil.format.ops_log import OpsLog
from frazil.format.repo_info import RepoInfo, decode_repo_info, encode_repo_info
from frazil.repository.catalog.ops_history import OPS_START, older_ops_backup, ops_start
from frazil.repository.clock import from_datetime
from frazil.storage.base import Storage

_MICROSECOND: Final = timedelta(microseconds=1)
_HOUR_US: Final = 3600 * 1_000_000
#: A chain with more links becomes one link, also without a policy.
_LONG_CHAIN: Final = 16
#: The largest number of entries of a link without a policy.
_MOST_ENTRIES: Final = 200_000
#: After the update of a collection, ``repo`` has the entry of the collection and the entry before.
_IN_REPO: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsLogRetention:
    """The entries of the ops log that stay. An entry stays if one rule selects it.

    Entries of the last hour always stay.

    Attributes:
        last: The number of newest entries.
        newer_than: Selects entries that are not older than this: a duration before now, or a time with a time
            zone.

    Raises:
        InvalidInputError: ``invalid-argument`` if no rule is set, or for a negative number.

    Examples:
        >>> OpsLogRetention(last=2).count(np.array([9, 5, 1], np.uint64), now=10**12)
        2
    """

    last: int = 0
    newer_than: timedelta | datetime | None = None

    def __post_init__(self) -> None:
        if isinstance(self.last, bool) or not isinstance(self.last, int):
            raise TypeError(f"OpsLogRetention(): last must be an integer, got {self.last!r:.80}")
        age = self.newer_than
        if age is not None and not isinstance(age, timedelta | datetime):
            raise TypeError(
                f"OpsLogRetention(): newer_than must be a timedelta, a datetime or None, got "
                f"{type(age).__name__}"
            )
        if isinstance(age, datetime):
            from_datetime(age, "newer_than")
        if self.last < 0 or (self.last == 0 and age is None):
            raise InvalidInputError(
                f"last must be at least 1, or newer_than must be set, got last={self.last} and newer_than="
                f"{age!r}",
                ErrorKind.INVALID_ARGUMENT,
            )

    def count(self, times: np.ndarray[tuple[int], np.dtype[np.uint64]], now: int) -> int:
        """Return the number of entries that stay.

        Args:
            times: The times of the entries, newest first, in microseconds since 1970.
            now: The present time in microseconds since 1970.

        Returns:
            The number of the newest entries.
        """
        return max(self.last, int(np.count_nonzero(times >= self._limit(now))))

    def selects_time(self, log: OpsLog, now: int) -> bool:
        """Return whether the oldest entry of a log stays because of its time.

        Args:
            log: The log, newest entry first.
            now: The present time in microseconds since 1970.

        Returns:
            True if the entry is not older than the limit.

        Examples:
            >>> OpsLogRetention(last=2).selects_time(OpsLog.of([]), now=0)
            False
        """
        return bool(len(log)) and int(log.updated_at[-1]) >= self._limit(now)

    def _limit(self, now: int) -> int:
        """Return the time before which entries are old, in microseconds since 1970."""
        limit = now - _HOUR_US
        if isinstance(self.newer_than, timedelta):
            limit = min(limit, now - self.newer_than // _MICROSECOND)
        elif self.newer_than is not None:
            limit = min(limit, from_datetime(self.newer_than))
        return max(limit, 0)


@dataclass(frozen=True, slots=True, eq=False)
class _Chain:
    """The links that were read. ``is_whole`` says that they reach to the end of the log."""

    links: list[RepoInfo]
    is_whole: bool

    def log(self) -> OpsLog:
        """Return the entries of all links, with the names of their backups."""
        names = [link.repo_before_updates for link in self.links[:-1]]
        parts = [_with_backup(link.ops, name) for link, name in zip(self.links[1:], names, strict=True)]
        return OpsLog.concat([self.links[0].ops, *parts])


def _with_backup(log: OpsLog, name: str | None) -> OpsLog:
    """Return a log whose entries without a path have the path ``name``: the link that has them."""
    rows = np.where(log.backups.lengths > 0, np.arange(len(log)), len(log))
    return replace(log, backups=Ragged.concat([log.backups, Ragged.of_text([name or ""])]).take(rows))


def cut_ops_log(
    storage: Storage, after: RepoInfo, policy: OpsLogRetention | None, now: int, level: int
) -> bool:
    """Make the chain of backups one link, with the entries that stay."""
    link = planned_link(storage, after, policy, now)
    if link is None or after.repo_before_updates is None:
        return False
    storage.put(backup_key(after.repo_before_updates), encode_repo_info(link, level=level))
    # The newest backup has the log as it was before the update. It gets the same chain as `repo`.
    key = backup_key(after.ops.backups.text(1))
    newest = decode_repo_info(storage.get(key), key)
    newest = replace(newest, ops=newest.ops.newest(1), repo_before_updates=after.repo_before_updates)
    storage.put(key, encode_repo_info(newest, level=level))
    return True


def planned_link(
    storage: Storage, after: RepoInfo, policy: OpsLogRetention | None, now: int
) -> RepoInfo | None:
    """Return the first link of the chain with all entries that stay, or None if the chain stays as it is."""
    names = after.ops.backups.texts()
    if after.repo_before_updates is None or len(names) != _IN_REPO or not names[1]:
        return None
    chain = _chain(storage, after, policy, now)
    log = chain.log()
    count = len(log) if policy is None else _staying(policy, after, log, now)
    removes = count < len(log) or not chain.is_whole
    if not removes and len(chain.links) <= (_LONG_CHAIN if policy is None else 1):
        return None
    if policy is None and (len(log) > _MOST_ENTRIES or not chain.is_whole):
        return None
    first, last = chain.links[0], chain.links[-1]
    start = int(log.updated_at[count]) if count < len(log) else ops_start(last)
    metadata = first.metadata if start is None else {**first.metadata, OPS_START: start}
    return replace(first, ops=log.newest(count), repo_before_updates=None, metadata=metadata)


def _staying(policy: OpsLogRetention, after: RepoInfo, log: OpsLog, now: int) -> int:
    """Return how many entries of the first link stay, at least one."""
    times = np.concatenate([after.ops.updated_at, log.updated_at])
    return min(len(log), max(1, policy.count(times, now) - len(after.ops)))


def _chain(storage: Storage, after: RepoInfo, policy: OpsLogRetention | None, now: int) -> _Chain:
    """Read the links, as far as a policy needs them."""
    links: list[RepoInfo] = []
    info, entries = after, len(after.ops)
    while (older := older_ops_backup(storage, info)) is not None:
        links.append(older)
        entries += len(older.ops)
        info = older
        if policy is not None and entries > policy.last and not policy.selects_time(older.ops, now):
            return _Chain(links, is_whole=older.repo_before_updates is None)
        if policy is None and entries > _MOST_ENTRIES:
            return _Chain(links, is_whole=False)
    return _Chain(links, is_whole=True)
