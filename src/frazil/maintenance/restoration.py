"""Restoring a lost or damaged file ``repo`` from a backup.

A backup is at least one update old. The files of later commits still exist, but the backup does not list
them. The restoration finds them in the folder of snapshots and reports them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from frazil.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    FormatError,
    RepositoryNotFoundError,
    StorageError,
)
from frazil.format.columns import I64, U8
from frazil.format.ids import (
    REPO,
    SNAPSHOTS,
    backup_key,
    backup_name,
    id_keys,
    id_list,
    id_to_text,
    ids_from_text,
    ids_to_text,
    snapshot_key,
)
from frazil.format.repo_info import OpsEntry, RepoInfo, SnapshotEntry, UpdateKind, encode_repo_info
from frazil.format.snapshot import Snapshot, decode_snapshot
from frazil.remedies import argument
from frazil.repository.catalog.presentation import snapshot_infos
from frazil.repository.catalog.repo_changes import MAIN
from frazil.repository.catalog.repo_update import (
    BackupState,
    latest_backup,
    newest_update,
    older_ops_backup,
    read_backup,
    read_repo_info,
)
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.clock import from_datetime, now_us
from frazil.repository.ids import new_object_id
from frazil.repository.retries import RetryPolicy, write_once
from frazil.storage.base import Condition, IfAbsent, IfVersion, Storage
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
