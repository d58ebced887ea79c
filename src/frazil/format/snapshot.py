"""Snapshots: all arrays and groups of one version, and the list of snapshots in a repo info.

The nodes are columns (``NodeTable``), sorted by the bytes of their paths. Old writers sorted by path
component, so the reader does not rely on the order. An upgraded repository also has files of spec version 1:
the header of each file contains its version. Messages and metadata are decoded when they are read.

    Snapshot       0 id  1 parent_id  2 nodes  3 flushed_at  4 message  5 metadata  6 manifest_files
                   7 manifest_files_v2  8 extra
    SnapshotInfo   0 id  1 parent_offset  2 flushed_at  3 message  4 metadata  5 pruned_ancestor_tx_logs
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError, InternalError
from frazil.format.columns import I64, U8, U32, Ragged, insert_row, set_rows, structs
from frazil.format.envelope import (
    FileType,
    LateFields,
    Violation,
    collect,
    complete,
    open_envelope,
    reading,
    seal,
    unsorted,
    with_late_fields,
)
from frazil.format.flatbuffer import NUL, Buffer, OffsetVectors, TableLayout, Tables, TableWriter, open_tables
from frazil.format.flexbuffer import MetadataColumn, read_metadata, write_metadata
from frazil.format.ids import (
    INITIAL_SNAPSHOT_ID,
    OBJECT_ID_BYTES,
    id_keys,
    id_list,
    id_matrix,
    id_order,
    id_to_text,
    ids_among,
)
from frazil.format.nodes import (
    ArrayData,
    ManifestRef,
    ManifestRefs,
    Node,
    NodeTable,
    node_violations,
    read_nodes,
    write_nodes,
)
from frazil.format.snapshot_groups import LONG, Groups, Origin, Rows

__all__ = ["ArrayData", "ManifestRef", "ManifestRefs", "Node", "NodeTable"]

_ID: Final = f"V{OBJECT_ID_BYTES}"
_PRUNED: Final = 5
_LAYOUTS: Final = {
    False: TableLayout({0: _ID, 1: "i4", 2: "u8", 3: "u4", 4: "u4"}, slots=5),
    True: TableLayout({0: _ID, 1: "i4", 2: "u8", 3: "u4", 4: "u4", _PRUNED: "u4"}, slots=6),
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

    def find_snapshot(self, id_: bytes) -> int: ...
    def find_snapshots(self, ids: U8) -> I64: ...
    def between(self, first: bytes, last: bytes) -> U8: ...
    def entry(self, row: int) -> SnapshotEntry: ...
    def entries(self, rows: I64) -> Iterable[SnapshotEntry]: ...
    def messages(self, rows: I64) -> list[str]: ...
    def mentioning(self, rows: I64, name: str, text: str = "") -> I64:
        """Return those of some rows whose metadata have an item of this name.

        With ``text``, rows whose item cannot contain this text, as a string or a part of one, may be left
        out.
        """

    def id_of(self, row: int) -> bytes: ...
    def ids(self) -> U8: ...
    def parents(self) -> NDArray[np.int32]: ...
    def flushed_at(self) -> NDArray[np.uint64]: ...
    def chain(self, row: int) -> I64: ...
    def parts(self, row: int) -> Iterator[I64]: ...
    def added(self, entry: SnapshotEntry) -> Snapshots:
        """Return the snapshots with one more."""

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotTable(LateFields):
    """n snapshots, sorted by the bytes of their ids."""

    _ids: U8  # (n, 12)
    _parents: NDArray[np.int32]  # the row of the parent, -1 if there is none
    _flushed: NDArray[np.uint64]  # microseconds since 1970
    _messages: Ragged
    _metadata: MetadataColumn
    _pruned: Ragged  # ids of the transaction logs of expired ancestors, oldest first
    _source: str = "repo"
    _groups: Groups | None = None  # the groups of a long list, if it was made by ``added``
    _origin: Origin | None = None  # the file with the table, whose groups can be used again

    def __len__(self) -> int:
        return len(self._parents)

    @property
    def rows(self) -> Rows:
        """The columns that do not depend on other rows."""
        return Rows(self._ids, self._flushed, self._messages, self._metadata, self._pruned)

    def groups(self) -> Groups | None:
        """Return the groups, or None if the list is short or was not written in groups."""
        return self._origin.groups() if self._groups is None and self._origin else self._groups

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
        keys = id_keys(self._ids)
        row = int(keys.searchsorted(np.frombuffer(id_, keys.dtype)[0]))
        return row if row < len(self) and self.id_of(row) == id_ else -1

    def find_snapshots(self, ids: U8) -> I64:
        """Return the rows of many snapshots, for ids of shape (k, 12); -1 where there is none."""
        keys, targets = id_keys(self._ids), id_keys(ids)
        if not len(keys):
            return np.full(len(targets), -1, np.int64)
        rows = np.minimum(np.searchsorted(keys, targets), len(keys) - 1)
        return np.where(keys[rows] == targets, rows, -1).astype(np.int64)

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
            if int(messages.lengths.sum()) > len(messages.values):  # rows of a damaged file share bytes
                return list(map(messages.text, range(len(rows))))
            return messages.texts()

    def metadata(self, rows: I64) -> list[dict[str, Any]]:
        """Return the metadata of many rows. Raise ``FormatError`` if some of them are damaged."""
        return self._metadata.take(rows).load_all()

    def is_shared(self, rows: I64) -> bool:
        """Return whether rows share bytes, and all rows together are larger than the file.

        Do not call ``metadata`` for such rows.
        """
        messages = self._messages.take(rows)
        return int(messages.lengths.sum()) > len(messages.values) or self._metadata.take(rows).is_shared()

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
        keys = id_keys(self._ids)
        at = int(keys.searchsorted(np.frombuffer(entry.id, keys.dtype)[0]))
        if at < len(self) and self.id_of(at) == entry.id:
            raise InternalError(
                f"snapshot {id_to_text(entry.id)} is already listed", ErrorKind.DUPLICATE_SNAPSHOT_ID
            )
        parent = -1 if entry.parent is None else self.find_snapshot(entry.parent)
        if parent < 0 and entry.parent is not None:
            raise InternalError(
                f"parent {id_to_text(entry.parent)} is not listed", ErrorKind.SNAPSHOT_NOT_FOUND
            )
        parents = insert_row(self._parents, at, parent)
        parents += (parents >= at).astype(np.int32)
        table = SnapshotTable(
            insert_row(self._ids, at, np.frombuffer(entry.id, np.uint8)),
            parents,
            insert_row(self._flushed, at, entry.flushed_at),
            insert_row(self._messages, at, np.frombuffer(entry.message.encode(), np.uint8)),
            self._metadata.inserted(at, entry.metadata),
            insert_row(self._pruned, at, np.frombuffer(b"".join(entry.pruned_ancestor_tx_logs), _ID)),
            self._source,
        )
        if len(table) < LONG:
            return table
        groups = self.groups() or Groups.by_time(self._flushed)
        return replace(table, _groups=groups.inserted(at).completed(table.rows))

    def select_snapshots(
        self,
        keep: NDArray[np.bool_],
        new_parents: Mapping[bytes, bytes | None],
        pruned: Mapping[bytes, tuple[bytes, ...]],
    ) -> SnapshotTable:
        """Return only some snapshots, with new parents and pruned logs for some of them.

        Expiration and garbage collection use this method.
        """
        ids = [*new_parents, *filter(None, new_parents.values()), *pruned]
        rows = self.find_snapshots(id_matrix(ids))
        if (rows < 0).any():
            missing = id_to_text(ids[int(np.argmin(rows))])
            raise InternalError(f"snapshot {missing} is not listed", ErrorKind.SNAPSHOT_NOT_FOUND)
        row: dict[bytes | None, int] = {None: -1, **dict(zip(ids, rows.tolist(), strict=True))}
        parents = self._parents.copy()
        for id_, parent in new_parents.items():
            parents[row[id_]] = row[parent]
        logs = np.frombuffer(b"".join(map(b"".join, pruned.values())), _ID)
        lists = Ragged.from_lengths(logs, np.array(list(map(len, pruned.values())), np.int64))
        lists = set_rows(self._pruned, np.array([row[id_] for id_ in pruned], np.int64), lists)
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
        return replace(self, _parents=parents, _pruned=pruned, _groups=None, _origin=None)

    def renamed(self, ids: U8, metadata: list[dict[str, Any]] | None, pruned: Ragged) -> SnapshotTable:
        """Return the table with other ids and pruned logs, and with other metadata unless they are None."""
        order = np.argsort(id_keys(ids), kind="stable")
        number = np.full(len(order) + 1, -1, np.int32)
        number[order] = np.arange(len(order), dtype=np.int32)
        items = self._metadata if metadata is None else MetadataColumn.of(list(metadata))
        return SnapshotTable(
            ids[order],
            number[self._parents[order]],
            self._flushed[order],
            self._messages.take(order),
            items.take(order),
            pruned.take(order),
            self._source,
        )

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
        reads = [("text-utf8", "messages", self.messages), ("metadata-values", "metadata", self.metadata)]
        for check, what, read in reads[: 1 if self.is_shared(rows) else 2]:
            try:
                read(rows)
            except FormatError as error:  # which readers notice when they use the field
                yield Violation(error.check or check, f"{what}: {error.message}")


def read_snapshots(infos: Tables, source: str, file: Any, payload: Any) -> tuple[SnapshotTable, I64]:
    """Return the table, and for each position in the file the row of its snapshot."""
    infos.require("snapshot info", "repo-required", id=0, message=3)
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

    fields = {
        "_ids": ids[order],
        "_parents": parents,
        "_flushed": times[order],
        "_source": source,
        "_groups": None,
        "_origin": Origin(file, payload, infos.positions[order]),
    }
    late = ("_messages", "_metadata", "_pruned")
    return with_late_fields(SnapshotTable, fields, dict.fromkeys(late, descriptions)), number


def write_snapshots(writer: TableWriter, table: SnapshotTable) -> int:
    """Write the vector of SnapshotInfo tables, after everything else, and return its position."""
    if (groups := table.groups()) is not None:
        return groups.write(writer, table.rows, table.parents())
    vector = OffsetVectors(writer, [len(table)])
    targets = np.zeros(len(table), np.int64)
    for rows, infos in writer.tables_by_shape(table._pruned.lengths > 0, _LAYOUTS, targets):
        infos.fields["f0"] = structs(table._ids[rows])
        infos.fields["f1"] = table._parents[rows]
        infos.fields["f2"] = table._flushed[rows]
        infos.link(3, writer.vectors(table._messages.take(rows), NUL))
        infos.link(4, write_metadata(writer, table._metadata.take(rows)))
        if _PRUNED in infos.layout.offsets:
            infos.link(_PRUNED, writer.vectors(table._pruned.take(rows)))
    vector.lead(targets)
    return int(vector.positions[0])


_REQUIRED: Final = "snapshot-required"

_LAYOUT: Final = TableLayout({0: _ID, 2: "u4", 3: "u8", 4: "u4", 5: "u4", 6: "u4", 7: "u4"}, slots=8)
#: The layouts of version 1: without a parent for the root, with a parent for all other snapshots.
_LAYOUTS_V1: Final = {
    has_parent: TableLayout(
        {0: _ID} | ({1: _ID} if has_parent else {}) | {2: "u4", 3: "u8", 4: "u4", 5: "u4", 6: "u4"}, slots=7
    )
    for has_parent in (False, True)
}
_FILE_LAYOUT: Final = TableLayout({0: _ID, 1: "u8", 2: "u4"}, slots=3)
#: ManifestFileInfo of version 1, which is a struct.
_FILE_STRUCT: Final = np.dtype([("id", "V12"), ("", "V4"), ("size", "<u8"), ("refs", "<u4"), ("pad", "V4")])


@dataclass(frozen=True, slots=True, eq=False)
class ManifestFiles:
    r"""The manifest files of a snapshot, m rows, sorted by id."""

    ids: U8  # uint8 (m, 12)
    #: uint64 (m,), the size of the whole file. Readers fetch exactly this many bytes
    size_bytes: NDArray[np.uint64]
    num_chunk_refs: NDArray[np.uint32]  # uint32 (m,)

    def __len__(self) -> int:
        return len(self.size_bytes)

    @classmethod
    def empty(cls) -> ManifestFiles:
        """Return a table without rows."""
        return cls(np.zeros((0, OBJECT_ID_BYTES), np.uint8), np.zeros(0, np.uint64), np.zeros(0, np.uint32))

    @staticmethod
    def numbered(parts: Sequence[ManifestFiles]) -> tuple[ManifestFiles, U32]:
        """Return each manifest of several tables once, sorted, and the number of each row of the tables."""
        ids = np.concatenate([part.ids for part in parts])
        order = id_order(ids)
        keys = id_keys(ids[order])
        new = np.ones(len(keys), np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=new[1:])
        numbers = np.empty(len(keys), np.uint32)
        numbers[order] = np.cumsum(new, dtype=np.uint32) - np.uint32(1)
        first = order[new]
        files = ManifestFiles(
            ids[first],
            np.concatenate([part.size_bytes for part in parts])[first],
            np.concatenate([part.num_chunk_refs for part in parts])[first],
        )
        return files, numbers

    @staticmethod
    def union(parts: Sequence[ManifestFiles]) -> ManifestFiles:
        """Return each manifest of several tables once, sorted."""
        return ManifestFiles.numbered([ManifestFiles.empty(), *parts])[0]

    def find_manifest(self, id_: bytes) -> int:
        """Return the row of a manifest."""
        keys = id_keys(self.ids)
        row = int(np.searchsorted(keys, np.frombuffer(id_, keys.dtype)[0]))
        return row if row < len(keys) and self.ids[row].tobytes() == id_ else -1

    def size_of(self, id_: bytes) -> int:
        """Return the size of a manifest's file."""
        row = self.find_manifest(id_)
        if row < 0:
            raise FormatError(
                f"manifest {id_to_text(id_)} is not among the snapshot's manifest files",
                ErrorKind.MANIFEST_INFO_NOT_FOUND,
            )
        return int(self.size_bytes[row])

    def select_manifests(self, rows: NDArray[Any] | slice) -> ManifestFiles:
        """Return some of the rows."""
        return ManifestFiles(self.ids[rows], self.size_bytes[rows], self.num_chunk_refs[rows])

    def sorted(self) -> ManifestFiles:
        """Return the rows sorted by id."""
        keys = id_keys(self.ids)
        is_sorted = (keys[1:] >= keys[:-1]).all()
        return self if is_sorted else self.select_manifests(id_order(self.ids))

    def distinct(self) -> ManifestFiles:
        """Return the first row of each id. The rows must be sorted."""
        keys = id_keys(self.ids)
        new = np.ones(len(keys), np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=new[1:])
        return self if new.all() else self.select_manifests(np.flatnonzero(new))


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot(LateFields):
    """A snapshot file."""

    id: bytes  # The id of the snapshot
    flushed_at: int  # The time of the commit, microseconds since 1970
    message: str  # The message of the commit
    metadata: dict[str, Any]  # JSON-like values by name
    nodes: NodeTable  # The groups and arrays
    manifests: ManifestFiles  # The manifest files
    #: The parent snapshot, only in files of spec version 1 (None for the root). In version 2 the repo info
    #: contains the parents
    parent_id: bytes | None = None
    spec_version: int = 2  # 1 or 2


