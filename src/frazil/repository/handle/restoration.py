"""Restoring a lost or damaged ``repo`` from a backup.

A backup is at least one update behind. Commits that came later have their files, but are in no list: they are
looked up in the folder of snapshots, and reported.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
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
from frazil.format.ids import OBJECT_ID_BYTES, id_keys, id_list, id_to_text, ids_from_text, ids_to_text
from frazil.format.keys import REPO, SNAPSHOTS, backup_key, backup_name, snapshot_key
from frazil.format.repo_info import OpsEntry, RepoInfo, SnapshotEntry, UpdateKind, encode_repo_info
from frazil.format.snapshot import Snapshot, decode_snapshot
from frazil.repository.catalog import presentation
from frazil.repository.catalog.backups import BackupState, latest_backup, read_backup
from frazil.repository.catalog.collection_guard import newest_update
from frazil.repository.catalog.files import older_ops_backup
from frazil.repository.catalog.repo_changes import MAIN
from frazil.repository.catalog.repo_info_file import read_repo_info
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.clock import from_datetime, now_us
from frazil.repository.outcome import write_once
from frazil.repository.retries import RetryPolicy
from frazil.storage.base import Condition, IfAbsent, IfVersion, Storage
from frazil.threads import Purpose, map_bounded

#: Clocks of storages and writers may differ by so much, in microseconds.
_CLOCKS: Final = 24 * 3600 * 1_000_000


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What ``Repository.restore`` did, or would do.

    ``backup`` is the name of the backup, ``branches`` and ``tags`` the snapshots that they are on again.
    ``missing`` are the branches and tags whose snapshot has no file any more, and ``missing_snapshots`` the
    ids of all snapshots without a file: they were expired, and garbage collection has deleted their files. A
    later collection refuses to work as long as a branch or tag leads to one of them:
    ``Repository.expire_snapshots`` takes them out of the history again.

    ``unlisted`` are snapshots that were written after the backup, oldest first, with ``parent_id`` None: a
    backup does not know what they follow. ``Repository.recover_snapshot`` lists one again. ``restored`` is
    False after a dry run.
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
    """See ``Repository.restore``."""
    condition, damaged = _current_repo_file(storage, overwrite=overwrite or dry_run)
    state = _state_to_restore(storage, backup)
    report = _report(storage, state, restored=not dry_run)
    if dry_run:
        return report
    if damaged is not None and isinstance(condition, IfVersion):
        name = backup_name(now_us() // 1000, os.urandom(OBJECT_ID_BYTES))
        storage.backup(REPO, condition.version, damaged, backup_key(name))
    data = _restored_file(_with_whole_log(storage, state))
    if not write_once(storage, REPO, data, RetryPolicy(), condition, "the restoration"):
        raise ConflictError(
            message="another writer changed `repo` while it was restored: look at what is there now",
            kind=ErrorKind.REPO_INFO_UPDATED,
        )
    return report


def _current_repo_file(storage: Storage, *, overwrite: bool) -> tuple[Condition, bytes | None]:
    """The condition for replacing the file ``repo`` as it is now, and its bytes.

    Raises ``AlreadyExistsError`` for a file that can be read, unless ``overwrite``.
    """
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
                raise  # a later version of the format is no damage
        else:
            raise AlreadyExistsError(
                f"the repository in {storage.label()} can be read: `overwrite=True` takes it back to a "
                "backup, and everything that came since is lost",
                ErrorKind.NOT_ALLOWED,
            )
    return IfVersion(version), bytes(data)


def _state_to_restore(storage: Storage, backup: str | None) -> BackupState:
    """The backup with this name, or the latest one that can be read."""
    if backup is not None:
        return read_backup(storage, backup.removeprefix(backup_key("")))
    state = latest_backup(storage)
    if state is None:
        raise RepositoryNotFoundError(f"no backup of a repository that can be read in {storage.label()}")
    return state


def _with_whole_log(storage: Storage, state: BackupState) -> BackupState:
    """The backup, if all older parts of its ops log exist.

    Otherwise a new backup of the same state, whose ops log ends with its own entries.
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
        backup_name(now_us() // 1000, os.urandom(OBJECT_ID_BYTES)),
        replace(state.info, repo_before_updates=None),
    )
    storage.put(backup_key(shortened.name), encode_repo_info(shortened.info))
    return shortened


def _restored_file(state: BackupState) -> bytes:
    """The bytes of the restored file ``repo``, which differ from those of every earlier one.

    Its ops log has one entry, for the restoration. The other entries are in the backup; the backups that they
    name may be gone.
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
        tuple(_unlisted(storage, info, files)),
        restored,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _SnapshotFiles:
    """The files of snapshots: ids, (n, 12), and times of modification, microseconds since 1970."""

    ids: U8
    modified: I64


def _list_snapshot_files(storage: Storage) -> _SnapshotFiles:
    files = list(storage.list(SNAPSHOTS))
    ids, are_ids = ids_from_text([info.key.removeprefix(f"{SNAPSHOTS}/") for info in files])
    modified = np.array([from_datetime(info.modified) for info in files], np.int64)
    return _SnapshotFiles(ids, modified[are_ids])


def _unlisted(storage: Storage, info: RepoInfo, files: _SnapshotFiles) -> Iterable[SnapshotInfo]:
    """Snapshots that were written after the newest update of ``info``, and are not in its list."""
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
    return presentation.snapshot_infos(
        [SnapshotEntry(each.id, None, each.flushed_at, each.message, each.metadata) for each in later]
    )
