"""Changing a repository: one loop around one conditional write.

Every change is a pure function from one repo info to the next. The loop

1. reads ``repo`` and its version,
2. applies the function; what it raises (the branch moved, the tag exists) ends the loop,
3. saves the bytes it read under ``overwritten/``,
4. writes the new ``repo`` if it is still at that version, or starts again.

A commit has files of its own to write before: it does the first round's 1. and 3. meanwhile.

*Was it written?* Neither "condition not met" nor an error proves that it was not: the client may have met
its own first attempt, or lost an answer. Every attempt carries a name that nobody else has: the random name
of the backup, which the new ``repo`` quotes. After anything but a plain success the loop reads ``repo``
again and looks for the names of all its attempts, in the ops log and, where that has moved on, in the
backups behind it. A late write cannot slip in after that: it is conditional on a version that is gone once
any other write succeeded, the next attempt's included. What cannot be read is read again, and if that does
not help the error is ``OutcomeUnknownError``: neither "done" nor "failed" would be true.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from frazil.errors import ConflictError, ErrorKind, FormatError, RepositoryNotFoundError, StorageError
from frazil.format.ids import OBJECT_ID_BYTES
from frazil.format.keys import REPO, backup_key, backup_name
from frazil.format.repo_info import OpsEntry, RepoInfo, decode_repo_info, encode_repo_info
from frazil.repository.clock import now_us
from frazil.repository.outcome import not_made, outcome_unknown
from frazil.repository.retries import RetryPolicy, retried
from frazil.storage.base import IfVersion, Storage, Stored, Version


@dataclass(frozen=True, slots=True)
class Changed:
    """The next repo info, and how the ops log tells it. The loop sets time and backup."""

    info: RepoInfo
    entry: OpsEntry


_log = logging.getLogger(__name__)

#: Gets the current repo info and a time later than everything in it.
Change = Callable[[RepoInfo, int], Changed]


class LastSeen:
    """The repo info that was decoded last: most reads find the same bytes again."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: tuple[bytes, RepoInfo] | None = None

    def keep(self, raw: bytes, info: RepoInfo) -> None:
        """What was written is what will be read, until somebody else writes."""
        self._seen = (raw, info)

    def decoded(self, raw: bytes) -> RepoInfo:
        seen = self._seen
        if seen is None or seen[0] != raw:
            seen = self._seen = (raw, decode_repo_info(raw, REPO))
        return seen[1]


def read_repo_info(storage: Storage, last_seen: LastSeen | None = None) -> tuple[RepoInfo, Version, bytes]:
    """The repo info as it is now; ``RepositoryNotFoundError`` if there is none."""
    try:
        data, version = storage.get_versioned(REPO)
    except StorageError as error:
        if error.kind == ErrorKind.BUCKET_NOT_FOUND:
            raise RepositoryNotFoundError(error.message, error.kind) from error
        if error.kind == ErrorKind.OBJECT_NOT_FOUND:
            raise RepositoryNotFoundError(
                f"no repository in {storage.label()}: correct the place, or make one with Repository.create"
            ) from error
        raise
    raw = bytes(data)
    return (last_seen or LastSeen()).decoded(raw), version, raw


@dataclass(frozen=True, slots=True)
class Attempt:
    """What an attempt starts from: the repo info as it was read, and the name of the backup of that."""

    info: RepoInfo
    version: Version
    raw: bytes
    backup: str

    def save(self, storage: Storage) -> None:
        """Make the backup."""
        storage.backup(REPO, self.version, self.raw, backup_key(self.backup))


