"""The records of commits of jobs and streaming queries, which stay when the commits leave the history.

Such commits have marks in their metadata. A squash, an expiration, an amend or a reset may remove them. So
the metadata of the repository have records, which are written in the same update as the branch:

    frazil.jobs      [{"id": "monday", "snapshot": "1CECHNKREP...", "branch": "main", "work": "5ac9..."}]
    frazil.streams   {query: [{"batch": 7, "snapshot": "1CECHNKREP...", "branch": "main"}]}

Both are newest first. A record of a job without ``branch`` is of a version that has the changes of a removed
commit, ``commit``. ``work`` is a digest of the name and the parameters. A batch is ``alone`` if its snapshot
does not bring the batches before it. Under ``__frazil``, the metadata of a merge or pick have the ``batches``
that it brings, and those ``alone``, each as [query, batch].

A version contains a batch if the snapshot of the batch is in its history, with expired and merged snapshots.
If another implementation amends a commit, the ops log shows which snapshot replaced it. If no place decides,
the result is an error: an unknown batch is never treated as a new batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import inf
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, SessionStateError, StorageError
from frazil.format.columns import I64, U8
from frazil.format.ids import id_from_text, id_keys, id_matrix, id_to_text
from frazil.format.repo_info import RepoInfo, SnapshotEntry, SnapshotTable
from frazil.repository.catalog.ancestry import (
    FRAZIL,
    BranchHistory,
    Operations,
    all_ancestors,
    own_values,
    pruned_ids,
    second_parents,
)
from frazil.repository.catalog.protection import AUDIT, metadata_item
from frazil.repository.catalog.repo_changes import require_snapshot
from frazil.storage.base import Storage

#: A key of the metadata of a repository.
STREAMS: Final = "frazil.streams"
_RESTORE: Final = "If no job or streaming query runs, remove them, otherwise restore them, with"
#: Keys of the metadata of a commit.
QUERY: Final = "spark.query"
BATCH: Final = "spark.batch"

#: The largest number of queries. The records of the oldest queries are dropped.
_QUERIES: Final = 1000
#: The number of the newest batches of a query and branch whose records are always kept.
_RECENT: Final = 2
#: The largest number of records of jobs, and of a query. The newest are kept.
_MOST: Final = 1000
#: The largest number of records of a query for batches alone.
_ALONE: Final = 64


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """The snapshot of a batch. ``alone`` says that it does not have the batches before this batch."""

    batch: int
    snapshot: bytes
    branch: str = ""
    alone: bool = False


#: The records of each query, newest first.
type Records = Mapping[str, Sequence[BatchRecord]]


def read_records(metadata: Mapping[str, Any]) -> dict[str, list[BatchRecord]]:
    """Return the records in the metadata of a repository. Raises ``FormatError``."""
    with metadata_item(metadata, STREAMS, "records of streaming queries", _RESTORE):
        items = metadata.get(STREAMS, {}).items()
        return {query: [_read(BatchRecord, each) for each in documents] for query, documents in items}


def _read[R: (BatchRecord, JobEntry)](cls: type[R], document: Mapping[str, Any]) -> R:
    values = {each.name: document[each.name] for each in fields(cls) if each.name in document}
    return cls(**{name: _READERS[cls.__annotations__[name]](value) for name, value in values.items()})


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "int": int,
    "str": str,
    "bool": bool,
    "bytes": id_from_text,
}


def with_records(info: RepoInfo, new: Records) -> dict[str, Any]:
    """Return the metadata of a repository with new records, and without records that are not needed."""
    queries = read_records(info.metadata)
    for query, records in new.items():
        if records:
            queries[query] = _useful(info, [*records, *queries.get(query, [])])
    for query in _oldest(info, queries, len(queries) - _QUERIES):
        del queries[query]
    return {**info.metadata, STREAMS: {query: list(map(_document, each)) for query, each in queries.items()}}


def _document(record: BatchRecord | JobEntry) -> dict[str, Any]:
    """Return a record as JSON, without fields that are empty."""
    document = {each.name: getattr(record, each.name) for each in fields(record)}
    texts = {
        name: id_to_text(value) for name, value in document.items() if isinstance(value, bytes) and value
    }
    needed = ("id", "batch")
    return {name: value for name, value in {**document, **texts}.items() if value or name in needed}


def _oldest(info: RepoInfo, queries: Records, count: int) -> list[str]:
    """Return the queries whose newest records are the oldest, by the times of their snapshots."""
    if count <= 0:
        return []
    names = [query for query, records in queries.items() if records]
    rows = info.table.find_snapshots(id_matrix([queries[name][0].snapshot for name in names]))
    times = np.where(rows >= 0, info.table.flushed_at()[rows].astype(np.int64), 0)
    return [names[at] for at in np.argsort(times, kind="stable")[:count].tolist()]


def _useful(info: RepoInfo, records: Iterable[BatchRecord]) -> list[BatchRecord]:
    """Return the records of one query that are kept, by the rules of the module."""
    operations = Operations.back_to(info, None, ())
    once = list(
        dict.fromkeys(
            replace(each, snapshot=id_)
            for each in records
            for id_ in (each.snapshot, *operations.replacements(each.snapshot))
        )
    )
    recent: dict[str, list[int]] = {}
    alone = 0
    useful = np.zeros(len(once), np.bool_)
    for at, record in enumerate(once):
        batches = recent.setdefault(record.branch, [])
        if record.alone:
            alone += 1
            useful[at] = alone <= _ALONE
        elif record.batch not in batches and len(batches) < _RECENT:
            batches.append(record.batch)
            useful[at] = True
    lines = [at for at, record in enumerate(once) if not record.alone]
    if lines and not useful.all():
        # Also the newest in the history of each branch and tag, and records of snapshots that are listed, but
        # whose commit does not name the query any more.
        marks, expired = _marks(info.table, id_matrix([once[at].snapshot for at in lines]), len(lines))
        refs = info.table.find_snapshots(id_matrix([*{*info.branches.values(), *info.tags.values()}]))
        newest = np.concatenate([_nearest(info.table, marks, len(lines))[refs], expired])
        useful[np.array(lines, np.int64)[newest[newest < len(lines)]]] = True
    return [record for record, is_useful in zip(once, useful, strict=True) if is_useful][:_MOST]


def _nearest(table: SnapshotTable, marks: I64, nothing: int) -> I64:
    """Return for each snapshot its mark, the mark of the nearest ancestor with one, or ``nothing``.

    The algorithm is pointer jumping: after k rounds, each row has the nearest mark among its 2**k nearest
    ancestors.
    """
    count = len(table)
    ancestors = np.append(np.where(table.parents() < 0, count, table.parents()), count)
    marks = np.append(marks, nothing)
    for _ in range(count.bit_length()):
        marks = np.where(marks == nothing, marks[ancestors], marks)
        ancestors = ancestors[ancestors]
    return marks[:-1]


def _marks(table: SnapshotTable, ids: U8, nothing: int) -> tuple[I64, I64]:
    """Return the number of the record of each snapshot, and the numbers of records without a listed commit.

    A snapshot without a record has the number of the newest record of the snapshots that expired before it.
    """
    marks = np.full(len(table), nothing, np.int64)
    logs, holders = pruned_ids(table, np.arange(len(table)))
    order = np.argsort(id_keys(ids), kind="stable")
    keys = id_keys(ids)[order]
    place = np.minimum(np.searchsorted(keys, id_keys(logs)), len(keys) - 1)
    matches = np.flatnonzero(keys[place] == id_keys(logs))
    # The logs are in order, oldest first, so the last assignment is the newest record.
    marks[holders[matches]] = order[place[matches]]
    alone = marks[marks < nothing]
    rows = table.find_snapshots(ids)
    numbers = np.arange(len(ids))[::-1]  # if a snapshot has two records, the first is assigned last
    numbers = numbers[rows[numbers] >= 0]
    marks[rows[numbers]] = numbers
    stamped = np.isin(rows[numbers], table.mentioning(rows[numbers], QUERY))
    return marks, np.unique(np.concatenate([alone, numbers[~stamped]]))


def with_expiring_batches(info: RepoInfo, keep: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the metadata of a repository before an expiration. ``keep`` has the snapshots that stay, (n,).

    A snapshot whose parent is removed gets a record of the last batch before it.
    """
    table = info.table
    parents = table.parents()
    rows = np.flatnonzero(keep & (parents >= 0) & ~keep[parents])
    new: dict[str, list[BatchRecord]] = {}
    for query, records in read_records(info.metadata).items() if len(rows) else ():
        lines = [each for each in records if not each.alone]
        named = table.mentioning(np.arange(len(table)), QUERY, query)
        stamped = {  # the rows of the commits of the query, and their batches
            row: int(entry.metadata[BATCH])
            for row, entry in zip(named.tolist(), table.entries(named), strict=True)
            if entry.metadata.get(QUERY) == query
        }
        marks = np.full(len(table), -1, np.int64)
        if lines:
            numbers, _ = _marks(table, id_matrix([each.snapshot for each in lines]), len(lines))
            marks = np.append([each.batch for each in lines], -1)[numbers]
        marks[list(stamped)] = list(stamped.values())
        newest = _nearest(table, marks, -1)[rows]
        new[query] = [
            BatchRecord(batch, table.id_of(row))
            for row, batch in zip(rows.tolist(), newest.tolist(), strict=True)
            if batch >= 0 and row not in stamped
        ]
    return with_records(info, new) if any(new.values()) else info.metadata