def encode_snapshot(snapshot: Snapshot, *, level: int = 3) -> bytes:
    """Return the file of a snapshot in its ``spec_version``. Version 2 does not store ``parent_id``."""
    version = snapshot.spec_version
    layout = _LAYOUT if version == 2 else _LAYOUTS_V1[snapshot.parent_id is not None]
    writer, files = TableWriter(layout), snapshot.manifests.sorted()
    root: dict[int, int | bytes] = {0: snapshot.id, 3: snapshot.flushed_at}
    if version == 1 and snapshot.parent_id is not None:
        root[1] = snapshot.parent_id
    root[4] = writer.vector(snapshot.message.encode(), NUL)
    metadata = MetadataColumn.of([snapshot.metadata], version)
    root[5] = int(write_metadata(writer, metadata)[0]) if snapshot.metadata else writer.no_elements()
    if version == 1:
        rows = np.zeros(len(files), _FILE_STRUCT)
        rows["id"], rows["size"], rows["refs"] = structs(files.ids), files.size_bytes, files.num_chunk_refs
        root[6] = writer.vector(rows, alignment=8)
    else:
        root[6] = root[7] = writer.no_elements()
        if len(files):
            infos, (root[7],) = writer.table_vectors(_FILE_LAYOUT, [len(files)])
            infos.fields["f0"] = structs(files.ids)
            infos.fields["f1"], infos.fields["f2"] = files.size_bytes, files.num_chunk_refs
    root[2] = write_nodes(writer, snapshot.nodes, version)
    return seal(writer.finish(root), FileType.SNAPSHOT, spec_version=version, level=level)


