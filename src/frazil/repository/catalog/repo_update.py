"""The update of a repository: a loop around a conditional write.

Every change is a pure function from one repo info to the next. The loop

1. reads ``repo`` and its version,
2. calls the function; an error of the function (the branch has moved, the tag exists) ends the loop,
3. saves the bytes that it has read under ``overwritten/``,
4. writes the new ``repo`` if the file still has this version, and starts again otherwise.

A commit stores its own files at the same time as it makes steps 1 and 3 of the first round. On a local disk,
one call of ``Storage.open_replacement`` does both, and also writes the new ``repo`` under another name. So a
commit waits for the disk twice: for all of these files, and for the new name of ``repo``.

*Was the file written?* Neither "condition not met" nor an error proves that a write had no effect: the
condition may have failed because of the client's own first attempt, or an answer may be lost. Every attempt
has a unique name: the random name of its backup, which the new ``repo`` contains. After every answer except
success, the loop reads ``repo`` again. It looks for the names of all its attempts in the ops log, and in
older backups if the ops log does not reach back. A late write cannot take effect after that: its condition is
a version that does not exist any more once another write, such as the next attempt, has succeeded. If a read
fails, the loop repeats it. If the reads keep failing, it raises ``OutcomeUnknownError``, because it knows
neither success nor failure.

Specification: *Updates to the repo info file*.
"""

from __future__ import annotations

import logging
from collections.abc import Buffer, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from frazil import host
from frazil.errors import ConflictError, ErrorKind, StorageError
from frazil.format.keys import REPO, backup_key, backup_name
from frazil.format.repo_info import OpsEntry, RepoInfo, encode_repo_info
from frazil.repository.catalog.repo_info_file import RepoInfoCache, read_repo_info
from frazil.repository.catalog.sent_updates import SentUpdates
from frazil.repository.clock import now_us
from frazil.repository.ids import new_object_id
from frazil.repository.outcome import not_applied
from frazil.repository.retries import RetryPolicy
from frazil.repository.settings.resolved import ResolvedConfig
from frazil.storage.base import Storage, Stored, Version
from frazil.storage.local_commit import OpenReplacement, Replacement, open_replacement

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RepoUpdate:
    """The next repo info with its entry for the ops log. The loop sets the time and backup of the entry.

    An update that changes several things has an entry for each of them: ``earlier`` has those before
    ``entry``, oldest first. Only the newest entry of an update gets a backup.
    """

    info: RepoInfo
    entry: OpsEntry
    earlier: tuple[OpsEntry, ...] = ()

    def recorded(self, now: int, backup: str, keep: int) -> RepoInfo:
        """Return the next repo info with all entries in its ops log, the first at the time ``now``."""
        info = self.info
        for number, entry in enumerate((*self.earlier, self.entry)):
            entry_at = replace(entry, updated_at=now + number)
            info = info.recorded(entry_at, backup="" if number else backup, keep=keep)
        return info


#: A function of the current repo info and of a time that is later than every time in it.
RepoChange = Callable[[RepoInfo, int], RepoUpdate]
#: A change that can return None, which ends the loop without a change.
ConditionalChange = Callable[[RepoInfo, int], RepoUpdate | None]


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """The options of writes of ``repo``: retries, number of ops log entries, and level of compression."""

    policy: RetryPolicy = field(default_factory=RetryPolicy)
    ops_log_length: int = 1000
    compression_level: int = 3

    @staticmethod
    def of(settings: ResolvedConfig) -> UpdateSettings:
        """Return the options from the settings of a repository."""
        return UpdateSettings(
            policy_of(settings), settings.num_updates_per_repo_info_file, settings.compression_level
        )


def policy_of(settings: ResolvedConfig) -> RetryPolicy:
    """Return the retry policy for updates from the settings of a repository."""
    retries = settings.repo_update_retries
    return RetryPolicy(retries.max_tries, retries.initial_backoff_ms, retries.max_backoff_ms)


@dataclass(frozen=True, slots=True)
class UpdateStart:
    """The state that an attempt starts from: the repo info, its file, and the name of its backup."""

    info: RepoInfo
    version: Version
    raw: bytes
    backup: str

    def save_backup(self, storage: Storage) -> None:
        """Write the backup."""
        storage.backup(REPO, self.version, self.raw, backup_key(self.backup))


