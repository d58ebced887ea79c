"""`Repository.upkeep`: what keeps a repository correct, small and fast."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from frazil.arguments import checks_arguments
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.ids import id_to_text
from frazil.maintenance.compaction.compaction_info import CompactionLimits, CompactionReport
from frazil.maintenance.compaction.operation import CompactionOptions, compaction_commits
from frazil.maintenance.compaction.operation import compact as compact_files
from frazil.maintenance.doctor import examine
from frazil.maintenance.doctor_report import DoctorFinding, DoctorReport
from frazil.maintenance.progress import Progress, one_step, progress_of
from frazil.maintenance.repair.plan import RepairRequest, repair_plan
from frazil.maintenance.repair.repair_plan import ChunkSource, LostChoice, RepairPlan, lost_choice
from frazil.maintenance.restoration import RestoreReport, restore_repository
from frazil.maintenance.retention.decision import Retaining, decide
from frazil.maintenance.retention.policy import Retention, branch_policies
from frazil.maintenance.retention.report import RetentionReport
from frazil.maintenance.squash import NewCommit, Range
from frazil.maintenance.squash import squash as squash_versions
from frazil.maintenance.verification.checks import Check, checks
from frazil.maintenance.verification.findings import VerificationReport, VerifyLevel, verify_level
from frazil.maintenance.verification.pieces import run_locally
from frazil.maintenance.verification.plan import Request as VerifyRequest
from frazil.maintenance.verification.plan import verify as verify_files
from frazil.maintenance.verification.verification_state import VerificationState, state_at
from frazil.remedies import call
from frazil.repository.catalog.backups import Backup, backups
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.leases import LEASES, lease_info, leases
from frazil.repository.catalog.repo_requirements import require_online
from frazil.repository.catalog.version_info import CommitMethod, LeaseInfo
from frazil.repository.catalog.version_names import snapshot_id
from frazil.repository.clock import from_datetime, now_us
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.handle.opening import HandleOptions, open_context, require_writable
from frazil.repository.session.snapshot_recovery import relist_snapshot
from frazil.repository.session.staged_work import give_up, place_of_lease
from frazil.storage.base import Storage

__all__ = ["DoctorFinding", "DoctorReport", "Upkeep"]


@checks_arguments
class Upkeep(RepositoryBase):
    """The upkeep of a repository: verification, repair, compaction, retention, leases and backups.

    ``Repository.upkeep`` returns it. ``repair``, ``restore``, ``backups`` and ``checks`` need no handle, so
    that they work on a repository that does not open: ``Repository.upkeep.repair(storage)``.
    """

    def verify(
        self,
        level: VerifyLevel = "metadata",
        *,
        state: VerificationState | str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> VerificationReport:
        """Look for damaged, missing and exchanged files in all versions of the repository.

        Damage is reported as findings, not raised as errors. The method writes nothing into the repository.
        Others may commit, expire snapshots and collect garbage at the same time. `frazil.pipeline.verify`
        does the same with parallel tasks.

        Args:
            level: ``"metadata"`` checks the file ``repo``, snapshots, transaction logs, manifests and the ops
                log. ``"exists"`` also checks that all chunk files and virtual objects exist. ``"checksum"``
                also reads every byte of all chunks, virtual ones included, and all backups of the ops log.
                ``"decode"`` also decodes every chunk with the codecs of its array.
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
        request = VerifyRequest(
            verify_level(level),
            run_locally(self._context),
            state_at(state),
            progress_of(progress),
        )
        return verify_files(self._context, request)

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

    def compact(
        self,
        message: str,
        *,
        branch: str | Sequence[str],
        dry_run: bool = False,
        limits: CompactionLimits | None = None,
        metadata: dict[str, Any] | None = None,
        commit_method: CommitMethod = "new_commit",
    ) -> CompactionReport:
        """Merge small chunk files into packs, and copy live chunks out of packs that are mostly unused.

        A chunk is live if the newest version of one of the branches refers to it. The commit changes no
        chunk: readers see the same data, comparisons of versions show no change, and sessions that commit at
        the same time have no conflict with it. If others commit to the branch during the call, their changes
        stay.

        The old files stay, because older versions, other branches and tags may need them.
        ``expire_snapshots`` and ``garbage_collect`` delete them later. ``frazil.pipeline.compact`` does the
        same by tasks.

        Args:
            message: The message of the commit.
            branch: The name of the branch, or several names. Each branch gets a commit.
            dry_run: Whether to write nothing, and to return the plan.
            limits: Which files and manifests are written again. Default: ``CompactionLimits()``.
            metadata: The metadata of the commit: a dictionary that JSON can hold. Default: empty.
            commit_method: ``"new_commit"`` for a new commit, ``"amend"`` to replace the last one.

        Returns:
            The plan or the result. Without files and manifests to write again, there is no commit.

        Raises:
            ConflictError: ``commit-conflict`` if others commit too often, or at all with ``"amend"``.
            RefNotFoundError: ``ref-not-found`` if there is no such branch.
            SessionStateError: ``garbage-collected`` if a collection of another implementation deleted new
                files. No version was changed.
            FormatError: ``unsupported-spec-version`` for ``"amend"`` in a repository of spec version 1.
            ValueError: If ``commit_method`` is another text.

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="first") as store:
            ...     array = zarr.create_array(
            ...         store, name="t", shape=(8, 999), chunks=(1, 999), dtype="i4", compressors=None
            ...     )
            >>> for step in range(8):
            ...     with repo.transaction("main", message="a step") as store:
            ...         zarr.open_array(store, path="t")[step] = step + 1
            >>> report = repo.upkeep.compact("merge small files", branch="main")
            >>> len(report.files), report.new_files
            (8, 1)
        """
        options = CompactionOptions(
            compaction_commits(
                message, branch, {**self._default_metadata, **(metadata or {})}, commit_method
            ),
            CompactionLimits() if limits is None else limits,
            run_locally(self._context),
        )
        return compact_files(self._context, options, dry_run=dry_run)

    @staticmethod
    def repair(
        storage: Storage,
        *,
        copies: Sequence[Storage] = (),
        level: VerifyLevel = "exists",
        lost: LostChoice = "keep",
        sources: Sequence[ChunkSource] = (),
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
            sources: Sources that can make chunks without a copy again, such as ``pipeline.IngestedFiles``.
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
        before = orphans_older_than
        request = RepairRequest(
            storage,
            _open_repaired,
            tuple(copies),
            verify_level(level),
            lost_choice(lost),
            None if before is None else from_datetime(before, "orphans_older_than"),
            tuple(sources),
        )
        if not dry_run:
            require_writable(storage)
        plan = repair_plan(request)
        return plan if dry_run else plan.apply()

    @staticmethod
    def backups(storage: Storage) -> list[Backup]:
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
            >>> len(frazil.Repository.upkeep.backups(storage))
            1
        """
        return backups(storage)

    @staticmethod
    def restore(
        storage: Storage, backup: str | None = None, *, dry_run: bool = False, overwrite: bool = False
    ) -> RestoreReport:
        """Restore a lost or damaged file ``repo`` from a backup.

        Afterwards the repository has the state of the backup. Later updates are lost; the report lists their
        snapshots in ``unlisted``, and ``upkeep.recover`` can bring them back. A damaged file ``repo`` is
        saved among the backups.

        Restore only while no other process writes to the repository. The ops log shows the restoration as a
        reset of ``main`` to its snapshot in the backup. If garbage collection has deleted backups with older
        parts of the ops log, the log ends with the entries that the backup itself contains.

        Args:
            storage: The storage of the repository.
            backup: The name of a backup from ``upkeep.backups``. Default: the latest readable backup.
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
            >>> frazil.Repository.upkeep.restore(storage).branches
            {'main': '1CECHNKREP0F1RSTCMT0'}
        """
        return restore_repository(storage, backup, dry_run=dry_run, overwrite=overwrite)

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
            >>> lost = frazil.Repository.upkeep.restore(storage).unlisted[0]
            >>> restored = frazil.Repository.open(storage)
            >>> restored.upkeep.recover(lost.id, "main") == lost.id
            True
        """
        self._context.require_version_2()
        return id_to_text(relist_snapshot(self._context, snapshot_id, branch, parent))

    def retain(
        self,
        policy: Retention | Mapping[str, Retention],
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> RetentionReport:
        """Remove the versions that no rule of a policy selects, also from the middle of a history.

        The first version, the tips of branches, and the versions of tags stay. All versions of branches
        without a policy stay. The change is one atomic update. The files of removed versions stay until
        ``garbage_collect`` deletes them. Comparisons and rebases over a gap still see all changes.

        Args:
            policy: One policy for all branches, or policies by patterns of branches, such as
                ``{"main": ..., "dev-*": ...}``. The first pattern that matches a branch decides.
            dry_run: Whether to change nothing, and to return what would be removed.
            progress: An object with the methods ``expect`` and ``advance``, such as
                `frazil.pipeline.Progress`. The update of the repository is one step. Default: none.

        Returns:
            The versions that are removed and that stay, each with the reasons.

        Raises:
            TypeError: If ``policy`` is not a policy or a dict of policies.
            InvalidInputError: ``invalid-argument`` for an empty dict.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only.
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> for name in "abc":
            ...     _ = repo.writable_session("main").commit(name, allow_empty=True)
            >>> report = repo.upkeep.retain(frazil.Retention(last=2))
            >>> [(version.message, version.reasons) for version in report.removed]
            [('a', ('no rule of `*` selects it',))]
            >>> [commit.message for commit in repo.ancestry(branch="main")]
            ['c', 'b', 'Repository initialized']
        """
        policies, steps = branch_policies(policy), progress_of(progress)
        if dry_run:
            info = self._info_v2()
            require_online(info)
            return decide(info, policies, now_us(), dry_run=True).report
        self._require_upkeep()
        change = Retaining(policies)
        with one_step(steps):
            after = self._context.catalog.update_repo_info(change)
        return change.report(after)

    def squash(
        self,
        branch: str,
        since: str,
        until: str | None = None,
        *,
        message: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Remove the versions between two versions of a branch, so that the later one has all their changes.

        Both versions stay, with the same contents. Versions in between that another branch or a tag needs
        also stay, outside of the history of this branch. The change is one atomic update. Comparisons and
        rebases over the range still see all changes.

        With ``message``, a new version with the contents of the tip replaces the tip. It has another id.

        Args:
            branch: The name of the branch.
            since: The id of the earlier version, which stays, or its first characters.
            until: The id of the later version, which stays. Default: the tip of the branch.
            message: The message of a new version, which replaces the tip.
            metadata: Items to add to the metadata of the new version. They need a ``message``.

        Returns:
            The id of the later version, or of the new version.

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such branch.
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no such version.
            InvalidInputError: ``not-allowed`` if the versions are not in the history of the branch, or in the
                wrong order, or if there is a ``message`` and ``until`` is not the tip.
            ValueError: For ``metadata`` without ``message``.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only.
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> for name in "abc":
            ...     _ = repo.writable_session("main").commit(name, allow_empty=True)
            >>> first = list(repo.ancestry(branch="main"))[-1].id
            >>> tip = repo.upkeep.squash("main", first, message="a to c")
            >>> [commit.message for commit in repo.ancestry(branch="main")]
            ['a to c', 'Repository initialized']
        """
        self._require_upkeep()
        if metadata is not None and message is None:
            raise ValueError("metadata needs a message, got none. Pass message=... too")
        ids = [None if text is None else snapshot_id(text, self._info) for text in (since, until)]
        commit = None if message is None else NewCommit(message, metadata or {})
        return id_to_text(squash_versions(self._context, Range(branch, ids[0] or b"", ids[1]), commit))

    def _require_upkeep(self) -> None:
        """Raise an error unless the history of the repository can be changed."""
        self._context.require_version_2()
        require_writable(self.storage)

    def leases(self) -> list[LeaseInfo]:
        """Return the leases that sessions with forks and resumable jobs hold.

        A garbage collection spares all files that are not older than the oldest lease. A lease that has ended
        is listed until the next collection deletes it.

        Returns:
            The leases, oldest first.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> fork = repo.writable_session("main").fork()
            >>> [lease.purpose for lease in repo.upkeep.leases()]
            ['fork']
        """
        return list(map(lease_info, leases(self._context.storage)))

    def break_lease(self, lease_id: str | None = None, *, name: str | None = None) -> None:
        """Delete a lease whose holder will not return, for example of an abandoned fork or a killed process.

        Exactly one of ``lease_id`` and ``name`` names the lease. All leases with this name are deleted.

        The holder is not asked. If it still works and a garbage collection deletes its files, its commit is
        refused (``garbage-collected``). No version ever refers to files that are gone. For the lease of a
        job, the method also deletes what the job has staged, as ``frazil.spark.discard_job`` does. The job
        cannot be resumed afterwards.

        Args:
            lease_id: The ``id`` of a lease from ``upkeep.leases``.
            name: The name of a session or the id of a job: ``name`` of a lease from ``upkeep.leases``.

        Raises:
            InvalidInputError: ``not-allowed`` if there is no lease with this id or name.
            ValueError: If none or both of the arguments are given.
            ReadOnlyError: ``read-only-storage`` if the storage is read-only.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> fork = repo.writable_session("main").fork()
            >>> repo.upkeep.break_lease(repo.upkeep.leases()[0].id)
            >>> repo.upkeep.leases()
            []
        """
        storage = self._context.storage
        require_writable(storage)
        if (lease_id is None) == (name is None):
            raise ValueError(f"expected exactly one of lease_id and name, got {lease_id!r} and {name!r}")
        held = leases(storage)
        if name is None:
            held = [lease for lease in held if lease.key == f"{LEASES}/{lease_id}"]
        else:
            held = [lease for lease in held if name and lease.name == name]
        if not held:
            argument, value = ("lease_id", lease_id) if name is None else ("name", name)
            raise InvalidInputError(
                f"{argument} must be the {argument.removeprefix('lease_')} of a lease of this repository, "
                f"got {value!r}. The holder may have returned the lease",
                ErrorKind.NOT_ALLOWED,
            ).with_remedy("`{}` lists the leases", call("leases"))
        for lease in held:
            place = place_of_lease(lease.key)
            if place is None:
                storage.delete([lease.key])
            else:
                give_up(storage, place)

    def doctor(self) -> DoctorReport:
        """Look for what makes the repository slow, expensive or unsafe, and for the command that fixes it.

        The method looks at small chunk files, backups, manifests that are too large or too many, stale
        leases, staged files of jobs that cannot be resumed, virtual chunks without a container, and protected
        branches that another writer has moved. It lists the chunk files and reads the manifests of all
        branches. It changes nothing. ``verify`` answers another question: whether the files are correct.

        Returns:
            The findings. ``print`` shows each with its command.

        Raises:
            FormatError: If a file is damaged. ``verify`` names all damaged files.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> print(repo.upkeep.doctor(), end="")
            no findings in 8 checks
        """
        return examine(self._context)


def _open_repaired(storage: Storage) -> Context:
    """Return the context of the repository, for the steps of a repair."""
    return open_context(storage, HandleOptions())