def decode_snapshot(data: Any, name: str, broken: list[Violation] | None = None) -> Snapshot:
    """Read a snapshot of spec version 1 or 2. Raise ``FormatError`` with ``name`` for other bytes.

    ``broken`` gets the broken rules that readers do not need.
    """
    root, snapshot = _open(data, name, broken)
    complete(snapshot.nodes)
    complete(snapshot)
    collect(broken, _violations(root, snapshot), node_violations(root, snapshot.nodes))
    return snapshot


def _violations(root: Tables, snapshot: Snapshot) -> Iterator[Violation]:
    """Yield the broken rules that readers do not need, without those of nodes."""
    version = snapshot.spec_version
    if version > 1 and root.present(1)[0]:
        yield Violation("snapshot-parent-v2", "parent_id must be absent in spec version 2")
    yield from unsorted("snapshot-metadata-sorted", "items of the metadata", list(snapshot.metadata))
    if version > 1 and len(old := root.vectors(6, f"V{_FILE_STRUCT.itemsize}").row(0)):
        yield Violation("manifest-files-v1-empty", f"manifest_files must be empty, got {len(old)} bytes")
    stored = read_manifest_files(root, version)
    yield from unsorted("manifest-files-sorted", "manifest files", id_keys(stored.ids))
    if not stored.size_bytes.all():
        yield Violation("manifest-file-fields", "a manifest file must have an id and a size, got one without")
    uses = snapshot.nodes.manifest_ids()
    missing = uses[~ids_among(uses, stored.ids)]
    if len(missing):
        id_ = id_to_text(missing[0].tobytes())
        yield Violation("manifest-listed", f"the manifest {id_} of an array is not among the manifest files")


