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
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import FormatError, IcechunkError
from frazil.format.columns import I64, U8
from frazil.format.ids import OBJECT_ID_BYTES, id_from_text, id_keys, id_matrix, id_to_text
from frazil.format.repo_info import RepoInfo, SnapshotTable
from frazil.repository.catalog.amendments import Operations

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