#: Keys of Frazil's values in the metadata of a merge or pick.
BATCHES: Final = "batches"
ALONE: Final = "alone"


@dataclass(frozen=True, slots=True)
class BatchSet:
    """The batches of one query in a version: all up to ``last`` (-1 for none), and the batches ``alone``.

    ``amended`` has records of commits that another implementation has amended, with the new snapshots. The
    next record stores them.
    """

    last: int
    alone: frozenset[int] = frozenset()
    amended: tuple[BatchRecord, ...] = ()

    def __contains__(self, batch: int) -> bool:
        return batch <= self.last or batch in self.alone


class BatchHistory:
    """The history of a version, and the batches of streaming queries in it."""

    def __init__(self, info: RepoInfo, tip: bytes, storage: Storage | None = None) -> None:
        self._info = info
        self._storage = storage
        self._tip = tip
        self._chain = info.snapshots.chain(require_snapshot(info, tip))

    @cached_property
    def _records(self) -> dict[str, list[BatchRecord]]:
        return read_records(self._info.metadata) if self._info.spec_version > 1 else {}

    def recorded(self, branch: str) -> dict[str, Any]:
        """Return the metadata of the repository with records of the batches of this version."""
        new: dict[str, list[BatchRecord]] = {}
        for query, records in self._records.items():
            with suppress(SessionStateError):  # a batch that is retried gets this error
                last = self.done(query).last
                if last >= 0 and not any(
                    each.batch == last and each.snapshot == self._tip for each in records
                ):
                    new[query] = [BatchRecord(last, self._tip, branch)]
        return with_records(self._info, new) if new else self._info.metadata

    @cached_property
    def _integrated(self) -> list[SnapshotEntry]:
        """The merges, picks and reverts of the branch."""
        snapshots = self._info.snapshots
        return list(snapshots.entries(snapshots.mentioning(self._chain, FRAZIL)))

    @cached_property
    def _line(self) -> BranchHistory:
        """The history of the branch, with merged histories whose commits do not declare their batches."""
        silent = (each for each in self._integrated if BATCHES not in own_values(each.metadata))
        merged = [all_ancestors(self._info, id_) for each in silent for id_ in second_parents(each)]
        return BranchHistory(self._info, np.unique(np.concatenate([self._chain, *merged])))

    def queries(self, other: BatchHistory) -> set[str]:
        """Return the names of the queries that may have batches here, but not in the other history."""
        snapshots = self._info.snapshots
        rows = np.setdiff1d(self._line.rows, other._line.rows)
        entries = snapshots.entries(snapshots.mentioning(rows, QUERY))
        declared = (query for each in self._integrated for query, _, _ in _declared(each))
        return {*self._records, *declared, *(str(entry.metadata[QUERY]) for entry in entries)}

    def done(self, query: str) -> BatchSet:
        """Return the batches of a query."""
        records = self._records.get(query, [])
        is_contained = self._line.contains([each.snapshot for each in records]).tolist() if records else []
        contained = [record for record, is_in in zip(records, is_contained, strict=True) if is_in]
        # Pairs of a batch, and whether it is alone.
        pairs = [(batch, False) for batch in self._of_commits(query)]
        pairs += [
            (batch, is_alone)
            for each in self._integrated
            for name, batch, is_alone in _declared(each)
            if name == query
        ]
        pairs += [(each.batch, each.alone) for each in contained]
        last = max((batch for batch, is_alone in pairs if not is_alone), default=-1)
        done = BatchSet(last, frozenset(batch for batch, is_alone in pairs if is_alone and batch > last))
        elsewhere = [
            record
            for record, is_in in zip(records, is_contained, strict=True)
            if not is_in and record.batch not in done
        ]
        return self._with_amended(done, elsewhere) if elsewhere else done

    def _of_commits(self, query: str) -> list[int]:
        """Return the batches in the metadata of commits: the newest of the branch, and all merged ones."""
        snapshots = self._info.snapshots
        named = snapshots.mentioning(self._chain, QUERY, query)
        # In parts of growing size, because mostly the first part decides.
        ends = np.minimum(2 ** np.arange(1 + len(named).bit_length()), len(named))
        parts = np.split(named, np.unique(ends))
        newest = (entry for part in parts for entry in snapshots.entries(part))
        merged = np.setdiff1d(self._line.rows, self._chain)
        others = snapshots.entries(snapshots.mentioning(merged, QUERY, query))
        last = next((entry for entry in newest if entry.metadata.get(QUERY) == query), None)
        of_query = [entry for entry in others if entry.metadata.get(QUERY) == query]
        return [int(entry.metadata[BATCH]) for entry in (last, *of_query) if entry is not None]

    def _with_amended(self, done: BatchSet, records: list[BatchRecord]) -> BatchSet:
        """Return ``done`` with the batches of commits that another implementation has amended."""
        snapshots = self._info.snapshots
        lost = {
            each.id
            for each in self._integrated
            if BATCHES not in own_values(each.metadata)
            and any(snapshots.find_snapshot(id_) < 0 for id_ in second_parents(each))
        }
        # A commit of the history may replace a snapshot that is not listed, or that has the same parent.
        rows = [snapshots.find_snapshot(each.snapshot) for each in records]
        parents = snapshots.parents()
        near = [
            record
            for record, row in zip(records, rows, strict=True)
            if row < 0 or np.isin(parents[row], self._line.rows)
        ]
        if not near:
            return done
        ids = {each.snapshot for each in near} | lost
        try:
            ops = Operations.back_to(self._info, self._storage, ids)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            raise _unknown(min(ids), f"a part of the ops log is missing ({error.problem})") from error
        moved = []
        for record in near:
            after = ops.replacements(record.snapshot)
            places = [id_ for id_, is_in in zip(after, self._line.contains(after), strict=True) if is_in]
            moved += [replace(record, snapshot=id_) for id_ in places[:1]]
            for merge in lost if not places and snapshots.find_snapshot(record.snapshot) < 0 else ():
                # The merge may be later: also if the ops log does not tell.
                if ops.age.get(merge, -1) < ops.age.get(record.snapshot, inf):
                    raise _unknown(
                        record.snapshot,
                        f"the history that the commit {id_to_text(merge)} has merged was expired",
                    )
        lines = [each.batch for each in moved if not each.alone]
        singles = {each.batch for each in moved if each.alone}
        return BatchSet(max([done.last, *lines]), done.alone | singles, tuple(moved))


