"""The update.

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

Each attempt has a backup with a random name, which the new ``repo`` contains. So ``repo``, or an older
backup, shows whether an attempt took effect.

A backup has the state of the repository before an update. The names sort by the clock of the writer, newest
first. Clocks differ, so only the ops logs in the backups tell which of them has the latest state.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Buffer, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from heapq import nsmallest
from itertools import islice
from typing import Final

from frazil import host
from frazil.errors import (
    ConflictError,
    ErrorKind,
    FormatError,
    IcechunkError,
    RepositoryNotFoundError,
    StorageError,
)
from frazil.format.envelope import complete
from frazil.format.ids import OVERWRITTEN, REPO, backup_key, backup_name
from frazil.format.repo_info import OpsEntry, RepoInfo, decode_repo_info, encode_repo_info, open_repo_info
from frazil.remedies import call
from frazil.repository.clock import now_us, to_datetime
from frazil.repository.ids import new_object_id
from frazil.repository.retries import RetryPolicy, not_applied, outcome_unknown, retried
from frazil.repository.settings.resolved import ResolvedConfig
from frazil.storage.base import Storage, Stored, Version
from frazil.storage.checks import require_whole, skip_damage
from frazil.storage.local_commit import OpenReplacement, Replacement, open_replacement

#: A key of the metadata in the oldest backup of the ops log: the time of the newest operation that a
#: collection has removed, in microseconds since 1970.
OPS_START: Final = "frazil.ops_start"


def ops_log(storage: Storage, info: RepoInfo) -> Iterator[OpsEntry]:
    """Yield all operations, newest first. Older parts are read from the backups when they are needed."""
    for name, part in ops_parts(storage, info):
        yield from entries_of(name, part)


def ops_parts(storage: Storage, info: RepoInfo) -> Iterator[tuple[str | None, RepoInfo]]:
    """Yield the files with the parts of the ops log, newest first. The name of ``repo`` is None."""
    name: str | None = None
    while True:
        yield name, info
        older = older_ops_backup(storage, info)
        if older is None:
            return
        name, info = info.repo_before_updates, older


def entries_of(name: str | None, info: RepoInfo) -> Iterator[OpsEntry]:
    """Return the operations of one part of the ops log, newest first."""
    entries = map(info.ops.entry, range(len(info.ops)))
    # An entry without a path is in this file: the newest, and all entries that an upgrade has written.
    return (replace(entry, backup_path=entry.backup_path or name) for entry in entries)


def ops_start(info: RepoInfo) -> int | None:
    """Return the time of the newest operation that was removed before the oldest part of the ops log.

    None means that ``info`` is not the oldest part, or that no operation was removed.
    """
    start = info.metadata.get(OPS_START)
    return start if info.repo_before_updates is None and isinstance(start, int) else None


def older_ops_backup(storage: Storage, info: RepoInfo) -> RepoInfo | None:
    """Return the backup with the next older part of the ops log, or None if ``info`` has the oldest part.

    A backup has no id. But all its updates must be older than the updates of the file that names it;
    otherwise the function raises ``FormatError``. So a loop over the backups always ends.
    """
    if info.repo_before_updates is None:
        return None
    key = backup_key(info.repo_before_updates)
    older = decode_repo_info(storage.get(key), key)
    if len(older.ops) and len(info.ops) and older.ops.updated_at[0] >= info.ops.updated_at[-1]:
        raise FormatError(
            f"{key}: the updates must be before {info.ops.updated_at[-1]} us, got an update at "
            f"{older.ops.updated_at[0]} us. The file has the name of another file. Restore it from a copy"
        )
    return older


class RepoInfoCache:
    """A cache for the last repo info, because most reads get the same bytes again."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[bytes, RepoInfo] | None = None

    def store_repo_info(self, raw: bytes, info: RepoInfo) -> None:
        """Store a repo info that was written or read. Reads get its bytes until another write."""
        self._last = (raw, info)

    def opened(self, raw: bytes) -> RepoInfo:
        """Return the repo info that ``raw`` encodes. Its fields are decoded when they are read."""
        last = self._last
        if last is None or last[0] != raw:
            last = self._last = (raw, open_repo_info(raw, REPO))
        return last[1]


