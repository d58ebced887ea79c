"""The backups of ``repo`` in ``overwritten/``, and which of them a garbage collection may delete.

Every update leaves a backup. ``repo`` names the backup that continues its ops log (``repo_before_updates``),
this backup names the next one, and so on. A collection shortens the log in ``repo`` to ``LOGGED`` entries, so
that the chains of all later backups end there. It keeps the chains of the backups that ``repo`` names after
its update: a backup that was listed before, and that ``repo`` does not name after it, is never named again.
So no clock decides whether a deletion is safe. The ``RECENT`` newest backups are kept for a user who loses
``repo``. Entries of the last hour stay: sessions and updates whose answer was lost look for them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from operator import attrgetter, truth
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import InvalidInputError
from frazil.format.columns import I64, Ragged, set_rows
from frazil.format.ids import CONFIG, OVERWRITTEN, REPO, backup_key, match_backup_name
from frazil.format.repo_info import OpsLog, RepoInfo, decode_repo_info, encode_repo_info
from frazil.maintenance.plan import require_age
from frazil.maintenance.verification.findings import Finding
from frazil.repository.catalog.backup_rules import MOST_ENTRIES, RECENT
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_update import (
    OPS_START,
    later_backup,
    newest_update,
    older_ops_backup,
    ops_start,
)
from frazil.repository.clock import MICROSECOND, from_datetime, to_datetime
from frazil.storage.base import Storage
from frazil.storage.checks import skip_missing
from frazil.survey.columns import microseconds
from frazil.threads import Purpose, thread_pool

LOGGED: Final = 1

_READERS: Final = 8
_HOUR_US: Final = 3600 * 1_000_000
#: A chain with more links becomes one link, also without a policy.
_LONG_CHAIN: Final = 16
#: After the update of a collection, ``repo`` has the entry of the collection and the entry before.
_IN_REPO: Final = 2


@dataclass(frozen=True, slots=True, eq=False)
class Backups:
    """n backups, sorted by name. The newest backup of each file comes first."""

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


def unneeded(storage: Storage, old: Backups, names: set[str]) -> Backups:
    """Return the old backups that are in no chain from ``names``.

    ``names`` are the backups that ``repo`` names after the update of the collection.
    """
    if not len(old):
        return old

    def following(name: str) -> str | None:
        """Return the backup that continues the log of another one. None at the end or for a missing file."""
        key = backup_key(name)
        with skip_missing():
            return decode_repo_info(storage.get(key), key).repo_before_updates
        return None

    chains: set[str] = set()
    with thread_pool(Purpose.BACKUP_READS) as pool:
        while names:
            chains |= names
            names = set(filter(None, pool.map(following, sorted(names)))) - chains
    return old.select_backups(~np.isin(old.names, np.array(sorted(chains), np.str_)))


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
        >>> OpsLogRetention(last=1000).last
        1000
    """

    last: int = 0
    newer_than: timedelta | datetime | None = None

    def __post_init__(self) -> None:
        if isinstance(self.last, bool) or not isinstance(self.last, int):
            raise TypeError(f"OpsLogRetention(): last must be an integer, got {self.last!r:.80}")
        require_age("OpsLogRetention()", self.newer_than)
        if self.last < 0 or (self.last == 0 and self.newer_than is None):
            raise InvalidInputError(
                f"last must be at least 1, or newer_than must be set, got last={self.last} and newer_than="
                f"{self.newer_than!r}"
            )

    def _limit(self, now: int) -> int:
        """Return the time before which entries are old, in microseconds since 1970."""
        limit = now - _HOUR_US
        if isinstance(self.newer_than, timedelta):
            limit = min(limit, now - self.newer_than // MICROSECOND)
        elif self.newer_than is not None:
            limit = min(limit, from_datetime(self.newer_than))
        return max(limit, 0)


def cut_ops_log(
    storage: Storage, after: RepoInfo, policy: OpsLogRetention | None, now: int, level: int
) -> None:
    """Make the chain of backups one link, with the entries that stay.

    The first link is written again, without the name of a next link. Each write replaces one object, so a
    reader gets the old link or the new one. If the process dies in between, the next collection tries again.
    """
    link = planned_link(storage, after, policy, now)
    if link is None or after.repo_before_updates is None:
        return
    storage.put(backup_key(after.repo_before_updates), encode_repo_info(link, level=level))
    # The newest backup has the log as it was before the update. It gets the same chain as `repo`.
    key = backup_key(after.ops.backups.text(1))
    newest = decode_repo_info(storage.get(key), key)
    newest = replace(newest, ops=newest.ops.newest(1), repo_before_updates=after.repo_before_updates)
    storage.put(key, encode_repo_info(newest, level=level))


def planned_link(
    storage: Storage, after: RepoInfo, policy: OpsLogRetention | None, now: int
) -> RepoInfo | None:
    """Return the first link of the chain with all entries that stay, or None if the chain stays as it is."""
    names = after.ops.backups.texts()
    if after.repo_before_updates is None or len(names) != _IN_REPO or not names[1]:
        return None
    # Read the links, as far as the policy needs them.
    links: list[RepoInfo] = []
    info, is_whole, entries = after, True, len(after.ops)
    while is_whole and (older := older_ops_backup(storage, info)) is not None:
        links.append(older)
        entries += len(older.ops)
        info = older
        if policy is None:
            is_whole = entries <= MOST_ENTRIES
        elif entries > policy.last and not (older.ops.updated_at[-1:] >= policy._limit(now)).any():
            is_whole = older.repo_before_updates is None
            break
    parts = [links[0].ops]
    for newer, link in pairwise(links):
        # The name of a link is in the link before.
        own = Ragged.of_text([newer.repo_before_updates or ""])
        parts.append(replace(link.ops, backups=set_rows(link.ops.backups, np.zeros(1, np.int64), own)))
    log = OpsLog.concat(parts)
    count = len(log)
    if policy is not None:
        times = np.concatenate([after.ops.updated_at, log.updated_at])
        stay = max(policy.last, int(np.count_nonzero(times >= policy._limit(now))))
        count = min(count, max(1, stay - len(after.ops)))
    removes = count < len(log) or not is_whole
    if not removes and len(links) <= (_LONG_CHAIN if policy is None else 1):
        return None
    if policy is None and (len(log) > MOST_ENTRIES or not is_whole):
        return None
    start = int(log.updated_at[count]) if count < len(log) else ops_start(links[-1])
    metadata = links[0].metadata if start is None else {**links[0].metadata, OPS_START: start}
    return replace(links[0], ops=log.newest(count), repo_before_updates=None, metadata=metadata)


def check_latest(context: Context) -> list[Finding]:
    """Return a finding if a backup has a later state than ``repo``. The file ``repo`` must be readable."""
    later = later_backup(context.storage) if context.spec_version >= 2 else None
    if later is None:
        return []
    info, backup = later
    present, latest = (to_datetime(newest_update(each)).isoformat() for each in (info, backup.info))
    detail = (
        f"its newest update is of {present}, and that of the backup {backup_key(backup.name)} is of {latest}"
    )
    return [Finding("repo-latest", REPO, detail=detail)]