def _unknown(id_: bytes, reason: str) -> SessionStateError:
    return SessionStateError(
        f"Frazil cannot find out whether snapshot {id_to_text(id_)}, which a batch of the query has written, "
        f"is part of this branch, because {reason}. Check whether the branch has the rows of the batch. If "
        f"it has, start the query with another txnAppId and after this batch. If it has not, remove the "
        f"record of this snapshot from `{STREAMS}` in the metadata of the repository "
        "(Repository.update_metadata)"
    )


def _declared(entry: SnapshotEntry) -> Iterator[tuple[str, int, bool]]:
    """Yield the query, the batch, and whether it is alone, for all batches that a merge or pick brings."""
    for name, alone in ((BATCHES, False), (ALONE, True)):
        pairs = own_values(entry.metadata).get(name)
        for pair in pairs if isinstance(pairs, list) else ():
            query, batch = pair
            yield str(query), int(batch), alone


def batches_brought(
    info: RepoInfo, source: bytes, into: bytes, storage: Storage
) -> tuple[dict[str, BatchSet], bool]:
    """Return the batches that a merge brings, by query, and whether its metadata must record them."""
    origin, target = BatchHistory(info, source, storage), BatchHistory(info, into, storage)
    brought = {}
    for query in sorted(origin.queries(target)):
        done, present = origin.done(query), target.done(query)
        if done.last > present.last or done.alone - present.alone:
            brought[query] = done
    return brought, bool(brought) or (info.spec_version > 1 and STREAMS in info.metadata)


