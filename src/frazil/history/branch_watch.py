"""The new versions of a branch, from the ops log, each exactly once.

A cursor is the time of an update in the ops log. Times are unique and ascending.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Final

import numpy as np

from frazil import host
from frazil.display import Record, Shown, literal, utc
from frazil.errors import ErrorKind, InvalidInputError, SessionStateError
from frazil.format.ids import REPO, id_to_text
from frazil.format.repo_info import OpsEntry, RepoInfo, UpdateKind
from frazil.remedies import call
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_update import newest_update, ops_parts
from frazil.repository.clock import to_datetime, utc_text
from frazil.storage.checks import skip_missing

_KINDS: Final = {
    UpdateKind.NEW_COMMIT: "commit",
    UpdateKind.COMMIT_AMENDED: "amend",
    UpdateKind.BRANCH_RESET: "reset",
    UpdateKind.BRANCH_CREATED: "created",
    UpdateKind.BRANCH_DELETED: "deleted",
}


@dataclass(frozen=True, slots=True, repr=False)
class BranchVersion(Record):
    """A version that a branch has had.

    Attributes:
        snapshot_id: The id of the snapshot. None if the branch was deleted, or if the snapshot was expired
            since, so that it is not known.
        kind: ``commit``, ``amend``, ``reset`` (also a merge without a commit, and an undo), ``created`` or
            ``deleted``.
        updated_at: The time of the update.
        cursor: The cursor after this version, for ``Repository.history.watch``.
    """

    snapshot_id: str | None
    kind: str
    updated_at: datetime
    cursor: str

    shown_as: ClassVar[str] = "snapshots.BranchVersion"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "snapshot_id", str(self.snapshot_id)
        yield "kind", self.kind
        yield "updated_at", utc(self.updated_at)
        yield "cursor", literal(self.cursor)


class Watch(Iterator[BranchVersion]):
    """The new versions of a branch, oldest first. ``Repository.history.watch`` creates it.

    ``next`` waits for a version. ``poll`` does not wait.

    Attributes:
        cursor: The cursor after the last version that ``next`` or ``poll`` has returned.
    """

    def __init__(
        self,
        context: Context,
        branch: str,
        cursor: str | None,
        interval: timedelta,
        timeout: timedelta | None,
    ) -> None:
        self._context = context
        self._branch = branch
        self._interval = interval.total_seconds()
        self._timeout = None if timeout is None else timeout.total_seconds()
        self._etag: str | None = None
        self._has_etags = True
        self._ready: deque[BranchVersion] = deque()
        if cursor is None:
            cursor = str(newest_update(context.catalog.repo_info()))
        if not cursor.isdecimal():
            raise InvalidInputError(
                f"cursor must be the cursor of a version that an earlier watch returned, got {cursor!r:.80}",
                ErrorKind.INVALID_ARGUMENT,
            )
        self._read_until = int(cursor)
        self.cursor: str = cursor

    def __next__(self) -> BranchVersion:
        start = host.monotonic_seconds()
        while not self._ready:
            self._request()
            if self._ready:
                break
            if self._timeout is not None and host.monotonic_seconds() - start >= self._timeout:
                raise StopIteration
            host.pause(self._interval)
        version = self._ready.popleft()
        self.cursor = version.cursor
        return version

    def poll(self) -> list[BranchVersion]:
        """Return the versions since the last call, without waiting.

        Returns:
            The versions, oldest first. Empty if there are none.

        Raises:
            SessionStateError: ``cursor-lost`` if the ops log does not reach back to the cursor.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.history.watch("main").poll()
            []
        """
        self._request()
        versions = list(self._ready)
        self._ready.clear()
        if versions:
            self.cursor = versions[-1].cursor
        return versions

    def _request(self) -> None:
        """Make one request for the headers of ``repo``, and read the file if it has changed."""
        etag = None
        if self._has_etags:
            headers = self._context.storage.head(REPO)
            self._has_etags = headers is None or headers.etag is not None
            etag = None if headers is None else headers.etag
        if etag is not None and etag == self._etag:
            return
        info = self._context.catalog.repo_info()
        self._ready.extend(versions_since(self._context, info, self._branch, self._read_until))
        # The file may have changed between the two requests. Then the next poll reads it again.
        self._read_until = max(self._read_until, newest_update(info))
        self._etag = etag


def versions_since(context: Context, info: RepoInfo, branch: str, cursor: int) -> list[BranchVersion]:
    """Return the versions that a branch got by updates after ``cursor``, oldest first."""
    versions: list[BranchVersion] = []
    after = info.branches.get(branch)
    for entry in _entries_since(context, info, branch, cursor):
        tip = entry.new_snapshot or after
        is_deleted = entry.kind is UpdateKind.BRANCH_DELETED
        text = None if tip is None or is_deleted else id_to_text(tip)
        time = entry.updated_at
        versions.append(BranchVersion(text, _KINDS[entry.kind], to_datetime(time), str(time)))
        # The snapshot before the update: None if it is not known, or did not exist.
        after = entry.previous_snapshot
        row = -1 if after or not entry.new_snapshot else info.snapshots.find_snapshot(entry.new_snapshot)
        if row >= 0 and not (commit := info.snapshots.entry(row)).pruned_ancestor_tx_logs:
            after = commit.parent
    return versions[::-1]


def _entries_since(context: Context, info: RepoInfo, branch: str, cursor: int) -> Iterator[OpsEntry]:
    """Yield the updates of a branch after the cursor, newest first."""
    with skip_missing():
        for _, part in ops_parts(context.storage, info):
            times = part.ops.updated_at
            count = int(np.count_nonzero(times > np.uint64(cursor)))
            rows = np.flatnonzero(np.isin(part.ops.kinds[:count], list(_KINDS)))
            names = part.ops.names.take(rows).texts()
            yield from (
                part.ops.entry(row) for row, name in zip(rows.tolist(), names, strict=True) if name == branch
            )
            if count < len(times):
                if int(times[count]) != cursor:
                    break
                return
    raise SessionStateError(
        f"the ops log does not have the update at {utc_text(cursor)}, so versions of `{branch}` may be "
        "missing: a garbage collection has cut the log, or the repository was restored from a backup",
        ErrorKind.CURSOR_LOST,
    ).with_remedy("Compare the branch with `{}`, and watch it without a cursor", call("ancestry"))
