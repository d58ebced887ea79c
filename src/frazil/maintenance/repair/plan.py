"""The plan of a repair, and the restoration of the file `repo`.

Damaged metadata hide damage of the files that they refer to. So the plan makes each round of steps on an
overlay, with the code of the repair itself, and then verifies the overlay again. A file that the storage does
not return may be good: its finding remains, and the plan has no lost chunks, because it may refer to others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil import errors
from frazil.changes.diff import row_of
from frazil.changes.zarr_metadata import chunk_lengths, encoding_difference
from frazil.display import counted
from frazil.format.chunk_table import within
from frazil.format.columns import U8, U32
from frazil.format.ids import (
    CHUNKS,
    INITIAL_SNAPSHOT_ID,
    OVERWRITTEN,
    REFS,
    REPO,
    SNAPSHOTS,
    backup_key,
    backup_name,
    id_from_text,
    id_list,
    id_matrix,
    id_to_text,
    ids_to_text,
    is_id_text,
    snapshot_key,
    transaction_key,
)
from frazil.format.manifest import ChunkKind, ChunkTable, NativeRef
from frazil.format.nodes import Node, NodeTable
from frazil.format.repo_info import OpsEntry, RepoInfo, SnapshotEntry, UpdateKind, encode_repo_info
from frazil.format.snapshot import Snapshot, decode_snapshot
from frazil.maintenance.repair.copies import (
    FileSearch,
    RepairAction,
    RepairContext,
    id_of_key,
    users_of_files,
)
from frazil.maintenance.repair.repair_plan import (
    DetachedSnapshot,
    LostChoice,
    LostChunks,
    RepairPlan,
    RepairStep,
    RestoreReport,
)
from frazil.maintenance.repair.storages import Overlay, read_present
from frazil.maintenance.verification.findings import Finding, VerifyLevel
from frazil.maintenance.verification.plan import verify
from frazil.remedies import argument
from frazil.repository.catalog.ancestry import FRAZIL
from frazil.repository.catalog.assets import SNAPSHOT_ENTRY
from frazil.repository.catalog.collection_guard import SessionStart
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.presentation import snapshot_infos
from frazil.repository.catalog.repo_changes import MAIN, branch_tip
from frazil.repository.catalog.repo_update import (
    BackupState,
    later_backup,
    latest_backup,
    newest_update,
    older_ops_backup,
    read_backup,
    read_repo_info,
)
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.clock import DAY_US, now_us, to_datetime
from frazil.repository.ids import new_object_id
from frazil.repository.retries import RetryPolicy, write_once
from frazil.repository.session.commit import write_commit
from frazil.repository.session.commit_files import COMMIT, PendingCommit
from frazil.repository.session.differences import fitting_parents, relist_snapshot
from frazil.repository.session.session import reading
from frazil.repository.session.workspace import Workspace
from frazil.storage.base import Condition, IfAbsent, IfVersion, Storage
from frazil.storage.checks import is_outage, skip_damage, skip_missing
from frazil.survey.columns import ObjectListing, among, list_objects
from frazil.threads import Purpose, map_bounded

#: How much the clocks of storages and writers may differ, in microseconds.
_CLOCKS: Final = DAY_US
#: The number of ancestors of each tip that a snapshot must not fit. A commit that was refused started from
#: one of them.
_ANCESTORS: Final = 8


def restore_report(storage: Storage, backup: str | None) -> RestoreReport:
    """Return what the restoration of a backup, or of the latest readable one, would do."""
    return _report(storage, _state_to_restore(storage, backup))


def restore_repository(storage: Storage, backup: str | None, *, overwrite: bool = False) -> RestoreReport:
    """Restore the file ``repo`` and return the report. See ``Repository.upkeep.restore``."""
    condition, damaged = _current_repo_file(storage, overwrite=overwrite)
    state = _state_to_restore(storage, backup)
    report = _report(storage, state)
    if damaged is not None and isinstance(condition, IfVersion):
        storage.backup(REPO, condition.version, damaged, backup_key(_new_name()))
    state = _with_whole_log(storage, state)
    info = state.info
    # The ops log has one entry, for the restoration. The backup contains the other entries, because the
    # backups that they name may be gone. So the file differs from every earlier one.
    # Its time is later than that of all backups, so that none of them looks like a lost state.
    latest = latest_backup(storage)
    now = max(now_us(), 1 + max(newest_update(each.info) for each in (state, latest) if each is not None))
    entry = OpsEntry(UpdateKind.BRANCH_RESET, now, name=MAIN, previous_snapshot=info.branches[MAIN])
    data = encode_repo_info(info.recorded(entry, backup=state.name, keep=1))
    if not write_once(storage, REPO, data, RetryPolicy(), condition, "the restoration"):
        raise errors.ConflictError(
            message="another writer changed `repo` while it was restored. Restore it again if needed",
            kind=errors.ErrorKind.REPO_INFO_UPDATED,
        )
    return report


def _current_repo_file(storage: Storage, *, overwrite: bool) -> tuple[Condition, bytes | None]:
    """Return the condition for replacing the present file ``repo``, and its bytes."""
    present = read_present(storage, REPO)
    if present is None:
        return IfAbsent(), None
    if not overwrite:
        try:
            read_repo_info(storage)
        except errors.FormatError as error:
            if error.kind == errors.ErrorKind.UNSUPPORTED_SPEC_VERSION:
                raise  # a later version of the format is not damage
        else:
            raise errors.AlreadyExistsError(
                f"the repository in {storage.label()} is readable", errors.ErrorKind.NOT_ALLOWED
            ).with_remedy(
                "Pass {} to reset it to a backup; all later updates are then lost", argument(overwrite=True)
            )
    return IfVersion(present[1]), bytes(present[0])


def _state_to_restore(storage: Storage, backup: str | None) -> BackupState:
    if backup is not None:
        return read_backup(storage, backup.removeprefix(backup_key("")))
    state = latest_backup(storage)
    if state is None:
        raise errors.RepositoryNotFoundError(f"no readable backup of a repository in {storage.label()}")
    return state


def _with_whole_log(storage: Storage, state: BackupState) -> BackupState:
    """Return the backup if all older parts of its ops log exist.

    Otherwise write a new backup of the same state, whose ops log ends with its own entries, and return that.
    """
    info = state.info
    with skip_missing(), suppress(errors.FormatError):
        while (older := older_ops_backup(storage, info)) is not None:
            info = older
        return state
    shortened = BackupState(_new_name(), replace(state.info, repo_before_updates=None))
    storage.put(backup_key(shortened.name), encode_repo_info(shortened.info))
    return shortened


def _new_name() -> str:
    return backup_name(now_us() // 1000, new_object_id())


def _report(storage: Storage, state: BackupState) -> RestoreReport:
    info, files = state.info, list_objects(storage, SNAPSHOTS)
    lost = info.table.ids()[~among(info.table.ids(), files.ids)]
    lost_ids = set(id_list(lost))
    return RestoreReport(
        state.name,
        {name: id_to_text(id_) for name, id_ in info.branches.items()},
        {name: id_to_text(id_) for name, id_ in info.tags.items()},
        tuple(name for name, id_ in {**info.branches, **info.tags}.items() if id_ in lost_ids),
        tuple(ids_to_text(lost)),
        unlisted_snapshots(storage, info, files),
    )


def unlisted_snapshots(storage: Storage, info: RepoInfo, files: ObjectListing) -> tuple[SnapshotInfo, ...]:
    """Return snapshots that were written after the newest update of ``info`` and that it does not list."""
    since = newest_update(info)
    ids = files.ids[files.modified >= since - _CLOCKS]
    new = ids[info.table.find_snapshots(ids) < 0]

    def read_snapshot(id_: bytes) -> Snapshot | None:
        try:
            return decode_snapshot(storage.get(snapshot_key(id_)), snapshot_key(id_))
        except (errors.StorageError, errors.FormatError):
            return None

    snapshots = filter(None, map_bounded(Purpose.CATALOG_READS, read_snapshot, id_list(new)))
    later = [snapshot for snapshot in snapshots if snapshot.flushed_at > since]
    later.sort(key=lambda snapshot: snapshot.flushed_at)
    entries = [SnapshotEntry(each.id, None, each.flushed_at, each.message, each.metadata) for each in later]
    return tuple(snapshot_infos(entries))


# The steps of a repair


def is_version_1(storage: Storage, copies: Sequence[Storage]) -> bool:
    """Return whether the repository has spec version 1: refs, and no trace of a file ``repo``."""
    backups = (info.key for info in storage.list(OVERWRITTEN))
    if storage.head(REPO) is not None or any(key.startswith(backup_key(f"{REPO}.")) for key in backups):
        return False
    return any(next(iter(each.list(REFS)), None) is not None for each in (storage, *copies))


def restore_step(storage: Storage, copies: Sequence[Storage]) -> tuple[RepairAction, RepoInfo] | None:
    """Return the step that restores ``repo``, and its state.

    None if the file is readable, and no backup has a later state.

    A copy may have commits of its own, so this repository must have, or have had, its branches and tags.
    """
    try:
        later = later_backup(storage)
    except (errors.FormatError, errors.RepositoryNotFoundError) as error:
        if error.kind == errors.ErrorKind.UNSUPPORTED_SPEC_VERSION:
            raise
        why = f"damaged, {error.message}" if isinstance(error, errors.FormatError) else "missing"
        own = latest_backup(storage)
    else:
        if later is None:
            return None
        why, own = "older than its backups", later[1]
    states: list[tuple[BackupState, str, bytes | None]] = []
    if own is not None:
        states.append((own, backup_key(own.name), None))

    def has_record(tip: bytes) -> bool:
        if own is not None and own.info.snapshots.find_snapshot(tip) >= 0:
            return True
        return any(storage.head(key(tip)) is not None for key in (snapshot_key, transaction_key))

    for copy in copies:
        with skip_damage():
            info, _, data = read_repo_info(copy)
            if all(map(has_record, {*info.branches.values(), *info.tags.values()})):
                states.append((BackupState(_new_name(), info), f"{REPO} of {copy.label()}", data))
    if not states:
        places = "; ".join(each.label() for each in (storage, *copies))
        raise errors.RepositoryNotFoundError(
            f"expected a readable `repo` or a readable backup of it, found none in {places}"
        ).with_remedy("Correct the location, or pass {}", argument(copies=...))
    state, source, raw = max(states, key=lambda each: newest_update(each[0].info))

    def perform(repair: RepairContext) -> None:
        """Restore the file, unless it is readable and has this state or a later one."""
        with suppress(errors.FormatError, errors.RepositoryNotFoundError):
            if newest_update(read_repo_info(repair.storage)[0]) >= newest_update(state.info):
                return
        present = read_present(repair.storage, REPO)
        if present is not None:
            repair.quarantine.store(repair.storage, REPO, present[0])
        if raw is not None:
            repair.storage.put(backup_key(state.name), raw)
        restore_repository(repair.storage, state.name, overwrite=True)

    time = to_datetime(newest_update(state.info)).isoformat()
    why = f"{why}; the state is of the update at {time}, later updates are lost"
    return RepairAction(RepairStep("restore", (REPO,), source, why, "consistent"), perform), state.info


def require_copies(storage: Storage, copies: Sequence[Storage]) -> None:
    """Check that the copies belong to the repository."""

    def birth(storage: Storage) -> int | None:
        """Return the time of the first snapshot, or None if it cannot be read."""
        with skip_damage():
            return SNAPSHOT_ENTRY.read(storage, INITIAL_SNAPSHOT_ID).flushed_at
        with skip_damage():
            snapshots = read_repo_info(storage)[0].snapshots
            row = snapshots.find_snapshot(INITIAL_SNAPSHOT_ID)
            return None if row < 0 else snapshots.entry(row).flushed_at
        return None

    origin = birth(storage)
    for copy in copies:
        if next(iter(copy.list(SNAPSHOTS)), None) is None:
            got = f"no snapshots in {copy.label()}"
        elif None not in (origin, other := birth(copy)) and origin != other:
            got = f"another repository in {copy.label()}. Its first snapshot has another time"
        else:
            continue
        raise errors.InvalidInputError(
            f"copies must be copies of the repository, got {got}. Correct the location"
        )


# Commits after the restored state


def relist_steps(
    repair: RepairContext, backup: RepoInfo
) -> tuple[list[RepairAction], tuple[DetachedSnapshot, ...]]:
    """Make the steps that list younger snapshots again, on an overlay. Return them and other snapshots."""
    context = repair.context
    waiting = list(unlisted_snapshots(repair.storage, backup, list_objects(repair.storage, SNAPSHOTS)))
    steps: list[RepairAction] = []
    while (pair := _explained(context, waiting)) is not None:
        lost, step = pair
        try:
            step.perform(repair)
        except (
            errors.IcechunkError
        ) as error:  # a file is missing, or a collection runs: the snapshot stays detached
            if is_outage(error):
                raise
            break
        steps.append(step)
        waiting.remove(lost)
    branches: dict[bytes, list[str]] = {}
    for name, tip in sorted(context.catalog.full_repo_info().branches.items()):
        branches.setdefault(tip, []).append(name)
    detached: list[DetachedSnapshot] = []
    for each in waiting:
        id_ = id_from_text(each.id)
        names = sorted(
            {name for parent in _fitting(context, list(branches), id_) for name in branches[parent]}
        )
        branches[id_] = names  # the next snapshot may be its child
        detached.append(DetachedSnapshot(each.id, each.message, each.written_at, tuple(names)))
    return steps, tuple(detached)


def _explained(context: Context, waiting: Sequence[SnapshotInfo]) -> tuple[SnapshotInfo, RepairAction] | None:
    """Return the oldest snapshot with exactly one explanation, and the step that puts it on its branch."""
    info = context.catalog.full_repo_info()
    ids = id_list(info.table.ids())
    candidates = dict.fromkeys(
        ids[row]
        for tip in [*info.branches.values(), *info.tags.values()]
        if waiting
        for row in info.table.chain(info.table.find_snapshot(tip))[: _ANCESTORS + 1].tolist()
    )
    candidates |= dict.fromkeys(id_from_text(each.id) for each in waiting)
    fits = {each.id: _fitting(context, list(candidates), id_from_text(each.id)) for each in waiting}
    for each in waiting:
        parents = fits[each.id]
        rivals = [parent for id_, others in fits.items() if id_ != each.id for parent in others]
        branches = [name for name, tip in info.branches.items() if [tip] == parents]
        if len(branches) == 1 and parents[0] not in rivals:
            return each, _relist_step(each, branches[0], id_to_text(parents[0]))
    return None


def _relist_step(lost: SnapshotInfo, branch: str, parent: str) -> RepairAction:
    """Return the step that lists a snapshot again, and moves a branch from its parent to it."""

    def perform(repair: RepairContext) -> None:
        with suppress(errors.AlreadyExistsError):
            relist_snapshot(repair.context, lost.id, branch, parent)

    why = (
        f"its log and its references fit the tip {parent} of branch `{branch}`, and no other version; "
        f"message {lost.message!r:.60}"
    )
    key = snapshot_key(id_from_text(lost.id))
    return RepairAction(RepairStep("relist", (key,), "the snapshot itself", why, "consistent"), perform)


def _fitting(context: Context, candidates: Sequence[bytes], id_: bytes) -> list[bytes]:
    parents: list[bytes] = []
    for candidate in candidates:
        if candidate != id_:
            with skip_damage():  # a damaged candidate is no explanation
                parents += fitting_parents(context, [candidate], id_)
    return parents


_WORDS: Final = {"fill": "the missing value of each array", "previous": "the data of an older version"}


def lost_chunks(
    context: Context, findings: Iterable[Finding], paths: Mapping[bytes, str]
) -> list[LostChunks]:
    """Return the chunks with findings about their chunk files."""
    groups: dict[tuple[str, bytes], list[Finding]] = {}
    for each in findings:
        folder, _, name = each.key.partition("/")
        if folder == CHUNKS and is_id_text(name) and len(each.offsets):
            groups.setdefault((each.key, each.node), []).append(each)
    if not groups:
        return []
    ids = {key: id_of_key(key) for key, _ in groups}
    versions, _, users = users_of_files(context, id_matrix(list(ids.values())))
    needing = {
        key: tuple(map(id_to_text, reversed(id_list(versions.users(id_matrix(users.get(id_, [])))))))
        for key, id_ in ids.items()
    }
    lost: list[LostChunks] = []
    for (key, node), parts in groups.items():
        cells = np.concatenate([each.coordinates for each in parts])
        offsets = np.concatenate([each.offsets for each in parts])
        pairs = np.column_stack((cells.astype(np.uint64), offsets))
        _, rows = np.unique(pairs, axis=0, return_index=True)
        lost.append(LostChunks(key, paths.get(node), node, cells[rows], needing[key], (), (), offsets[rows]))
    ranges = lost_ranges(lost)
    newest_first = list(reversed(id_list(versions.ids)))
    # The array may have other metadata in another version that needs another file.
    groups_of: dict[tuple[bytes, str], list[int]] = {}
    for number, chunks in enumerate(lost):
        groups_of.setdefault((chunks.node, next(iter(chunks.versions), "")), []).append(number)
    for (node, version), group in groups_of.items():
        cells = np.concatenate([lost[row].coordinates for row in group])
        previous = _previous(context, newest_first, node, version, cells, ranges)
        branches = [tuple[str, ...]()] * len(cells)
        for name, tip in sorted(context.catalog.full_repo_info().branches.items()):
            with skip_damage():
                _, needed = _needed_at(Workspace(context, tip), node, cells, ranges)
                for row in np.flatnonzero(needed).tolist():
                    branches[row] += (name,)
        for row in group:
            count = len(lost[row].coordinates)
            lost[row] = replace(lost[row], previous=tuple(previous[:count]), branches=tuple(branches[:count]))
            del previous[:count], branches[:count]
    return lost


def _needed_at(
    workspace: Workspace, id_: bytes, cells: U32, ranges: U8
) -> tuple[Node | None, NDArray[np.bool_]]:
    """Return an array of a version, and which lost chunks the version needs."""
    node, needed = _node_of(workspace.base, id_), np.zeros(len(cells), bool)
    if node is not None and node.array is not None:
        needed = within(cells, node.array.num_chunks)
        needed[needed] = is_lost(workspace.refs_at(node.path, cells[needed]), ranges)
    return node, needed


def _previous(
    context: Context, newest_first: Sequence[bytes], node: bytes, needing: str, cells: U32, ranges: U8
) -> list[str | None]:
    """Return for each chunk of an array the newest version that has other, readable data for it.

    The version must store the elements like the version ``needing``: their bytes do not say what they mean.
    """
    answer: list[str | None] = [None] * len(cells)
    document: bytes | None = None
    with skip_damage():
        table = context.assets.snapshot(id_from_text(needing)).nodes if needing else NodeTable.from_nodes([])
        newest = _node_of(table, node)
        document = None if newest is None else newest.user_data
    if document is None:
        return answer
    waiting = np.ones(len(cells), bool)
    good_in: dict[bytes, NDArray[np.bool_]] = {}
    for version in newest_first:
        if not waiting.any():
            break
        with skip_damage():  # there is a finding for the snapshot
            older = _node_of(context.assets.snapshot(version).nodes, node)
            if older is None or older.array is None or _differ(document, older.user_data):
                continue
            for ref in older.array.manifests:
                box = np.array(ref.extents, np.uint64)
                if len(box) != cells.shape[1]:
                    continue
                inside = waiting & ((cells >= box[:, 0]) & (cells < box[:, 1])).all(axis=1)
                if inside.any():
                    if ref.id not in good_in:
                        good_in[ref.id] = _good_at(context, ref.id, node, cells, ranges)
                    inside &= good_in[ref.id]
                    for row in np.flatnonzero(inside).tolist():
                        answer[row] = id_to_text(version)
                    waiting &= ~inside
    return answer


def _differ(one: bytes, other: bytes) -> bool:
    """Return whether the metadata of two versions of an array give the bytes of chunks another meaning."""
    try:
        return one != other and encoding_difference((one, other)) is not None
    except (AttributeError, TypeError, ValueError, LookupError, errors.IcechunkError):  # a damaged document
        return True


def _good_at(context: Context, manifest: bytes, node: bytes, cells: U32, ranges: U8) -> NDArray[np.bool_]:
    """Return which chunks have a reference to readable data in a manifest."""
    good = np.zeros(len(cells), bool)
    with skip_damage():
        table = context.assets.manifest(manifest).arrays.get(node)
        if table is not None:
            table = table.of_rank(cells.shape[1])
            rows = table.find_chunks(cells)
            good[rows >= 0] = ~is_lost(table.select_chunks(rows[rows >= 0]), ranges)
    return good


def is_lost(table: ChunkTable, ranges: U8) -> NDArray[np.bool_]:
    """Return which references of a table point to one of the lost ranges."""
    native = table.kind == ChunkKind.NATIVE
    hit = np.zeros(len(table), bool)
    ids = table.chunk_ids[table.source[native]]
    hit[native] = among(_ranges(ids, table.offset[native]), ranges)
    return hit


def lost_ranges(lost: Iterable[LostChunks]) -> U8:
    """Return the ranges of lost chunks: the id of the file and the offset of each, uint8 (n, 20)."""
    parts = [(id_matrix([id_of_key(each.key)]), each.offsets) for each in lost]
    return np.concatenate([_ranges(file.repeat(len(at), axis=0), at) for file, at in parts])


def _ranges(ids: U8, offsets: NDArray[np.uint64]) -> U8:
    return np.hstack((ids, offsets.astype(">u8").view(np.uint8).reshape(len(offsets), 8)))


# Commits without lost chunks


def lost_commits(
    repair: RepairContext, choice: LostChoice, lost: Sequence[LostChunks], notes: dict[bytes, Finding]
) -> Iterator[RepairAction]:
    """Make the commits for the branches whose tips need lost chunks, and yield their steps.

    ``notes`` gets a finding for each array that cannot be filled, because its codecs do not work here.
    """
    if choice == "keep" or not lost:
        return
    keys = tuple(dict.fromkeys(each.key for each in lost))

    def edit(workspace: Workspace) -> list[tuple[int, str]]:
        nodes = dict.fromkeys(each.node for each in lost)
        return [_edit(workspace, node, lost, choice, notes) for node in nodes]

    what, about = ("lost chunk", f" with {_WORDS[choice]}"), {"lost": sorted(keys)}
    reason = "needs the lost chunks, and the caller asks for this commit"
    yield from _branch_steps(
        repair, partial(_commit, edit=edit, what=what, about=about), keys, _WORDS[choice], reason
    )


def _branch_steps(
    repair: RepairContext, commit: Callable[..., list[str]], keys: tuple[str, ...], source: str, reason: str
) -> Iterator[RepairAction]:
    """Make a commit on each branch whose tip needs it, and yield the steps. ``reason`` is about the tip."""
    for name in sorted(repair.context.catalog.full_repo_info().branches):
        perform, effects = partial(commit, branch=name), list[str]()
        with skip_damage():
            effects = perform(repair)
        if effects:
            why = "; ".join([f"the tip of branch `{name}` {reason}", *effects])
            yield RepairAction(RepairStep("commit", keys, source, why, "consistent"), perform)


def _commit(
    repair: RepairContext,
    branch: str,
    edit: Callable[[Workspace], list[tuple[int, str]]],
    what: tuple[str, str],
    about: Mapping[str, Any],
) -> list[str]:
    """Commit the edits of a branch, and return their effects. ``edit`` returns counts and effects.

    ``what`` has the noun of the counted things, and the rest of the message.
    """
    context = repair.context
    since = now_us()
    info = context.catalog.repo_info()
    workspace = Workspace(context, branch_tip(info, branch))
    edits = [(count, effect) for count, effect in edit(workspace) if count]
    if edits:
        noun, rest = what
        write_commit(
            PendingCommit(
                context,
                COMMIT,
                branch,
                workspace.snapshot,
                workspace.durable_changes(),
                f"repair: {counted(sum(count for count, _ in edits), noun)}{rest}",
                {**repair.metadata, FRAZIL: {"repair": about}},
                SessionStart(newest_update(info), since),
                workspace.writer,
            )
        )
    return [effect for _, effect in edits]


def _edit(
    workspace: Workspace,
    id_: bytes,
    lost: Sequence[LostChunks],
    choice: LostChoice,
    notes: dict[bytes, Finding],
) -> tuple[int, str]:
    """Change the references of one array that are still lost at the tip."""
    parts = [each for each in lost if each.node == id_]
    cells, ranges = np.concatenate([each.coordinates for each in parts]), lost_ranges(parts)
    node, at_tip = _needed_at(workspace, id_, cells, ranges)
    index, first = np.unique(cells[at_tip], axis=0, return_index=True)
    if node is None or not len(index):
        return 0, ""
    if choice == "fill":
        try:
            tables, effect = _fill(workspace, node, index)
        except errors.StorageError:
            raise
        except Exception as error:  # zarr and codecs raise errors of any class
            detail = f"the chunks of {node.path} stay: {type(error).__name__}: {error}"
            notes[id_] = Finding("codec-missing", parts[0].key, id_, index, detail)
            return 0, ""
        for table in tables:
            workspace.set_refs(node.path, table)
        return len(index), f"{counted(len(index), 'chunk')} of {node.path} {effect}"
    versions = [version for each in parts for version in each.previous]
    previous = np.array(versions, object)[at_tip][first]
    number = 0
    for version in dict.fromkeys(previous.tolist()):
        if version is not None:
            older = Workspace(workspace.context, id_from_text(version))
            other = _node_of(older.base, id_)
            if other is not None and not _differ(node.user_data, other.user_data):
                refs = older.refs_at(other.path, index[previous == version]).stored()
                refs = refs.select_chunks(~is_lost(refs, ranges))
                number += len(refs)
                if len(refs):
                    workspace.set_refs(node.path, refs)
    return number, f"{counted(number, 'chunk')} of {node.path} read the data of an older version"


def _fill(workspace: Workspace, node: Node, index: U32) -> tuple[list[ChunkTable], str]:
    """Return references to chunks of missing values, or deletions if the fill value is the best."""
    decoder = reading(workspace).store.chunk_decoder(node.path)
    element = decoder.missing_element()
    if element is None:
        fill = json.loads(node.user_data).get("fill_value")
        return [ChunkTable.from_absent(index)], f"read {fill}, because nothing marks missing values there"
    # One chunk of each shape is stored. Chunks of a regular grid have one shape.
    edges = chunk_lengths(node.user_data)
    shapes = [
        np.broadcast_to(np.asarray(edge)[at] if isinstance(edge, list) else edge, len(at))
        for edge, at in zip(edges, index.T, strict=True)
    ]
    table = np.array(shapes, np.int64).T.reshape(len(index), len(edges))
    _, first, shape_of = np.unique(table, axis=0, return_index=True, return_inverse=True)
    tables: list[ChunkTable] = []
    for number, row in enumerate(first.tolist()):
        chosen = index[shape_of.reshape(-1) == number]
        data = decoder.encoded(tuple(index[row].tolist()), element)
        ref = workspace.store_bytes(data) if data else None
        if not data:  # the chunk has only the fill value
            tables.append(ChunkTable.from_absent(chosen))
        elif isinstance(ref, NativeRef):
            ids = id_matrix([ref.chunk_id])
            tables.append(ChunkTable.from_native(chosen, ids, 0, ref.offset, ref.length))
        else:
            tables.append(ChunkTable.from_inline(chosen, [data] * len(chosen)))
    return tables, "read as missing values"


def _node_of(nodes: NodeTable, id_: bytes) -> Node | None:
    row = row_of(nodes, id_)
    return None if row < 0 else nodes.node(row)


# Commits without keys of another number of dimensions

_OF_RANKS: Final = ("extents-rank", "ref-rank")


def rank_commits(repair: RepairContext, findings: Iterable[Finding]) -> Iterator[RepairAction]:
    """Make commits that leave out keys which are no chunks of their arrays, and yield their steps."""
    keys: dict[bytes, list[str]] = {}
    for each in findings:
        if each.check in _OF_RANKS and not each.is_unreadable:
            keys.setdefault(each.node, []).append(each.key)
    every = tuple(dict.fromkeys(chain.from_iterable(keys.values())))

    def edit(workspace: Workspace) -> list[tuple[int, str]]:
        return [_without_odd_keys(workspace, node) for node in keys]

    if keys:
        what, about = ("array", " without keys that are no chunks"), {"keys": sorted(every)}
        commit, source = partial(_commit, edit=edit, what=what, about=about), "the references of the arrays"
        reason = "has keys with another number of coordinates than dimensions"
        yield from _branch_steps(repair, commit, every, source, reason)


def _without_odd_keys(workspace: Workspace, id_: bytes) -> tuple[int, str]:
    """Write the manifests of an array again that have keys which are no chunks. Its other references stay."""
    node = _node_of(workspace.base, id_)
    if node is None or node.array is None:
        return 0, ""
    ndim, edits = len(node.array.shape), list[ChunkTable]()
    for ref in node.array.manifests:
        table = workspace.context.assets.manifest(ref.id).arrays.get(id_, ChunkTable.empty(ndim))
        if any(len(each) and each.ndim != ndim for each in (table, *table.others)):
            own = table.of_rank(ndim)
            corner = ref.extents[:, 0].reshape(1, ndim)
            edits.append(own.select_chunks(slice(1)) if len(own) else ChunkTable.from_absent(corner))
    for edit in edits:
        workspace.set_refs(node.path, edit)
    return min(len(edits), 1), f"the chunks of {node.path} stay"


#: Each round repairs a kind of files that others refer to: repo, snapshots, manifests, chunks. One more
#: round is for each copy that turns out to be damaged.
_ROUNDS: Final = 16


def repair_plan(
    storage: Storage,
    open_context: Callable[[Storage], Context],
    *,
    copies: Sequence[Storage] = (),
    level: VerifyLevel = "exists",
    lost: LostChoice = "keep",
) -> RepairPlan:
    """Return the plan of a repair. It changes no file. ``open_context`` opens a repository."""
    require_copies(storage, copies)
    repair = RepairContext(Overlay(storage), open_context)
    steps: list[RepairAction] = []
    detached: tuple[DetachedSnapshot, ...] = ()
    if not is_version_1(storage, copies) and (restored := restore_step(storage, copies)) is not None:
        restore, info = restored
        restore.perform(repair)
        relists, detached = relist_steps(repair, info)
        steps += [restore, *relists]
    search = FileSearch(storage, copies)
    damage = verify(repair.context, level)
    for _ in range(_ROUNDS):
        new = search.steps(repair, damage.problems)
        if not new:
            break
        for step in new:
            step.perform(repair)
        steps += new
        damage = verify(repair.context, level)
    chunks, notes = list[LostChunks](), dict[bytes, Finding]()
    if not any(each.check == "unavailable" for each in damage.problems):
        steps += rank_commits(repair, damage.problems)
        chunks = lost_chunks(repair.context, damage.problems, damage.paths)
        steps += lost_commits(repair, lost, chunks, notes)

    def apply(metadata: Mapping[str, Any]) -> str:
        """Make the steps, and return the prefix of the files that were put aside."""
        repair = RepairContext(storage, open_context, metadata)
        for step in steps:
            step.perform(repair)
        return repair.quarantine.prefix

    shown = tuple(step.shown for step in steps)
    findings = (*damage.problems, *notes.values())
    return RepairPlan(storage.label(), shown, tuple(chunks), detached, findings, perform=apply)
