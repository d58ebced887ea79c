"""The commits of a branch in order, as a stream reads them.

A position in the history is the id of the last snapshot that was read. It stays valid when snapshots expire:
the format keeps the ids of expired snapshots, and their transaction logs, with the next snapshot that stayed.
A stream gets their changes as one step. A position is lost if the branch was reset, or its commit was
amended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from frazil.errors import ErrorKind, SessionStateError
from frazil.format.columns import I64
from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.repository.clock import to_datetime


@dataclass(frozen=True, slots=True)
class CommitRange:
    """One commit, or several of which all but the last have expired.

    ``logs`` are ids of transaction logs, oldest first. ``before`` and ``after`` are the snapshots before the
    first commit and after the last one. Only the id of an expired commit is left.
    """

    id: bytes
    before: bytes
    after: bytes
    logs: tuple[bytes, ...]
    committed_at: datetime | None = None
    message: str | None = None
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PendingCommits:
    """The commits after a position: rows of the snapshots, oldest first.

    ``read`` are the logs of the first one that the stream has read before.
    """

    info: RepoInfo
    rows: I64
    read: frozenset[bytes] = frozenset()

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, count: int) -> PendingCommits:
        """Return the first ``count`` of these commits."""
        return PendingCommits(self.info, self.rows[:count], self.read)

    @property
    def end(self) -> bytes:
        """The position after them."""
        return self.info.snapshots.id_of(int(self.rows[-1]))

    def ranges(self) -> Iterator[CommitRange]:
        """Return the steps of these commits, oldest first."""
        return (self._step(entry) for entry in self.info.snapshots.entries(self.rows))

    def _step(self, entry: SnapshotEntry) -> CommitRange:
        logs = tuple(id_ for id_ in entry.logs if id_ not in self.read)
        return CommitRange(
            entry.id,
            entry.parent or entry.id,
            entry.id,
            logs,
            to_datetime(entry.flushed_at),
            entry.message,
            entry.metadata,
        )


def commits_after(info: RepoInfo, tip: bytes, start: bytes, *, fail: bool = True) -> PendingCommits:
    """Return the commits after ``start``, up to ``tip``.

    Raises ``SessionStateError`` (``not-allowed``) if ``start`` is not known to be in the history of ``tip``.
    With ``fail=False``, returns those after the last snapshot that both histories have.
    """
    row = info.snapshots.find_snapshot(start)
    parts: list[I64] = []
    for part in info.snapshots.parts(info.snapshots.find_snapshot(tip)):
        if row >= 0 and len(rows := np.flatnonzero(part == row)):
            return PendingCommits(info, np.concatenate([*parts, part[: rows[0]]])[::-1])
        parts.append(part)
    chain = np.concatenate(parts)
    for at, entry in enumerate(info.snapshots.entries(chain)):
        if start in entry.pruned_ancestor_tx_logs:
            read = entry.pruned_ancestor_tx_logs[: entry.pruned_ancestor_tx_logs.index(start) + 1]
            return PendingCommits(info, chain[: at + 1][::-1], frozenset(read))
    if fail:
        raise SessionStateError(
            f"The history of {id_to_text(tip)} must have snapshot {id_to_text(start)}, the last one that the "
            "stream has read. The branch was reset, or the commit was amended. Start with a new checkpoint, "
            "or set the option stream-fail-on-data-loss to false to continue after the last common snapshot",
            ErrorKind.NOT_ALLOWED,
        )
    other_chain = info.snapshots.chain(row) if row >= 0 else chain[-1:]
    return PendingCommits(info, chain[: int(np.argmax(np.isin(chain, other_chain)))][::-1])


def commits_between(
    info: RepoInfo, tip: bytes, start: bytes, end: bytes, *, fail: bool = True
) -> list[CommitRange]:
    """Return the steps after ``start`` up to ``end``, which may have expired meanwhile."""
    if start == end:
        return []
    if info.snapshots.find_snapshot(end) >= 0:
        return list(commits_after(info, end, start, fail=fail).ranges())
    ranges: list[CommitRange] = []
    for commits in commits_after(info, tip, start, fail=fail).ranges():
        if end in commits.logs:
            logs = commits.logs[: commits.logs.index(end) + 1]
            return [*ranges, CommitRange(end, commits.before, commits.after, logs)]
        ranges.append(commits)
    raise SessionStateError(
        f"The history of {id_to_text(tip)} must have snapshot {id_to_text(end)}, the end of a planned batch. "
        "Start with a new checkpoint",
        ErrorKind.NOT_ALLOWED,
    )
