"""`Repository.history`: what happened to the repository, and the ways back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from numpy.typing import NDArray

from frazil.arguments import checks_arguments
from frazil.errors import InvalidInputError
from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.handle.sessions import SubHandle, snapshot_of_version
from frazil.history import blame as blaming
from frazil.history import undo as undoing
from frazil.history.blame import Blame, ChunkCommit
from frazil.history.reports import StateChange, UndoPlan, ValueDifference
from frazil.history.versions import BisectReport, BranchVersion, Watch
from frazil.history.versions import bisect as bisect_versions
from frazil.lazy_names import ModuleOnDemand
from frazil.repository.catalog.ancestry import ancestry_columns
from frazil.repository.catalog.context import snapshot_errors
from frazil.repository.catalog.presentation import Update
from frazil.repository.catalog.repo_changes import branch_tip, snapshot_named
from frazil.repository.clock import from_datetime
from frazil.repository.session.session import Session

if TYPE_CHECKING:
    from frazil.history import value_differences
else:  # it needs zarr
    value_differences = ModuleOnDemand("frazil.history.value_differences")

__all__ = ["BisectReport", "BranchVersion", "History", "StateChange", "UndoPlan", "ValueDifference", "Watch"]

_INTERVAL: Final = timedelta(seconds=5)


@checks_arguments
class History(SubHandle):
    """The history of a repository: log, blame, comparison, undo, and a watch of new versions.

    ``Repository.history`` returns it.

    Examples:
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> watch = repo.history.watch("main")
        >>> with repo.transaction("main", message="create") as store:
        ...     array = zarr.create_array(store, name="t", shape=(6,), chunks=(2,), dtype="i4")
        ...     array[:] = 6
        >>> repo.create_tag("v1", "main")
        >>> for message in ("correct", "corrected"):
        ...     with repo.transaction("main", message=message) as store:
        ...         zarr.open_array(store, path="t")[3] = len(message)
        >>> repo.history.log(branch="main")["message"].tolist()
        ['corrected', 'correct', 'create', 'Repository initialized']
        >>> blame = repo.history.blame("/t")
        >>> [commit.message for commit in blame.commits], blame.grid().tolist()
        (['corrected', 'create'], [1, 0, 1])
        >>> [commit.message for commit in repo.history.history_of("/t", (2,))]
        ['corrected', 'correct', 'create']
        >>> difference = repo.history.diff_values("t", from_tag="v1", to_branch="main")
        >>> difference.changed, difference.max, difference.chunks_read
        (1, 3.0, 1)
        >>> def is_small(session):
        ...     return zarr.open_array(session.store, path="t", mode="r")[3] < 7
        >>> repo.history.bisect(is_small, good="v1", path="t").first_bad.message
        'correct'
        >>> start = next(repo.ops_log())
        >>> repo.create_branch("dev", "main")
        >>> repo.history.undo().apply().changes[0].subject
        'branch `dev`'
        >>> done_again = repo.history.redo().apply()
        >>> sorted(repo.list_branches())
        ['dev', 'main']
        >>> len(repo.history.restore_to(start).apply().changes)
        1
        >>> [repo.lookup_snapshot(version.snapshot_id).message for version in watch.poll()]
        ['create', 'correct', 'corrected']
    """

    def undo(self, *, branch: str | None = None, update: Update | datetime | None = None) -> UndoPlan:
        """Return the plan that undoes the last update of the repository that is not undone yet.

        ``apply`` of the plan makes the changes, as a new update: the ops log shows it, and ``redo`` makes the
        undone update again. It changes only what the update changed, and only if nobody has changed it since.
        Repeated calls go back step by step. If the newest update changed nothing, the plan undoes the newest
        update with changes, and notes that.

        Commits, amendments, merges, resets, the creation or deletion of branches, the creation of tags, and
        changes of the configuration, the metadata, a feature flag or the status can be undone. The name of a
        tag is never used again, so the deletion of a tag cannot be undone, and the undoing of a creation is
        final. Expirations, garbage collections and upgrades cannot be undone either.

        Args:
            branch: Undo the last update of this branch. Default: the last update of the repository.
            update: The update to undo: an entry of ``ops_log``, or its time. Default: the last one.

        Returns:
            The plan: the update to undo, the changes, and what they delete.

        Raises:
            SessionStateError: ``cannot-undo`` if the update cannot be undone, because of its kind, because
                it changed nothing, or because a snapshot or a state was expired or collected.
                ``feature-flag-disabled`` if a tag has to be deleted, and the feature ``delete_tag`` is off.
            ConflictError: ``repo-info-updated`` if a later update changed the same branch, tag or value.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only, and the
                undo does not change that.
            ValueError: If both ``branch`` and ``update`` are given.
        """
        if branch is not None and update is not None:
            raise ValueError("expected at most one of branch and update, got both")
        self._repo._context.require_version_2()
        at = None if update is None else _time_of(update, "update")
        return undoing.undo(self._repo._context, branch=branch, at=at)

    def redo(self) -> UndoPlan:
        """Return the plan that makes the last undone update again. ``apply`` of the plan makes the changes.

        Repeated calls make several undone updates again, the last undone update first. Other updates may
        come between an undo and its redo, which ``undo`` undoes. An update that cannot be made again, such as
        the creation of a tag, also prevents the redo of the updates that were undone before it.

        Returns:
            The plan: the update, its changes, and what they delete.

        Raises:
            SessionStateError: ``cannot-undo`` if there is no undone update, or if the update cannot be made
                again: a deleted tag, or a snapshot that was expired or collected.
            ConflictError: ``repo-info-updated`` if a later update changed the same branch, tag or value.
        """
        self._repo._context.require_version_2()
        return undoing.redo(self._repo._context)

    def restore_to(self, at: Update | datetime) -> UndoPlan:
        """Return the plan that returns to an earlier state of the repository. ``apply`` makes the changes.

        The state has all branches, tags and feature flags, the configuration, the metadata and the status.
        One update makes all changes, and ``undo`` undoes it. Branches and tags that were created later are
        deleted, and the names of the tags cannot be used again. The notes of the plan name them. Snapshots of
        later commits stay until an expiration or a garbage collection removes them.

        ``Repository.upkeep.restore`` is for another purpose: it repairs a lost or damaged file ``repo``.

        Args:
            at: The state after this entry of ``ops_log``, or at this time.

        Returns:
            The plan: the changes, and what they delete.

        Raises:
            SessionStateError: ``cannot-undo`` if the state or one of its snapshots was expired or collected,
                or if it has a tag that was deleted since.
            ConflictError: ``repo-info-updated`` if another writer changes the same branch, tag or value at
                the same time.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only, now and at
                this time.
        """
        self._repo._context.require_version_2()
        return undoing.restore_to(self._repo._context, _time_of(at, "at"))

    def blame(
        self, path: str, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> Blame:
        """Return the commit that wrote each chunk of an array last.

        The method reads no chunks. Moved and renamed arrays have one history. Chunks of a merge have the
        commits of the merged branch. Chunks of expired versions are reported as written before the oldest
        commit that is left. At most one of ``branch``, ``tag`` and ``snapshot_id`` names the version.

        Args:
            path: The path of the array in this version.
            branch: The name of a branch. Default: ``main``, if no other version is named.
            tag: The name of a tag.
            snapshot_id: The id of a snapshot, or the first characters of an id.

        Returns:
            The commits, and the number of the commit of each chunk.

        Raises:
            NodeNotFoundError: ``node-not-found`` if there is no such array.
            InvalidInputError: ``not-an-array`` if ``path`` is a group.
            RefNotFoundError: ``ref-not-found`` if there is no such branch or tag.
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no such snapshot.
            ValueError: If several versions are named.
        """
        info, snapshot = self._version(branch, tag, snapshot_id)
        with snapshot_errors():
            return blaming.blame(self._repo._context, info, snapshot, path)

    def history_of(
        self,
        path: str,
        index: Sequence[int],
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
    ) -> list[ChunkCommit]:
        """Return all commits that wrote or deleted the chunk of one cell of an array, newest first.

        At most one of ``branch``, ``tag`` and ``snapshot_id`` names the version.

        Args:
            path: The path of the array in this version.
            index: The index of the cell along each dimension; a negative index counts from the end.
                `frazil.pipeline.cell` returns the index of labels.
            branch: The name of a branch. Default: ``main``, if no other version is named.
            tag: The name of a tag.
            snapshot_id: The id of a snapshot, or the first characters of an id.

        Returns:
            The commits. The last one has ``is_before`` if expired versions wrote the chunk before.

        Raises:
            InvalidInputError: ``invalid-chunk-index`` if the array has no such cell. ``not-an-array`` if
                ``path`` is a group.
            TypeError: If an index is not an integer.
            IcechunkError: The other errors of ``blame``.
        """
        info, snapshot = self._version(branch, tag, snapshot_id)
        with snapshot_errors():
            return blaming.history_of(self._repo._context, info, snapshot, path, index)

    def _version(
        self, branch: str | None, tag: str | None, snapshot_id: str | None
    ) -> tuple[RepoInfo, bytes]:
        info = self._repo._info()
        if (branch, tag, snapshot_id) == (None, None, None):
            branch = "main"
        return info, snapshot_of_version(info, branch, tag, snapshot_id)

    def diff_values(
        self,
        path: str,
        *,
        from_branch: str | None = None,
        from_tag: str | None = None,
        from_snapshot_id: str | None = None,
        to_branch: str | None = None,
        to_tag: str | None = None,
        to_snapshot_id: str | None = None,
        decode: bool = True,
    ) -> ValueDifference:
        """Return the differences in the values of an array between two versions.

        The values are decoded by the CF conventions, each version with its own attributes. Only chunks that
        differ are read, or all chunks if the attributes that decode them differ. If the array was moved,
        ``path`` is its path in the later version. Exactly one of the ``from_`` arguments and one of the
        ``to_`` arguments name the versions.

        Args:
            path: The path of the array in the second version.
            from_branch: The branch of the first version.
            from_tag: The tag of the first version.
            from_snapshot_id: The snapshot id of the first version, or the first characters of an id.
            to_branch: The branch of the second version.
            to_tag: The tag of the second version.
            to_snapshot_id: The snapshot id of the second version, or the first characters of an id.
            decode: Compare decoded values. False compares the stored numbers.

        Returns:
            The number of changed cells, the mean, the maximum and the RMSE of their differences with their
            units, the changed cells of each chunk, and the numbers of new and of removed cells.

        Raises:
            NodeNotFoundError: ``node-not-found`` if a version does not have the array.
            InvalidInputError: ``not-an-array`` if ``path`` is a group. ``unsupported-array`` if the number of
                dimensions differs. ``invalid-array-metadata`` if the attributes define no values.
            RefNotFoundError: ``ref-not-found`` if there is no such branch or tag.
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no such snapshot.
            MissingExtraError: ``missing-extra`` for times of calendars that need cftime.
            ValueError: If none or several of the arguments of one version are given.
        """
        info = self._repo._info()
        versions = (
            snapshot_of_version(info, from_branch, from_tag, from_snapshot_id),
            snapshot_of_version(info, to_branch, to_tag, to_snapshot_id),
        )
        with snapshot_errors():
            before, after = (self._repo.readonly_session(snapshot_id=id_to_text(id_)) for id_ in versions)
            return value_differences.value_differences(before, after, path, decode=decode)

    def bisect(
        self,
        check: Callable[[Session], Any],
        *,
        good: str,
        bad: str = "main",
        path: str | Sequence[str] | None = None,
    ) -> BisectReport:
        """Return the first version that fails a check, by binary search.

        The method trusts that the good version passes and the bad version fails, and that no version passes
        after one that fails. It checks at most ceil(log2(n)) of the n versions after the good one.

        Args:
            check: A function of a read-only session that returns whether the version is good: a value that
                counts as true or false, or a report with ``ok``. `frazil.pipeline.passes` makes it of rules,
                such as ``[Range("/t", 180, 340)]``.
            good: A version that passes: a branch, a tag, a snapshot id or the first characters of an id. It
                must be an ancestor of the bad version.
            bad: A version that fails. Default: the branch ``main``.
            path: The path of the node, or the paths of the nodes, that the check reads. Versions that cannot
                differ there from the version before them are not checked. Default: ``paths`` of the function,
                if it has this attribute, else all versions can differ.

        Returns:
            The first version that fails, the version before it, and the checks.

        Raises:
            InvalidInputError: ``invalid-argument`` if the good version is not an ancestor of the bad version,
                or if no commit between them changed the paths.
            RefNotFoundError: ``ref-not-found`` if there is no such version.
            TypeError: If ``check`` cannot be called.
        """
        ends = [snapshot_named(self._repo._info(), name) for name in (good, bad)]
        if not callable(check):
            raise TypeError(
                f"check must be a function of a session, got {type(check).__name__}. "
                "frazil.pipeline.passes(rules) makes it of rules"
            )
        chosen: Sequence[str] = getattr(check, "paths", ()) if path is None else path
        paths = [chosen] if isinstance(chosen, str) else list(chosen)

        def passes(snapshot_id: str) -> bool:
            result = check(self._repo.readonly_session(snapshot_id=snapshot_id))
            return bool(getattr(result, "ok", result))

        with snapshot_errors():
            return bisect_versions(self._repo._context, passes, good=ends[0], bad=ends[1], paths=paths)

    def watch(
        self,
        branch: str = "main",
        *,
        cursor: str | None = None,
        interval: timedelta = _INTERVAL,
        timeout: timedelta | None = None,
    ) -> Watch:
        """Return an iterator of the new versions of a branch, which waits for the next version.

        Every version that the branch has had after the cursor comes exactly once, oldest first, also versions
        that a reset took away since. A program that stores the ``cursor`` of each version after its work
        continues there when it starts again. While nothing changes, a poll makes one small request.

        Args:
            branch: The name of the branch. A cursor may be of a time when the branch did not exist.
            cursor: The cursor of an earlier version, or of an earlier ``Watch``. Default: only versions after
                this call.
            interval: The pause between two polls.
            timeout: The iterator ends if no version comes for this time. Default: it never ends.

        Returns:
            The iterator. ``poll`` returns the versions without waiting.

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such branch, without a cursor.
            InvalidInputError: ``invalid-argument`` for a text that is not a cursor, or a negative duration.
            SessionStateError: ``cursor-lost`` in ``next`` and ``poll``, if the ops log does not reach back to
                the cursor.
        """
        self._repo._context.require_version_2()
        for name, duration in (("interval", interval), ("timeout", timeout)):
            if duration is not None and duration < timedelta(0):
                raise InvalidInputError(f"{name} must not be negative, got {duration}")
        if cursor is None:
            branch_tip(self._repo._info(), branch)
        return Watch(self._repo._context, branch, cursor, interval, timeout)

    def log(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> dict[str, NDArray[Any]]:
        """Return a snapshot and all its ancestors as columns, newest first.

        This is several times faster than ``ancestry`` for long histories. ``pandas.DataFrame(table)`` makes a
        table of it. Exactly one of the arguments names the snapshot.

        Args:
            branch: The name of a branch, to begin at its tip.
            tag: The name of a tag.
            snapshot_id: The id of a snapshot, or the first characters of an id.

        Returns:
            Arrays of shape (n,): ``id`` and ``parent_id`` (texts of 20 characters; the last parent is an
            empty text), ``written_at`` (datetime64[us], UTC) and ``message`` (object).

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such branch or tag.
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no such snapshot.
            ValueError: If none or several of the arguments are given.
        """
        info = self._repo._info()
        return ancestry_columns(info, snapshot_of_version(info, branch, tag, snapshot_id))


def _time_of(update: Update | datetime, name: str) -> int:
    """Return the time of an update in microseconds since 1970."""
    return from_datetime(update if isinstance(update, datetime) else update.updated_at, name)
