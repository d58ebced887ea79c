"""The repair of the file `repo`, and of the commits that are younger than the restored state.

The latest state is in a backup, or in a copy of the repository. A snapshot goes back to a branch only if one
explanation is left: its transaction log and its references fit the tip of this branch, and no other version
near a tip, and no other snapshot fits the same tip. Otherwise it stays detached. The files of a flushed
session, or of a commit that was refused, look the same as those of a commit. So the step is ``consistent``,
and not ``proved``.

A backup is at least one update old. The files of later commits still exist, but the backup does not list
them. The restoration finds them in the folder of snapshots and reports them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from frazil.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    FormatError,
    IcechunkError,
    InvalidInputError,
    RepositoryNotFoundError,
    StorageError,
)
from frazil.format.columns import I64, U8
from frazil.format.ids import (
    CONFIG,
    INITIAL_SNAPSHOT_ID,
    OBJECT_ID_BYTES,
    OVERWRITTEN,
    REFS,
    REPO,
    SNAPSHOTS,
    backup_key,
    backup_name,
    id_from_text,
    id_keys,
    id_list,
    id_to_text,
    ids_from_text,
    ids_to_text,
    snapshot_key,
    transaction_key,
)
from frazil.format.repo_info import OpsEntry, RepoInfo, SnapshotEntry, UpdateKind, encode_repo_info
from frazil.format.snapshot import Snapshot, decode_snapshot
from frazil.host import random_bytes
from frazil.maintenance.repair.copies import CopyFiles, Origin, RepairContext, check_content
from frazil.maintenance.repair.repair_plan import DetachedSnapshot, RepairStep
from frazil.maintenance.repair.storages import read_present
from frazil.remedies import argument
from frazil.repository.catalog.assets import SNAPSHOT_ENTRY
from frazil.repository.catalog.backups import BackupState, latest_backup, read_backup
from frazil.repository.catalog.catalog_v1 import read_config_v1
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.presentation import snapshot_infos
from frazil.repository.catalog.repo_changes import MAIN
from frazil.repository.catalog.repo_update import newest_update, older_ops_backup, read_repo_info
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.clock import from_datetime, now_us, to_datetime
from frazil.repository.ids import new_object_id
from frazil.repository.retries import RetryPolicy, write_once
from frazil.repository.session.differences import fitting_parents, relist_snapshot
from frazil.storage.base import Condition, IfAbsent, IfVersion, Storage
from frazil.storage.checks import is_outage, skip_damage
from frazil.threads import Purpose, map_bounded

#: How much the clocks of storages and writers may differ, in microseconds.
_CLOCKS: Final = 24 * 3600 * 1_000_000


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What ``Repository.upkeep.restore`` did, or would do.

    Attributes:
        backup: The name of the backup.
        branches: The restored branches: the id of the snapshot of each.
        tags: The restored tags: the id of the snapshot of each.
        missing: The branches and tags whose snapshot has no file.
        missing_snapshots: The ids of all snapshots without a file. They were expired, and garbage collection
            has deleted their files. A later collection raises an error as long as a branch or tag leads to
            one of them. ``Repository.expire_snapshots`` removes them from the history again.
        unlisted: The snapshots that were written after the backup, oldest first. Their ``parent_id`` is None,
            because a backup does not know their parents. ``Repository.upkeep.recover`` lists one again.
        restored: False after a dry run.
    """

    backup: str
    branches: dict[str, str]
    tags: dict[str, str]
    missing: tuple[str, ...]
    missing_snapshots: tuple[str, ...]
    unlisted: tuple[SnapshotInfo, ...]
    restored: bool


