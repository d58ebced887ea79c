"""Records of micro-batches in the metadata of a repository.

A commit that does a batch of a streaming query names the query and the batch in its own metadata. Such a
commit may expire. So a record of it is kept under ``frazil.streams``, and changes in the same update of the
repository as the branch does:

    {query: [{"batch": 7, "snapshot": "1CECHNKREP0F1RSTCMT0", "branch": "main"}, ...]}    newest first

``branch`` is the branch that the batch is for; records of earlier versions have none. ``alone`` is true where
the snapshot brings this batch without those before it (a commit that was picked from another branch).

A record is kept while it can decide something: the last two batches of each query and branch; for each
branch and tag the newest record in its history; and batches that no metadata of a commit names any more,
because the commit expired or another implementation amended it.
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

#: In the metadata of a repository.
STREAMS: Final = "frazil.streams"
#: In the metadata of a commit.
QUERY: Final = "spark.query"
BATCH: Final = "spark.batch"

# Queries that are no more leave their records: the oldest go.
_QUERIES: Final = 1000
#: Batches of a query and branch whose records are kept in any case.
_RECENT: Final = 2
#: Records of a query: no more than these, the newest of them.
_MOST: Final = 1000
#: Records of a query that are about one batch alone: no more than these.
_ALONE: Final = 64


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """The snapshot that a batch has made; ``alone``: without the batches before it."""

    batch: int
    snapshot: bytes
    branch: str = ""
    alone: bool = False


#: The records of each query, newest first.
type Records = Mapping[str, Sequence[BatchRecord]]


def read_records(metadata: Mapping[str, Any]) -> dict[str, list[BatchRecord]]:
    """Return the records in the metadata of a repository.

    Raises ``FormatError`` where something else is under their key: a batch that is taken for new would be
    written twice.

    >>> snapshot = "1CECHNKREP0F1RSTCMT0"
    >>> records = read_records({STREAMS: {"q": [{"batch": 3, "snapshot": snapshot}]}})
    >>> records["q"][0].batch, records["q"][0].branch
    (3, '')
    """
    try:
        return {query: list(map(_record, each)) for query, each in metadata.get(STREAMS, {}).items()}
    except (IcechunkError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(
            f"expected records of streaming queries under `{STREAMS}` in the metadata of the repository, "
            f"found {str(metadata[STREAMS])[:80]}: restore them with Repository.update_metadata, or remove "
            "the key if no streaming query writes to this repository"
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
    """The metadata of a repository with some more records, and without those that decide nothing any more."""
    queries = read_records(info.metadata)
    for query, records in new.items():
        if records:
            queries[query] = _useful(info, [*records, *queries.get(query, [])])
    for query in _oldest(info, queries, len(queries) - _QUERIES):
        del queries[query]
    streams = {query: list(map(_document, each)) for query, each in queries.items()}
    return {**info.metadata, STREAMS: streams}


def _oldest(info: RepoInfo, queries: Records, count: int) -> list[str]:
    """Return the queries whose newest records are the oldest. The metadata say nothing of their order."""
    if count <= 0:
        return []
    names = [query for query, records in queries.items() if records]
    rows = info.table.find_snapshots(id_matrix([queries[name][0].snapshot for name in names]))
    times = np.where(rows >= 0, info.table.flushed_at()[rows].astype(np.int64), 0)
    return [names[at] for at in np.argsort(times, kind="stable")[:count].tolist()]


def with_amended(info: RepoInfo, old: bytes, new: bytes, branch: str) -> dict[str, Any]:
    """The metadata of a repository in which a snapshot has taken the place of another one on a branch."""
    records = {
        query: [replace(each, snapshot=new, branch=branch) for each in records if each.snapshot == old]
        for query, records in read_records(info.metadata).items()
    }
    return with_records(info, records) if any(records.values()) else info.metadata


def _useful(info: RepoInfo, records: Iterable[BatchRecord]) -> list[BatchRecord]:
    """Those that are kept, of the records of one query: see the module.

    Of amended commits the records name the new snapshot too: later nobody may know what it replaced.
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
    """Which records are the newest ones in the history of some branch or tag, or of a listed snapshot whose
    commit does not name the query any more.
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
    """For each snapshot its mark, or that of its nearest ancestor that has one, else ``nothing``.

    Pointer jumping: after k rounds each row has the nearest mark among its 2**k nearest ancestors.
    """
    count = len(table)
    ancestors = np.append(np.where(table.parents() < 0, count, table.parents()), count)
    marks = np.append(marks, nothing)
    for _ in range(count.bit_length()):
        marks = np.where(marks == nothing, marks[ancestors], marks)
        ancestors = ancestors[ancestors]
    return marks[:-1]


def _marks(table: SnapshotTable, ids: U8, nothing: int) -> tuple[I64, I64]:
    """For each snapshot the number of its record, or of the newest record among those of the snapshots that
    expired before it; and the numbers that no metadata of a listed commit can stand for.
    """
    marks = np.full(len(table), nothing, np.int64)
    pruned = table.pruned().compact()
    logs = np.ascontiguousarray(pruned.values).view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
    order = np.argsort(id_keys(ids), kind="stable")
    keys = id_keys(ids)[order]
    place = np.minimum(np.searchsorted(keys, id_keys(logs)), len(keys) - 1)
    matches = np.flatnonzero(keys[place] == id_keys(logs))
    # Oldest first: of several the last one stays.
    marks[np.repeat(np.arange(len(table)), pruned.lengths)[matches]] = order[place[matches]]
    alone = marks[marks < nothing]
    rows = table.find_snapshots(ids)
    numbers = np.arange(len(ids))[::-1]  # of two records of one snapshot the first one stays
    numbers = numbers[rows[numbers] >= 0]
    marks[rows[numbers]] = numbers
    stamped = np.isin(rows[numbers], table.mentioning(rows[numbers], QUERY))
    return marks, np.unique(np.concatenate([alone, numbers[~stamped]]))


def with_expiring(info: RepoInfo, keep: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the metadata of a repository in which only the snapshots in ``keep`` stay, bool (n,).

    A snapshot whose parent goes gets a record of the last batch before it.
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
    """Return the rows of commits that name a query, and their batches."""
    rows = table.mentioning(np.arange(len(table)), QUERY, query)
    named = [
        (row, int(entry.metadata[BATCH]))
        for row, entry in zip(rows.tolist(), table.entries(rows), strict=True)
        if entry.metadata.get(QUERY) == query
    ]
    pairs = np.array(named, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]
