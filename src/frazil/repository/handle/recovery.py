"""Putting a lost or damaged ``repo`` back from a backup, and versions that the backup does not know.

A backup is one update behind, or more: the commits that came later have their files, but are on no list.
They are found in the folder of snapshots, and listed again one by one, each behind the version that its
transaction log fits.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from frazil.changes.compare import compare
from frazil.changes.node_edits import in_both, rows_of
from frazil.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    FormatError,
    InvalidInputError,
    RepositoryNotFoundError,
    StorageError,
)
from frazil.format.columns import I64, U8, Ragged
from frazil.format.ids import (
    NODE_ID_BYTES,
    OBJECT_ID_BYTES,
    id_from_text,
    id_keys,
    id_list,
    id_matrix,
    id_to_text,
    ids_from_text,
    ids_to_text,
)
from frazil.format.keys import (
    REPO,
    SNAPSHOTS,
    backup_key,
    backup_name,
    manifest_key,
    snapshot_key,
    transaction_key,
)
from frazil.format.repo_info import OpsEntry, RepoInfo, SnapshotEntry, UpdateKind, encode_repo_info
from frazil.format.snapshot import Snapshot, decode_snapshot
from frazil.format.transaction_log import TransactionLog
from frazil.repository.asynchronous import awaitable, awaitable_static
from frazil.repository.catalog import presentation, repo_changes, repo_requirements
from frazil.repository.catalog.backups import Backup, State, backups, latest, read_backup
from frazil.repository.catalog.collection_guard import newest_update
from frazil.repository.catalog.collection_records import require_none_running
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.files import older_ops_backup
from frazil.repository.catalog.repo_changes import MAIN, new_snapshot
from frazil.repository.catalog.repo_info_file import read_repo_info
from frazil.repository.catalog.repo_requirements import require_snapshot
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.catalog.version_names import snapshot_id as named
from frazil.repository.clock import from_datetime, now_us
from frazil.repository.outcome import write_once
from frazil.repository.retries import RetryPolicy
from frazil.repository.session.workspace import Workspace
from frazil.storage.base import Condition, IfAbsent, IfVersion, Storage
from frazil.threads import Purpose, map_bounded


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


class Recovery:
    """Methods of ``Repository``."""

    _context: Context

    @staticmethod
    def list_backups(storage: Storage) -> list[Backup]:
        """The backups of the file ``repo``, newest first: every update of the repository leaves one.

        >>> import frazil
        >>> storage = frazil.in_memory_storage()
        >>> repo = frazil.Repository.create(storage)
        >>> repo.create_branch("dev", repo.lookup_branch("main"))
        >>> len(frazil.Repository.list_backups(storage))
        1
        """
        return backups(storage)

    @staticmethod
    def restore(
        storage: Storage, backup: str | None = None, *, dry_run: bool = False, overwrite: bool = False
    ) -> RestoreReport:
        """Put a lost or damaged ``repo`` back: the repository is then as it was at the time of a backup.

        ``backup`` is a name from ``list_backups``; None is the latest state that can be read. Updates that
        came later are lost; their snapshots are in ``unlisted`` of the report. A damaged ``repo`` is kept
        among the backups. ``dry_run`` changes nothing. A ``repo`` that can be read is replaced only with
        ``overwrite``: that takes the whole repository back, the work of others included.

        Do this while nobody writes. The ops log shows it as a reset of ``main`` to where the backup has it.
        If garbage collection has deleted backups with older parts of the log, the log ends with the entries
        that ``backup`` itself holds.

        Raises ``AlreadyExistsError`` (``not-allowed``) for a ``repo`` that can be read;
        ``RepositoryNotFoundError`` if there is no backup that can be read; ``FormatError`` or
        ``StorageError`` for a ``backup`` that cannot, and for a ``repo`` of a later format;
        ``ConflictError`` if another writer changed ``repo`` meanwhile.

        >>> import frazil
        >>> storage = frazil.in_memory_storage()
        >>> repo = frazil.Repository.create(storage)
        >>> repo.create_branch("dev", repo.lookup_branch("main"))
        >>> storage.delete(["repo"])
        >>> frazil.Repository.restore(storage).branches
        {'main': '1CECHNKREP0F1RSTCMT0'}
        """
        condition, damaged = _present(storage, overwrite=overwrite or dry_run)
        state = _chosen(storage, backup)
        report = _report(storage, state, restored=not dry_run)
        if dry_run:
            return report
        if damaged is not None and isinstance(condition, IfVersion):
            name = backup_name(now_us() // 1000, os.urandom(OBJECT_ID_BYTES))
            storage.backup(REPO, condition.version, damaged, backup_key(name))
        restored = _restored(_with_whole_log(storage, state))
        if not write_once(storage, REPO, restored, RetryPolicy(), condition, "the restoration"):
            raise ConflictError(
                message="another writer changed `repo` while it was restored: look at what is there now",
                kind=ErrorKind.REPO_INFO_UPDATED,
            )
        return report

    def recover_snapshot(self, snapshot_id: str, branch: str, *, parent: str | None = None) -> str:
        """List a snapshot again that has files, but is on no list: one that ``restore`` has reported. The
        branch ``branch`` is then on it; its id.

        An existing branch has to be on the snapshot's parent; a new name makes a branch. ``parent`` is the id
        of that snapshot, which is otherwise found among the tips of branches and tags by the transaction log.

        Raises ``SnapshotNotFoundError`` if there is no such file; ``StorageError`` (``object-not-found``) if
        one of its manifests is gone; ``AlreadyExistsError`` if the snapshot is listed;
        ``InvalidInputError`` if its transaction log does not fit the parent, or no tip; ``ConflictError`` if
        the branch is elsewhere, and (``garbage-collection-running``) while garbage is collected. Chunks are
        not looked at: ``Repository.verify`` does that.
        """
        context = self._context
        context.require_version_2()
        while True:
            if (id_ := _recover(context, snapshot_id, branch, parent)) is not None:
                return id_to_text(id_)

    list_backups_async = awaitable_static(list_backups)
    restore_async = awaitable_static(restore)
    recover_snapshot_async = awaitable(recover_snapshot)


def _recover(context: Context, snapshot_id: str, branch: str, parent: str | None) -> bytes | None:
    """See ``Recovery.recover_snapshot``. None if garbage was collected at the same time."""
    start = context.catalog.begin_commit()
    info = start.info
    id_ = id_from_text(snapshot_id)
    if info.snapshots.find_snapshot(id_) >= 0:
        raise AlreadyExistsError(
            f"snapshot `{snapshot_id}` is listed already: create a branch on it", ErrorKind.NOT_ALLOWED
        )
    require_none_running(context.storage)
    snapshot, log = _read(context, id_)
    follows = _parent(context, info, snapshot, log, None if parent is None else named(parent, lambda: info))
    entry = SnapshotEntry(id_, follows, snapshot.flushed_at, snapshot.message, snapshot.metadata)
    exists = branch in info.branches
    change = new_snapshot(entry, branch if exists else None, follows)
    start.save_backup(context.storage)
    if context.catalog.finish_commit(change, start) is None:
        return None
    if not exists:
        context.catalog.update_repo_info(repo_changes.create_branch(branch, id_))
    return id_


def _present(storage: Storage, *, overwrite: bool) -> tuple[Condition, bytes | None]:
    """The condition for a write over what is there, and its bytes. ``AlreadyExistsError`` if that is
    whole.
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
                f"the repository in {storage.place()} can be read: `overwrite=True` takes it back to a "
                "backup, and everything that came since is lost",
                ErrorKind.NOT_ALLOWED,
            )
    return IfVersion(version), bytes(data)