def begin(storage: Storage, last_seen: LastSeen | None = None) -> Attempt:
    """Read the repo info for an attempt to change it."""
    info, version, raw = read_repo_info(storage, last_seen)
    return Attempt(info, version, raw, backup_name(now_us() // 1000, os.urandom(OBJECT_ID_BYTES)))


class _Sent:
    """The attempts of one update whose write was sent, and not answered by a success."""

    def __init__(self, storage: Storage, policy: RetryPolicy) -> None:
        self._storage = storage
        self._policy = policy
        self._infos: dict[str, RepoInfo] = {}
        self._unanswered: list[Version] = []
        self._since = 0
        self._entry: OpsEntry | None = None

    def add(self, backup: str, after: RepoInfo, entry: OpsEntry, since: int) -> None:
        """An attempt that is about to be sent; the newest update before it was at ``since``."""
        self._since = self._since or since
        self._infos[backup] = after
        self._entry = entry

    def unanswered(self, at: Attempt) -> None:
        """The answer was an error, or none; or the attempt failed before it was sent."""
        if at.backup in self._infos:
            self._unanswered.append(at.version)

    def read[T](self, read: Callable[[], T]) -> T:
        """Read what tells whether an attempt took effect: ``OutcomeUnknownError`` if that is impossible."""
        if self._entry is None:
            return read()
        try:
            return retried(read, self._policy)
        except (StorageError, FormatError, RepositoryNotFoundError) as error:
            why = f"an answer of the storage was lost, and what would tell cannot be read ({error.message})"
            raise outcome_unknown(self._entry, why) from error

    def applied(self, info: RepoInfo) -> RepoInfo | None:
        """What the attempt wrote that took effect, as ``info``, read now, or the backups behind it tell."""
        while self._infos:
            for name in (*info.ops.backups.texts(), info.repo_before_updates):
                if name in self._infos:
                    return self._infos[name]
            oldest = int(info.ops.updated_at[-1]) if len(info.ops) else self._since
            if oldest <= self._since or info.repo_before_updates is None:
                break
            info = self.read(partial(_read_backup, self._storage, info.repo_before_updates))
        return None

    def settled(self) -> RepoInfo | None:
        """``applied``, after the last attempt. Raises ``OutcomeUnknownError`` while a request may still be on
        its way that the storage would accept.
        """
        if self._entry is None:
            return None
        info, version, _ = self.read(partial(read_repo_info, self._storage))
        applied = self.applied(info)
        if applied is None and version in self._unanswered and not self._storage.is_local:
            why = "the storage did not answer, and may still carry out what it was asked for"
            raise outcome_unknown(self._entry, why)
        return applied


def _read_backup(storage: Storage, name: str) -> RepoInfo:
    key = backup_key(name)
    return decode_repo_info(storage.get(key), key)


def update_repo_info(
    storage: Storage,
    change: Change,
    *,
    policy: RetryPolicy,
    keep: int,
    level: int,
    last_seen: LastSeen | None = None,
    begun: Attempt | None = None,
) -> RepoInfo:
    """Run the loop; ``keep`` is the length of the ops log in ``repo``, ``level`` that of the compression.
    ``begun`` is a first attempt whose backup has been made.

    Raises what ``change`` raises; ``ConflictError`` (``update-attempts-exhausted``) when others were always
    first; ``StorageError`` when the storage fails for good, and the update had no effect; and
    ``OutcomeUnknownError`` when it fails for good, and nobody can tell.
    """
    sent = _Sent(storage, policy)
    refused: list[str] = []
    failures = 0
    for attempt in range(max(policy.tries, 1)):
        at = sent.read(partial(begin, storage, last_seen)) if attempt or begun is None else begun
        info = at.info
        if applied := sent.applied(info):
            return applied
        # These met a newer version: they can never take effect, and nobody will quote their backups.
        with suppress(StorageError):
            storage.delete(map(backup_key, refused))
        refused.clear()
        newest = int(info.ops.updated_at[0]) if len(info.ops) else 0
        now = max(now_us(), newest + 1)
        changed = change(info, now)
        entry = replace(changed.entry, updated_at=now)
        after = changed.info.recorded(entry, backup=at.backup, keep=keep)
        encoded = encode_repo_info(after, level=level)
        try:
            if at is not begun:
                at.save(storage)
            sent.add(at.backup, after, entry, newest)
            answer = storage.put(REPO, encoded, IfVersion(at.version))
        except StorageError as error:
            failures += 1
            sent.unanswered(at)
            _log.warning("attempt %d to update the repository may have failed: %s", attempt + 1, error)
            if failures >= policy.errors:
                if applied := sent.settled():
                    return applied
                raise not_made(error) from error
        else:
            if isinstance(answer, Stored):
                # What a caller gave is not what is read back: tuples become lists, and he may change it.
                if last_seen is not None and after.metadata is info.metadata and after.config is info.config:
                    last_seen.keep(encoded, after)
                return after
            refused.append(at.backup)
            _log.debug("attempt %d to update the repository: another writer was first", attempt + 1)
        time.sleep(policy.pause(attempt))
    if applied := sent.settled():
        return applied
    raise ConflictError(
        message=f"all {policy.tries} attempts to update the repository met the update of another writer. The "
        "update had no effect: repeat it later, or with fewer writers",
        kind=ErrorKind.UPDATE_ATTEMPTS_EXHAUSTED,
    )
