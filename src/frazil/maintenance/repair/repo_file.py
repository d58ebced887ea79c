"""The repair of the file ``repo``: from the latest state in a backup or in a copy of the repository."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from frazil.errors import (
    ErrorKind,
    FormatError,
    InvalidInputError,
    RepositoryNotFoundError,
)
from frazil.format.ids import INITIAL_SNAPSHOT_ID, OBJECT_ID_BYTES
from frazil.format.keys import REPO, SNAPSHOTS, backup_key, backup_name, snapshot_key, transaction_key
from frazil.format.repo_info import RepoInfo
from frazil.host import random_bytes
from frazil.maintenance.repair.quarantine import read_present
from frazil.maintenance.repair.repair_plan import RepairStep
from frazil.maintenance.repair.steps import Site
from frazil.maintenance.restoration import restore_repository
from frazil.repository.catalog.backups import BackupState, latest_backup
from frazil.repository.catalog.collection_guard import newest_update
from frazil.repository.catalog.files import SNAPSHOT_ENTRY
from frazil.repository.catalog.repo_info_file import read_repo_info
from frazil.repository.clock import now_us, to_datetime
from frazil.storage.base import Storage
from frazil.storage.outages import skip_damage


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

    def perform(self, site: Site) -> None:
        """Restore the file, unless it is readable."""
        storage = site.storage
        with suppress(FormatError, RepositoryNotFoundError):
            read_repo_info(storage)
            return
        present = read_present(storage, REPO)
        if present is not None:
            site.quarantine.store(storage, REPO, present[0])
        if self.raw is not None:
            storage.put(backup_key(self.state.name), self.raw)
        restore_repository(storage, self.state.name, dry_run=False, overwrite=False)


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
        return _first_time(read_repo_info(storage)[0])
    return None


def _first_time(info: RepoInfo) -> int | None:
    row = info.snapshots.find_snapshot(INITIAL_SNAPSHOT_ID)
    return None if row < 0 else info.snapshots.entry(row).flushed_at
