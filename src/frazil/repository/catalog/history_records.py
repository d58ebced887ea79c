"""The records in the metadata of a repository that each change of a history carries on, and those of jobs.

Commits of streaming queries and of jobs have marks in their metadata. When such a commit leaves the history,
a record in the metadata of the repository takes its place: one of ``stream_records``, or one of a job.
Operations that remove or replace commits call the functions of this module, for all kinds of records.

A publication (``frazil.pipeline.write_audit_publish``) ends with a commit that has the report of its check.
Its record has the id of the publication after a prefix, because a job may have the same id.

The commit of a job has the id of the job in its own metadata. A squash, an expiration, an amend or a reset
may remove this commit from its branch before another driver of the same job ends. So the metadata of the
repository have records under ``frazil.jobs``, which are written in the same update as the branch:

    [{"id": "monday", "snapshot": "1CECHNKREP0F1RSTCMT0", "branch": "main", "work": "5ac9..."}, ...]

A record with ``branch`` is of the commit of the job on this branch. A record without it is of a version that
has the changes of a removed commit, and ``commit`` is the id of this commit. ``work`` is a digest of the name
and the parameters of the job. Publications have such records too.

A record is kept while it can be needed: the newest records, for drivers that run now; and records of commits
that are not listed any more. The number of all records is limited, and the newest are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import FormatError, IcechunkError
from frazil.format.columns import I64
from frazil.format.ids import OBJECT_ID_BYTES, id_from_text, id_keys, id_matrix, id_to_text
from frazil.format.repo_info import RepoInfo, SnapshotEntry, SnapshotTable
from frazil.repository.catalog.ancestry import FRAZIL, Operations
from frazil.repository.catalog.protection import AUDIT
from frazil.repository.catalog.stream_records import (
    BATCH,
    QUERY,
    STREAMS,
    BatchHistory,
    read_records,
    with_amended_batches,
    with_expiring_batches,
)

#: The key of the record of a job in the metadata of its commit.
JOB: Final = "frazil_job"
_PUBLICATION: Final = f"{AUDIT}:"


@dataclass(frozen=True, slots=True)
class JobEntry:
    """The commit of a job on a branch; without a branch, a version that has the changes of this commit."""

    id: str
    snapshot: bytes
    branch: str = ""
    work: str = ""
    commit: bytes = b""

    def in_version(self, snapshot: bytes) -> JobEntry:
        """Return the record for a version that has the changes of the commit."""
        return replace(self, snapshot=snapshot, branch="", commit=self.commit or self.snapshot)

    @property
    def is_publication(self) -> bool:
        """Whether the commit is that of a publication."""
        return self.id.startswith(_PUBLICATION)


def publication_id(id_: str) -> str:
    """Return the id of the records of a publication."""
    return _PUBLICATION + id_


def entries_of_commit(commit: SnapshotEntry) -> list[JobEntry]:
    """Return the records of a commit, from its own metadata."""
    job, audit = commit.metadata.get(JOB), commit.metadata.get(AUDIT)
    entries = []
    if isinstance(job, dict) and "id" in job:
        entries.append(JobEntry(str(job["id"]), commit.id, work=str(job.get("work", ""))))
    if isinstance(audit, dict) and isinstance(audit.get("id"), str):
        entries.append(JobEntry(publication_id(audit["id"]), commit.id))
    return entries


#: A key of the metadata of a repository.
JOBS: Final = "frazil.jobs"
#: The number of the newest records that are always kept.
_RECENT: Final = 64
#: The largest number of records.
_MOST: Final = 1000


def read_entries(metadata: Mapping[str, Any]) -> list[JobEntry]:
    """Return the records in the metadata of a repository, newest first.

    Raises ``FormatError`` if another value has their key: a job without its record would be committed twice.
    """
    try:
        return [_entry(each) for each in metadata.get(JOBS, [])]
    except (IcechunkError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(
            f"`{JOBS}` in the metadata of the repository must have records of jobs, got "
            f"{str(metadata[JOBS])[:80]}"
        ).with_remedy(
            "Restore them with Repository.update_metadata, or replace them by [] if no job is running",
            shell="",
        ) from error


def _entry(document: Mapping[str, Any]) -> JobEntry:
    branch, work, commit = (str(document.get(name, "")) for name in ("branch", "work", "commit"))
    snapshot = id_from_text(document["snapshot"])
    return JobEntry(str(document["id"]), snapshot, branch, work, id_from_text(commit) if commit else b"")


def _document(entry: JobEntry) -> dict[str, str]:
    document = {
        "id": entry.id,
        "snapshot": id_to_text(entry.snapshot),
        "branch": entry.branch,
        "work": entry.work,
        "commit": id_to_text(entry.commit) if entry.commit else "",
    }
    return {name: value for name, value in document.items() if value or name == "id"}


def with_entries(info: RepoInfo, new: Iterable[JobEntry]) -> dict[str, Any]:
    """Return the metadata of a repository with new records, and without records that are not needed."""
    entries = list(dict.fromkeys(with_replacements(info, [*new, *read_entries(info.metadata)])))
    return {**info.metadata, JOBS: list(map(_document, _useful(info, entries)))}


def without_entries(info: RepoInfo, id_: str) -> dict[str, Any]:
    """Return the metadata of a repository without the records of a job or publication."""
    entries = read_entries(info.metadata)
    others = [_document(each) for each in entries if each.id != id_]
    return {**info.metadata, JOBS: others} if len(others) < len(entries) else info.metadata


def _useful(info: RepoInfo, entries: Sequence[JobEntry]) -> list[JobEntry]:
    rows = info.table.find_snapshots(id_matrix([each.snapshot for each in entries]))
    moved = {each.id for each in entries if not each.branch}
    useful = [
        entry
        for at, (entry, row) in enumerate(zip(entries, rows.tolist(), strict=True))
        if at < _RECENT or not entry.branch or (row < 0 and entry.id not in moved)
    ]
    return useful[:_MOST]


def with_replacements(info: RepoInfo, entries: Iterable[JobEntry]) -> Iterator[JobEntry]:
    """Yield the records, and after each its copies for snapshots that replaced its snapshot.

    The ops log names the commits that other implementations amended.
    """
    operations = Operations.back_to(info, None, ())
    for entry in entries:
        yield entry
        for id_ in operations.replacements(entry.snapshot):
            yield replace(entry, snapshot=id_, branch="", commit=b"")


def entries_of(info: RepoInfo) -> list[JobEntry]:
    """Return the records of a repository, newest first. Spec version 1 has none."""
    return read_entries(info.metadata) if info.spec_version > 1 else []


def with_amended_jobs(info: RepoInfo, old: bytes, new: bytes, branch: str) -> dict[str, Any]:
    """Return the metadata of a repository after the snapshot ``new`` has replaced ``old`` on a branch.

    The new commit has the mark of the job of the old one. It never has the report of an audit, because nobody
    has checked the new version.
    """
    entries = [each for each in read_entries(info.metadata) if each.snapshot == old]
    row = info.table.find_snapshot(old)
    own = entries_of_commit(info.table.entry(row)) if row >= 0 else []
    publications = [each for each in (*entries, *own) if each.is_publication]
    new_entries = [
        *(replace(each, snapshot=new, branch=branch) for each in entries if not each.is_publication),
        *(each.in_version(new) for each in publications),
    ]
    return with_entries(info, new_entries) if new_entries else info.metadata


def with_expiring_jobs(info: RepoInfo, after: SnapshotTable) -> dict[str, Any]:
    """Return the metadata of a repository before an expiration, which leaves the snapshots ``after``.

    A snapshot with a new list of removed ancestors gets the records of the jobs of these ancestors.
    """
    entries = read_entries(info.metadata)
    commits = _commits_of_jobs(info.table, entries)
    number, holders = _places(info.table, after, commits)
    order = np.argsort(info.table.flushed_at()[commits[number]], kind="stable")[::-1][:_MOST]
    jobs = _jobs_at(info.table, commits[number[order]], entries)
    new = [
        job.in_version(after.id_of(holder))
        for holder, of_commit in zip(holders[order].tolist(), jobs, strict=True)
        for job in of_commit
    ]
    if not new:
        return info.metadata
    moved = {each.id for each in new}
    stale = {
        each
        for each in entries
        if not each.branch and each.id in moved and after.find_snapshot(each.snapshot) < 0
    }
    left = [_document(each) for each in entries if each not in stale]
    return with_entries(replace(info, metadata={**info.metadata, JOBS: left}), new)


def _commits_of_jobs(table: SnapshotTable, entries: Sequence[JobEntry]) -> I64:
    """Return the rows of snapshots that a job or a publication committed, or that a record names."""
    named = table.find_snapshots(id_matrix([each.snapshot for each in entries]))
    rows = np.arange(len(table))
    return np.unique(
        np.concatenate([named[named >= 0], *(table.mentioning(rows, each) for each in (JOB, AUDIT))])
    )


def _places(table: SnapshotTable, after: SnapshotTable, commits: I64) -> tuple[I64, I64]:
    """Return the numbers of the commits that new lists of removed snapshots have, and the rows of the lists.

    ``commits`` are rows of ``table``. The lists are in rows of ``after``. A commit may be in several lists.
    """
    before = table.find_snapshots(after.ids())
    lengths = after.pruned().lengths
    is_new = (before < 0) | (lengths != table.pruned().lengths[before])
    rows = np.flatnonzero(is_new & (lengths > 0))
    lists = after.pruned().take(rows).compact()
    ids = np.ascontiguousarray(lists.values).view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
    keys, wanted = id_keys(table.ids()[commits]), id_keys(ids)
    if not len(keys):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)  # tables are sorted by id
    matches: NDArray[np.bool_] = keys[place] == wanted
    return place[matches], np.repeat(rows, lists.lengths)[matches]


def _jobs_at(table: SnapshotTable, rows: I64, entries: Sequence[JobEntry]) -> Iterator[list[JobEntry]]:
    """Yield the records of each row: those in the metadata of the commit, and those that name it."""
    named: dict[bytes, list[JobEntry]] = {}
    for each in entries:
        named.setdefault(each.snapshot, []).append(each)
    for commit in table.entries(rows):
        own = entries_of_commit(commit)
        yield list(dict.fromkeys([*own, *(replace(each, branch="") for each in named.get(commit.id, ()))]))


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