def read_repo_info(storage: Storage, cache: RepoInfoCache | None = None) -> tuple[RepoInfo, Version, bytes]:
    """Return the current repo info, with all fields, the version of its file, and its bytes.

    Raises ``RepositoryNotFoundError`` if there is no file ``repo``, ``FormatError`` if it is damaged, and
    ``StorageError`` if the storage did not return the whole file.
    """
    try:
        data, version = storage.get_versioned(REPO)
    except StorageError as error:
        if (missing := _not_found(storage, error)) is not None:
            raise missing from error
        raise
    raw = bytes(data)
    try:
        return complete((cache or RepoInfoCache()).opened(raw)), version, raw
    except FormatError:
        require_whole(storage, REPO, raw, version)
        raise


def open_current_repo_info(storage: Storage, cache: RepoInfoCache) -> RepoInfo:
    """Return the current repo info, whose fields are decoded when they are read.

    Raises the errors of ``read_repo_info``, except for damaged fields. The version of the file is not
    computed: for local files it is a digest of all bytes.
    """
    try:
        raw = bytes(storage.get(REPO))
    except StorageError as error:
        if (missing := _not_found(storage, error)) is not None:
            raise missing from error
        raise
    try:
        return cache.opened(raw)
    except FormatError:
        return read_repo_info(storage, cache)[0]  # which tells damage from an incomplete answer


def _not_found(storage: Storage, error: StorageError) -> RepositoryNotFoundError | None:
    """Return the error for a ``repo`` that does not exist, or None if ``error`` has another reason."""
    if error.kind == ErrorKind.BUCKET_NOT_FOUND:
        return RepositoryNotFoundError(error.message, error.kind)
    if error.kind == ErrorKind.OBJECT_NOT_FOUND:
        return RepositoryNotFoundError(f"there is no repository in {storage.label()}").with_remedy(
            "Correct the location of the storage, or create a repository with `{}`", call("create")
        )
    return None


class SentUpdates:
    """The attempts of one update that did not report success."""

    def __init__(self, storage: Storage, policy: RetryPolicy) -> None:
        self._storage = storage
        self._policy = policy
        self._infos: dict[str, RepoInfo] = {}
        self._unanswered: list[Version] = []
        self._since = 0
        self._entry: OpsEntry | None = None

    def add_attempt(self, backup: str, after: RepoInfo, entry: OpsEntry, since: int) -> None:
        """Record an attempt before its request. The newest update before it was at ``since``."""
        self._since = self._since or since
        self._infos[backup] = after
        self._entry = entry

    def has_attempt(self, backup: str) -> bool:
        """Return whether the request of the attempt with this backup may have been made."""
        return backup in self._infos

    def add_unanswered(self, backup: str, version: Version) -> None:
        """Record that the storage answered an attempt with an error, or did not answer.

        Attempts that failed before their request do not count.
        """
        if self.has_attempt(backup):
            self._unanswered.append(version)

    def read[T](self, read: Callable[[], T]) -> T:
        """Call ``read``, with retries. Raises ``OutcomeUnknownError`` if an attempt was made and it fails.

        The result of ``read`` shows whether an attempt took effect.
        """
        if self._entry is None:
            return read()
        try:
            return retried(read, self._policy)
        except (StorageError, FormatError, RepositoryNotFoundError) as error:
            why = f"an answer of the storage was lost, and the repository cannot be read ({error.problem})"
            raise outcome_unknown(self._entry, why) from error

    def applied(self, info: RepoInfo) -> RepoInfo | None:
        """Return the repo info of the attempt that took effect, or None if no attempt did.

        The search reads the current ``info`` and older backups.
        """
        while self._infos:
            for name in (*info.ops.backups.texts(), info.repo_before_updates):
                if name in self._infos:
                    return self._infos[name]
            oldest = int(info.ops.updated_at[-1]) if len(info.ops) else self._since
            if oldest <= self._since:
                break
            if info.repo_before_updates is None:
                if self._entry is not None and ops_start(info) is not None:
                    why = "a garbage collection has removed the part of the ops log that tells"
                    raise outcome_unknown(self._entry, why)
                break
            info = self.read(partial(_read_backup, self._storage, info.repo_before_updates))
        return None

    def settled(self) -> RepoInfo | None:
        """Return the result of ``applied`` after the last attempt.

        Raises ``OutcomeUnknownError`` if the storage may still execute a request.
        """
        if self._entry is None:
            return None
        info, version, _ = self.read(partial(read_repo_info, self._storage))
        applied = self.applied(info)
        if applied is None and version in self._unanswered and not self._storage.is_local:
            why = "the storage did not answer, and may still execute the request"
            raise outcome_unknown(self._entry, why)
        return applied


