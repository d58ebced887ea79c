"""The methods of ``Repository`` that repair damaged files, and list lost snapshots again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from frazil.format.ids import id_to_text
from frazil.repository import handle
from frazil.repository.asynchronous import awaitable, awaitable_static
from frazil.repository.catalog.backups import Backup, backups
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.findings import VerifyLevel, verify_level
from frazil.repository.catalog.repairs import LostChoice, RepairPlan, lost_choice
from frazil.repository.catalog.restoration import RestoreReport, restore_repository
from frazil.repository.clock import from_datetime
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.handle.opening import HandleOptions, open_context, require_writable
from frazil.repository.session.snapshot_recovery import relist_snapshot
from frazil.storage.base import Storage


def _open_repaired(storage: Storage) -> Context:
    """Return the context of the repository, for the steps of a repair."""
    return open_context(storage, HandleOptions())


class Recovery(RepositoryBase):
    """Methods of ``Repository`` that restore a lost or damaged repository."""

    @staticmethod
    def list_backups(storage: Storage) -> list[Backup]:
        """Return the backups of the file ``repo``, newest first.

        Every update of the repository leaves one backup.

        Args:
            storage: The storage of the repository.

        Returns:
            The backups.

        Examples:
            >>> import frazil
            >>> storage = frazil.in_memory_storage()
            >>> repo = frazil.Repository.create(storage)
            >>> repo.create_branch("dev", repo.lookup_branch("main"))
            >>> len(frazil.Repository.list_backups(storage))
            1
        """
        return backups(storage)

    @staticmethod
    def repair(
        storage: Storage,
        *,
        copies: Sequence[Storage] = (),
        level: VerifyLevel = "exists",
        lost: LostChoice = "keep",
        orphans_older_than: datetime | None = None,
        dry_run: bool = True,
    ) -> RepairPlan:
        """Repair lost, damaged and exchanged files, as far as this needs no guess.

        The method makes a plan first. With ``dry_run=False`` it also applies the plan. A file that is
        replaced is put aside below ``quarantine/``, and no file is deleted. Others may read and commit at
        the same time. If ``repo`` itself is damaged, no other process can commit.

        The steps use backups, copies of the repository, other files with the same content, and the content
        of related files. ``docs/repair.md`` describes each step.

        Args:
            storage: The storage of the repository.
            copies: Storages with copies of the repository, the best first. An older or partial copy helps
                too.
            level: How the method looks for damage: ``"metadata"``, ``"exists"``, ``"checksum"`` or
                ``"decode"``. See ``verify``.
            lost: What happens to chunks without a copy. ``"keep"`` changes nothing. ``"fill"`` makes a commit
                on each branch in which these chunks are missing, so that readers get the fill value.
                ``"previous"`` makes a commit in which they have the data of the newest version that has
                other data.
            orphans_older_than: Move files that no version needs, and that were modified before this time, to
                the quarantine. Uncommitted work of running sessions looks the same: choose a time before
                their start. Default: such files stay.
            dry_run: Whether to change nothing, and only to return the plan.

        Returns:
            The plan: its steps, the chunks that are lost, and the damage that remains.

        Raises:
            RepositoryNotFoundError: ``repository-not-found`` if ``repo`` is damaged, and neither the storage
                nor a copy has a readable backup.
            FormatError: ``unsupported-spec-version`` if the repository has an older or a later format.
            InvalidInputError: ``invalid-argument`` if a copy belongs to another repository.
                ``unknown-choice`` for another ``level`` or ``lost``.
            TypeError: If a copy is not a storage, or the time has no time zone.
            ReadOnlyError: ``read-only-storage`` if the storage is read-only, with ``dry_run=False``.
            ConflictError: ``repo-info-updated`` if another process changed a file that a step replaces.
            StorageError: If the storage fails. Run the repair again.

        Examples:
            >>> import frazil
            >>> storage = frazil.in_memory_storage()
            >>> repo = frazil.Repository.create(storage)
            >>> id_ = repo.lookup_branch("main")
            >>> storage.delete([f"transactions/{id_}"])
            >>> plan = frazil.Repository.repair(storage)
            >>> plan.rows()[0]["action"], plan.rows()[0]["key"]
            ('rebuild', 'transactions/1CECHNKREP0F1RSTCMT0')
            >>> applied = plan.apply()
            >>> repo.verify().ok
            True
        """
        if strange := [each for each in copies if not isinstance(each, Storage)]:
            raise TypeError(
                f"copies must be storages, got {type(strange[0]).__name__}. Pass a list of storages"
            )
        before = orphans_older_than
        if not dry_run:
            require_writable(storage)
        plan = handle.operations.repair_plan(
            storage,
            _open_repaired,
            copies=tuple(copies),
            level=verify_level(level),
            lost=lost_choice(lost),
            orphans_before=None if before is None else from_datetime(before, "orphans_older_than"),
        )
        return plan if dry_run else plan.apply()

    @staticmethod
    def restore(
        storage: Storage, backup: str | None = None, *, dry_run: bool = False, overwrite: bool = False
    ) -> RestoreReport:
        """Restore a lost or damaged file ``repo`` from a backup.

        Afterwards the repository has the state of the backup. Later updates are lost; the report lists their
        snapshots in ``unlisted``, and ``recover_snapshot`` can bring them back. A damaged file ``repo`` is
        saved among the backups.

        Restore only while no other process writes to the repository. The ops log shows the restoration as a
        reset of ``main`` to its snapshot in the backup. If garbage collection has deleted backups with older
        parts of the ops log, the log ends with the entries that the backup itself contains.

        Args:
            storage: The storage of the repository.
            backup: The name of a backup from ``list_backups``. Default: the latest readable backup.
            dry_run: Whether to change nothing, and only to report.
            overwrite: Whether to replace a readable file ``repo``. This resets the whole repository to the
                backup, including the work of others.

        Returns:
            The report: branches, tags, and snapshots that are missing or not listed.

        Raises:
            AlreadyExistsError: ``not-allowed`` if ``repo`` is readable, without ``overwrite`` and
                ``dry_run``.
            RepositoryNotFoundError: ``repository-not-found`` if there is no readable backup.
            FormatError: If ``backup`` is damaged. ``unsupported-spec-version`` if ``repo`` has a later
                format.
            StorageError: If ``backup`` cannot be read.
            ConflictError: ``repo-info-updated`` if another writer changed ``repo`` at the same time.

        Examples:
            >>> import frazil
            >>> storage = frazil.in_memory_storage()
            >>> repo = frazil.Repository.create(storage)
            >>> repo.create_branch("dev", repo.lookup_branch("main"))
            >>> storage.delete(["repo"])
            >>> frazil.Repository.restore(storage).branches
            {'main': '1CECHNKREP0F1RSTCMT0'}
        """
        return restore_repository(storage, backup, dry_run=dry_run, overwrite=overwrite)

    def recover_snapshot(self, snapshot_id: str, branch: str, *, parent: str | None = None) -> str:
        """List a snapshot again whose files exist, but which the restored repository does not know.

        ``restore`` reports such snapshots in ``unlisted``. The method does not check the chunks of the
        snapshot: see ``verify``.

        Args:
            snapshot_id: The whole id of the snapshot.
            branch: The branch to put on the snapshot. An existing branch must be on the parent of the
                snapshot. A new name creates a branch.
            parent: The id of the parent snapshot. Default: the only tip of a branch or tag that the
                transaction log of the snapshot fits. If it fits several, the tip of ``branch``.

        Returns:
            The id of the snapshot.

        Raises:
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no file of this snapshot.
            StorageError: ``object-not-found`` if one of its manifests is gone.
            AlreadyExistsError: ``not-allowed`` if the snapshot is already listed.
            InvalidInputError: ``invalid-snapshot-id`` if the transaction log does not fit the parent, or does
                not fit exactly one tip.
            ConflictError: If the branch is on another snapshot. ``garbage-collection-running`` during a
                garbage collection.
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Examples:
            >>> import frazil, zarr
            >>> storage = frazil.in_memory_storage()
            >>> repo = frazil.Repository.create(storage)
            >>> with repo.transaction("main", message="a group") as store:
            ...     group = zarr.create_group(store, path="g")
            >>> storage.delete(["repo"])
            >>> lost = frazil.Repository.restore(storage).unlisted[0]
            >>> restored = frazil.Repository.open(storage)
            >>> restored.recover_snapshot(lost.id, "main") == lost.id
            True
        """
        self._context.require_version_2()
        return id_to_text(relist_snapshot(self._context, snapshot_id, branch, parent))

    repair_async = awaitable_static(repair)
    list_backups_async = awaitable_static(list_backups)
    restore_async = awaitable_static(restore)
    recover_snapshot_async = awaitable(recover_snapshot)