def require_fields(root: Tables) -> None:
    """Raise ``FormatError`` if a snapshot lacks a field that all spec versions require."""
    root.require("snapshot", _REQUIRED, id=0, nodes=2, message=4, metadata=5, manifest_files=6)


def open_snapshot(data: Any, name: str) -> Snapshot:
    """Read the nodes of a snapshot. The list of its manifests and its description are decoded when needed.

    Raises ``FormatError`` with ``name`` if the bytes are not a snapshot, or if a node is damaged. Reads of
    other damaged fields raise it later.
    """
    return _open(data, name)[1]


def _open(data: Any, name: str, broken: list[Violation] | None = None) -> tuple[Tables, Snapshot]:
    """Return the root table too."""
    with reading(name):
        header, payload = open_envelope(data, FileType.SNAPSHOT)
        root = Buffer(payload).root()
        require_fields(root)
        spec_version = header.spec_version
        nodes, _ = root.children(2)
        fields = {
            "id": root.structs(0, OBJECT_ID_BYTES).tobytes(),
            "nodes": read_nodes(nodes, spec_version, name, broken),
            "spec_version": spec_version,
        }

    def manifests() -> dict[str, Any]:
        with reading(name):
            return {"manifests": read_manifest_files(root, spec_version).sorted()}

    description = partial(_description, root, name, spec_version)
    late = dict.fromkeys(("flushed_at", "message", "metadata", "parent_id"), description)
    return root, with_late_fields(Snapshot, fields, {"manifests": manifests, **late})


