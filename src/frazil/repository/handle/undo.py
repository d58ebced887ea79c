"""The methods of ``Repository`` that undo updates."""

from __future__ import annotations

from datetime import datetime

from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog.ops_values import Update
from frazil.repository.clock import from_datetime
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.history import undo as undoing
from frazil.repository.history.undo_report import StateChange, UndoReport

#: The values of the methods are public, so that `frazil.ops` imports them from this room.
__all__ = ["StateChange", "Undo", "UndoReport"]


class Undo(RepositoryBase):
    """Methods of ``Repository`` that undo updates, make them again, and restore earlier states."""

    def undo(
        self,
        *,
        branch: str | None = None,
        update: Update | datetime | None = None,
        dry_run: bool = False,
    ) -> UndoReport:
        """Undo the last update of the repository that is not undone yet.

        Most entries of ``ops_log`` can be undone: a commit, an amendment, a merge or a reset (the branch
        returns to its earlier snapshot), the creation or deletion of a branch, the creation of a tag, a
        change of the configuration, the metadata, a feature flag or the status. Repeated calls go back step
        by step. The undo is a new update: the ops log shows it, and ``redo`` makes the undone update again.

        Other writers may work at the same time. The undo changes only what the update changed, and only if
        nobody has changed it since.

        The name of a tag is never used again, by a rule of the format. So the deletion of a tag cannot be
        undone, and the undoing of a creation is final. Expirations, garbage collections and upgrades cannot
        be undone either.

        If the newest update changed nothing, the method undoes nothing. Its error names the newest update
        with changes. Pass this as ``update``, or call ``apply`` of the report of a dry run.

        Args:
            branch: Undo the last update of this branch. Default: the last update of the repository.
            update: The update to undo: an entry of ``ops_log``, or its time. Default: the last one.
            dry_run: Whether to change nothing, and only to report. ``apply`` of the report makes the changes.

        Returns:
            The undone update, the changes, and what they delete.

        Raises:
            SessionStateError: ``cannot-undo`` if the update cannot be undone, because of its kind, because
                it changed nothing, or because a snapshot or a state was expired or collected.
                ``feature-flag-disabled`` if a tag has to be deleted, and the feature ``delete_tag`` is off.
            ConflictError: ``repo-info-updated`` if a later update changed the same branch, tag or value.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only, and the
                undo does not change that.
            ValueError: If both ``branch`` and ``update`` are given.
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.create_branch("dev", "main")
            >>> repo.undo().changes[0].subject
            'branch `dev`'
            >>> repo.list_branches()
            {'main'}
        """
        if branch is not None and update is not None:
            raise ValueError("expected at most one of branch and update, got both")
        self._context.require_version_2()
        at = None if update is None else _time_of(update, "update")
        return undoing.undo(self._context, branch=branch, at=at, dry_run=dry_run)

    def redo(self, *, dry_run: bool = False) -> UndoReport:
        """Make the last undone update again.

        Repeated calls make several undone updates again, the last undone update first. Other updates may
        come between an undo and its redo. The redo is an update of its own, and ``undo`` undoes it.

        An update that cannot be made again, such as the creation of a tag, is an error, and so is the redo of
        the updates that were undone before it. ``restore_to`` returns to their states.

        Args:
            dry_run: Whether to change nothing, and only to report. ``apply`` of the report makes the changes.

        Returns:
            The update, its changes, and what they delete.

        Raises:
            SessionStateError: ``cannot-undo`` if there is no undone update, or if the update cannot be made
                again: a deleted tag, or a snapshot that was expired or collected.
            ConflictError: ``repo-info-updated`` if a later update changed the same branch, tag or value.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only.
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.create_branch("dev", "main")
            >>> undone = repo.undo()
            >>> done_again = repo.redo()
            >>> sorted(repo.list_branches())
            ['dev', 'main']
        """
        self._context.require_version_2()
        return undoing.redo(self._context, dry_run=dry_run)

    def restore_to(self, at: Update | datetime, *, dry_run: bool = False) -> UndoReport:
        """Return to an earlier state of the repository.

        The state has all branches, tags and feature flags, the configuration, the metadata and the status.
        Snapshots of later commits stay in the repository until an expiration or a garbage collection removes
        them. One update makes all changes, and ``undo`` undoes it. Branches that were created later are
        deleted. Tags that were created later are deleted too, and their names cannot be used again: see
        ``dry_run``.

        ``Repository.restore`` is for another purpose: it repairs a lost or damaged file ``repo``.

        Args:
            at: The state after this entry of ``ops_log``, or at this time.
            dry_run: Whether to change nothing, and only to report. ``apply`` of the report makes the changes.

        Returns:
            The changes, and what they delete.

        Raises:
            SessionStateError: ``cannot-undo`` if the state or one of its snapshots was expired or collected,
                or if it has a tag that was deleted since.
            ConflictError: ``repo-info-updated`` if another writer changes the same branch, tag or value at
                the same time.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only, now and at
                this time.
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> start = next(repo.ops_log())
            >>> repo.create_branch("dev", "main")
            >>> repo.set_metadata({"owner": "climate team"})
            >>> len(repo.restore_to(start).changes)
            2
            >>> repo.list_branches(), repo.metadata.get("owner")
            ({'main'}, None)
        """
        self._context.require_version_2()
        return undoing.restore_to(self._context, _time_of(at, "at"), dry_run=dry_run)

    undo_async = awaitable(undo)
    redo_async = awaitable(redo)
    restore_to_async = awaitable(restore_to)


def _time_of(update: Update | datetime, name: str) -> int:
    """Return the time of an update in microseconds since 1970."""
    return from_datetime(update if isinstance(update, datetime) else update.updated_at, name)
