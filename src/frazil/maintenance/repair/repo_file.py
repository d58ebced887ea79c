"""The repair of the file ``repo``, and of the commits that are younger than the restored state.

The latest state is in a backup, or in a copy of the repository. A snapshot goes back to a branch only if one
explanation is left: its transaction log and its references fit the tip of this branch, and no other version
near a tip, and no other snapshot fits the same tip. Otherwise it stays detached. The files of a flushed
session, or of a commit that was refused, look the same as those of a commit. So the step is ``consistent``,
and not ``proved``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from frazil.errors import (
    AlreadyExistsError,
    ErrorKind,
    FormatError,
    IcechunkError,
    InvalidInputError,
    RepositoryNotFoundError,
)
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
    id_list,
    id_to_text,
    snapshot_key,
    transaction_key,
)
from frazil.format.repo_info import RepoInfo
from frazil.host import random_bytes
from frazil.maintenance.repair.copies import CopyFiles, Origin, RepairContext, check_content
from frazil.maintenance.repair.repair_plan import DetachedSnapshot, RepairStep
from frazil.maintenance.repair.storages import read_present
from frazil.maintenance.restoration import restore_repository, unlisted_snapshots
from frazil.repository.catalog.assets import SNAPSHOT_ENTRY
from frazil.repository.catalog.catalog_v1 import read_config_v1
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_update import BackupState, latest_backup, newest_update, read_repo_info
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.clock import now_us, to_datetime
from frazil.repository.session.differences import fitting_parents, relist_snapshot
from frazil.storage.base import Storage
from frazil.storage.checks import is_outage, skip_damage

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