def _confirm_nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class NewFiles:
    """Files that an update stores together with its backup. The new ``repo`` refers to them.

    ``confirm`` is called when they are durable. It may wait for other files, and raise their errors.
    """

    objects: Sequence[tuple[str, Buffer]] = ()
    confirm: Callable[[], None] = _confirm_nothing


def begin_update(storage: Storage, cache: RepoInfoCache | None = None) -> UpdateStart:
    """Read the repo info for an attempt to change it."""
    info, version, raw = read_repo_info(storage, cache)
    return UpdateStart(info, version, raw, backup_name(now_us() // 1000, new_object_id()))


def update_repo_info(
    storage: Storage,
    change: ConditionalChange,
    settings: UpdateSettings,
    *,
    cache: RepoInfoCache | None = None,
    start: UpdateStart | None = None,
    files: NewFiles | None = None,
) -> RepoInfo | None:
    """Change the repository. Return the new repo info, or None if ``change`` returned None.

    ``start`` is the state of the first attempt. The caller has already saved its backup, or it passes
    ``files``, which the first attempt stores together with the backup. An error of this is raised at once.

    Raises the errors of ``change``; ``ConflictError`` (``update-attempts-exhausted``) if other writers were
    first in all attempts; ``StorageError`` if the storage keeps failing and the update had no effect; and
    ``OutcomeUnknownError`` if the storage keeps failing and it is unknown whether the update took effect.
    """
    policy = settings.policy
    sent = SentUpdates(storage, policy)
    refused: list[str] = []
    failures = 0
    for attempt in range(max(policy.tries, 1)):
        at = sent.read(partial(begin_update, storage, cache)) if attempt or start is None else start
        if applied := sent.applied(at.info):
            return applied
        # These attempts were refused: they can never take effect, and no file names their backups.
        with suppress(StorageError):
            storage.delete(map(backup_key, refused))
        refused.clear()
        newest = int(at.info.ops.updated_at[0]) if len(at.info.ops) else 0
        now = max(now_us(), newest + 1)
        changed = change(at.info, now)
        if changed is None:
            return None
        entry = replace(changed.entry, updated_at=now)
        after = changed.recorded(now, at.backup, settings.ops_log_length)
        encoded = encode_repo_info(after, level=settings.compression_level)
        replacement = Replacement(REPO, encoded, at.version, at.raw, backup_key(at.backup))
        first, files = files, None
        try:
            with _opened(storage, replacement, first, is_saved=at is start and first is None) as ready:
                if first is not None:
                    first.confirm()
                sent.add_attempt(at.backup, after, entry, newest)
                answer = ready.finish()
        except StorageError as error:
            if first is not None and not sent.has_attempt(at.backup):
                raise  # the files of the commit are not stored
            failures += 1
            sent.add_unanswered(at.backup, at.version)
            _log.warning("attempt %d to update the repository may have failed: %s", attempt + 1, error)
            if failures >= policy.errors:
                if applied := sent.settled():
                    return applied
                raise not_applied(error) from error
            host.pause(policy.pause(attempt))
        else:
            if isinstance(answer, Stored):
                _store_in_cache(cache, encoded, at.info, after)
                return after
            refused.append(at.backup)
            _log.debug("attempt %d to update the repository: another writer was first", attempt + 1)
            host.pause(policy.pause_after_loss(attempt))
    if applied := sent.settled():
        return applied
    raise attempts_exhausted(policy)


def _opened(
    storage: Storage, replacement: Replacement, files: NewFiles | None, *, is_saved: bool
) -> OpenReplacement:
    if is_saved:
        return OpenReplacement(storage, replacement)
    return open_replacement(storage, replacement, () if files is None else files.objects)


def _store_in_cache(cache: RepoInfoCache | None, encoded: bytes, before: RepoInfo, after: RepoInfo) -> None:
    """Put ``after`` into the cache if a read of ``repo`` returns the same value.

    A read returns other metadata and configurations than the caller has passed: tuples become lists, and the
    caller may change its values later.
    """
    if cache is not None and after.metadata is before.metadata and after.config is before.config:
        cache.store_repo_info(encoded, after)


def attempts_exhausted(policy: RetryPolicy) -> ConflictError:
    """Return the error for an update in whose attempts other writers were always first."""
    return ConflictError(
        message=f"another writer was first in all {policy.tries} attempts to update the repository. The "
        "update had no effect. Repeat it later, or with fewer writers",
        kind=ErrorKind.UPDATE_ATTEMPTS_EXHAUSTED,
    )