def batches_between(info: RepoInfo, parent: bytes, id_: bytes) -> list[tuple[str, int]]:
    """Return the queries and batches of the commits in the history of ``id_``, but not of ``parent``."""
    snapshots = info.snapshots
    rows = np.setdiff1d(all_ancestors(info, id_), all_ancestors(info, parent))
    entries = snapshots.entries(snapshots.mentioning(rows, QUERY))
    return sorted({(str(each.metadata[QUERY]), int(each.metadata[BATCH])) for each in entries})


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
_RECENT_JOBS: Final = 64


def read_entries(metadata: Mapping[str, Any]) -> list[JobEntry]:
    """Return the records in the metadata of a repository, newest first. Raises ``FormatError``."""
    with metadata_item(metadata, JOBS, "records of jobs", _RESTORE):
        return [_read(JobEntry, each) for each in metadata.get(JOBS, [])]


def with_entries(info: RepoInfo, new: Iterable[JobEntry]) -> dict[str, Any]:
    """Return the metadata of a repository with new records, and without records that are not needed."""
    entries = list(dict.fromkeys(with_replacements(info, [*new, *read_entries(info.metadata)])))
    rows = info.table.find_snapshots(id_matrix([each.snapshot for each in entries]))
    moved = {each.id for each in entries if not each.branch}
    useful = [
        entry
        for at, (entry, row) in enumerate(zip(entries, rows.tolist(), strict=True))
        if at < _RECENT_JOBS or not entry.branch or (row < 0 and entry.id not in moved)
    ]
    return {**info.metadata, JOBS: list(map(_document, useful[:_MOST]))}


