"""The methods of ``Repository`` that remove versions from the history."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, overload

from frazil.format.ids import id_to_text, ids_to_text
from frazil.maintenance.retention.commit_pattern import CommitPattern
from frazil.maintenance.retention.policy import Retention
from frazil.maintenance.retention.report import RetentionReport, VersionReason
from frazil.repository import handle
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog.repo_requirements import require_online
from frazil.repository.catalog.version_names import snapshot_id
from frazil.repository.clock import from_datetime, now_us
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.handle.opening import require_writable
from frazil.survey.steps import Progress, one_step, progress_of

#: The values of the methods are public, so that `frazil` and `frazil.ops` import them from this room.
__all__ = ["CommitPattern", "HistoryUpkeep", "Retention", "RetentionReport", "VersionReason"]


class HistoryUpkeep(RepositoryBase):
    """Methods of ``Repository`` that remove versions: expiration, retention policies, squash."""

    @overload
    def expire_snapshots(
        self,
        older_than: datetime,
        *,
        delete_expired_branches: bool = False,
        delete_expired_tags: bool = False,
        dry_run: Literal[False] = False,
        progress: Progress | None = None,
    ) -> set[str]: ...

    @overload
    def expire_snapshots(
        self,
        older_than: datetime,
        *,
        delete_expired_branches: bool = False,
        delete_expired_tags: bool = False,
        dry_run: Literal[True],
        progress: Progress | None = None,
    ) -> RetentionReport: ...

    def expire_snapshots(
        self,
        older_than: datetime,
        *,
        delete_expired_branches: bool = False,
        delete_expired_tags: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> set[str] | RetentionReport:
        """Remove snapshots older than a time from the history.

        The first snapshot and the tip of ``main`` stay. The tips of other branches and of tags stay as well,
        unless ``delete_expired_branches`` or ``delete_expired_tags`` is set. The files of removed snapshots
        stay until ``garbage_collect`` deletes them.

        In spec version 2 the expiration is one atomic update. Spec version 1 has no file for the whole
        repository, so the expiration updates branch by branch and tag by tag. Readers may see some of them
        expired, and after an interruption a second call completes the work.

        Args:
            older_than: A time with a time zone. A snapshot written exactly at this time is not older.
            delete_expired_branches: Whether to delete branches whose tip is older.
            delete_expired_tags: Whether to delete tags whose snapshot is older.
            dry_run: Whether to change nothing, and to return a report of what would be removed, and why.
            progress: An object with the methods ``expect`` and ``advance``, such as
                `frazil.pipeline.Progress`. A step is the update of the repository; in spec version 1, a
                branch or tag. Default: none.

        Returns:
            The ids of the removed snapshots. The report with ``dry_run``.

        Raises:
            TypeError: If ``older_than`` has no time zone.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only.
            FormatError: ``unsupported-spec-version`` for ``dry_run`` in a repository of spec version 1.

        Examples:
            >>> import frazil
            >>> from datetime import UTC, datetime
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.expire_snapshots(datetime.now(UTC))
            set()
            >>> repo.expire_snapshots(datetime.now(UTC), dry_run=True).retained[0].reasons
            ('first version', 'tip of branch `main`')
        """
        steps = progress_of(progress)
        expiry = handle.operations.Expiry(
            from_datetime(older_than, "older_than"), delete_expired_branches, delete_expired_tags
        )
        if dry_run:
            info = self._info_v2()
            require_online(info)
            return handle.operations.expiry_report(info, expiry)
        if self._context.spec_version < 2:
            return set(ids_to_text(handle.operations.expire_v1(self._context, expiry, steps)))
        change = handle.operations.ExpirationChange(expiry)
        with one_step(steps):
            after = self._context.catalog.update_repo_info(change)
        return set(ids_to_text(change.ids(after)))

    def apply_retention(
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
            >>> report = repo.apply_retention(frazil.Retention(last=2))
            >>> [(version.message, version.reasons) for version in report.removed]
            [('a', ('no rule of `*` selects it',))]
            >>> [commit.message for commit in repo.ancestry(branch="main")]
            ['c', 'b', 'Repository initialized']
        """
        policies, steps = handle.operations.branch_policies(policy), progress_of(progress)
        if dry_run:
            info = self._info_v2()
            require_online(info)
            return handle.operations.decide(info, policies, now_us()).report
        self._require_upkeep()
        change = handle.operations.RetentionChange(policies)
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
            >>> tip = repo.squash("main", first, message="a to c")
            >>> [commit.message for commit in repo.ancestry(branch="main")]
            ['a to c', 'Repository initialized']
        """
        self._require_upkeep()
        if metadata is not None and message is None:
            raise ValueError("metadata needs a message, got none. Pass message=... too")
        ids = [None if text is None else snapshot_id(text, self._info) for text in (since, until)]
        commit = None if message is None else handle.operations.NewCommit(message, metadata or {})
        return id_to_text(
            handle.operations.squash(
                self._context, handle.operations.Range(branch, ids[0] or b"", ids[1]), commit
            )
        )

    def _require_upkeep(self) -> None:
        """Raise an error unless the history of the repository can be changed."""
        self._context.require_version_2()
        require_writable(self.storage)

    expire_snapshots_async = awaitable(expire_snapshots)
    apply_retention_async = awaitable(apply_retention)
    squash_async = awaitable(squash)
