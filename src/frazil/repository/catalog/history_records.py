"""The records in the metadata of a repository that each change of a history carries on.

Commits of streaming queries and of jobs have marks in their metadata. When such a commit leaves the history,
a record in the metadata of the repository takes its place: ``stream_records`` and ``job_records``. Operations
that remove or replace commits call the functions of this module, for all kinds of records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.repo_info import RepoInfo, SnapshotTable
from frazil.repository.catalog.job_entry import JOB
from frazil.repository.catalog.job_records import read_entries, with_amended_jobs, with_expiring_jobs
from frazil.repository.catalog.lineage import FRAZIL
from frazil.repository.catalog.stream_batches import BatchHistory
from frazil.repository.catalog.stream_records import (
    BATCH,
    QUERY,
    STREAMS,
    read_records,
    with_amended_batches,
    with_expiring_batches,
)

#: Items of the metadata of a commit that an amend copies: its batch of a streaming query, its job, and the
#: commits that it has merged. The new commit contains the changes of the replaced commit.
CARRIED: Final = (QUERY, BATCH, JOB, FRAZIL)


def recorded_snapshots(info: RepoInfo) -> list[bytes]:
    """Return the snapshots that records name. They may be removed from the history."""
    jobs = read_entries(info.metadata)
    streams = read_records(info.metadata).values()
    of_streams = (record.snapshot for records in streams for record in records)
    of_jobs = (id_ for each in jobs for id_ in (each.snapshot, each.commit) if id_)
    return [*of_streams, *of_jobs]


def with_branch(info: RepoInfo, tip: bytes, branch: str) -> dict[str, Any]:
    """Return the metadata of a repository after ``branch`` has moved to ``tip``."""
    if STREAMS not in info.metadata:
        return info.metadata
    return BatchHistory(info, tip).recorded(branch)


def with_amended(info: RepoInfo, old: bytes, new: bytes, branch: str) -> dict[str, Any]:
    """Return the metadata of a repository after the snapshot ``new`` has replaced ``old`` on a branch."""
    info = replace(info, metadata=with_amended_batches(info, old, new, branch))
    return with_amended_jobs(info, old, new, branch)


def with_expiring(info: RepoInfo, keep: NDArray[np.bool_], after: SnapshotTable) -> dict[str, Any]:
    """Return the metadata of a repository before an expiration."""
    info = replace(info, metadata=with_expiring_batches(info, keep))
    return with_expiring_jobs(info, after)
