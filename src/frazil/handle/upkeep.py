"""`Repository.upkeep`: what keeps a repository correct, small and fast. What deletes or changes is a plan.

The package imports this module on demand. Most processes open a repository and do no upkeep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from frazil import maintenance
from frazil.arguments import checks_arguments
from frazil.engines import Engine, EngineName
from frazil.errors import ErrorKind, InvalidInputError, RebaseFailedError
from frazil.format.flexbuffer import MetadataColumn
from frazil.format.ids import id_to_text, ids_to_text
from frazil.format.repo_info import RepoInfo
from frazil.handle.opening import require_writable
from frazil.handle.recovery import Recovery
from frazil.handle.sessions import IntegrationPlan, commit_named
from frazil.maintenance.backups import OpsLogRetention
from frazil.maintenance.collection import Collection, DeleteLimits
from frazil.maintenance.plan import (
    ChunkStorageStats,
    CompactionLimits,
    CompactionReport,
    GCSummary,
    UpkeepPlan,
)
from frazil.remedies import argument, call
from frazil.repository.catalog.ancestry import version_id
from frazil.repository.catalog.collection_guard import LEASES, flushed_snapshots, give_up, leases
from frazil.repository.catalog.repo_changes import branch_tip, require_online, resolve_id
from frazil.repository.catalog.version_info import JOB_LEASE, CommitMethod, LeaseInfo
from frazil.repository.clock import from_datetime, now_us
from frazil.repository.paths import absolute
from frazil.survey.survey import Bounds, Progress, progress_of

if TYPE_CHECKING:
    from frazil.maintenance import (
        Decision,
        DoctorReport,
        Hold,
        Retention,
        RetentionReport,
        StatisticsReport,
        Withdrawal,
        WithdrawalCertificate,
    )


@checks_arguments
class Upkeep(Recovery):
    """The upkeep of a repository: checks, repair, collection, compaction, retention, leases and backups.

    ``Repository.upkeep`` returns it. ``repair``, ``restore``, ``backups`` and ``checks`` need no handle, so
    that they work on a repository that does not open: ``Repository.upkeep.repair(storage)``.

    Examples:
        >>> import frazil
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> repo.upkeep.verify().ok
        True
    """

    def collect(
        self,
        older_than: datetime,
        *,
        engine: Engine | EngineName | None = None,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 << 20,
        max_decoded_manifest_mem_bytes: int = 4 << 30,
        max_concurrent_manifest_fetches: int = 500,
        max_concurrent_deletes: int = 10,
        max_consecutive_delete_failures: int = 50,
        max_concurrent_listings: int | None = None,
        progress: Progress | None = None,
        keep_ops: OpsLogRetention | None = None,
    ) -> UpkeepPlan[GCSummary, GCSummary]:
        """Plan the deletion of files that no branch, tag or young snapshot needs.

        The collection considers only files that were modified before ``older_than``, by the clock
        of the storage. It also deletes backups of the repository's state in ``overwritten/`` that were
        modified before this time, except the newest ones and those that the ops log needs.

        Sessions with forks and resumable jobs hold leases (``leases``), which protect their files. The
        summary counts the respected leases. A session without forks holds no lease. If a collection deletes
        its chunks, its commit is refused (``garbage-collected``). While a collection is about to delete them,
        the commit is refused too, and may be retried later (``garbage-collection-running``). No clock has to
        be right for this protection.

        If files cannot be deleted, the summary counts them, and the collection leaves the kinds of files that
        they refer to for the next time (``skipped_phases``).

        Args:
            older_than: A time with a time zone.
            engine: Where the work runs: an `Engine`, or ``"inline"``, ``"threads"``, ``"processes"``,
                ``"spark"`` or ``"sail"``. Default: on threads of this process.
            max_snapshots_in_memory: How many snapshots to hold in memory at once.
            max_compressed_manifest_mem_bytes: How many bytes of fetched manifests to hold in memory at once.
            max_decoded_manifest_mem_bytes: How many bytes of decoded manifests to hold in memory at once.
            max_concurrent_manifest_fetches: How many manifests to fetch at once.
            max_concurrent_deletes: How many requests to delete files to send at once.
            max_consecutive_delete_failures: After how many failures in a row the collection stops.
            max_concurrent_listings: How many folders to list at once. Default: 32.
            progress: An object with the methods ``expect`` and ``advance``, such as
                ``frazil.pipeline.Progress``. It counts the snapshots and manifests that are read, and the
                requests that delete files.
            keep_ops: The entries of the ops log that stay. Default: all. Removed entries cannot be restored.

        Returns:
            The plan. Its ``report`` lists the files that would be deleted, with reasons. `UpkeepPlan.apply`
            deletes them, and returns the counts. The errors below come from there.

        Raises:
            ConflictError: ``gc-deletes-failing`` after ``max_consecutive_delete_failures`` failures in a row.
            FormatError: If a file of a version in use is damaged. Nothing was deleted.
            StorageError: If a file of a version in use cannot be read. Nothing was deleted.
            InvalidInputError: ``invalid-argument`` if a limit is less than 1.
            TypeError: If ``older_than`` has no time zone.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only.

        Examples:
            >>> import frazil
            >>> from datetime import UTC, datetime
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.upkeep.collect(datetime.now(UTC)).apply().chunks_deleted
            0
        """
        listings = 32 if max_concurrent_listings is None else max_concurrent_listings
        _require_positive(
            max_concurrent_deletes=max_concurrent_deletes,
            max_consecutive_delete_failures=max_consecutive_delete_failures,
            max_concurrent_listings=listings,
        )
        bounds = _bounds(
            max_snapshots_in_memory=max_snapshots_in_memory,
            max_compressed_manifest_mem_bytes=max_compressed_manifest_mem_bytes,
            max_decoded_manifest_mem_bytes=max_decoded_manifest_mem_bytes,
            max_concurrent_manifest_fetches=max_concurrent_manifest_fetches,
        )
        collection = Collection(
            self._repo._context,
            from_datetime(older_than, "older_than"),
            engine,
            bounds=bounds,
            limits=DeleteLimits(max_concurrent_deletes, max_consecutive_delete_failures),
            listings=listings,
            progress=progress_of(progress),
            ops=keep_ops,
        )
        return UpkeepPlan("collect", collection.preview, collection.collect)

    def expire(
        self,
        older_than: datetime,
        *,
        delete_expired_branches: bool = False,
        delete_expired_tags: bool = False,
        progress: Progress | None = None,
    ) -> UpkeepPlan[RetentionReport, set[str]]:
        """Plan the removal of snapshots older than a time from the history.

        The first snapshot and the tip of ``main`` stay. The tips of other branches and of tags stay as well,
        unless ``delete_expired_branches`` or ``delete_expired_tags`` is set. The files of removed snapshots
        stay until `Upkeep.collect` deletes them.

        In spec version 2 the expiration is one atomic update. Spec version 1 has no file for the whole
        repository, so the expiration updates branch by branch and tag by tag. Readers may see some of them
        expired, and after an interruption a second call completes the work.

        Args:
            older_than: A time with a time zone. A snapshot written exactly at this time is not older.
            delete_expired_branches: Whether to delete branches whose tip is older.
            delete_expired_tags: Whether to delete tags whose snapshot is older.
            progress: An object with the methods ``expect`` and ``advance``, such as
                `frazil.pipeline.Progress`. A step is the update of the repository; in spec version 1, a
                branch or tag. Default: none.

        Returns:
            The plan. Its ``report`` says what would be removed, and why. `UpkeepPlan.apply` removes it, and
            returns the ids of the removed snapshots.

        Raises:
            TypeError: If ``older_than`` has no time zone.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only.
            FormatError: ``unsupported-spec-version`` for the ``report`` in a repository of spec version 1.

        Examples:
            >>> import frazil
            >>> from datetime import UTC, datetime
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> plan = repo.upkeep.expire(datetime.now(UTC))
            >>> plan.report.retained[0].reasons
            ('first version', 'tip of branch `main`')
            >>> plan.apply()
            set()
        """
        context, steps = self._repo._context, progress_of(progress)
        expiry = from_datetime(older_than, "older_than"), delete_expired_branches, delete_expired_tags
        preview, perform = self._removal(
            lambda info, now: maintenance.expire(info, *expiry, flushed_snapshots(context.storage)), steps
        )

        def removed() -> set[str]:
            if context.spec_version < 2:
                return set(ids_to_text(maintenance.expire_v1(context, *expiry, steps)))
            return set(perform().removed.ids())

        return UpkeepPlan("expire", preview, removed)

    def _removal(
        self, decide: Callable[[RepoInfo, int], Decision], steps: Progress
    ) -> tuple[Callable[[], RetentionReport], Callable[[], RetentionReport]]:
        """Return the functions that report a removal of versions, and that make it."""
        context = self._repo._context

        def preview() -> RetentionReport:
            context.require_version_2()
            info = context.catalog.repo_info()
            require_online(info)
            return decide(info, now_us()).report

        def perform() -> RetentionReport:
            require_writable(context.storage)
            change = maintenance.removal_change(decide)
            steps.expect(1)
            report = change.result(context.catalog.update_repo_info(change))
            steps.advance()
            return report

        return preview, perform

    def retain(
        self, policy: Retention | Mapping[str, Retention], *, progress: Progress | None = None
    ) -> UpkeepPlan[RetentionReport, RetentionReport]:
        """Plan the removal of the versions that no rule of a policy selects, also inside of a history.

        The first version, the tips of branches, and the versions of tags stay. All versions of branches
        without a policy stay. The change is one atomic update. The files of removed versions stay until
        `Upkeep.collect` deletes them. Comparisons and rebases over a gap still see all changes.

        Args:
            policy: One policy for all branches, or policies by patterns of branches, such as
                ``{"main": ..., "dev-*": ...}``. The first pattern that matches a branch decides.
            progress: An object with the methods ``expect`` and ``advance``, such as
                `frazil.pipeline.Progress`. The update of the repository is one step. Default: none.

        Returns:
            The plan. Its ``report`` has the versions that are removed and that stay, with reasons.
            `UpkeepPlan.apply` removes them, and returns the same for the state that it changed.

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
            >>> report = repo.upkeep.retain(frazil.Retention(last=2)).apply()
            >>> [(version.message, version.reasons) for version in report.removed]
            [('a', ('no rule of `*` selects it',))]
            >>> [commit.message for commit in repo.ancestry(branch="main")]
            ['c', 'b', 'Repository initialized']
        """
        policies, steps = maintenance.branch_policies(policy), progress_of(progress)
        self._repo._context.require_version_2()
        storage = self._repo.storage
        preview, perform = self._removal(
            lambda info, now: maintenance.decide(info, policies, now, flushed_snapshots(storage)), steps
        )
        return UpkeepPlan("retain", preview, perform)

    def squash(
        self,
        branch: str,
        since: str,
        until: str | None = None,
        *,
        message: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> UpkeepPlan[RetentionReport, str]:
        """Plan the removal of the versions between two versions, so that the later one has all their changes.

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
            The plan. Its ``report`` has the versions that leave the history of the branch. `UpkeepPlan.apply`
            removes them, and returns the id of the later version, or of the new version.

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
            >>> tip = repo.upkeep.squash("main", first, message="a to c").apply()
            >>> [commit.message for commit in repo.ancestry(branch="main")]
            ['a to c', 'Repository initialized']
        """
        context = self._repo._context
        context.require_version_2()
        if metadata is not None and message is None:
            raise ValueError("metadata needs a message, got none. Pass message=... too")
        info = context.catalog.repo_info
        first = resolve_id(since, info)
        last = None if until is None else resolve_id(until, info)
        span = maintenance.SquashRange(branch, first, last, message, metadata or {})

        def perform() -> str:
            require_writable(context.storage)
            return id_to_text(maintenance.squash(context, span))

        return UpkeepPlan("squash", lambda: maintenance.squash_report(info(), span), perform)

    def compact(
        self,
        message: str,
        *,
        branch: str | Sequence[str],
        limits: CompactionLimits | None = None,
        metadata: dict[str, Any] | None = None,
        commit_method: CommitMethod = "new_commit",
        engine: Engine | EngineName | None = None,
        progress: Progress | None = None,
    ) -> UpkeepPlan[CompactionReport, CompactionReport]:
        """Plan the merge of small chunk files into packs, and of live chunks of mostly unused packs.

        A chunk is live if the newest version of one of the branches refers to it. The commit changes no
        chunk: readers see the same data, comparisons of versions show no change, and sessions that commit at
        the same time have no conflict with it. If others commit to the branch during the call, their changes
        stay.

        The old files stay, because older versions, other branches and tags may need them.
        `Upkeep.expire` and `Upkeep.collect` delete them later.

        Args:
            message: The message of the commit.
            branch: The name of the branch, or several names. Each branch gets a commit.
            limits: Which files and manifests are written again. Default: ``CompactionLimits()``.
            metadata: The metadata of the commit: a dictionary that JSON can hold. Default: empty.
            commit_method: ``"new_commit"`` for a new commit, ``"amend"`` to replace the last one.
            engine: Where the work runs: an `Engine`, or ``"inline"``, ``"threads"``, ``"processes"``,
                ``"spark"`` or ``"sail"``. Default: on threads of this process.
            progress: An object with the methods ``expect`` and ``advance``, such as
                `frazil.pipeline.Progress`. A step is the rewrite of some manifests. Default: none.

        Returns:
            The plan, with the files to write again. `UpkeepPlan.apply` commits, and returns the result.
            Without files and manifests to write again, there is no commit.

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
            >>> report = repo.upkeep.compact("merge small files", branch="main").apply()
            >>> len(report.files), report.new_files
            (8, 1)
        """
        commits = maintenance.compaction_commits(
            message, branch, {**self._repo._default_metadata, **(metadata or {})}, commit_method
        )
        work = maintenance.Compaction(self._repo._context, commits, limits, engine, progress_of(progress))
        return UpkeepPlan("compact", work.plan, work.finish)

    def forget(
        self,
        data: str | Sequence[str] | Mapping[str, Any] = (),
        *,
        sources: str | Sequence[str] = (),
        follow: bool = False,
        progress: Progress | None = None,
    ) -> UpkeepPlan[Withdrawal, WithdrawalCertificate]:
        """Plan the withdrawal of data from all versions, such as those of a participant.

        Afterwards, the elements have the fill value in every version, branch and tag, and no stored file has
        their bytes. Versions with the data get new ids, and keep their refs, messages, times and metadata.

        An array is found by its path in any version, and followed by its id through renames. A chunk that is
        partly in a box is written again. References outside of the boxes to the same bytes stay, and the
        report counts these bytes. References to foreign objects are removed, and the objects stay.

        Args:
            data: The paths of arrays or groups, or a dict from paths to boxes. A box is an index without
                steps and negative positions, such as ``(slice(0, 10), 3)``. A list has several boxes, and
                ``None`` is the whole node.
            sources: URLs of foreign objects, or patterns as in ``fnmatch``. All references to them are
                removed. A pattern with ``%`` is compared with the stored URL, another one with the URL
                without its escapes.
            follow: Whether chunks with only withdrawn elements are also withdrawn where the same arrays have
                them at other positions, as after a shift. Default: False.
            progress: An object with the methods ``expect`` and ``advance``, such as
                `frazil.pipeline.Progress`. It counts manifests, and requests that delete files.

        Returns:
            The plan. Its ``report`` has the versions and files with the data, and what cannot be removed.
            `UpkeepPlan.apply` removes the data, and returns the certificate. If it is killed, another call
            ends the work.

        Raises:
            NodeNotFoundError: If no version has a node at a path.
            InvalidInputError: ``invalid-argument`` for a box that does not fit, or without any data.
            ConflictError: If others updated the repository in all attempts. No version was changed.
            SessionStateError: ``branch-protected`` if a protection forbids to move a branch.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only.
            FormatError: ``unsupported-spec-version`` in a repository of spec version 1.

        Examples:
            >>> import frazil, numpy as np, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="two participants") as store:
            ...     array = zarr.create_array(store, name="t", data=np.arange(1, 5), chunks=(2,))
            >>> plan = repo.upkeep.forget({"t": slice(0, 2)})
            >>> plan.report.counts["references"], plan.report.branches
            (1, ('main',))
            >>> plan.apply().ok
            True
            >>> frazil.read(repo.readonly_session("main"), "t").tolist()
            [0, 0, 3, 4]
        """
        self._repo._context.require_version_2()
        selection = maintenance.DataSelection.of(data, sources, follow=follow)
        work = maintenance.Forgetting(self._repo._context, selection, progress_of(progress))

        def perform() -> WithdrawalCertificate:
            require_writable(self._repo._context.storage)
            return work.finish()

        return UpkeepPlan("forget", work.plan, perform)

    def certificates(self) -> list[WithdrawalCertificate]:
        """Read what is stored, and return the certificate of each withdrawal of `Upkeep.forget`.

        Returns:
            The certificates, the oldest first. ``ok`` is true if nothing of the data is left.

        Examples:
            >>> import frazil
            >>> frazil.Repository.create(frazil.in_memory_storage()).upkeep.certificates()
            []
        """
        context = self._repo._context
        return [maintenance.certify(context, each) for each in maintenance.removals(context.storage)]

    def hold(
        self,
        data: str | Sequence[str] | Mapping[str, Any],
        *,
        until: datetime,
        name: str,
        branch: str = "main",
    ) -> UpkeepPlan[Hold, Hold]:
        """Plan to hide data from readers of a branch until a date. The data stay stored.

        A commit on the branch sets the data to the fill value, for readers with Frazil and with icechunk. Two
        tags protect the version before it. The commit and the tags are one update. `Upkeep.end_hold` brings
        the data back. Nothing happens by itself at the date: `Upkeep.doctor` names hold-backs whose date has
        passed.

        This is no access control: who can open the repository can open older versions and the tags.

        Args:
            data: As for `Upkeep.forget`, of the tip of the branch. A group is all arrays below it.
            until: The date: a time with a time zone, in the future.
            name: A name for the hold-back, which no other one has.
            branch: The name of the branch.

        Returns:
            The plan. Its ``report`` has the number of chunks, and the refs that show the data.
            `UpkeepPlan.apply` hides the data, and returns the hold-back.

        Raises:
            NodeNotFoundError: If the branch has no node at a path.
            AlreadyExistsError: ``tag-already-exists`` if there is a hold-back with this name.
            InvalidInputError: ``invalid-argument`` for a box that does not fit, a date that is not in the
                future, or data with only the fill value.
            TypeError: If ``until`` has no time zone.
            FormatError: ``unsupported-spec-version`` in a repository of spec version 1.
            IcechunkError: The errors of a commit.

        Examples:
            >>> import frazil, numpy as np, zarr
            >>> from datetime import UTC, datetime, timedelta
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="an array") as store:
            ...     array = zarr.create_array(store, name="t", data=np.arange(1, 5), chunks=(2,))
            >>> until = datetime.now(UTC) + timedelta(days=90)
            >>> plan = repo.upkeep.hold({"t": slice(2, 4)}, until=until, name="season")
            >>> plan.report.chunks, plan.apply().tag
            (1, 'hold.season.1')
            >>> frazil.read(repo.readonly_session("main"), "t").tolist()
            [1, 2, 0, 0]
            >>> [each.name for each in repo.upkeep.holds()]
            ['season']
            >>> ended = repo.upkeep.end_hold("season").apply()
            >>> frazil.read(repo.readonly_session("main"), "t").tolist()
            [1, 2, 3, 4]
        """
        from_datetime(until, "until")
        selection = maintenance.DataSelection.of(data, (), follow=False)
        hold = maintenance.Hold(name, branch, until, selection.texts())

        def report() -> Hold:
            return maintenance.plan_hold(self._repo._context, self._repo._info_v2(), selection, hold)

        def integration(info: RepoInfo, tip: bytes) -> IntegrationPlan:
            edit = partial(maintenance.hide, selection=selection)
            refs = partial(maintenance.create_tags, hold=hold)
            text = f"Hold back {', '.join(hold.what)}"
            return IntegrationPlan(tip, tip, text, maintenance.origin(hold), edit=edit, refs=refs)

        def perform() -> Hold:
            require_writable(self._repo.storage)
            maintenance.require_possible(self._repo._info_v2(), hold)
            self._repo._integrate(integration, branch, None, None, None, None)
            return maintenance.find_hold(self._repo._info(), name)

        return UpkeepPlan("hold", report, perform)

    def holds(self) -> list[Hold]:
        """Return the hold-backs of `Upkeep.hold` that have not ended.

        Returns:
            The hold-backs, the earliest date first.

        Examples:
            >>> import frazil
            >>> frazil.Repository.create(frazil.in_memory_storage()).upkeep.holds()
            []
        """
        return maintenance.holds(self._repo._info())

    def end_hold(
        self, name: str, *, conflicts: Literal["refuse", "keep", "restore"] = "refuse"
    ) -> UpkeepPlan[Hold, str]:
        """Plan the end of a hold-back: its data come back on the branch, and its tags are deleted.

        The end reverts the commit of the hold-back, with the elements of chunks. What others have written
        since stays, also in the same chunks.

        Args:
            name: The name of the hold-back.
            conflicts: What happens to elements of the hold-back that others have written since: an error
                (``"refuse"``), they stay (``"keep"``), or the old values come back (``"restore"``). The
                other elements come back in any case.

        Returns:
            The plan. Its ``report`` is the hold-back, after a check for conflicts. `UpkeepPlan.apply` brings
            the data back, and returns the id of the commit.

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such hold-back, or no such branch any more.
            RebaseFailedError: ``rebase-failed`` if others have written into the data. It names the chunks.
            IcechunkError: The errors of ``Repository.revert``.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> try:
            ...     repo.upkeep.end_hold("season").apply()
            ... except frazil.RefNotFoundError as error:
            ...     print(error.message)
            the repository has no hold-back `season`. It has none
        """
        solver, context = maintenance.HoldSolver(conflicts), self._repo._context

        def integration(info: RepoInfo, _tip: bytes) -> IntegrationPlan:
            hold = maintenance.find_hold(info, name)
            entry, parent = commit_named(context, info, hold.snapshot_id)
            text, origin = f"End the hold-back {name}", {"reverted": hold.snapshot_id}
            tags = maintenance.end_tags(info, hold)
            return IntegrationPlan(entry.id, parent, text, origin, True, refs=lambda _: tags)

        def advised[R](step: Callable[[RepoInfo, Hold], R]) -> R:
            info = self._repo._info_v2()
            try:
                return step(info, maintenance.find_hold(info, name))
            except RebaseFailedError as error:
                if conflicts == "refuse":
                    choices = argument(conflicts="keep"), argument(conflicts="restore")
                    error.with_remedy("{} keeps what others have written there, {} replaces it", *choices)
                raise

        def report(info: RepoInfo, hold: Hold) -> Hold:
            tip = branch_tip(info, hold.branch)
            integration(info, tip).carry(context, info, tip, solver)
            return hold

        def perform(_info: RepoInfo, hold: Hold) -> str:
            return self._repo._integrate(integration, hold.branch, solver, None, None, None)

        return UpkeepPlan("end_hold", partial(advised, report), partial(advised, perform))

    def rewrite_manifests(
        self,
        message: str,
        *,
        branch: str,
        metadata: dict[str, Any] | None = None,
        commit_method: CommitMethod = "new_commit",
    ) -> str:
        """Rewrite all manifests at the tip of a branch, with the splitting of this handle's configuration.

        The new commit changes nothing else. Its metadata describe the splitting under ``__icechunk``.

        Args:
            message: The message of the commit.
            branch: The name of the branch.
            metadata: The metadata of the commit: a dictionary that JSON can hold. Default: empty.
            commit_method: ``"new_commit"`` for a new commit, ``"amend"`` to replace the last one.

        Returns:
            The id of the commit.

        Raises:
            ConflictError: ``commit-conflict`` if another commit came first.
            RefNotFoundError: ``ref-not-found`` if there is no such branch.
            FormatError: ``unsupported-spec-version`` for ``"amend"`` in a repository of spec version 1.
            ValueError: If ``commit_method`` is another text.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> id_ = repo.upkeep.rewrite_manifests("split anew", branch="main")
            >>> repo.lookup_branch("main") == id_
            True
        """
        commit_metadata = {**self._repo._default_metadata, **(metadata or {})}
        commit = maintenance.RewriteCommit(
            branch, message, commit_metadata, maintenance.is_amend(commit_method)
        )
        MetadataColumn.of([commit_metadata])  # raises an error before the first file is written
        return id_to_text(maintenance.rewrite(self._repo._context, commit))

    def statistics(
        self,
        *,
        engine: Engine | EngineName | None = None,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 << 20,
        max_decoded_manifest_mem_bytes: int = 4 << 30,
        max_concurrent_manifest_fetches: int = 500,
    ) -> ChunkStorageStats:
        """Return how many bytes the chunks of all branches and tags take, by kind of reference.

        A range of a chunk file or of a virtual object counts once. An inline chunk counts once for each
        manifest that contains it.

        Args:
            engine: Where the work runs: an `Engine`, or ``"inline"``, ``"threads"``, ``"processes"``,
                ``"spark"`` or ``"sail"``. Default: on threads of this process.
            max_snapshots_in_memory: How many snapshots to hold in memory at once.
            max_compressed_manifest_mem_bytes: How many bytes of fetched manifests to hold in memory at once.
            max_decoded_manifest_mem_bytes: How many bytes of decoded manifests to hold in memory at once.
            max_concurrent_manifest_fetches: How many manifests to fetch at once.

        Returns:
            The numbers of bytes.

        Raises:
            InvalidInputError: ``invalid-argument`` if a limit is less than 1.

        Examples:
            >>> import frazil
            >>> frazil.Repository.create(frazil.in_memory_storage()).upkeep.statistics().total_bytes()
            0
        """
        bounds = _bounds(
            max_snapshots_in_memory=max_snapshots_in_memory,
            max_compressed_manifest_mem_bytes=max_compressed_manifest_mem_bytes,
            max_decoded_manifest_mem_bytes=max_decoded_manifest_mem_bytes,
            max_concurrent_manifest_fetches=max_concurrent_manifest_fetches,
        )
        return maintenance.storage_stats(self._repo._context, engine, bounds)

    def build_statistics(
        self,
        version: str = "main",
        paths: Sequence[str] | None = None,
        *,
        rebuild: bool = False,
        engine: Engine | EngineName | None = None,
        progress: Progress | None = None,
    ) -> StatisticsReport:
        """Store statistics of the chunks of a version that have none. It reads these chunks.

        ``frazil.reduce`` and ``frazil.where`` then answer without reading them. Chunks whose statistics an
        earlier version has are not read. Virtual chunks get statistics if their references have a checksum.

        Args:
            version: A branch, a tag or a snapshot, as the command line names versions. Default: ``"main"``.
            paths: The arrays. Default: all arrays of numbers, except those whose attribute
                ``frazil_statistics`` is false.
            rebuild: Whether to read all chunks of the arrays, and to replace their statistics: after
                ``verify`` with the level ``decode`` has found wrong ones. Default: False.
            engine: Where the work runs: an `Engine`, or ``"inline"``, ``"threads"``, ``"processes"``,
                ``"spark"`` or ``"sail"``. Default: on threads of this process.
            progress: A progress bar: an object with ``expect`` and ``advance``, for manifests.

        Returns:
            The numbers of manifests and chunks.

        Raises:
            ReadOnlyError: If the storage is read-only.
            NodeNotFoundError: If there is no array at a path.

        Examples:
            >>> import frazil, numpy as np, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="an array") as store:
            ...     array = zarr.create_array(store, name="t", data=np.arange(100.0), chunks=(10,))
            >>> repo.upkeep.build_statistics().chunks_read
            10
            >>> repo.upkeep.build_statistics().chunks_read
            0
            >>> repo.upkeep.build_statistics(rebuild=True).chunks_read
            10
        """
        context = self._repo._context
        require_writable(context.storage)
        info = context.catalog.full_repo_info()
        bar = progress_of(progress)
        names = None if paths is None else list(map(absolute, paths))
        context, snapshot = self._repo._context, version_id(info, version)
        return maintenance.build_statistics(context, snapshot, names, engine, bar, rebuild=rebuild)

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
            no findings in 16 checks
        """
        return maintenance.examine(self._repo._context)

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
        return [lease.info for lease in leases(self._repo._context.storage)]

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
        storage = self._repo._context.storage
        require_writable(storage)
        if (lease_id is None) == (name is None):
            raise ValueError(f"expected exactly one of lease_id and name, got {lease_id!r} and {name!r}")
        held = leases(storage)
        if name is None:
            held = [lease for lease in held if lease.key == f"{LEASES}/{lease_id}"]
        else:
            held = [lease for lease in held if name and lease.info.name == name]
        if not held:
            argument, value = ("lease_id", lease_id) if name is None else ("name", name)
            raise InvalidInputError(
                f"{argument} must be the {argument.removeprefix('lease_')} of a lease of this repository, "
                f"got {value!r}. The holder may have returned the lease",
                ErrorKind.NOT_ALLOWED,
            ).with_remedy("`{}` lists the leases", call("leases"))
        for lease in held:
            if lease.info.is_of_job:
                give_up(storage, lease.info.id.removeprefix(JOB_LEASE))
            else:
                storage.delete([lease.key])


def _bounds(**limits: int) -> Bounds:
    _require_positive(**limits)
    return Bounds(*limits.values())


def _require_positive(**limits: int) -> None:
    """Raise an error for a limit that is less than 1."""
    for name, limit in limits.items():
        if limit < 1:
            raise InvalidInputError(f"{name} must be at least 1, got {limit}")