def _chosen(storage: Storage, backup: str | None) -> State:
    if backup is not None:
        return read_backup(storage, backup.removeprefix(backup_key("")))
    state = latest(storage)
    if state is None:
        raise RepositoryNotFoundError(f"no backup of a repository that can be read in {storage.place()}")
    return state


def _with_whole_log(storage: Storage, state: State) -> State:
    """The backup, or, if backups behind it are gone, a new one whose log ends with its own entries."""
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
    ends = State(
        backup_name(now_us() // 1000, os.urandom(OBJECT_ID_BYTES)),
        replace(state.info, repo_before_updates=None),
    )
    storage.put(backup_key(ends.name), encode_repo_info(ends.info))
    return ends


def _restored(state: State) -> bytes:
    """The file, unlike any that was there: with an entry of its own in the ops log. The other entries are in
    the backup; the backups that each of them names may be gone.
    """
    info = state.info
    now = max(now_us(), newest_update(info) + 1)
    entry = OpsEntry(UpdateKind.BRANCH_RESET, now, name=MAIN, previous_snapshot=info.branches[MAIN])
    return encode_repo_info(info.recorded(entry, backup=state.name, keep=1))


def _report(storage: Storage, state: State, *, restored: bool) -> RestoreReport:
    info = state.info
    files = _snapshot_files(storage)
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
class _Files:
    """The files of snapshots: ids, (n, 12), and when they were modified, microseconds since 1970."""

    ids: U8
    modified: I64


def _snapshot_files(storage: Storage) -> _Files:
    found = list(storage.list(SNAPSHOTS))
    ids, named = ids_from_text([info.key.removeprefix(f"{SNAPSHOTS}/") for info in found])
    modified = np.array([from_datetime(info.modified) for info in found], np.int64)
    return _Files(ids, modified[named])


def _unlisted(storage: Storage, info: RepoInfo, files: _Files) -> Iterable[SnapshotInfo]:
    """Snapshots that were written after the newest update, and are on no list."""
    since = newest_update(info)
    ids = files.ids[files.modified >= since - _CLOCKS]
    new = ids[info.table.find_snapshots(ids) < 0]

    def read(id_: bytes) -> Snapshot | None:
        try:
            return decode_snapshot(storage.get(snapshot_key(id_)), snapshot_key(id_))
        except (StorageError, FormatError):
            return None

    found = [each for each in map_bounded(Purpose.CATALOG_READS, read, id_list(new)) if each is not None]
    later = sorted((each for each in found if each.flushed_at > since), key=lambda each: each.flushed_at)
    return presentation.snapshot_infos(
        [SnapshotEntry(each.id, None, each.flushed_at, each.message, each.metadata) for each in later]
    )


#: Clocks of storages and writers may differ by so much, in microseconds.
_CLOCKS: Final = 24 * 3600 * 1_000_000


def _read(context: Context, id_: bytes) -> tuple[Snapshot, TransactionLog]:
    """The files of a snapshot that is on no list; they and all its manifests are there."""
    try:
        snapshot = context.assets.snapshot(id_)
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        raise repo_requirements.snapshot_not_found(id_to_text(id_)) from error
    log = context.assets.transaction_log(id_)
    # What was read may come from a cache.
    own = [snapshot_key(id_), transaction_key(id_)]
    keys = [*own, *map(manifest_key, id_list(snapshot.manifests.ids))]
    heads = map_bounded(Purpose.FILE_CHECKS, context.storage.head, keys)
    if lost := [key for key, found in zip(keys, heads, strict=True) if found is None]:
        raise StorageError(
            f"snapshot `{id_to_text(id_)}` cannot be recovered: {len(lost)} of its files are gone, "
            f"`{lost[0]}` among them",
            ErrorKind.OBJECT_NOT_FOUND,
        )
    return snapshot, log


def _parent(
    context: Context, info: RepoInfo, snapshot: Snapshot, log: TransactionLog, given: bytes | None
) -> bytes:
    """The snapshot that another one follows: the only one that its log fits."""
    if given is not None:
        require_snapshot(info, given)
        if _has_its_nodes(context.assets.snapshot(given), snapshot, log):
            return given
        fitting = []
    else:
        tips = dict.fromkeys([*info.branches.values(), *info.tags.values()])
        snapshots = map(context.assets.snapshot, tips)
        fitting = [each.id for each in snapshots if _fits(each, snapshot, log)]
        if len(fitting) > 1:
            fitting = [id_ for id_ in fitting if _has_its_chunks(context, id_, snapshot, log)]
    if len(fitting) == 1:
        return fitting[0]
    fits = "several tips" if fitting else "no tip" if given is None else f"not `{id_to_text(given)}`"
    raise InvalidInputError(
        f"the parent of snapshot `{id_to_text(snapshot.id)}` is not known: its transaction log fits {fits}. "
        "Give the id of the snapshot that it follows as `parent`",
        ErrorKind.INVALID_SNAPSHOT_ID,
    )


def _fits(before: Snapshot, after: Snapshot, log: TransactionLog) -> bool:
    """Whether the log tells of all that is different between two snapshots."""
    if before.flushed_at >= after.flushed_at or not _has_its_nodes(before, after, log):
        return False
    chunks = id_matrix(list(log.updated_chunks), NODE_ID_BYTES)
    touched = np.concatenate([log.updated_groups, log.updated_arrays, chunks])
    both = np.intersect1d(id_keys(before.nodes.ids), id_keys(after.nodes.ids))
    same = np.setdiff1d(both, id_keys(touched)).view(np.uint8).reshape(-1, NODE_ID_BYTES)
    old, new = (each.nodes.select_nodes(rows_of(each.nodes, same)) for each in (before, after))
    return _equal(old.user_data, new.user_data) and _equal(old.manifests, new.manifests)


def _has_its_chunks(context: Context, before: bytes, after: Snapshot, log: TransactionLog) -> bool:
    """Whether the chunks that are different are those of the log. Reads manifests."""
    old, new = Workspace(context, before), Workspace(context, after.id)
    written = compare(old.base, new.base, old.chunks.ref_table, new.chunks.ref_table).updated_chunks
    for path, chunks in written.items():
        known = log.updated_chunks.get(new.nodes.require_node(path).id)
        if known is None or not in_both(chunks, known).all():
            return False
    return True


def _has_its_nodes(before: Snapshot, after: Snapshot, log: TransactionLog) -> bool:
    """Whether the nodes that came and went are those of the log."""
    old, new = id_keys(before.nodes.ids), id_keys(after.nodes.ids)
    came = id_keys(np.concatenate([log.new_groups, log.new_arrays]))
    went = id_keys(np.concatenate([log.deleted_groups, log.deleted_arrays]))
    return np.array_equal(np.setdiff1d(new, old), np.unique(came)) and np.array_equal(
        np.setdiff1d(old, new), np.unique(went)
    )


def _equal(one: Ragged, other: Ragged) -> bool:
    return np.array_equal(one.lengths, other.lengths) and np.array_equal(
        one.compact().values.view(np.uint8), other.compact().values.view(np.uint8)
    )
