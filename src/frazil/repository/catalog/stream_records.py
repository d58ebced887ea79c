"""The records of micro-batches in the metadata of a repository.

The commit of a batch of a streaming query has the query and the batch in its own metadata. Such a commit may
expire. So the metadata of the repository have a record of it under ``frazil.streams``, which is written in
the same update as the branch:

    {query: [{"batch": 7, "snapshot": "1CECHNKREP0F1RSTCMT0", "branch": "main"}, ...]}    newest first

``branch`` is the branch of the batch. Records of earlier versions do not have it. ``alone`` is true if the
snapshot brings this batch without the batches before it (a commit that was picked from another branch).

A record is kept while it can be needed: the last two batches of each query and branch; the newest record in
the history of each branch and tag; and batches that are in no metadata of a commit any more, because the
commit was expired or another implementation amended it.

A version contains a batch if the snapshot of the batch is in its history. The history is the history of the
branch, with expired snapshots (the format keeps their ids) and with merged histories. The snapshot of a batch
is recorded in three places:

    metadata of its commit          until the commit expires
    metadata of the repository      its record, see ``stream_records``
    metadata of a merge or pick     under ``__frazil``: ``batches`` has the batches that it brings, each as
                                    [query, batch]; ``alone`` has batches without the batches before them

``amend`` of Frazil copies the record and the metadata. With another implementation, the record stays on the
replaced snapshot. Then the ops log shows which snapshot replaced it. It is read back to the commit of the
batch, and only if the replaced snapshot can have been a neighbour of the history.

If no place decides, the result is an error. An unknown batch is never treated as a new batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError, IcechunkError, SessionStateError, StorageError
from frazil.format.columns import I64, U8
from frazil.format.ids import OBJECT_ID_BYTES, id_from_text, id_keys, id_matrix, id_to_text
from frazil.format.repo_info import RepoInfo, SnapshotEntry, SnapshotTable
from frazil.repository.catalog.ancestry import (
    FRAZIL,
    BranchHistory,
    Operations,
    all_ancestors,
    origin_of,
    second_parents,
)
from frazil.repository.catalog.repo_changes import require_snapshot
from frazil.storage.base import Storage

#: A key of the metadata of a repository.
STREAMS: Final = "frazil.streams"
#: Keys of the metadata of a commit.
QUERY: Final = "spark.query"
BATCH: Final = "spark.batch"

#: The largest number of queries. The records of the oldest queries are dropped.
_QUERIES: Final = 1000
#: The number of the newest batches of a query and branch whose records are always kept.
_RECENT: Final = 2
#: The largest number of records of a query. The newest are kept.
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
    """Return the records in the metadata of a repository.

    Raises ``FormatError`` if another value has their key: a batch without its record would be written twice.
    """
    try:
        return {query: list(map(_record, each)) for query, each in metadata.get(STREAMS, {}).items()}
    except (IcechunkError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(
            f"`{STREAMS}` in the metadata of the repository must have records of streaming queries, "
            f"got {str(metadata[STREAMS])[:80]}"
        ).with_remedy(
            "Restore them with Repository.update_metadata, or replace them by {} if no streaming query "
            "writes to this repository",
            "{}",
            shell="",
        ) from error


def _record(document: Mapping[str, Any]) -> BatchRecord:
    return BatchRecord(
        int(document["batch"]),
        id_from_text(document["snapshot"]),
        str(document.get("branch", "")),
        bool(document.get("alone", False)),
    )


def _document(record: BatchRecord) -> dict[str, Any]:
    document = {
        "batch": record.batch,
        "snapshot": id_to_text(record.snapshot),
        "branch": record.branch,
        "alone": record.alone,
    }
    return {name: value for name, value in document.items() if value not in ("", False) or name == "batch"}


def with_records(info: RepoInfo, new: Records) -> dict[str, Any]:
    """Return the metadata of a repository with new records, and without records that are not needed."""
    queries = read_records(info.metadata)
    for query, records in new.items():
        if records:
            queries[query] = _useful(info, [*records, *queries.get(query, [])])
    for query in _oldest(info, queries, len(queries) - _QUERIES):
        del queries[query]
    streams = {query: list(map(_document, each)) for query, each in queries.items()}
    return {**info.metadata, STREAMS: streams}


def _oldest(info: RepoInfo, queries: Records, count: int) -> list[str]:
    """Return the queries whose newest records are the oldest, by the times of their snapshots."""
    if count <= 0:
        return []
    names = [query for query, records in queries.items() if records]
    rows = info.table.find_snapshots(id_matrix([queries[name][0].snapshot for name in names]))
    times = np.where(rows >= 0, info.table.flushed_at()[rows].astype(np.int64), 0)
    return [names[at] for at in np.argsort(times, kind="stable")[:count].tolist()]


def with_amended_batches(info: RepoInfo, old: bytes, new: bytes, branch: str) -> dict[str, Any]:
    """Return the metadata of a repository after the snapshot ``new`` has replaced ``old`` on a branch."""
    records = {
        query: [replace(each, snapshot=new, branch=branch) for each in records if each.snapshot == old]
        for query, records in read_records(info.metadata).items()
    }
    return with_records(info, records) if any(records.values()) else info.metadata


def _useful(info: RepoInfo, records: Iterable[BatchRecord]) -> list[BatchRecord]:
    """Return the records of one query that are kept, by the rules of the module.

    Records of amended commits are repeated with the new snapshot, because the ops log may be lost later.
    """
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
    if not useful.all():
        lines = [at for at, record in enumerate(once) if not record.alone]
        useful[np.array(lines, np.int64)[_newest_of_refs(info, [once[at] for at in lines])]] = True
    return [record for record, is_useful in zip(once, useful, strict=True) if is_useful][:_MOST]


def _newest_of_refs(info: RepoInfo, records: Sequence[BatchRecord]) -> I64:
    """Return the numbers of the records that are the newest in the history of a branch or tag.

    Records of listed snapshots whose commit does not name the query any more are included.
    """
    table = info.table
    nothing = len(records)
    if not nothing:
        return np.zeros(0, np.int64)
    marks, expired = _marks(table, id_matrix([each.snapshot for each in records]), nothing)
    refs = {*info.branches.values(), *info.tags.values()}
    rows = table.find_snapshots(id_matrix(list(refs)))
    newest = np.unique(np.concatenate([_nearest(table, marks, nothing)[rows], expired]))
    return newest[newest < nothing]


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
    pruned = table.pruned().compact()
    logs = np.ascontiguousarray(pruned.values).view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
    order = np.argsort(id_keys(ids), kind="stable")
    keys = id_keys(ids)[order]
    place = np.minimum(np.searchsorted(keys, id_keys(logs)), len(keys) - 1)
    matches = np.flatnonzero(keys[place] == id_keys(logs))
    # The logs are in order, oldest first, so the last assignment is the newest record.
    marks[np.repeat(np.arange(len(table)), pruned.lengths)[matches]] = order[place[matches]]
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
        stamped, batches = _stamped(table, query)
        marks = np.full(len(table), -1, np.int64)
        if lines:
            numbers, _ = _marks(table, id_matrix([each.snapshot for each in lines]), len(lines))
            marks = np.append([each.batch for each in lines], -1)[numbers]
        marks[stamped] = batches
        newest = _nearest(table, marks, -1)[rows]
        new[query] = [
            BatchRecord(batch, table.id_of(row))
            for row, batch in zip(rows.tolist(), newest.tolist(), strict=True)
            if batch >= 0 and row not in stamped
        ]
    return with_records(info, new) if any(new.values()) else info.metadata


def _stamped(table: SnapshotTable, query: str) -> tuple[I64, I64]:
    """Return the rows of the commits of a query, and their batches."""
    rows = table.mentioning(np.arange(len(table)), QUERY, query)
    named = [
        (row, int(entry.metadata[BATCH]))
        for row, entry in zip(rows.tolist(), table.entries(rows), strict=True)
        if entry.metadata.get(QUERY) == query
    ]
    pairs = np.array(named, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


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
    """The history of a version, and the batches of streaming queries in it.

    ``storage`` has the older parts of the ops log. Without it, only the newest part is read.
    """

    def __init__(self, info: RepoInfo, tip: bytes, storage: Storage | None = None) -> None:
        self._info = info
        self._storage = storage
        self._tip = tip
        self._chain = info.snapshots.chain(require_snapshot(info, tip))

    @cached_property
    def _records(self) -> dict[str, list[BatchRecord]]:
        return read_records(self._info.metadata) if self._info.spec_version > 1 else {}

    def recorded(self, branch: str) -> dict[str, Any]:
        """Return the metadata of the repository with records of the batches of this version.

        So a branch that begins at this version still has them after its commits were expired, also by another
        implementation.
        """
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
    def _undeclared(self) -> list[bytes]:
        """Snapshots that were merged by commits which do not declare their batches."""
        silent = (each for each in self._integrated if BATCHES not in origin_of(each))
        return [id_ for each in silent for id_ in second_parents(each)]

    @cached_property
    def _line(self) -> BranchHistory:
        """The history of the branch, with merged histories whose batches are not declared."""
        merged = [all_ancestors(self._info, id_) for id_ in self._undeclared]
        return BranchHistory(self._info, np.unique(np.concatenate([self._chain, *merged])))

    @property
    def _rows(self) -> I64:
        return self._line.rows

    def contains(self, ids: Sequence[bytes]) -> NDArray[np.bool_]:
        """Return whether snapshots are in the history, expired snapshots included; bool, shape (k,)."""
        return self._line.contains(list(ids))

    def queries(self, other: BatchHistory) -> set[str]:
        """Return the names of the queries that may have batches here, but not in the other history."""
        snapshots = self._info.snapshots
        rows = np.setdiff1d(self._rows, other._rows)
        entries = snapshots.entries(snapshots.mentioning(rows, QUERY))
        declared = (query for each in self._integrated for query, _, _ in _declared(each))
        return {*self._records, *declared, *(str(entry.metadata[QUERY]) for entry in entries)}

    def done(self, query: str) -> BatchSet:
        """Return the batches of a query.

        Raises ``SessionStateError`` (``not-allowed``) if Frazil cannot find out whether a batch is here.
        """
        records = self._records.get(query, [])
        is_contained = (
            self.contains([each.snapshot for each in records]) if records else np.zeros(0, np.bool_)
        )
        contained = [record for record, is_in in zip(records, is_contained, strict=True) if is_in]
        last = max(
            [
                *self._of_commits(query),
                *(batch for each in self._integrated for batch in _lines(each, query)),
                *(each.batch for each in contained if not each.alone),
            ],
            default=-1,
        )
        alone = {batch for each in self._integrated for batch in _singles(each, query)}
        alone |= {each.batch for each in contained if each.alone}
        done = BatchSet(last, frozenset(batch for batch in alone if batch > last))
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
        newest = (entry for part in _growing(named) for entry in snapshots.entries(part))
        merged = np.setdiff1d(self._rows, self._chain)
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
            if BATCHES not in origin_of(each)
            and any(snapshots.find_snapshot(id_) < 0 for id_ in second_parents(each))
        }
        near = [each for each in records if self._may_be_replaced(each.snapshot)]
        if not near:
            return done
        ops = self._operations({each.snapshot for each in near} | lost)
        moved = []
        for record in near:
            after = ops.replacements(record.snapshot)
            is_contained = self.contains(after) if after else np.zeros(0, np.bool_)
            places = [id_ for id_, is_in in zip(after, is_contained, strict=True) if is_in]
            moved += [replace(record, snapshot=id_) for id_ in places[:1]]
            for merge in lost if not places and snapshots.find_snapshot(record.snapshot) < 0 else ():
                if ops.is_later(merge, record.snapshot):
                    raise _unknown(
                        record.snapshot,
                        f"the history that the commit {id_to_text(merge)} has merged was expired",
                    )
        lines = [each.batch for each in moved if not each.alone]
        singles = {each.batch for each in moved if each.alone}
        return BatchSet(max([done.last, *lines]), done.alone | singles, tuple(moved))

    def _may_be_replaced(self, id_: bytes) -> bool:
        """Return whether a commit of the history may replace a snapshot, as both have the same parent."""
        snapshots = self._info.snapshots
        row = snapshots.find_snapshot(id_)
        return row < 0 or bool(np.isin(snapshots.parents()[row], self._rows))

    def _operations(self, ids: set[bytes]) -> Operations:
        try:
            return Operations.back_to(self._info, self._storage, ids)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            raise _unknown(min(ids), f"a part of the ops log is missing ({error.problem})") from error


def _unknown(id_: bytes, reason: str) -> SessionStateError:
    return SessionStateError(
        f"Frazil cannot find out whether snapshot {id_to_text(id_)}, which a batch of the query has written, "
        f"is part of this branch, because {reason}. Check whether the branch has the rows of the batch. If "
        f"it has, start the query with another txnAppId and after this batch. If it has not, remove the "
        f"record of this snapshot from `{STREAMS}` in the metadata of the repository "
        "(Repository.update_metadata)",
        ErrorKind.NOT_ALLOWED,
    )


def _growing(rows: I64) -> list[I64]:
    """Return the rows in parts of growing size, because mostly the first part decides."""
    ends = np.minimum(2 ** np.arange(1 + len(rows).bit_length()), len(rows))
    return np.split(rows, np.unique(ends))


def _declared(entry: SnapshotEntry) -> Iterator[tuple[str, int, bool]]:
    """Yield the query, the batch, and whether it is alone, for all batches that a merge or pick brings."""
    for name, alone in ((BATCHES, False), (ALONE, True)):
        pairs = origin_of(entry).get(name)
        for pair in pairs if isinstance(pairs, list) else ():
            query, batch = pair
            yield str(query), int(batch), alone


def _lines(entry: SnapshotEntry, query: str) -> Iterator[int]:
    return (batch for name, batch, alone in _declared(entry) if name == query and not alone)


def _singles(entry: SnapshotEntry, query: str) -> Iterator[int]:
    return (batch for name, batch, alone in _declared(entry) if name == query and alone)


def batches_brought(
    info: RepoInfo, source: bytes, into: bytes, storage: Storage
) -> tuple[dict[str, BatchSet], bool]:
    """Return the batches that a merge of ``source`` brings to ``into``, by query.

    The second value says whether the metadata of the merge must record them.
    """
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
