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
any other write succeeded, the next attempt's included.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from frazil.errors import ConflictError, ErrorKind, FormatError, RepositoryNotFoundError, StorageError
from frazil.format.ids import OBJECT_ID_BYTES
from frazil.format.keys import REPO, backup_key, backup_name
from frazil.format.repo_info import OpsEntry, RepoInfo, decode_repo_info, encode_repo_info
from frazil.repository.clock import now_us
from frazil.storage.base import IfVersion, Storage, Stored, Version


@dataclass(frozen=True, slots=True)
class Changed:
    """The next repo info, and how the ops log tells it. The loop sets time and backup."""

    info: RepoInfo
    entry: OpsEntry


_log = logging.getLogger(__name__)

#: Gets the current repo info and a time later than everything in it.
Change = Callable[[RepoInfo, int], Changed]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and after how long, an update is tried again when another writer was first."""

    tries: int = 100
    initial_backoff_ms: int = 50
    max_backoff_ms: int = 30_000
    #: So many attempts follow one another at once.
    eager: int = 5
    #: So many errors of the storage are borne before the last one is raised.
    errors: int = 5

    def pause(self, attempt: int) -> float:
        """Seconds to wait after an attempt, with jitter so that competitors spread."""
        if attempt < self.eager:
            return random.uniform(0, 0.002 * (attempt + 1))
        backoff = self.initial_backoff_ms * 2.0 ** min(attempt - self.eager, 30)
        return random.uniform(0.5, 1.0) * min(backoff, self.max_backoff_ms) / 1000


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
                f"no repository in {storage.place()}: correct the place, or make one with Repository.create"
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

    Raises what ``change`` raises, ``ConflictError`` (``update-attempts-exhausted``) when others were always
    first, and ``StorageError`` when the storage fails for good.
    """
    attempts: dict[str, RepoInfo] = {}
    refused: list[str] = []
    since = 0
    failures = 0
    for attempt in range(max(policy.tries, 1)):
        at = begin(storage, last_seen) if attempt or begun is None else begun
        info = at.info
        newest = info.ops.entry(0).updated_at if len(info.ops) else 0
        since = since or newest
        if mine := _written(storage, info, attempts, since):
            return attempts[mine]
        # These met a newer version: they can never take effect, and nobody will quote their backups.
        with suppress(StorageError):
            storage.delete(map(backup_key, refused))
        refused.clear()
        now = max(now_us(), newest + 1)
        changed = change(info, now)
        after = changed.info.recorded(replace(changed.entry, updated_at=now), backup=at.backup, keep=keep)
        attempts[at.backup] = after
        try:
            if at is not begun:
                at.save(storage)
            encoded = encode_repo_info(after, level=level)
            answer = storage.put(REPO, encoded, IfVersion(at.version))
            if isinstance(answer, Stored):
                # What a caller gave is not what is read back: tuples become lists, and he may change it.
                if last_seen is not None and after.metadata is info.metadata and after.config is info.config:
                    last_seen.keep(encoded, after)
                return after
            refused.append(at.backup)
            _log.debug("attempt %d to update the repository: another writer was first", attempt + 1)
        except StorageError as error:
            failures += 1
            _log.warning("attempt %d to update the repository may have failed: %s", attempt + 1, error)
            if failures >= policy.errors:
                with suppress(StorageError):
                    if mine := _written(storage, read_repo_info(storage)[0], attempts, since):
                        return attempts[mine]
                raise
        time.sleep(policy.pause(attempt))
    raise ConflictError(
        message=f"all {policy.tries} attempts to update the repository met the update of another writer: try "
        "again later, or with fewer writers",
        kind=ErrorKind.UPDATE_ATTEMPTS_EXHAUSTED,
    )


def _written(storage: Storage, info: RepoInfo, names: Iterable[str], since: int) -> str | None:
    """Which of our backups' names the repository quotes, in ``info`` or in the backups behind it back to the
    time ``since``.
    """
    wanted = set(names)
    while wanted:
        for name in (*info.ops.backups.texts(), info.repo_before_updates):
            if name in wanted:
                return name
        oldest = int(info.ops.updated_at[-1]) if len(info.ops) else since
        if oldest <= since or info.repo_before_updates is None:
            break
        try:
            key = backup_key(info.repo_before_updates)
            info = decode_repo_info(storage.get(key), key)
        except (StorageError, FormatError):
            break
    return None