def without_entries(info: RepoInfo, id_: str) -> dict[str, Any]:
    """Return the metadata of a repository without the records of a job or publication."""
    entries = read_entries(info.metadata)
    others = [_document(each) for each in entries if each.id != id_]
    return {**info.metadata, JOBS: others} if len(others) < len(entries) else info.metadata


def with_replacements(info: RepoInfo, entries: Iterable[JobEntry]) -> Iterator[JobEntry]:
    """Yield the records, and after each its copies for snapshots that replaced its snapshot."""
    operations = Operations.back_to(info, None, ())
    for entry in entries:
        yield entry
        for id_ in operations.replacements(entry.snapshot):
            yield replace(entry, snapshot=id_, branch="", commit=b"")


def entries_of(info: RepoInfo) -> list[JobEntry]:
    """Return the records of a repository, newest first. Spec version 1 has none."""
    return read_entries(info.metadata) if info.spec_version > 1 else []


def with_expiring_jobs(info: RepoInfo, after: SnapshotTable) -> dict[str, Any]:
    """Return the metadata of a repository before an expiration, which leaves the snapshots ``after``.

    A snapshot with a new list of removed ancestors gets the records of the jobs of these ancestors.
    """
    entries, table = read_entries(info.metadata), info.table
    # The snapshots that a job or a publication committed, or that a record names.
    named = table.find_snapshots(id_matrix([each.snapshot for each in entries]))
    marked = [table.mentioning(np.arange(len(table)), each) for each in (JOB, AUDIT)]
    commits = np.unique(np.concatenate([named[named >= 0], *marked]))
    number, holders = _places(table, after, commits)
    order = np.argsort(table.flushed_at()[commits[number]], kind="stable")[::-1][:_MOST]
    jobs = _jobs_at(table, commits[number[order]], entries)
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


def _places(table: SnapshotTable, after: SnapshotTable, commits: I64) -> tuple[I64, I64]:
    """Return the numbers of the commits that new lists of removed snapshots have, and the rows of the lists.

    ``commits`` are rows of ``table``. The lists are in rows of ``after``. A commit may be in several lists.
    """
    before = table.find_snapshots(after.ids())
    lengths = after.pruned().lengths
    is_new = (before < 0) | (lengths != table.pruned().lengths[before])
    ids, holders = pruned_ids(after, np.flatnonzero(is_new & (lengths > 0)))
    numbers = np.full(len(table) + 1, -1, np.int64)  # the last is of ids that are not in the table
    numbers[commits] = np.arange(len(commits))
    places = numbers[table.find_snapshots(ids)]
    return places[places >= 0], holders[places >= 0]


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
    """Return the metadata of a repository after the snapshot ``new`` has replaced ``old`` on a branch.

    The new commit has the mark of the job of the old one. It never has the report of an audit, because nobody
    has checked the new version.
    """
    records = {
        query: [replace(each, snapshot=new, branch=branch) for each in records if each.snapshot == old]
        for query, records in read_records(info.metadata).items()
    }
    if any(records.values()):
        info = replace(info, metadata=with_records(info, records))
    entries = [each for each in read_entries(info.metadata) if each.snapshot == old]
    row = info.table.find_snapshot(old)
    own = entries_of_commit(info.table.entry(row)) if row >= 0 else []
    new_entries = [
        *(replace(each, snapshot=new, branch=branch) for each in entries if not each.is_publication),
        *(each.in_version(new) for each in (*entries, *own) if each.is_publication),
    ]
    return with_entries(info, new_entries) if new_entries else info.metadata


def with_expiring(info: RepoInfo, keep: NDArray[np.bool_], after: SnapshotTable) -> dict[str, Any]:
    """Return the metadata of a repository before an expiration."""
    info = replace(info, metadata=with_expiring_batches(info, keep))
    return with_expiring_jobs(info, after)