def _read_backup(storage: Storage, name: str) -> RepoInfo:
    key = backup_key(name)
    return decode_repo_info(storage.get(key), key)


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
        now = next_update_time(at.info)
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
                sent.add_attempt(at.backup, after, entry, newest_update(at.info))
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


def newest_update(info: RepoInfo) -> int:
    """Return the time of the last update, in microseconds since 1970. It is a sequence number."""
    return int(info.ops.updated_at[0]) if len(info.ops) else 0


def next_update_time(info: RepoInfo) -> int:
    """Return the time of the next update. It is later than all times in the log, whatever the clock says."""
    return max(now_us(), newest_update(info) + 1)


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


_NAME: Final = re.compile(rf"{REPO}\.\d+\.\w+")
#: The search for the latest state reads this number of backups at a time, because clocks of writers differ.
_CANDIDATES: Final = 8


@dataclass(frozen=True, slots=True)
class Backup:
    """An earlier version of the file ``repo``.

    Attributes:
        name: The name, for ``Repository.upkeep.restore``.
        written_at: When the backup was stored, before the update that replaced this version.
        size_bytes: The size of the file in bytes.
    """

    name: str
    written_at: datetime
    size_bytes: int


def backups(storage: Storage) -> list[Backup]:
    """Return all backups, newest first by their names."""
    objects = sorted((info.key.removeprefix(f"{OVERWRITTEN}/"), info) for info in storage.list(OVERWRITTEN))
    return [Backup(name, info.modified, info.size) for name, info in objects if _NAME.fullmatch(name)]


@dataclass(frozen=True, slots=True)
class BackupState:
    """The content of a backup."""

    name: str
    info: RepoInfo

    @property
    def newest_update(self) -> datetime:
        """The time of the last update in the backup."""
        return to_datetime(newest_update(self.info))


def read_backup(storage: Storage, name: str) -> BackupState:
    """Read and decode a whole backup. Raises ``StorageError`` or ``FormatError`` if that fails."""
    key = backup_key(name)
    data = storage.get(key)
    try:
        info = decode_repo_info(data, key)
        encode_repo_info(info, level=1)  # this decodes all fields
    except FormatError:
        require_whole(storage, key, data)
        raise
    except IcechunkError as error:
        raise FormatError(f"{key}: {error.message}") from error
    return BackupState(name, info)


def latest_backup(storage: Storage) -> BackupState | None:
    """Return the readable backup with the latest state, or None if there is none.

    Raises ``StorageError`` if the storage does not return a backup, which may have the latest state.
    """
    names = (info.key.removeprefix(f"{OVERWRITTEN}/") for info in storage.list(OVERWRITTEN))
    ordered = iter(nsmallest(1 << 16, filter(_NAME.fullmatch, names)))
    while batch := list(islice(ordered, _CANDIDATES)):
        if states := list(_readable(storage, batch)):
            return max(states, key=lambda state: newest_update(state.info))
    return None


def _readable(storage: Storage, names: list[str]) -> Iterator[BackupState]:
    for name in names:
        with skip_damage():
            yield read_backup(storage, name)


def with_restore_advice[E: IcechunkError](storage: Storage, error: E) -> E:
    """Return an error about a lost or damaged ``repo``, with advice to restore the newest readable backup."""
    state = None
    if error.kind != ErrorKind.UNSUPPORTED_SPEC_VERSION:  # in that case the file is not damaged
        with suppress(StorageError):  # the first error is more useful
            state = latest_backup(storage)
    if state is None:
        return error
    return type(error)(
        f"{error.problem}. The newest backup that can be read is `{backup_key(state.name)}`, of the update "
        f"at {state.newest_update.isoformat()}",
        error.kind,
    ).with_remedy("`{}` restores it", call("restore"))


@contextmanager
def restore_advice(storage: Storage) -> Iterator[None]:
    """Apply ``with_restore_advice`` to the errors of a block that reads an existing ``repo``."""
    try:
        yield
    except (FormatError, RepositoryNotFoundError) as error:
        raise with_restore_advice(storage, error) from error.__cause__
