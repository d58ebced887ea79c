"""The micro-batches of streaming queries that a version contains.

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

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, SessionStateError, StorageError
from frazil.format.columns import I64
from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.repository.catalog.amendments import Operations
from frazil.repository.catalog.line import BranchHistory
from frazil.repository.catalog.lineage import FRAZIL, all_ancestors, origin_of, second_parents
from frazil.repository.catalog.repo_requirements import require_snapshot
from frazil.repository.catalog.stream_records import (
    BATCH,
    QUERY,
    STREAMS,
    BatchRecord,
    read_records,
    with_records,
)
from frazil.storage.base import Storage

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
