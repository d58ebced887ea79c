"""The snapshots that a repo info lists, as columns sorted by the bytes of their ids.

A parent is a row number, so inserting or dropping rows renumbers the parents. Messages and metadata are
decoded when they are read.

    SnapshotInfo   0 id  1 parent_offset  2 flushed_at  3 message  4 metadata  5 pruned_ancestor_tx_logs

Specification: *SnapshotInfo*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError, InternalError
from frazil.format.columns import (
    I64,
    U8,
    Ragged,
    insert_row,
    require,
    rows_where,
    set_row,
    structs,
    with_row,
    writable,
)
from frazil.format.envelope import LateFields, Violation, reading, undecodable, with_late_fields
from frazil.format.flatbuffer import Layout, Tables, Writer, link
from frazil.format.flexbuffer import MetadataColumn, read_metadata, write_metadata
from frazil.format.ids import (
    INITIAL_SNAPSHOT_ID,
    OBJECT_ID_BYTES,
    id_keys,
    id_list,
    id_matrix,
    id_to_text,
)

_ID: Final = f"V{OBJECT_ID_BYTES}"
_LAYOUTS: Final = {
    False: Layout({0: _ID, 1: "i4", 2: "u8", 3: "u4", 4: "u4"}, slots=5),
    True: Layout({0: _ID, 1: "i4", 2: "u8", 3: "u4", 4: "u4", 5: "u4"}, slots=6),
}


#: The length of the first part of a history. A part of this length takes hardly longer than one row.
_FIRST_PART: Final = 32


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """One snapshot as the repo info lists it. ``parent`` is None for the initial snapshot."""

    id: bytes
    parent: bytes | None
    flushed_at: int
    message: str
    metadata: dict[str, Any]
    pruned_ancestor_tx_logs: tuple[bytes, ...] = ()

    @property
    def logs(self) -> tuple[bytes, ...]:
        """The ids of the logs since the parent: those of expired ancestors, oldest first, and its own."""
        return (*self.pruned_ancestor_tx_logs, self.id)


class Snapshots(Protocol):
    """The snapshots of a repository, by row. A row number is valid only for the object that returned it.

    ``SnapshotTable`` contains all snapshots. In a repository of spec version 1 there is no list of all
    snapshots: there, the rows are the snapshots that were read so far (``repository.catalog.snapshots_v1``).
    """

    def find_snapshot(self, id_: bytes) -> int:
        """Return the row of a snapshot, -1 if there is none."""

    def find_snapshots(self, ids: U8) -> I64:
        """Return the rows of many snapshots, for ids of shape (k, 12); -1 where there is none."""

    def between(self, first: bytes, last: bytes) -> U8:
        """Return the ids of snapshots from ``first`` to ``last``, both included."""

    def entry(self, row: int) -> SnapshotEntry:
        """Return one row as a value."""

    def entries(self, rows: I64) -> Iterable[SnapshotEntry]:
        """Return many rows as values."""

    def messages(self, rows: I64) -> list[str]:
        """Return the messages of many rows."""

    def mentioning(self, rows: I64, name: str, text: str = "") -> I64:
        """Return those of some rows whose metadata have an item of this name.

        With ``text``, rows whose item cannot contain this text, as a string or a part of one, may be left
        out.
        """

    def id_of(self, row: int) -> bytes:
        """Return the id of a row's snapshot."""

    def ids(self) -> U8:
        """Return the ids of all snapshots, uint8 of shape (n, 12)."""

    def parents(self) -> NDArray[np.int32]:
        """Return the row of each snapshot's parent, -1 if it has none."""

    def flushed_at(self) -> NDArray[np.uint64]:
        """Return the times of all snapshots, (n,), microseconds since 1970."""

    def chain(self, row: int) -> I64:
        """Return the rows from this snapshot to the root. Raise ``FormatError`` for a cycle."""

    def parts(self, row: int) -> Iterator[I64]:
        """Return ``chain`` in parts of growing length. Most callers need only the newest snapshots."""

    def added(self, entry: SnapshotEntry) -> Snapshots:
        """Return the snapshots with one more."""

    def select_snapshots(
        self,
        keep: NDArray[np.bool_],
        new_parents: Mapping[bytes, bytes | None],
        pruned: Mapping[bytes, tuple[bytes, ...]],
    ) -> Snapshots:
        """Return only some snapshots, with new parents and pruned logs for some of them."""

    def __len__(self) -> int:
        """Return the number of snapshots."""


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotTable(LateFields):
    r"""n snapshots, sorted by the bytes of their ids.

        _ids        uint8 (n, 12)
        _parents    int32 (n,)   row of the parent, -1 if there is none
        _flushed    uint64 (n,)  microseconds since 1970
        _messages   text
        _metadata   items, encoded
        _pruned     'V12' rows: ids of the transaction logs of expired ancestors, oldest first

    >>> root = SnapshotEntry(bytes(12), None, 1, "start", {})
    >>> table = SnapshotTable.of([root]).added(SnapshotEntry(b"\1" * 12, bytes(12), 2, "next", {"by": "me"}))
    >>> table.chain(table.find_snapshot(b"\1" * 12)).tolist(), table.entry(1).metadata
    ([1, 0], {'by': 'me'})
    """

    _ids: U8
    _parents: NDArray[np.int32]
    _flushed: NDArray[np.uint64]
    _messages: Ragged
    _metadata: MetadataColumn
    _pruned: Ragged
    _source: str = "repo"

    def __len__(self) -> int:
        return len(self._parents)

    @classmethod
    def of(cls, entries: Sequence[SnapshotEntry]) -> SnapshotTable:
        """Create a table of a few entries, in any order. Their parents must be among them."""
        entries = sorted(entries, key=lambda entry: entry.id)
        rows: dict[bytes | None, int] = {entry.id: row for row, entry in enumerate(entries)}
        if len(rows) != len(entries):
            raise InternalError("two snapshots have the same id", ErrorKind.DUPLICATE_SNAPSHOT_ID)
        rows[None] = -1
        pruned = [entry.pruned_ancestor_tx_logs for entry in entries]
        flat = b"".join(id_ for each in pruned for id_ in each)
        return cls(
            id_matrix([entry.id for entry in entries]),
            np.array([rows[entry.parent] for entry in entries], np.int32),
            np.array([entry.flushed_at for entry in entries], np.uint64),
            Ragged.of_text([entry.message for entry in entries]),
            MetadataColumn.of([entry.metadata for entry in entries]),
            Ragged.from_lengths(np.frombuffer(flat, _ID), np.array([len(each) for each in pruned], np.int64)),
        )

    def find_snapshot(self, id_: bytes) -> int:
        """Return the row of a snapshot, -1 if there is none. Binary search."""
        if len(id_) != OBJECT_ID_BYTES:
            return -1
        row = self._place(id_)
        return row if row < len(self) and self.id_of(row) == id_ else -1

    def _place(self, id_: bytes) -> int:
        """Return the first row whose id is not less."""
        keys = id_keys(self._ids)
        return int(keys.searchsorted(np.frombuffer(id_, keys.dtype)[0]))

    def find_snapshots(self, ids: U8) -> I64:
        """Return the rows of many snapshots, for ids of shape (k, 12); -1 where there is none."""
        keys, wanted = id_keys(self._ids), id_keys(ids)
        if not len(keys):
            return np.full(len(wanted), -1, np.int64)
        rows = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[rows] == wanted, rows, -1).astype(np.int64)

    def between(self, first: bytes, last: bytes) -> U8:
        """Return the ids of snapshots from ``first`` to ``last``, both included."""
        keys = id_keys(self._ids)
        low, high = np.frombuffer(first + last, keys.dtype)
        return self._ids[np.searchsorted(keys, low) : np.searchsorted(keys, high, "right")]

    def entry(self, row: int) -> SnapshotEntry:
        """Return one row as a value. Raise ``FormatError`` if its message or metadata is damaged."""
        parent = int(self._parents[row])
        with reading(self._source):
            return SnapshotEntry(
                self.id_of(row),
                None if parent < 0 else self.id_of(parent),
                int(self._flushed[row]),
                self._messages.text(row),
                self._metadata.load(row),
                tuple(self._pruned.row(row).tolist()),
            )

    def entries(self, rows: I64) -> Iterable[SnapshotEntry]:
        """Return many rows as values, much faster than one by one."""
        messages, metadata = self._messages.take(rows), self._metadata.take(rows)
        if self.is_shared(rows):
            # Rows of a damaged file may share bytes so often that only one row at a time fits into memory.
            return map(self.entry, rows.tolist())
        # The None after the last id, at -1, is for rows without a parent.
        parents, place = np.unique(self._parents[rows], return_inverse=True)
        ids = [*id_list(self._ids[parents[parents >= 0]]), None]
        numbers = (place - np.count_nonzero(parents < 0)).tolist()
        pruned = self._pruned.take(rows)
        logs: Iterable[tuple[bytes, ...]] = repeat(())
        if pruned.lengths.any():
            logs = map(tuple, map(np.ndarray.tolist, map(pruned.row, range(len(rows)))))
        with reading(self._source):
            return map(
                SnapshotEntry,
                id_list(self._ids[rows]),
                map(ids.__getitem__, numbers),
                self._flushed[rows].tolist(),
                messages.texts(),
                metadata.load_all(),
                logs,
            )

    def messages(self, rows: I64) -> list[str]:
        """Return the messages of many rows. Raise ``FormatError`` if one of them is damaged."""
        messages = self._messages.take(rows)
        with reading(self._source):
            if messages.total() > len(messages.values):  # rows of a damaged file share bytes
                return list(map(messages.text, range(len(rows))))
            return messages.texts()

    def metadata(self, rows: I64) -> list[dict[str, Any]]:
        """Return the metadata of many rows. Raise ``FormatError`` if some of them are damaged."""
        return self._metadata.take(rows).load_all()

    def is_shared(self, rows: I64) -> bool:
        """Return whether rows share so many bytes that all rows together are larger than the file.

        Do not call ``metadata`` for such rows.
        """
        messages = self._messages.take(rows)
        return messages.total() > len(messages.values) or self._metadata.take(rows).is_shared()

    def mentioning(self, rows: I64, name: str, text: str = "") -> I64:
        """Return those of some rows whose metadata have an item of this name. Nothing is decoded.

        See ``Snapshots``.
        """
        return rows[self._metadata.take(rows).having(name, text)]

    def id_of(self, row: int) -> bytes:
        """Return the id of a row's snapshot."""
        id_: bytes = self._ids[row].tobytes()
        return id_

    def ids(self) -> U8:
        """Return the ids of all snapshots, uint8 of shape (n, 12)."""
        return self._ids

    def parents(self) -> NDArray[np.int32]:
        """Return the row of each snapshot's parent, -1 if it has none."""
        return self._parents

    def flushed_at(self) -> NDArray[np.uint64]:
        """Return the times of all snapshots, (n,), microseconds since 1970."""
        return self._flushed

    def pruned(self) -> Ragged:
        """Return 'V12' rows: the ids of the transaction logs of expired ancestors, oldest first."""
        return self._pruned

    def chain(self, row: int) -> NDArray[np.int64]:
        """Return the rows from this snapshot to the root. Raise ``FormatError`` for a cycle."""
        return next(self.chains([row]))

    def chains(self, rows: Iterable[int]) -> Iterator[NDArray[np.int64]]:
        """Return ``chain`` for each of many rows.

        The method uses pointer jumping. When the first k rows of a chain and the k-th ancestor of every row
        are known, one gather returns the next k rows. So a chain costs as many gathers as its length has
        binary digits, and all chains share the ancestors.
        """
        count = len(self)
        # The parent of the root is an extra row after the table, which is its own parent.
        jumps = [np.append(np.where(self._parents < 0, count, self._parents), count)]
        for row in rows:
            walk = np.array([row], np.int64)
            step = 0
            while walk[-1] != count:
                if len(walk) > count:
                    id_ = id_to_text(self.id_of(row))
                    raise FormatError(f"{self._source}: the ancestors of snapshot {id_} form a cycle")
                if step == len(jumps):
                    jumps.append(jumps[-1][jumps[-1]])
                walk = np.concatenate([walk, jumps[step][walk]])
                step += 1
            yield walk[: int(np.argmax(walk == count))]

    def reachable(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which snapshots are among these rows or their ancestors, bool (n,).

        The method uses pointer jumping, as ``chains`` does.
        """
        count = len(self)
        ancestors = np.append(np.where(self._parents < 0, count, self._parents), count)
        reached = np.zeros(count + 1, bool)
        reached[rows] = True
        for _ in range(count.bit_length()):
            reached[ancestors[reached]] = True
            ancestors = ancestors[ancestors]
        return reached[:count]

    def parts(self, row: int) -> Iterator[I64]:
        """Return ``chain`` in parts of growing length. Most callers need only the newest snapshots."""
        rows = self.chain(row)
        # ascending without repetitions; `np.unique` imports the masked arrays of numpy
        ends = np.append(_FIRST_PART * 8 ** np.arange(1 + len(rows).bit_length() // 3), len(rows))
        return iter(np.split(rows, ends[ends <= len(rows)]))

    def added(self, entry: SnapshotEntry) -> SnapshotTable:
        """Return the table with one more snapshot. The rows of parents are renumbered."""
        at = self._place(entry.id)
        if at < len(self) and self.id_of(at) == entry.id:
            raise InternalError(
                f"snapshot {id_to_text(entry.id)} is already listed", ErrorKind.DUPLICATE_SNAPSHOT_ID
            )
        parent = -1 if entry.parent is None else self.find_snapshot(entry.parent)
        if parent < 0 and entry.parent is not None:
            raise InternalError(
                f"parent {id_to_text(entry.parent)} is not listed", ErrorKind.SNAPSHOT_NOT_FOUND
            )
        parents = with_row(self._parents, at, parent)
        parents += (parents >= at).astype(np.int32)
        message = np.frombuffer(entry.message.encode(), np.uint8)
        pruned = np.frombuffer(b"".join(entry.pruned_ancestor_tx_logs), _ID)
        return SnapshotTable(
            with_row(self._ids, at, np.frombuffer(entry.id, np.uint8)),
            parents,
            with_row(self._flushed, at, entry.flushed_at),
            insert_row(self._messages, at, message),
            self._metadata.inserted(at, entry.metadata),
            insert_row(self._pruned, at, pruned),
            self._source,
        )

    def select_snapshots(
        self,
        keep: NDArray[np.bool_],
        new_parents: Mapping[bytes, bytes | None],
        pruned: Mapping[bytes, tuple[bytes, ...]],
    ) -> SnapshotTable:
        """Return only some snapshots, with new parents and pruned logs for some of them.

        Expiration and garbage collection use this method.
        """
        parents = self._parents.copy()
        for id_, parent in new_parents.items():
            parents[self._row(id_)] = -1 if parent is None else self._row(parent)
        lists = self._pruned
        for id_, logs in pruned.items():
            lists = set_row(lists, self._row(id_), np.frombuffer(b"".join(logs), _ID))
        number = np.full(len(self) + 1, -1, np.int32)
        number[:-1][keep] = np.arange(int(np.count_nonzero(keep)), dtype=np.int32)
        moved = number[parents[keep]]
        if ((moved < 0) & (parents[keep] >= 0)).any():
            raise InternalError("the parent of a remaining snapshot is missing", ErrorKind.SNAPSHOT_NOT_FOUND)
        return SnapshotTable(
            self._ids[keep],
            moved,
            self._flushed[keep],
            self._messages.take(keep),
            self._metadata.take(keep),
            lists.take(keep),
            self._source,
        )

    def relinked(self, parents: NDArray[np.int32], pruned: Ragged) -> SnapshotTable:
        """Return the table with other parents (rows) and pruned logs for all snapshots."""
        return replace(self, _parents=parents, _pruned=pruned)

    def violations(self) -> Iterator[Violation]:
        """Yield the broken rules that readers do not need."""
        count, parents = len(self), self._parents
        ancestors = np.append(np.where(parents < 0, count, parents), count)
        for _ in range(max(count, 1).bit_length()):
            ancestors = ancestors[ancestors]
        if (ancestors != count).any():
            id_ = id_to_text(self.id_of(int(np.argmax(ancestors != count))))
            yield Violation("parent-cycle", f"the ancestors of snapshot {id_} form a cycle")
        orphans = id_list(self._ids[parents < 0])
        if len(orphans) > 1 and INITIAL_SNAPSHOT_ID in orphans:
            other = next(id_ for id_ in orphans if id_ != INITIAL_SNAPSHOT_ID)
            yield Violation("initial-snapshot", f"snapshot {id_to_text(other)} has no parent")
        rows = np.arange(count)
        yield from undecodable("text-utf8", "messages", lambda: self.messages(rows))
        if not self.is_shared(rows):
            yield from undecodable("metadata-values", "metadata", lambda: self.metadata(rows))

    def _row(self, id_: bytes) -> int:
        row = self.find_snapshot(id_)
        if row < 0:
            raise InternalError(f"snapshot {id_to_text(id_)} is not listed", ErrorKind.SNAPSHOT_NOT_FOUND)
        return row


def read_snapshots(infos: Tables, source: str) -> tuple[SnapshotTable, I64]:
    """Return the table, and for each position in the file the row of its snapshot."""
    require(infos, "snapshot info", "repo-required", id=0, message=3)
    count = len(infos)
    ids = infos.structs(0, OBJECT_ID_BYTES)
    parents = infos.scalars(1, "<i4")
    if ((parents < -1) | (parents >= count)).any():
        raise FormatError(
            f"the parent of a snapshot is at {int(parents.min())} or {int(parents.max())} of {count}",
            check="parent-offset",
        )
    times = infos.scalars(2, "<u8")
    keys = id_keys(ids)
    number = np.arange(count)
    order: I64 | slice = slice(None)
    if not (keys[:-1] < keys[1:]).all():
        order = np.argsort(keys, kind="stable")
        if (keys[order][:-1] == keys[order][1:]).any():
            text = "two snapshots have the same id"
            raise FormatError(text, ErrorKind.DUPLICATE_SNAPSHOT_ID, "snapshots-sorted")
        number[order] = np.arange(count)
        parents = np.where(parents < 0, -1, number[parents]).astype(np.int32)[order]

    def descriptions() -> dict[str, Any]:
        with reading(source):
            return {
                "_messages": infos.vectors(3).take(order),
                "_metadata": read_metadata(infos, 4, source).take(order),
                "_pruned": infos.numbers(5, _ID).take(order),
            }

    fields = {"_ids": ids[order], "_parents": parents, "_flushed": times[order], "_source": source}
    late = ("_messages", "_metadata", "_pruned")
    return with_late_fields(SnapshotTable, fields, dict.fromkeys(late, descriptions)), number


def write_snapshots(writer: Writer, table: SnapshotTable) -> int:
    """Write the vector of SnapshotInfo tables and return its position."""
    vector = writer.offset_vectors([len(table)])
    pruned = table._pruned.lengths > 0
    targets = np.zeros(len(table), np.int64)
    for with_logs, layout in _LAYOUTS.items():
        rows, count = rows_where(pruned == with_logs)
        if not count:
            continue
        records, places = writer.tables(layout, count)
        targets[rows] = places
        records["f0"] = structs(table._ids[rows])
        records["f1"] = table._parents[rows]
        records["f2"] = table._flushed[rows]
        link(records, layout, 3, places, writer.strings(writable(table._messages.take(rows))))
        link(records, layout, 4, places, write_metadata(writer, table._metadata.take(rows)))
        if with_logs:
            link(records, layout, 5, places, writer.vectors(writable(table._pruned.take(rows))))
    vector.fill(targets)
    return int(vector.positions[0])


__all__ = ["SnapshotEntry", "SnapshotTable", "Snapshots", "read_snapshots", "write_snapshots"]
