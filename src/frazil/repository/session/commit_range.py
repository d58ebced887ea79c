"""The commits from one snapshot to another, and their transaction logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from frazil.errors import ErrorKind, SessionStateError
from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.format.transaction_log import TransactionLog
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.repo_requirements import require_base, require_snapshot


@dataclass(frozen=True, slots=True)
class CommitLogs:
    """A commit with the ids of the transaction logs since the commit before it."""

    snapshot: bytes
    logs: tuple[bytes, ...]


def commits_between(info: RepoInfo, start: bytes, end: bytes) -> list[CommitLogs]:
    """Return the commits after ``start`` up to ``end``, oldest first.

    If ``start`` is not an ancestor of ``end``, because the branch was reset or its tip was amended, the
    result has one item. It has the logs from ``start`` back to the common ancestor, and from there to
    ``end``, without those of expired versions that both have: nothing differs by their changes.

    Raises ``SnapshotNotFoundError`` if ``start`` is not listed and no listed snapshot names it.
    """
    table = info.snapshots
    first = table.find_snapshot(start)
    commits: list[CommitLogs] = []
    rows: list[int] = []
    # In parts, because in a repository of version 1 every ancestor is a file to read.
    for part in table.parts(require_snapshot(info, end)):
        for row, entry in zip(part.tolist(), table.entries(part), strict=True):
            if row == first:
                return commits[::-1]
            logs = entry.logs
            if start in logs:  # the start was expired, or only other refs contain it
                commits.append(CommitLogs(entry.id, logs[logs.index(start) + 1 :]))
                return commits[::-1]
            commits.append(CommitLogs(entry.id, logs))
            rows.append(row)
    require_base(info, start)
    back = table.chain(first)
    left = back[: int(np.argmax(np.isin(back, rows)))]
    ancestor = rows.index(int(back[len(left)]))
    of_start = [id_ for entry in table.entries(left) for id_ in entry.logs]
    of_end = [id_ for commit in commits[:ancestor][::-1] for id_ in commit.logs]
    common = {*of_start} & {*of_end}
    return [CommitLogs(end, tuple(id_ for id_ in (*of_start, *of_end) if id_ not in common))]


def read_logs(assets: Assets, commits: Sequence[CommitLogs]) -> list[TransactionLog]:
    """Return the transaction logs of some commits.

    Raises ``SessionStateError`` (``rebase-tx-log-pruned``) if a log was deleted: its changes cannot be
    compared.
    """
    ids = [id_ for commit in commits for id_ in commit.logs]
    logs = assets.transaction_logs(ids)
    for id_, log in zip(ids, logs, strict=True):
        if log is None:
            raise SessionStateError(
                f"the transaction log of snapshot {id_to_text(id_)} was deleted, so its changes are not "
                "known. Make your changes again in a new session",
                ErrorKind.REBASE_TX_LOG_PRUNED,
            )
    return [log for log in logs if log is not None]
