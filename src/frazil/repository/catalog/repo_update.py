"""The update of a repository: a loop around a conditional write of ``repo``. The backups of ``repo``.

Every change is a pure function from one repo info to the next. The loop reads ``repo`` and its version, calls
the function, saves the bytes that it has read under ``overwritten/``, and writes the new ``repo`` if the file
still has this version. Otherwise it starts again. A local commit stores its own files, the backup and the new
``repo`` under another name in one call of ``open_replacement``, so it waits for the disk twice.

*Was the file written?* Neither "condition not met" nor an error proves that a write had no effect. Every
attempt has a unique name: the random name of its backup, which the new ``repo`` contains. After every answer
except success, the loop reads ``repo`` again, and looks for the names of all its attempts in the ops log, and
in older backups if the log does not reach back. A late write cannot take effect after that: its condition is
a version that does not exist any more once another write has succeeded. ``OutcomeUnknownError`` of a storage
is another case: the write took effect, and may be lost in a power failure. No read can tell.

Specification: *Updates to the repo info file*.
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
from itertools import batched, filterfalse
from typing import Final

import numpy as np

from frazil import host
from frazil.errors import (
    ConflictError,
    ErrorKind,
    FormatError,
    IcechunkError,
    OutcomeUnknownError,
    RepositoryNotFoundError,
    StorageError,
)
from frazil.format.envelope import complete
from frazil.format.ids import OVERWRITTEN, REPO, backup_key, backup_name
from frazil.format.repo_info import (
    OpsEntry,
    OpsLog,
    RepoInfo,
    decode_repo_info,
    encode_repo_info,
    open_repo_info,
)
from frazil.remedies import call
from frazil.repository.catalog.backup_rules import (
    MOST_ENTRIES,
    NEWEST,
    SHORTEST_LOG,
    is_large,
    named,
    with_log,
    without_surplus,
)
from frazil.repository.clock import now_us, to_datetime
from frazil.repository.ids import new_object_id
from frazil.repository.retries import RetryPolicy, not_applied, outcome_unknown, retried
from frazil.repository.settings.config import ResolvedConfig
from frazil.storage.base import OpenReplacement, Replacement, Storage, Stored, Version
from frazil.storage.checks import require_whole, skip_damage, skip_missing

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
    """Return the time of the newest operation that was removed before the oldest part of the ops log."""
    start = info.metadata.get(OPS_START)
    return start if info.repo_before_updates is None and isinstance(start, int) else None


def older_ops_backup(storage: Storage, info: RepoInfo) -> RepoInfo | None:
    """Return the backup with the next older part of the ops log, or None if ``info`` has the oldest part.

    All its updates must be older than those of ``info``, so a loop over the backups always ends.
    """
    if info.repo_before_updates is None:
        return None
    key, older = backup_key(info.repo_before_updates), _decode_backup(storage, info.repo_before_updates)
    if len(older.ops) and len(info.ops) and older.ops.updated_at[0] >= info.ops.updated_at[-1]:
        raise FormatError(
            f"{key}: the updates must be before {info.ops.updated_at[-1]} us, got an update at "
            f"{older.ops.updated_at[0]} us. The file has the name of another file. Restore it from a copy"
        )
    return older


@dataclass(slots=True)
class RepoInfoCache:
    """A cache for the last repo info, because most reads get the same bytes again."""

    last: tuple[bytes, RepoInfo] | None = None

    def opened(self, raw: bytes) -> RepoInfo:
        """Return the repo info that ``raw`` encodes. Its fields are decoded when they are read."""
        last = self.last
        if last is None or last[0] != raw:
            last = self.last = (raw, open_repo_info(raw, REPO))
        return last[1]


#: A function that raises an error for a repo info that an update cannot start from.
type StateCheck = Callable[[RepoInfo], None]


def no_check(info: RepoInfo) -> None:
    """Accept any repo info."""


def read_repo_info(
    storage: Storage, cache: RepoInfoCache | None = None, check: StateCheck = no_check
) -> tuple[RepoInfo, Version, bytes]:
    """Return the current repo info, with all fields, the version of its file, and its bytes.

    ``check`` sees the repo info first, with the few fields that it needs. A commit on a branch that has moved
    decodes nothing else: among many writers this is the more frequent outcome.
    """
    try:
        data, version = storage.get_versioned(REPO)
    except StorageError as error:
        _refuse_missing(storage, error)
        raise
    raw = bytes(data)
    try:
        info = (cache or RepoInfoCache()).opened(raw)
        check(info)
        return complete(info), version, raw
    except FormatError:
        require_whole(storage, REPO, raw, version)
        raise


def open_current_repo_info(storage: Storage, cache: RepoInfoCache) -> RepoInfo:
    """Return the current repo info, whose fields are decoded when they are read.

    The version of the file is not computed: for local files it is a digest of all bytes.
    """
    try:
        raw = bytes(storage.get(REPO))
    except StorageError as error:
        _refuse_missing(storage, error)
        raise
    try:
        return cache.opened(raw)
    except FormatError:
        return read_repo_info(storage, cache)[0]  # which tells damage from an incomplete answer


def _refuse_missing(storage: Storage, error: StorageError) -> None:
    """Raise ``RepositoryNotFoundError`` if ``error`` says that there is no ``repo``."""
    if error.kind == ErrorKind.BUCKET_NOT_FOUND:
        raise RepositoryNotFoundError(error.message, error.kind) from error
    if error.kind == ErrorKind.OBJECT_NOT_FOUND:
        raise RepositoryNotFoundError(f"there is no repository in {storage.label()}").with_remedy(
            "Correct the location of the storage, or create a repository with `{}`", call("create")
        ) from error


@dataclass(slots=True)
class SentUpdates:
    """The attempts of one update that did not report success.

    ``infos`` has the repo info of each attempt by its backup, recorded before its request, and ``unanswered``
    the versions of ``repo`` before requests without an answer. The first attempt was later than ``since``.
    """

    storage: Storage
    policy: RetryPolicy
    infos: dict[str, RepoInfo] = field(default_factory=dict)
    unanswered: list[Version] = field(default_factory=list)
    since: int = 0
    entry: OpsEntry | None = None

    def read[T](self, read: Callable[[], T]) -> T:
        """Call ``read``, with retries. Raises ``OutcomeUnknownError`` if an attempt was made and it fails."""
        if self.entry is None:
            return read()
        try:
            return retried(read, self.policy)
        except (StorageError, FormatError, RepositoryNotFoundError) as error:
            why = f"an answer of the storage was lost, and the repository cannot be read ({error.problem})"
            raise outcome_unknown(self.entry, why) from error

    def applied(self, info: RepoInfo) -> RepoInfo | None:
        """Return the repo info of the attempt that took effect, or None if no attempt did."""
        while self.infos:
            for name in (*info.ops.backups.texts(), info.repo_before_updates):
                if name in self.infos:
                    return self.infos[name]
            for attempt in self.infos.values():
                if _has_unnamed(info.ops, attempt.ops):
                    return attempt
            oldest = int(info.ops.updated_at[-1]) if len(info.ops) else self.since
            if oldest <= self.since:
                break
            if info.repo_before_updates is None:
                if self.entry is not None and ops_start(info) is not None:
                    why = "a garbage collection has removed the part of the ops log that tells"
                    raise outcome_unknown(self.entry, why)
                break
            info = self.read(partial(_decode_backup, self.storage, info.repo_before_updates))
        return None

    def settled(self) -> RepoInfo | None:
        """Return the result of ``applied`` after the last attempt."""
        if self.entry is None:
            return None
        info, version, _ = self.read(partial(read_repo_info, self.storage))
        applied = self.applied(info)
        if applied is None and version in self.unanswered and not self.storage.is_local:
            why = "the storage did not answer, and may still execute the request"
            raise outcome_unknown(self.entry, why)
        return applied


def _has_unnamed(log: OpsLog, attempt: OpsLog) -> bool:
    """Return whether a log has the newest entry of an attempt, and an update has given its backup up."""
    entry = attempt.entry(0)
    rows = np.flatnonzero(log.updated_at == entry.updated_at)
    return any(
        not log.backups.lengths[row + 1 : row + 2].any()
        and replace(log.entry(row), backup_path=None) == entry
        for row in rows.tolist()
    )


def _decode_backup(storage: Storage, name: str) -> RepoInfo:
    key = backup_key(name)
    return decode_repo_info(storage.get(key), key)


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RepoUpdate:
    """The next repo info with its entry for the ops log. The loop sets the time and backup of the entry.

    An update that changes several things also has ``earlier`` entries, oldest first, which get no backup.
    """

    info: RepoInfo
    entry: OpsEntry
    earlier: tuple[OpsEntry, ...] = ()


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
        policy = RetryPolicy(*settings.repo_update_retries)
        return UpdateSettings(policy, settings.num_updates_per_repo_info_file, settings.compression_level)


@dataclass(frozen=True, slots=True)
class CommitStart:
    """The state that a commit starts from. Spec version 1 has no backups."""

    info: RepoInfo

    def save_backup(self, storage: Storage) -> None:
        """Write the backup that the update of the commit needs."""


@dataclass(frozen=True, slots=True)
class UpdateStart(CommitStart):
    """The state that an attempt starts from, with the file ``repo`` and the name of its backup."""

    version: Version
    raw: bytes
    backup: str

    def save_backup(self, storage: Storage) -> None:
        """Write the backup that the update of the commit needs."""
        storage.backup(REPO, self.version, self.raw, backup_key(self.backup))


@dataclass(frozen=True, slots=True)
class NewFiles:
    """Files that an update stores together with its backup. The new ``repo`` refers to them.

    ``confirm`` is called when they are durable. It may wait for other files, and raise their errors.
    """

    objects: Sequence[tuple[str, Buffer]]
    confirm: Callable[[], None]


@dataclass(frozen=True, slots=True)
class OldBackups:
    """The backups that an update deletes when it has taken effect, unless ``is_copied``: a copy runs."""

    storage: Storage
    settings: UpdateSettings
    is_copied: Callable[[], bool]

    def whole_log(self, info: RepoInfo) -> tuple[RepoInfo, set[str]] | None:
        """Return the state before an update with the whole log, and the backups that are not needed then.

        None while the log in ``repo`` is not full.
        """
        if not SHORTEST_LOG <= self.settings.ops_log_length <= len(info.ops):
            return None
        older, part, unneeded = list[RepoInfo](), info, set[str]()
        with skip_missing():
            while (link := older_ops_backup(self.storage, part)) is not None:
                if sum(len(each.ops) for each in (info, *older, link)) > MOST_ENTRIES:
                    break
                # The newest backups stayed for undo, or all of them while `repo` was small.
                unneeded |= {part.repo_before_updates or "", *link.ops.backups.texts()}
                older.append(link)
                part = link
        return with_log(info, older), unneeded - {""}

    def delete(self, names: set[str]) -> None:
        """Delete backups, unless a copy of the repository may need them. A failure has no consequences."""
        with suppress(StorageError):
            if names and not self.is_copied():
                self.storage.delete(map(backup_key, sorted(names)))


def begin_update(
    storage: Storage, cache: RepoInfoCache | None = None, check: StateCheck = no_check
) -> UpdateStart:
    """Read the repo info for an attempt to change it."""
    info, version, raw = read_repo_info(storage, cache, check)
    return UpdateStart(info, version, raw, backup_name(now_us() // 1000, new_object_id()))


def update_repo_info(
    storage: Storage,
    change: ConditionalChange,
    settings: UpdateSettings,
    *,
    cache: RepoInfoCache | None = None,
    start: UpdateStart | None = None,
    files: NewFiles | None = None,
    old_backups: OldBackups | None = None,
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
        if sent.infos and (applied := sent.applied(at.info)):
            return applied
        # These attempts were refused: they can never take effect, and no file names their backups.
        with suppress(StorageError):
            storage.delete(map(backup_key, refused))
        refused.clear()
        now = next_update_time(at.info)
        changed = change(at.info, now)
        if changed is None:
            return None
        after = changed.info
        for number, entry in enumerate((*changed.earlier, changed.entry)):
            backup = "" if number else at.backup
            after = after.recorded(
                replace(entry, updated_at=now + number), backup=backup, keep=settings.ops_log_length
            )
        whole, unneeded = None, set[str]()
        if old_backups is not None and settings.ops_log_length >= SHORTEST_LOG and is_large(len(at.raw)):
            logged = after
            after = without_surplus(logged)
            unneeded = named(logged) - named(after)
            with suppress(FormatError, StorageError):  # the log stays long, and the next update tries again
                if (found := old_backups.whole_log(at.info)) is not None:
                    whole, gone = found
                    last = 1 + len(changed.earlier)
                    after = replace(after, ops=after.ops.newest(last), repo_before_updates=at.backup)
                    names = [*filter(None, at.info.ops.backups.texts())]
                    unneeded = gone | {*names[NEWEST:]}
        encoded = encode_repo_info(after, level=settings.compression_level)
        replacement = Replacement(REPO, encoded, at.version, at.raw, backup_key(at.backup))
        first, files = files, None
        try:
            if first is None and at is start:  # the caller has saved the backup
                opened = OpenReplacement(storage, replacement)
            else:
                opened = storage.open_replacement(replacement, () if first is None else first.objects)
            with opened as ready:
                if first is not None:
                    first.confirm()
                if whole is not None:
                    link = encode_repo_info(whole, level=settings.compression_level)
                    storage.put(replacement.backup, link)
                sent.infos[at.backup] = after
                sent.entry = replace(changed.entry, updated_at=now)
                sent.since = sent.since or newest_update(at.info)
                answer = ready.finish()
        except StorageError as error:
            is_sent = at.backup in sent.infos
            if is_sent and isinstance(error, OutcomeUnknownError):
                raise outcome_unknown(sent.entry or changed.entry, error.problem) from error
            if first is not None and not is_sent:
                raise  # the files of the commit are not stored
            failures += 1
            if is_sent:
                sent.unanswered.append(at.version)
            _log.warning("attempt %d to update the repository may have failed: %s", attempt + 1, error)
            if failures >= policy.errors:
                if applied := sent.settled():
                    return applied
                raise not_applied(error) from error
            host.pause(policy.pause(attempt))
        else:
            if isinstance(answer, Stored):
                # A read returns other metadata and configurations than the caller has passed: tuples become
                # lists, and the caller may change its values later.
                before = at.info
                if cache and after.metadata is before.metadata and after.config is before.config:
                    cache.last = (encoded, after)
                if old_backups is not None:
                    old_backups.delete(unneeded)
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


def is_later(backup: RepoInfo, info: RepoInfo) -> bool:
    """Return whether a backup has an update that ``repo`` with this content never had."""
    latest = newest_update(backup)
    return latest > newest_update(info) and not (info.ops.updated_at == latest).any()


def next_update_time(info: RepoInfo) -> int:
    """Return the time of the next update. It is later than all times in the log, whatever the clock says."""
    return max(now_us(), newest_update(info) + 1)


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
    """Return the readable backup with the latest state, or None if there is none."""
    return _latest(storage, _newest_names(storage), set())


def later_backup(storage: Storage) -> tuple[RepoInfo, BackupState] | None:
    """Return ``repo`` and the latest backup if this has a later state, or None. ``repo`` must be readable.

    Each update writes the backup of the state before it. So the backups are listed before ``repo`` is read,
    and an update in between finds nothing. A backup that ``repo`` names is of an earlier state, and is not
    read.
    """
    names = _newest_names(storage)
    info, _, _ = read_repo_info(storage)
    state = _latest(storage, names, named(info))
    return None if state is None or not is_later(state.info, info) else (info, state)


def _newest_names(storage: Storage) -> list[str]:
    names = (info.key.removeprefix(f"{OVERWRITTEN}/") for info in storage.list(OVERWRITTEN))
    return nsmallest(1 << 16, filter(_NAME.fullmatch, names))


def _latest(storage: Storage, names: Sequence[str], known: set[str]) -> BackupState | None:
    """Return the latest state of the newest backups by name that are readable and not known."""
    for batch in batched(names, _CANDIDATES):
        states: list[BackupState] = []
        for name in filterfalse(known.__contains__, batch):
            with skip_damage():
                states.append(read_backup(storage, name))
        if states or not known.isdisjoint(batch):
            return max(states, key=lambda state: newest_update(state.info), default=None)
    return None


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
        f"at {to_datetime(newest_update(state.info)).isoformat()}",
        error.kind,
    ).with_remedy("`{}` restores it", call("restore"))


@contextmanager
def restore_advice(storage: Storage) -> Iterator[None]:
    """Apply ``with_restore_advice`` to the errors of a block that reads an existing ``repo``."""
    try:
        yield
    except (FormatError, RepositoryNotFoundError) as error:
        raise with_restore_advice(storage, error) from error.__cause__
