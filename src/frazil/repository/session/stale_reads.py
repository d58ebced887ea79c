"""Stale reads: reads of a session that other commits have changed since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from frazil.changes.node_changes import node_changes_of_logs
from frazil.changes.reads import ReadSet, StaleRead, stale_reads
from frazil.errors import StaleReadError
from frazil.format.ids import id_to_text
from frazil.repository.catalog.context import Context
from frazil.repository.session.commit_range import CommitLogs, commits_between, read_logs

#: A message lists this number of stale reads, and the number of the others.
_LISTED: Final = 5


def require_unchanged(context: Context, reads: ReadSet, start: bytes, end: bytes) -> None:
    """Raise ``StaleReadError`` if commits after ``start``, up to ``end``, have changed one of ``reads``."""
    if start == end or not reads:
        return
    commits = commits_between(context.catalog.repo_info(), start, end)
    if stale := stale_in(context, reads, start, commits):
        raise stale_error(context, reads, start, commits, stale)


def stale_in(
    context: Context, reads: ReadSet, start: bytes, commits: Sequence[CommitLogs]
) -> list[StaleRead]:
    """Return the reads of the snapshot ``start`` that the commits have changed."""
    before, after = (context.assets.snapshot(id_).nodes for id_ in (start, commits[-1].snapshot))
    return stale_reads(reads, node_changes_of_logs(read_logs(context.assets, commits), before, after))


def stale_error(
    context: Context, reads: ReadSet, start: bytes, commits: Sequence[CommitLogs], stale: list[StaleRead]
) -> StaleReadError:
    """Return the error for the stale reads, with the first snapshot that changed one of them."""
    culprit = commits[-1].snapshot
    for commit in commits if len(commits) > 1 else ():
        if stale_in(context, reads, start, [commit]):
            culprit = commit.snapshot
            break
        start = commit.snapshot
    snapshot = id_to_text(culprit)
    listing = "; ".join(map(str, stale[:_LISTED]))
    rest = f"; and {len(stale) - _LISTED} more" if len(stale) > _LISTED else ""
    return StaleReadError(
        snapshot,
        stale,
        f"other writers changed data that this session has read, first in snapshot {snapshot}: "
        f"{listing}{rest}. The data that the session wrote may be wrong, so nothing was committed. Read and "
        "write again in a new session",
    )
