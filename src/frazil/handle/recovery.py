"""`Recovery`: the part of `Repository.upkeep` that looks for damage and repairs it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from frazil import maintenance
from frazil.engines import Engine, EngineName
from frazil.format.ids import id_to_text
from frazil.handle.opening import Authorized, HandleOptions, open_context, require_writable
from frazil.handle.sessions import SubHandle
from frazil.maintenance.plan import UpkeepPlan
from frazil.maintenance.repair.repair_plan import LostChoice, RepairPlan, RestoreReport, lost_choice
from frazil.maintenance.verification.findings import (
    Check,
    VerificationReport,
    VerifyLevel,
    checks,
    verify_level,
)
from frazil.repository.catalog.repo_update import Backup, backups
from frazil.repository.session.differences import relist_snapshot
from frazil.storage.base import Storage
from frazil.survey.survey import Progress, progress_of

if TYPE_CHECKING:
    from frazil.maintenance import VerificationState


class Recovery(SubHandle):
    """The methods of `Upkeep` that look for damage and repair it."""

    def verify(
        self,
        level: VerifyLevel = "metadata",
        *,
        engine: Engine | EngineName | None = None,
        state: VerificationState | str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> VerificationReport:
        """Look for damaged, missing and exchanged files in all versions of the repository.

        Damage is reported as findings, not raised as errors. The method writes nothing into the repository.
        Others may commit, expire snapshots and collect garbage at the same time.

        Args:
            level: ``"metadata"`` checks the file ``repo``, snapshots, transaction logs, manifests and the ops
                log, and compares up to 1,000 virtual objects that have an etag or a time. ``"exists"`` also
                checks that all chunk files and virtual objects exist. ``"checksum"``
                also reads every byte of all chunks, virtual ones included, and all backups of the ops log.
                ``"decode"`` also decodes every chunk with the codecs of its array.
            engine: Where the work runs: an `Engine`, or ``"inline"``, ``"threads"``, ``"processes"``,
                ``"spark"`` or ``"sail"``. Default: on threads of this process.
            state: A file, or a value, for the pieces of work that are done. A second call with the same state
                skips them, if their files have not changed. Default: no state.
            progress: A progress bar, such as `frazil.pipeline.Progress`. Default: none.

        Returns:
            The report with its findings.

        Raises:
            InvalidInputError: ``unknown-choice`` if ``level`` is another text. ``invalid-argument`` if
                ``state`` is a file that is not the state of a verification.
            StorageError: If the storage fails.
            ConflictError: ``repo-info-updated`` if other writers change the ops log all the time.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.upkeep.verify("checksum").ok
            True
        """
        return maintenance.verify(
            self._repo._context,
            verify_level(level),
            engine=engine,
            state=state,
            progress=progress_of(progress),
        )

    @staticmethod
    def checks() -> tuple[Check, ...]:
        """Return all checks that ``verify`` makes.

        Returns:
            The checks: name, section of the specification, level, severity, rule, and what to do.

        Examples:
            >>> import frazil
            >>> [check.rule for check in frazil.Repository.upkeep.checks() if check.name == "main-branch"]
            ['There is a branch `main`.']
        """
        return checks

    @staticmethod
    def repair(
        storage: Storage,
        *,
        copies: Sequence[Storage] = (),
        level: VerifyLevel = "exists",
        lost: LostChoice = "keep",
        authorize_virtual_chunk_access: Authorized | None = None,
    ) -> RepairPlan:
        """Plan the repair of lost, damaged and exchanged files, as far as this needs no guess.

        `RepairPlan.apply` makes the steps. A file that is replaced is put aside below ``quarantine/``, and no
        file is deleted. Others may read and commit at the same time. If ``repo`` itself is damaged, no other
        process can commit.

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
            authorize_virtual_chunk_access: The virtual chunk containers whose objects are compared with their
                references. See ``Repository.create``.

        Returns:
            The plan: its steps, the chunks that are lost, and the damage that remains.

        Raises:
            RepositoryNotFoundError: ``repository-not-found`` if ``repo`` is damaged, and neither the storage
                nor a copy has a readable backup.
            FormatError: ``unsupported-spec-version`` if the repository has an older or a later format.
            InvalidInputError: ``invalid-argument`` if a copy belongs to another repository.
                ``unknown-choice`` for another ``level`` or ``lost``.
            TypeError: If a copy is not a storage.
            StorageError: If the storage fails.

        Examples:
            >>> import frazil
            >>> storage = frazil.in_memory_storage()
            >>> repo = frazil.Repository.create(storage)
            >>> id_ = repo.lookup_branch("main")
            >>> storage.delete([f"transactions/{id_}"])
            >>> plan = frazil.Repository.upkeep.repair(storage)
            >>> plan.rows()[0]["action"], plan.rows()[0]["key"]
            ('rebuild', 'transactions/1CECHNKREP0F1RSTCMT0')
            >>> applied = plan.apply()
            >>> repo.upkeep.verify().ok
            True
        """
        if strange := [each for each in copies if not isinstance(each, Storage)]:
            raise TypeError(
                f"copies must be storages, got {type(strange[0]).__name__}. Pass a list of storages"
            )
        plan = maintenance.repair_plan(
            storage.origin(),
            lambda each: open_context(each, HandleOptions(authorized=authorize_virtual_chunk_access)),
            copies=tuple(each.origin() for each in copies),
            level=verify_level(level),
            lost=lost_choice(lost),
        )

        def perform(metadata: Mapping[str, Any]) -> str:
            require_writable(storage)
            return "" if plan.perform is None else plan.perform(metadata)

        return replace(plan, perform=perform)

    @staticmethod
    def backups(storage: Storage) -> list[Backup]:
        """Return the backups of the file ``repo``, newest first.

        Every update of the repository leaves one backup. Updates delete old ones: they keep the newest, and
        some older ones.

        Args:
            storage: The storage of the repository.

        Returns:
            The backups.

        Examples:
            >>> import frazil
            >>> storage = frazil.in_memory_storage()
            >>> repo = frazil.Repository.create(storage)
            >>> repo.create_branch("dev", repo.lookup_branch("main"))
            >>> len(frazil.Repository.upkeep.backups(storage))
            1
        """
        return backups(storage)

    @staticmethod
    def restore(
        storage: Storage, backup: str | None = None, *, overwrite: bool = False
    ) -> UpkeepPlan[RestoreReport, RestoreReport]:
        """Plan the restoration of a lost or damaged file ``repo`` from a backup.

        `UpkeepPlan.apply` restores it. Afterwards the repository has the state of the backup. Later updates
        are lost; the report lists their snapshots in ``unlisted``, and ``upkeep.recover`` can bring them
        back. A damaged file ``repo`` is saved among the backups.

        Restore only while no other process writes to the repository. The ops log shows the restoration as a
        reset of ``main`` to its snapshot in the backup. If garbage collection has deleted backups with older
        parts of the ops log, the log ends with the entries that the backup itself contains.

        Args:
            storage: The storage of the repository.
            backup: The name of a backup from ``upkeep.backups``. Default: the latest readable backup.
            overwrite: Whether to replace a readable file ``repo``. This resets the whole repository to the
                backup, including the work of others.

        Returns:
            The plan. Its ``report`` has the branches, the tags, and the snapshots that are missing or not
            listed. `UpkeepPlan.apply` returns the same.

        Raises:
            AlreadyExistsError: ``not-allowed`` if ``repo`` is readable, without ``overwrite``.
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
            >>> frazil.Repository.upkeep.restore(storage).apply().branches
            {'main': '1CECHNKREP0F1RSTCMT0'}
        """
        return UpkeepPlan(
            "restore",
            lambda: maintenance.restore_report(storage, backup),
            lambda: maintenance.restore_repository(storage, backup, overwrite=overwrite),
        )

    def recover(self, snapshot_id: str, branch: str, *, parent: str | None = None) -> str:
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
            >>> lost = frazil.Repository.upkeep.restore(storage).apply().unlisted[0]
            >>> restored = frazil.Repository.open(storage)
            >>> restored.upkeep.recover(lost.id, "main") == lost.id
            True
        """
        self._repo._context.require_version_2()
        return id_to_text(relist_snapshot(self._repo._context, snapshot_id, branch, parent))