def read_manifest_files(root: Tables, spec_version: int) -> ManifestFiles:
    """Return the manifest files of a snapshot in the order of its file, from the root table."""
    if spec_version == 1:
        rows = root.numbers(6, f"V{_FILE_STRUCT.itemsize}").values.view(_FILE_STRUCT)
        ids = np.ascontiguousarray(rows["id"]).view(np.uint8).reshape(len(rows), OBJECT_ID_BYTES)
        return ManifestFiles(ids, rows["size"].astype(np.uint64), rows["refs"].astype(np.uint32))
    root.require("snapshot", "manifest-files-v2", manifest_files_v2=7)
    files, _ = root.children(7)
    files.require("manifest file", "manifest-file-fields", id=0)
    return ManifestFiles(files.structs(0, OBJECT_ID_BYTES), files.scalars(1, "<u8"), files.scalars(2, "<u4"))


def decode_entry(data: Any, name: str) -> SnapshotEntry:
    """Return the entry of a snapshot of spec version 1 in a repo info: all but its nodes and manifests."""
    with reading(name):
        root = open_tables(FileType.SNAPSHOT, data)
        root.require("snapshot", _REQUIRED, id=0, message=4, metadata=5)
        own = _description(root, name, 1)
        id_ = root.structs(0, OBJECT_ID_BYTES).tobytes()
        return SnapshotEntry(id_, own["parent_id"], own["flushed_at"], own["message"], own["metadata"])


def _description(root: Tables, name: str, spec_version: int) -> dict[str, Any]:
    with reading(name):
        return {
            "flushed_at": int(root.scalars(3, "<u8")[0]),
            "message": root.vectors(4).text(0),
            "metadata": read_metadata(root, 5, name, spec_version).load(0),
            "parent_id": root.structs(1, OBJECT_ID_BYTES).tobytes() if root.present(1)[0] else None,
        }


def initial_snapshot(flushed_at: int, spec_version: int = 2) -> Snapshot:
    """Return the first snapshot of a new repository.

    It has no nodes, the well-known id, and the metadata ``{"__icechunk": {"is_root": True}}``.
    """
    return Snapshot(
        INITIAL_SNAPSHOT_ID,
        flushed_at,
        INITIAL_MESSAGE,
        dict(INITIAL_METADATA),
        NodeTable.from_nodes([]),
        ManifestFiles.empty(),
        spec_version=spec_version,
    )


INITIAL_MESSAGE: Final = "Repository initialized"
INITIAL_METADATA: Final[dict[str, Any]] = {"__icechunk": {"is_root": True}}
