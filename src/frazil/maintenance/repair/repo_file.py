"""The repair of the file `repo`, and of the commits that are younger than the restored state.

The latest state is in a backup, or in a copy of the repository. A snapshot goes back to a branch only if one
explanation is left: its transaction log and its references fit the tip of this branch, and no other version
near a tip, and no other snapshot fits the same tip. Otherwise it stays detached. The files of a flushed
session, or of a commit that was refused, look the same as those of a commit. So the step is ``consistent``,
and not ``proved``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from frazil.display import Record, Shown, literal
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
from frazil.format.ids import (
    CONFIG,
    INITIAL_SNAPSHOT_ID,
    OVERWRITTEN,
    REFS,
    REPO,
    SNAPSHOTS,
    backup_key,
    backup_name,
    id_from_text,
    id_list,
    id_to_text,
    ids_to_text,
    snapshot_key,
    transaction_key,
)
from frazil.format.repo_info import OpsEntry, RepoInfo, SnapshotEntry, UpdateKind, encode_repo_info
from frazil.format.snapshot import Snapshot, decode_snapshot
from frazil.maintenance.repair.copies import Origin, RepairContext, Step, check_content, copy_step
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
from frazil.repository.clock import now_us, to_datetime
from frazil.repository.ids import new_object_id
from frazil.repository.retries import RetryPolicy, write_once
from frazil.repository.session.differences import fitting_parents, relist_snapshot
from frazil.storage.base import Condition, IfAbsent, IfVersion, Storage
from frazil.storage.checks import is_outage, skip_damage
from frazil.survey.columns import ObjectListing, among, list_objects
from frazil.threads import Purpose, map_bounded

#: How much the clocks of storages and writers may differ, in microseconds.
_CLOCKS: Final = 24 * 3600 * 1_000_000
#: The number of ancestors of each tip that a snapshot must not fit. A commit that was refused started from
#: one of them.
_ANCESTORS: Final = 8


@dataclass(frozen=True, slots=True, repr=False)
class RestoreReport(Record):
    """What the plan of ``Repository.upkeep.restore`` does.

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
    """

    backup: str
    branches: dict[str, str]
    tags: dict[str, str]
    missing: tuple[str, ...]
    missing_snapshots: tuple[str, ...]
    unlisted: tuple[SnapshotInfo, ...]

    shown_as: ClassVar[str] = "RestoreReport"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield from ((name, literal(getattr(self, name))) for name in self.__slots__[:-1])
        yield "unlisted", "\n".join(f"{each.id} {each.message!r:.60}" for each in self.unlisted) or "none"


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
    now = max(now_us(), newest_update(info) + 1)
    entry = OpsEntry(UpdateKind.BRANCH_RESET, now, name=MAIN, previous_snapshot=info.branches[MAIN])
    data = encode_repo_info(info.recorded(entry, backup=state.name, keep=1))
    if not write_once(storage, REPO, data, RetryPolicy(), condition, "the restoration"):
        raise ConflictError(
            message="another writer changed `repo` while it was restored. Look at the repository, and "
            "restore it again if needed",
            kind=ErrorKind.REPO_INFO_UPDATED,
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
        except FormatError as error:
            if error.kind == ErrorKind.UNSUPPORTED_SPEC_VERSION:
                raise  # a later version of the format is not damage
        else:
            raise AlreadyExistsError(
                f"the repository in {storage.label()} is readable", ErrorKind.NOT_ALLOWED
            ).with_remedy(
                "Pass {} to reset it to a backup; all later updates are then lost", argument(overwrite=True)
            )
    return IfVersion(present[1]), bytes(present[0])


def _state_to_restore(storage: Storage, backup: str | None) -> BackupState:
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
    shortened = BackupState(_new_name(), replace(state.info, repo_before_updates=None))
    storage.put(backup_key(shortened.name), encode_repo_info(shortened.info))
    return shortened


def _new_name() -> str:
    return backup_name(now_us() // 1000, new_object_id())


def _report(storage: Storage, state: BackupState) -> RestoreReport:
    info, files = state.info, list_objects(storage, SNAPSHOTS)
    lost = info.table.ids()[~among(info.table.ids(), files.ids)]
    gone = set(id_list(lost))
    return RestoreReport(
        state.name,
        {name: id_to_text(id_) for name, id_ in info.branches.items()},
        {name: id_to_text(id_) for name, id_ in info.tags.items()},
        tuple(name for name, id_ in {**info.branches, **info.tags}.items() if id_ in gone),
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
        except (StorageError, FormatError):
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


def config_step(storage: Storage, copies: Sequence[Storage]) -> Step | None:
    """Return the step that writes a damaged ``config.yaml`` of spec version 1 from a copy or a backup.

    Each save stores the content before it as a backup. So a content of a copy that is in no backup is newer.
    """

    def is_config(origin: Origin) -> bool:
        with suppress(IcechunkError):
            check_content(CONFIG, origin.read())
            return True
        return False

    try:
        read_config_v1(storage)
    except FormatError as error:
        names = sorted(info.key for info in storage.list(OVERWRITTEN))  # newer backups have smaller names
        backups = [Origin("a backup", storage, key) for key in names if key.startswith(backup_key(CONFIG))]
        others = [Origin(copy.label(), copy, CONFIG) for copy in copies]
        old, new = (list(filter(is_config, origins)) for origins in (backups, others))
        known = [bytes(origin.read()) for origin in old]
        for origin in [*(each for each in new if bytes(each.read()) not in known), *old]:
            return copy_step([(CONFIG, origin)], error.message, "consistent")
    return None


def restore_step(storage: Storage, copies: Sequence[Storage]) -> tuple[Step, RepoInfo] | None:
    """Return the step that restores ``repo``, and its state. None if the file is readable.

    The state is the latest one of the backups here and of the copies. A copy may have commits of its own, so
    this repository must have, or have had, the snapshots of its branches and tags.
    """
    try:
        read_repo_info(storage)
    except (FormatError, RepositoryNotFoundError) as error:
        if error.kind == ErrorKind.UNSUPPORTED_SPEC_VERSION:
            raise
        why = f"damaged, {error.message}" if isinstance(error, FormatError) else "missing"
    else:
        return None
    own = latest_backup(storage)
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
        raise RepositoryNotFoundError(
            f"`repo` in {storage.label()} cannot be repaired, because no backup here or "
            "in the copies can be read. Pass a copy of the repository in `copies`"
        )
    state, source, raw = max(states, key=lambda each: newest_update(each[0].info))

    def perform(repair: RepairContext) -> None:
        """Restore the file, unless it is readable."""
        with suppress(FormatError, RepositoryNotFoundError):
            read_repo_info(repair.storage)
            return
        present = read_present(repair.storage, REPO)
        if present is not None:
            repair.quarantine.store(repair.storage, REPO, present[0])
        if raw is not None:
            repair.storage.put(backup_key(state.name), raw)
        restore_repository(repair.storage, state.name)

    time = to_datetime(newest_update(state.info)).isoformat()
    why = f"{why}; the state is of the update at {time}, later updates are lost"
    return Step(RepairStep("restore", (REPO,), source, why, "consistent"), perform), state.info


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
            got = f"{copy.label()} without snapshots"
        elif None not in (origin, other := birth(copy)) and origin != other:
            got = f"another repository in {copy.label()}. Its first snapshot has another time"
        else:
            continue
        raise InvalidInputError(
            f"copies must be copies of the repository, got {got}. Correct the location",
            ErrorKind.INVALID_ARGUMENT,
        )


# Commits after the restored state


def relist_steps(repair: RepairContext, backup: RepoInfo) -> tuple[list[Step], tuple[DetachedSnapshot, ...]]:
    """Make the steps that list younger snapshots again, on an overlay. Return them and other snapshots."""
    context = repair.context
    waiting = list(unlisted_snapshots(repair.storage, backup, list_objects(repair.storage, SNAPSHOTS)))
    steps: list[Step] = []
    while (found := _explained(context, waiting)) is not None:
        lost, step = found
        try:
            step.perform(repair)
        except IcechunkError as error:  # a file is missing, or a collection runs: the snapshot stays detached
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


def _explained(context: Context, waiting: Sequence[SnapshotInfo]) -> tuple[SnapshotInfo, Step] | None:
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


def _relist_step(lost: SnapshotInfo, branch: str, parent: str) -> Step:
    """Return the step that lists a snapshot again, and moves a branch from its parent to it."""

    def perform(repair: RepairContext) -> None:
        with suppress(AlreadyExistsError):
            relist_snapshot(repair.context, lost.id, branch, parent)

    why = (
        f"its log and its references fit the tip {parent} of branch `{branch}`, and no other version; "
        f"message {lost.message!r:.60}"
    )
    key = snapshot_key(id_from_text(lost.id))
    return Step(RepairStep("relist", (key,), "the snapshot itself", why, "consistent"), perform)


def _fitting(context: Context, candidates: Sequence[bytes], id_: bytes) -> list[bytes]:
    parents: list[bytes] = []
    for candidate in candidates:
        if candidate != id_:
            with skip_damage():  # a damaged candidate is no explanation
                parents += fitting_parents(context, [candidate], id_)
    return parents
