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
from frazil.repository.catalog import job_entry, job_records, stream_batches, stream_records
from frazil.repository.catalog.lineage import FRAZIL

#: Items of the metadata of a commit that an amend copies: its batch of a streaming query, its job, and the
#: commits that it has merged. The new commit contains the changes of the replaced commit.
CARRIED: Final = (stream_records.QUERY, stream_records.BATCH, job_entry.JOB, FRAZIL)


def recorded_snapshots(info: RepoInfo) -> list[bytes]:
    """Return the snapshots that records name. They may be removed from the history."""
    jobs = job_records.read_entries(info.metadata)
    streams = stream_records.read_records(info.metadata).values()
    of_streams = (record.snapshot for records in streams for record in records)
    of_jobs = (id_ for each in jobs for id_ in (each.snapshot, each.commit) if id_)
    return [*of_streams, *of_jobs]


def with_branch(info: RepoInfo, tip: bytes, branch: str) -> dict[str, Any]:
    """Return the metadata of a repository after ``branch`` has moved to ``tip``."""
    if stream_records.STREAMS not in info.metadata:
        return info.metadata
    return stream_batches.BatchHistory(info, tip).recorded(branch)


def with_amended(info: RepoInfo, old: bytes, new: bytes, branch: str) -> dict[str, Any]:
    """Return the metadata of a repository after the snapshot ``new`` has replaced ``old`` on a branch."""
    info = replace(info, metadata=stream_records.with_amended(info, old, new, branch))
    return job_records.with_amended_job(info, old, new, branch)


def with_expiring(info: RepoInfo, keep: NDArray[np.bool_], after: SnapshotTable) -> dict[str, Any]:
    """Return the metadata of a repository before an expiration."""
    info = replace(info, metadata=stream_records.with_expiring(info, keep))
    return job_records.with_expired_jobs(info, after)