def restore_repository(
    storage: Storage, backup: str | None, *, dry_run: bool, overwrite: bool
) -> RestoreReport:
    """Restore the file ``repo`` and return the report. See ``Repository.upkeep.restore``."""
    condition, damaged = _current_repo_file(storage, overwrite=overwrite or dry_run)
    state = _state_to_restore(storage, backup)
    report = _report(storage, state, restored=not dry_run)
    if dry_run:
        return report
    if damaged is not None and isinstance(condition, IfVersion):
        name = backup_name(now_us() // 1000, new_object_id())
        storage.backup(REPO, condition.version, damaged, backup_key(name))
    data = _restored_file(_with_whole_log(storage, state))
    if not write_once(storage, REPO, data, RetryPolicy(), condition, "the restoration"):
        raise ConflictError(
            message="another writer changed `repo` while it was restored. Look at the repository, and "
            "restore it again if needed",
            kind=ErrorKind.REPO_INFO_UPDATED,
        )
    return report


def _current_repo_file(storage: Storage, *, overwrite: bool) -> tuple[Condition, bytes | None]:
    """Return the condition for replacing the present file ``repo``, and its bytes."""
    try:
        data, version = storage.get_versioned(REPO)
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        return IfAbsent(), None
    if not overwrite:
        try:
            read_repo_info(storage)
        except FormatError as error:
            if error.kind == ErrorKind.UNSUPPORTED_SPEC_VERSION:
                raise  # a later version of the format is not damage
        else:
            raise AlreadyExistsError(
                f"the repository in {storage.label()} is readable", ErrorKind.NOT_ALLOWED
            ).with_remedy(
                "Pass {} to reset it to a backup; all later updates are then lost", argument(overwrite=True)
            )
    return IfVersion(version), bytes(data)


def _state_to_restore(storage: Storage, backup: str | None) -> BackupState:
    """Return the backup with this name, or the latest readable backup."""
    if backup is not None:
        return read_backup(storage, backup.removeprefix(backup_key("")))
    state = latest_backup(storage)
    if state is None:
        raise RepositoryNotFoundError(f"no readable backup of a repository in {storage.label()}")
    return state


def _with_whole_log(storage: Storage, state: BackupState) -> BackupState:
    """Return the backup if all older parts of its ops log exist.

    Otherwise write a new backup of the same state, whose ops log ends with its own entries, and return that.
    """
    info = state.info
    try:
        while (older := older_ops_backup(storage, info)) is not None:
            info = older
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
    except FormatError:
        pass
    else:
        return state
    shortened = BackupState(
        backup_name(now_us() // 1000, new_object_id()),
        replace(state.info, repo_before_updates=None),
    )
    storage.put(backup_key(shortened.name), encode_repo_info(shortened.info))
    return shortened


def _restored_file(state: BackupState) -> bytes:
    """Return the bytes of the restored file ``repo``, which differ from those of every earlier file.

    Its ops log has one entry, for the restoration. The backup contains the other entries, because the backups
    that they name may be gone.
    """
    info = state.info
    now = max(now_us(), newest_update(info) + 1)
    entry = OpsEntry(UpdateKind.BRANCH_RESET, now, name=MAIN, previous_snapshot=info.branches[MAIN])
    return encode_repo_info(info.recorded(entry, backup=state.name, keep=1))


def _report(storage: Storage, state: BackupState, *, restored: bool) -> RestoreReport:
    info = state.info
    files = _list_snapshot_files(storage)
    lost = info.table.ids()[~np.isin(id_keys(info.table.ids()), id_keys(files.ids))]
    gone = set(id_list(lost))
    return RestoreReport(
        state.name,
        {name: id_to_text(id_) for name, id_ in info.branches.items()},
        {name: id_to_text(id_) for name, id_ in info.tags.items()},
        tuple(name for name, id_ in {**info.branches, **info.tags}.items() if id_ in gone),
        tuple(ids_to_text(lost)),
        unlisted_snapshots(storage, info, files),
        restored,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _SnapshotFiles:
    """Snapshot files: ids, uint8 of shape (n, 12), and modification times in microseconds since 1970."""

    ids: U8
    modified: I64


def _list_snapshot_files(storage: Storage) -> _SnapshotFiles:
    files = list(storage.list(SNAPSHOTS))
    ids, are_ids = ids_from_text([info.key.removeprefix(f"{SNAPSHOTS}/") for info in files])
    modified = np.array([from_datetime(info.modified) for info in files], np.int64)
    return _SnapshotFiles(ids, modified[are_ids])


def unlisted_snapshots(
    storage: Storage, info: RepoInfo, files: _SnapshotFiles | None = None
) -> tuple[SnapshotInfo, ...]:
    """Return snapshots that were written after the newest update of ``info`` and that it does not list."""
    files = files or _list_snapshot_files(storage)
    since = newest_update(info)
    ids = files.ids[files.modified >= since - _CLOCKS]
    new = ids[info.table.find_snapshots(ids) < 0]

    def read_snapshot(id_: bytes) -> Snapshot | None:
        try:
            return decode_snapshot(storage.get(snapshot_key(id_)), snapshot_key(id_))
        except (StorageError, FormatError):
            return None

    snapshots = filter(None, map_bounded(Purpose.CATALOG_READS, read_snapshot, id_list(new)))
    later = [snapshot for snapshot in snapshots if snapshot.flushed_at > since]
    later.sort(key=lambda snapshot: snapshot.flushed_at)
    entries = [SnapshotEntry(each.id, None, each.flushed_at, each.message, each.metadata) for each in later]
    return tuple(snapshot_infos(entries))


#: The number of ancestors of each tip that a snapshot must not fit. A commit that was refused started from
#: one of them.
_ANCESTORS: Final = 8


@dataclass(frozen=True, slots=True)
class RestoreRepo:
    """Writes the file ``repo`` from a backup. ``raw`` is the backup if it comes from a copy."""

    state: BackupState
    source: str
    why: str
    raw: bytes | None = None

    def describe(self) -> RepairStep:
        """Return the step as a value for users."""
        time = to_datetime(newest_update(self.state.info)).isoformat()
        why = f"{self.why}; the state is of the update at {time}, later updates are lost"
        return RepairStep("restore", (REPO,), self.source, why, "consistent")

    def perform(self, repair: RepairContext) -> None:
        """Restore the file, unless it is readable."""
        storage = repair.storage
        with suppress(FormatError, RepositoryNotFoundError):
            read_repo_info(storage)
            return
        present = read_present(storage, REPO)
        if present is not None:
            repair.quarantine.store(storage, REPO, present[0])
        if self.raw is not None:
            storage.put(backup_key(self.state.name), self.raw)
        restore_repository(storage, self.state.name, dry_run=False, overwrite=False)


def is_version_1(storage: Storage, copies: Sequence[Storage]) -> bool:
    """Return whether the repository has spec version 1: refs, and no trace of a file ``repo``."""
    backups = (info.key for info in storage.list(OVERWRITTEN))
    if storage.head(REPO) is not None or any(key.startswith(backup_key(f"{REPO}.")) for key in backups):
        return False
    return any(next(iter(each.list(REFS)), None) is not None for each in (storage, *copies))


def config_steps(storage: Storage, copies: Sequence[Storage]) -> Iterator[CopyFiles]:
    """Yield the step that writes a damaged ``config.yaml`` of spec version 1 from a copy or a backup.

    Each save stores the content before it as a backup. So a content of a copy that is in no backup is newer.
    """
    try:
        read_config_v1(storage)
    except FormatError as error:
        names = sorted(info.key for info in storage.list(OVERWRITTEN))  # newer backups have smaller names
        backups = [Origin("a backup", storage, key) for key in names if key.startswith(backup_key(CONFIG))]
        others = [Origin(copy.label(), copy, CONFIG) for copy in copies]
        old, new = (list(filter(_is_config, origins)) for origins in (backups, others))
        known = [bytes(origin.read()) for origin in old]
        for origin in [*(each for each in new if bytes(each.read()) not in known), *old]:
            yield CopyFiles([(CONFIG, origin)], error.message, "consistent")
            return


def _is_config(origin: Origin) -> bool:
    with suppress(IcechunkError):
        check_content(CONFIG, origin.read())
        return True
    return False


def restore_step(storage: Storage, copies: Sequence[Storage]) -> RestoreRepo | None:
    """Return the step that restores ``repo``, or None if the file is readable."""
    try:
        read_repo_info(storage)
    except (FormatError, RepositoryNotFoundError) as error:
        if error.kind == ErrorKind.UNSUPPORTED_SPEC_VERSION:
            raise
        why = f"damaged, {error.message}" if isinstance(error, FormatError) else "missing"
    else:
        return None
    candidates = list(_states(storage, copies, why))
    if not candidates:
        raise RepositoryNotFoundError(
            f"`repo` in {storage.label()} cannot be repaired, because no backup here or "
            "in the copies can be read. Pass a copy of the repository in `copies`"
        )
    return max(candidates, key=lambda each: newest_update(each.state.info))


def _states(storage: Storage, copies: Sequence[Storage], why: str) -> Iterator[RestoreRepo]:
    """Yield restorations from the latest state here, and from those of the copies."""
    own = latest_backup(storage)
    if own is not None:
        yield RestoreRepo(own, backup_key(own.name), why)
    for copy in copies:
        with skip_damage():
            info, _, raw = read_repo_info(copy)
            if all(_has_record(storage, own, tip) for tip in {*info.branches.values(), *info.tags.values()}):
                name = backup_name(now_us() // 1000, random_bytes(OBJECT_ID_BYTES))
                yield RestoreRepo(BackupState(name, info), f"{REPO} of {copy.label()}", why, raw)


def _has_record(storage: Storage, own: BackupState | None, tip: bytes) -> bool:
    """Return whether this repository has, or had, a snapshot. A copy may have commits of its own."""
    if own is not None and own.info.snapshots.find_snapshot(tip) >= 0:
        return True
    return any(storage.head(key(tip)) is not None for key in (snapshot_key, transaction_key))


def require_copies(storage: Storage, copies: Sequence[Storage]) -> None:
    """Check that the copies belong to the repository."""
    origin = _birth(storage)
    for copy in copies:
        if next(iter(copy.list(SNAPSHOTS)), None) is None:
            raise InvalidInputError(
                f"copies must be copies of the repository, got {copy.label()} without snapshots. Correct the "
                "location",
                ErrorKind.INVALID_ARGUMENT,
            )
        other = _birth(copy)
        if None not in (origin, other) and origin != other:
            raise InvalidInputError(
                f"copies must be copies of the repository, got another repository in {copy.label()}. Its "
                "first snapshot has another time. Correct the location",
                ErrorKind.INVALID_ARGUMENT,
            )


def _birth(storage: Storage) -> int | None:
    """Return the time of the first snapshot, or None if it cannot be read."""
    with skip_damage():
        return SNAPSHOT_ENTRY.read(storage, INITIAL_SNAPSHOT_ID).flushed_at
    with skip_damage():
        snapshots = read_repo_info(storage)[0].snapshots
        row = snapshots.find_snapshot(INITIAL_SNAPSHOT_ID)
        return None if row < 0 else snapshots.entry(row).flushed_at
    return None


# Commits after the restored state


@dataclass(frozen=True, slots=True)
class Relist:
    """Lists a snapshot again, and moves a branch from its parent to it."""

    id: str
    branch: str
    parent: str
    message: str

    def describe(self) -> RepairStep:
        """Return the step as a value for users."""
        why = (
            f"its log and its references fit the tip {self.parent} of branch `{self.branch}`, and no other "
            f"version; message {self.message!r:.60}"
        )
        key = snapshot_key(id_from_text(self.id))
        return RepairStep("relist", (key,), "the snapshot itself", why, "consistent")

    def perform(self, repair: RepairContext) -> None:
        """List the snapshot, unless it is listed."""
        with suppress(AlreadyExistsError):
            relist_snapshot(repair.context, self.id, self.branch, self.parent)


def relist_steps(
    repair: RepairContext, backup: RepoInfo
) -> tuple[list[Relist], tuple[DetachedSnapshot, ...]]:
    """Make the steps that list younger snapshots again, on an overlay."""
    context = repair.context
    waiting = list(unlisted_snapshots(repair.storage, backup))
    steps: list[Relist] = []
    while (step := _next_step(context, waiting)) is not None:
        try:
            step.perform(repair)
        except IcechunkError as error:  # a file is missing, or a collection runs: the snapshot stays detached
            if is_outage(error):
                raise
            break
        steps.append(step)
        waiting = [each for each in waiting if each.id != step.id]
    return steps, tuple(_detached(context, waiting))


def _detached(context: Context, waiting: Sequence[SnapshotInfo]) -> Iterator[DetachedSnapshot]:
    """Yield the snapshots with the branches that each may belong to. The oldest snapshot must be first."""
    branches: dict[bytes, list[str]] = {}
    for name, tip in sorted(context.catalog.full_repo_info().branches.items()):
        branches.setdefault(tip, []).append(name)
    for each in waiting:
        id_ = id_from_text(each.id)
        names = sorted(
            {name for parent in _fitting(context, list(branches), id_) for name in branches[parent]}
        )
        branches[id_] = names  # the next snapshot may be its child
        yield DetachedSnapshot(each.id, each.message, each.written_at, tuple(names))


def _next_step(context: Context, waiting: Sequence[SnapshotInfo]) -> Relist | None:
    """Return the step for the oldest snapshot with exactly one explanation."""
    if not waiting:
        return None
    info = context.catalog.full_repo_info()
    others = [id_from_text(each.id) for each in waiting]
    near = _near_tips(info)
    fits = {each.id: _fitting(context, [*near, *others], id_from_text(each.id)) for each in waiting}
    for each in waiting:
        parents = fits[each.id]
        rivals = [parent for id_, others in fits.items() if id_ != each.id for parent in others]
        branches = [name for name, tip in info.branches.items() if [tip] == parents]
        if len(branches) == 1 and parents[0] not in rivals:
            return Relist(each.id, branches[0], id_to_text(parents[0]), each.message)
    return None


def _near_tips(info: RepoInfo) -> list[bytes]:
    """Return the tips of branches and tags, with some of the ancestors of each."""
    near: dict[bytes, None] = {}
    ids = id_list(info.table.ids())
    for tip in dict.fromkeys([*info.branches.values(), *info.tags.values()]):
        rows = info.table.chain(info.table.find_snapshot(tip))[: _ANCESTORS + 1].tolist()
        near.update(dict.fromkeys(ids[row] for row in rows))
    return list(near)


def _fitting(context: Context, candidates: Sequence[bytes], id_: bytes) -> list[bytes]:
    parents: list[bytes] = []
    for candidate in candidates:
        if candidate != id_:
            with skip_damage():  # a damaged candidate is no explanation
                parents += fitting_parents(context, [candidate], id_)
    return parents
