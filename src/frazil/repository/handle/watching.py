"""The method of ``Repository`` that waits for new versions of a branch."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.asynchronous import BothWays
from frazil.repository.catalog.repo_requirements import branch_tip
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.history.branch_watch import BranchVersion, Watch

#: The values of the methods are public, so that `frazil.snapshots` imports them from this room.
__all__ = ["BranchVersion", "Watch", "Watching"]

_INTERVAL: Final = timedelta(seconds=5)


class Watching(RepositoryBase):
    """Methods of ``Repository`` that wait for new versions."""

    def watch(
        self,
        branch: str = "main",
        *,
        cursor: str | None = None,
        interval: timedelta = _INTERVAL,
        timeout: timedelta | None = None,
    ) -> Watch:
        """Return an iterator of the new versions of a branch, which waits for the next version.

        Every version that the branch has had after the cursor comes exactly once, oldest first: also versions
        that a reset took away since, and those of times when nobody watched. A program that stores the
        ``cursor`` of each version after its work continues there when it starts again.

        While nothing changes, a poll makes one request, for the headers of one file, and of local storages
        for the file.

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
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Examples:
            >>> import frazil, zarr
            >>> from datetime import timedelta
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> watch = repo.watch("main", timeout=timedelta(0))
            >>> with repo.transaction("main", message="a group") as store:
            ...     group = zarr.create_group(store, path="g")
            >>> [repo.lookup_snapshot(version.snapshot_id).message for version in watch]
            ['a group']
            >>> repo.watch("main", cursor=watch.cursor).poll()
            []
        """
        self._context.require_version_2()
        for name, duration in (("interval", interval), ("timeout", timeout)):
            if duration is not None and duration < timedelta(0):
                raise InvalidInputError(
                    f"{name} must not be negative, got {duration}", ErrorKind.INVALID_ARGUMENT
                )
        if cursor is None:
            branch_tip(self._info(), branch)
        return Watch(self._context, branch, cursor, interval, timeout)

    def watch_async(
        self,
        branch: str = "main",
        *,
        cursor: str | None = None,
        interval: timedelta = _INTERVAL,
        timeout: timedelta | None = None,
    ) -> BothWays[BranchVersion]:
        """Return the result of ``watch``, for ``async for``."""
        return BothWays(self.watch(branch, cursor=cursor, interval=interval, timeout=timeout))
