"""The methods of ``Repository`` that remove versions from the history."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, overload

from frazil.format.ids import ids_to_text
from frazil.maintenance.progress import Progress, one_step, progress_of
from frazil.maintenance.retention.commit_pattern import CommitPattern
from frazil.maintenance.retention.policy import Retention
from frazil.maintenance.retention.report import RetentionReport, VersionReason
from frazil.repository import handle
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog.repo_requirements import require_online
from frazil.repository.clock import from_datetime
from frazil.repository.handle.base import RepositoryBase

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
        change = handle.operations.Expiring(expiry)
        with one_step(steps):
            after = self._context.catalog.update_repo_info(change)
        return set(ids_to_text(change.ids(after)))

    expire_snapshots_async = awaitable(expire_snapshots)
