"""The snapshots of a repository of spec version 1, which has no list: each file names its parent.

The rows are numbered in the order in which snapshots are found. A lookup of one snapshot reads its file. A
history is a walk from parent to parent, with one request after the other. To save time, a walk looks ahead:
it lists the files, and fetches in parallel the youngest files that are older than its current snapshot. Each
time, it fetches twice as many. Ids are random, but a history is in the order of time.

The handle caches the snapshots. Only an expiration changes a snapshot file: it gives the oldest snapshot that
stays another parent. Other handles see the longer history until the files of the expired snapshots are
collected. Then a walk reads the parent of that snapshot again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from threading import RLock
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import (
    ErrorKind,
    FormatError,
    IcechunkError,
    InternalError,
    SnapshotNotFoundError,
    StorageError,
)
from frazil.format.columns import I64, U8
from frazil.format.ids import (
    id_from_text,
    id_keys,
    id_list,
    id_matrix,
    id_to_text,
    ids_from_text,
    is_id_text,
)
from frazil.format.keys import SNAPSHOTS
from frazil.format.snapshot_table import SnapshotEntry
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.files import SNAPSHOT_ENTRY
from frazil.storage.base import Storage
from frazil.threads import Purpose, map_bounded

#: A walk makes this number of steps before it looks ahead.
_STEPS: Final = 8
#: The largest number of files that are fetched at once.
_AHEAD: Final = 4096


def listed_snapshots(storage: Storage) -> list[bytes]:
    """Return the ids of all snapshots that have a file, oldest first."""
    listed = sorted(storage.list(SNAPSHOTS), key=lambda info: info.modified)
    names = (info.key.removeprefix(f"{SNAPSHOTS}/") for info in listed)
    return [id_from_text(name) for name in names if is_id_text(name)]


#: The snapshot in each file, or the error of its read.
SnapshotResults = dict[bytes, SnapshotEntry | IcechunkError]


def read_all_snapshots(storage: Storage, readers: int = 32) -> SnapshotResults:
    """Return all snapshots that have a file, also those without a ref. Threads read them in parallel."""

    def read(id_: bytes) -> SnapshotEntry | IcechunkError:
        try:
            return SNAPSHOT_ENTRY.read(storage, id_)
        except IcechunkError as error:
            return error

    ids = listed_snapshots(storage)
    return dict(zip(ids, map_bounded(Purpose.CATALOG_READS, read, ids, readers), strict=True))


def reached_snapshots(
    storage: Storage, results: SnapshotResults, tips: Iterable[bytes]
) -> dict[bytes, SnapshotEntry]:
    """Return the tips and all their ancestors.

    Snapshots that are not in ``results`` are read. Raises the error of a snapshot that cannot be read.
    """
    out: dict[bytes, SnapshotEntry] = {}
    for tip in tips:
        id_: bytes | None = tip
        while id_ is not None and id_ not in out:
            entry = results.get(id_) or SNAPSHOT_ENTRY.read(storage, id_)
            if isinstance(entry, IcechunkError):
                raise entry
            out[id_] = entry
            id_ = entry.parent
    return out


class SnapshotsV1:
    """The snapshots of spec version 1, as ``format.snapshot_table.Snapshots``. Threads may share it.

    A walk raises ``SnapshotNotFoundError`` if an ancestor has no file.
    """

    def __init__(self, assets: Assets, readers: int = 32) -> None:
        self._assets = assets
        self._readers = readers
        self._lock = RLock()
        self._rows: dict[bytes, int] = {}
        self._entries: list[SnapshotEntry] = []
        self._ahead: list[bytes] | None = None
        self._batch = 2 * _STEPS

    def __len__(self) -> int:
        """Return the number of snapshots that were found until now."""
        return len(self._entries)

    # Single snapshots

    def find_snapshot(self, id_: bytes) -> int:
        """Return the row of a snapshot, or -1 if it has no file. Reads the file if it is not cached."""
        row = self._rows.get(id_)
        if row is None:
            try:
                snapshot = self._assets.snapshot(id_)
            except StorageError as error:
                if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                    raise
                return -1
            row = self._add(
                SnapshotEntry(
                    id_, snapshot.parent_id, snapshot.flushed_at, snapshot.message, snapshot.metadata
                )
            )
        return row

    def find_snapshots(self, ids: U8) -> I64:
        """Return the rows of snapshots, -1 for a snapshot without a file."""
        return np.fromiter(map(self.find_snapshot, id_list(ids)), np.int64, len(ids))

    def between(self, first: bytes, last: bytes) -> U8:
        """Return the ids between two ids, of all snapshots that have a file. This needs one listing."""
        names = [info.key.removeprefix(f"{SNAPSHOTS}/") for info in self._assets.storage.list(SNAPSHOTS)]
        ids, _ = ids_from_text(names)
        keys = id_keys(ids)
        low, high = np.frombuffer(first + last, keys.dtype)
        matches: U8 = ids[(keys >= low) & (keys <= high)]
        return matches

    def _add(self, entry: SnapshotEntry) -> int:
        with self._lock:
            row = self._rows.setdefault(entry.id, len(self._entries))
            if row == len(self._entries):
                self._entries.append(entry)
            return row

    def entry(self, row: int) -> SnapshotEntry:
        """Return the snapshot in a row."""
        return self._entries[row]

    def entries(self, rows: I64) -> Iterable[SnapshotEntry]:
        """Return the snapshots in some rows."""
        return map(self._entries.__getitem__, rows.tolist())

    def messages(self, rows: I64) -> list[str]:
        """Return the messages of the snapshots in some rows."""
        return [entry.message for entry in self.entries(rows)]

    def mentioning(self, rows: I64, name: str, text: str = "") -> I64:
        """Return the rows whose metadata have an item ``name``. ``text`` is ignored."""
        return rows[np.fromiter((name in entry.metadata for entry in self.entries(rows)), bool, len(rows))]

    def id_of(self, row: int) -> bytes:
        """Return the id of the snapshot in a row."""
        return self._entries[row].id

    # All snapshots that were found

    def ids(self) -> U8:
        """Return the ids of all rows, shape (n, 12)."""
        return id_matrix([entry.id for entry in self._entries])

    def flushed_at(self) -> NDArray[np.uint64]:
        """Return the commit times of all rows, in microseconds since 1970."""
        return np.array([entry.flushed_at for entry in self._entries], np.uint64)

    def parents(self) -> NDArray[np.int32]:
        """Return the rows of the parents, -1 for a root. This walks to the roots of all rows."""
        row = 0
        while row < len(self._entries):
            entry = self._entries[row]
            if entry.parent is not None:
                self._step_from(row, entry.parent, ahead=True)
            row += 1
        rows = self._rows
        return np.array(
            [-1 if entry.parent is None else rows[entry.parent] for entry in self._entries], np.int32
        )

    # Walks

    def parts(self, row: int) -> Iterator[I64]:
        """Yield the rows from this snapshot to the root, in parts."""
        if row < 0:
            raise SnapshotNotFoundError(
                "there is no history, because the snapshot was expired or dropped. Start again from a branch "
                "or tag"
            )
        seen: set[int] = set()
        part: list[int] = []
        size = _STEPS
        while row not in seen:
            seen.add(row)
            part.append(row)
            parent = self._entries[row].parent
            if parent is None:
                yield np.array(part, np.int64)
                return
            if len(part) == size:
                yield np.array(part, np.int64)
                part, size = [], 2 * size
            row = self._step_from(row, parent, ahead=len(seen) >= _STEPS)
        raise FormatError(f"the ancestors of snapshot {id_to_text(self.id_of(row))} form a cycle")

    def chain(self, row: int) -> I64:
        """Return the rows from this snapshot to the root."""
        return np.concatenate(list(self.parts(row)))

    def _step_from(self, row: int, parent: bytes, *, ahead: bool) -> int:
        """Call ``_step`` for the parent of a row, or for the parent that an expiration has given it."""
        try:
            return self._step(parent, ahead=ahead)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            now = self._parent_now(row)
            if now is None or now == parent:
                raise SnapshotNotFoundError(
                    f"snapshot `{id_to_text(parent)}`, the parent of `{id_to_text(self.id_of(row))}`, has no "
                    "file: both were expired and collected, or the file is lost. Start again from a branch "
                    "or tag"
                ) from error
            self.reparent(self.id_of(row), now)
            return self._step(now, ahead=ahead)

    def _parent_now(self, row: int) -> bytes | None:
        """Return the parent that the file of a snapshot names now, or None if there is no file any more."""
        entry = self._read_if_exists(self.id_of(row))
        return None if entry is None else entry.parent

    def _step(self, id_: bytes, *, ahead: bool = True) -> int:
        row = self._rows.get(id_)
        if row is not None:
            return row
        row = self._add(SNAPSHOT_ENTRY.read(self._assets.storage, id_))
        if ahead:
            self._look_ahead()
        return row

    def _look_ahead(self) -> None:
        """Fetch the next files in the order of time."""
        with self._lock:
            if self._ahead is None:
                self._ahead = listed_snapshots(self._assets.storage)
            wanted: list[bytes] = []
            while self._ahead and len(wanted) < self._batch:
                id_ = self._ahead.pop()
                if id_ not in self._rows:
                    wanted.append(id_)
            self._batch = min(2 * self._batch, _AHEAD)
        if wanted:
            for entry in map_bounded(Purpose.CATALOG_READS, self._read_if_exists, wanted, self._readers):
                if entry is not None:
                    self._add(entry)

    def _read_if_exists(self, id_: bytes) -> SnapshotEntry | None:
        try:
            return SNAPSHOT_ENTRY.read(self._assets.storage, id_)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            return None  # collected since the listing

    # Changes

    def reparent(self, id_: bytes, parent: bytes) -> None:
        """Change the parent of a snapshot, after its file was written again."""
        with self._lock:
            row = self.find_snapshot(id_)
            self._entries[row] = replace(self._entries[row], parent=parent)

    def added(self, entry: SnapshotEntry) -> SnapshotsV1:
        """Return this object, because a new snapshot is read from its file."""
        return self

    def select_snapshots(
        self,
        keep: NDArray[np.bool_],
        new_parents: Mapping[bytes, bytes | None],
        pruned: Mapping[bytes, tuple[bytes, ...]],
    ) -> SnapshotsV1:
        """Raise ``InternalError``, because there is no table."""
        raise InternalError("snapshots of a repository of spec version 1 are not kept in a table")
