"""The ops log: the operations on a repository, newest entry first, as columns.

    Update       0 type of update  1 update  2 updated_at  3 backup_path
    RepoStatus   0 availability  1 set_at  2 limited_availability_reason

The fields of an update depend on its kind. ``_FIELDS`` defines them, for reading and for writing.

Specification: *Update* and *RepoStatus*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import FormatError
from frazil.format.columns import (
    I64,
    U8,
    Ragged,
    insert_row,
    join_rows,
    require,
    rows_where,
    set_row,
    structs,
    take_rows,
    with_row,
    writable,
)
from frazil.format.envelope import Violation, reading
from frazil.format.flatbuffer import Layout, Tables, Writer, link
from frazil.format.ids import BACKUP_NAME_RULE, OBJECT_ID_BYTES, match_backup_name

_ID: Final = f"V{OBJECT_ID_BYTES}"
_REQUIRED: Final = "repo-required"


class Availability(IntEnum):
    """Whether a repository accepts changes, as the file stores it."""

    ONLINE = 0
    READ_ONLY = 1
    OFFLINE = 2


class UpdateKind(IntEnum):
    """The members of the union UpdateType, in the order of the schema, from 1."""

    REPO_INITIALIZED = 1
    REPO_MIGRATED = 2
    CONFIG_CHANGED = 3
    METADATA_CHANGED = 4
    TAG_CREATED = 5
    TAG_DELETED = 6
    BRANCH_CREATED = 7
    BRANCH_DELETED = 8
    BRANCH_RESET = 9
    NEW_COMMIT = 10
    COMMIT_AMENDED = 11
    NEW_DETACHED_SNAPSHOT = 12
    GC_RAN = 13
    EXPIRATION_RAN = 14
    FEATURE_FLAG_CHANGED = 15
    REPO_STATUS_CHANGED = 16


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a repository. ``set_at`` is in microseconds since 1970."""

    availability: Availability = Availability.ONLINE
    set_at: int = 0  # microseconds since 1970
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class OpsEntry:
    """One entry of the ops log; fields that its kind does not have are None.

    ``name`` is the tag or branch (also the ``branch`` of commits).
    """

    kind: UpdateKind
    updated_at: int
    backup_path: str | None = None
    name: str | None = None
    previous_snapshot: bytes | None = None
    new_snapshot: bytes | None = None
    versions: tuple[int, int] | None = None
    flag: tuple[int, bool, bool] | None = None  # id, new_value, is_set
    status: Status | None = None


#: The fields of each kind in the order of their slots. ``versions`` takes two slots, ``flag`` three.
_FIELDS: Final[dict[UpdateKind, tuple[str, ...]]] = {
    UpdateKind.REPO_INITIALIZED: (),
    UpdateKind.REPO_MIGRATED: ("versions",),
    UpdateKind.CONFIG_CHANGED: (),
    UpdateKind.METADATA_CHANGED: (),
    UpdateKind.TAG_CREATED: ("name",),
    UpdateKind.TAG_DELETED: ("name", "previous_snapshot"),
    UpdateKind.BRANCH_CREATED: ("name",),
    UpdateKind.BRANCH_DELETED: ("name", "previous_snapshot"),
    UpdateKind.BRANCH_RESET: ("name", "previous_snapshot"),
    UpdateKind.NEW_COMMIT: ("name", "new_snapshot"),
    UpdateKind.COMMIT_AMENDED: ("name", "previous_snapshot", "new_snapshot"),
    UpdateKind.NEW_DETACHED_SNAPSHOT: ("new_snapshot",),
    UpdateKind.GC_RAN: (),
    UpdateKind.EXPIRATION_RAN: (),
    UpdateKind.FEATURE_FLAG_CHANGED: ("flag",),
    UpdateKind.REPO_STATUS_CHANGED: ("status",),
}
_DTYPES: Final = {
    "name": ("u4",),
    "previous_snapshot": (_ID,),
    "new_snapshot": (_ID,),
    "versions": ("u1", "u1"),
    "flag": ("u2", "u1", "u1"),
    "status": ("u4",),
}


def _layout(fields: tuple[str, ...]) -> Layout:
    dtypes = [dtype for field in fields for dtype in _DTYPES[field]]
    return Layout(dict(enumerate(dtypes)), slots=len(dtypes))


_LAYOUTS: Final = {kind: _layout(fields) for kind, fields in _FIELDS.items()}
_UPDATE_LAYOUTS: Final = {
    False: Layout({0: "u1", 1: "u4", 2: "u8"}, slots=3),
    True: Layout({0: "u1", 1: "u4", 2: "u8", 3: "u4"}, slots=4),
}
_STATUS_LAYOUTS: Final = {
    False: Layout({0: "u1", 1: "u8"}, slots=2),
    True: Layout({0: "u1", 1: "u8", 2: "u4"}, slots=3),
}


#: The columns of an ``OpsLog`` besides the statuses.
_COLUMNS: Final = ("kinds", "updated_at", "backups", "names", "previous", "new", "versions", "flags")


def _bytes_of(text: str | None) -> U8:
    return np.frombuffer((text or "").encode(), np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Statuses:
    """n statuses as columns.

    Attributes:
        availability: uint8 (n,).
        set_at: uint64 (n,), microseconds since 1970.
        reasons: Text.
        has_reason: bool (n,).
    """

    availability: U8
    set_at: NDArray[np.uint64]
    reasons: Ragged
    has_reason: NDArray[np.bool_]

    @classmethod
    def of(cls, statuses: Sequence[Status]) -> Statuses:
        """Create columns of a few statuses."""
        return cls(
            np.array([status.availability for status in statuses], np.uint8),
            np.array([status.set_at for status in statuses], np.uint64),
            Ragged.of_text([status.reason or "" for status in statuses]),
            np.array([status.reason is not None for status in statuses], bool),
        )

    def status(self, row: int) -> Status:
        """Return one row as a value."""
        reason = self.reasons.text(row) if self.has_reason[row] else None
        return Status(Availability(int(self.availability[row])), int(self.set_at[row]), reason)

    def pushed(self, status: Status) -> Statuses:
        """Return the columns with one more row at the start."""
        return Statuses(
            with_row(self.availability, 0, status.availability),
            with_row(self.set_at, 0, status.set_at),
            insert_row(self.reasons, 0, _bytes_of(status.reason)),
            with_row(self.has_reason, 0, status.reason is not None),
        )

    def take(self, rows: Any) -> Statuses:
        """Return some of the rows."""
        return Statuses(
            self.availability[rows], self.set_at[rows], self.reasons.take(rows), self.has_reason[rows]
        )


@dataclass(frozen=True, slots=True, eq=False)
class OpsLog:
    """The newest entries of the ops log, newest first, as columns.

    There are at most ``num_updates_per_repo_info_file`` entries.

    Attributes:
        kinds: uint8 (n,), ``UpdateKind``.
        updated_at: uint64 (n,), microseconds since 1970.
        backups: Text; an empty row if an entry has no backup_path.
        names: Text.
        previous: uint8 (n, 12), zeros if the kind has no such field.
        new: uint8 (n, 12), zeros if the kind has no such field.
        versions: uint8 (n, 2): from, to.
        flags: uint16 (n, 3): id, new_value, is_set.
        statuses: n statuses.
        source: The name of the file, for errors.
    """

    kinds: U8
    updated_at: NDArray[np.uint64]
    backups: Ragged
    names: Ragged
    previous: U8
    new: U8
    versions: U8
    flags: NDArray[np.uint16]
    statuses: Statuses
    source: str = "repo"

    def __len__(self) -> int:
        return len(self.kinds)

    @classmethod
    def of(cls, entries: Sequence[OpsEntry]) -> OpsLog:
        """Create a log of a few entries, newest first."""
        n = len(entries)
        zero = bytes(OBJECT_ID_BYTES)
        previous = b"".join(entry.previous_snapshot or zero for entry in entries)
        new = b"".join(entry.new_snapshot or zero for entry in entries)
        return cls(
            np.array([entry.kind for entry in entries], np.uint8),
            np.array([entry.updated_at for entry in entries], np.uint64),
            Ragged.of_text([entry.backup_path or "" for entry in entries]),
            Ragged.of_text([entry.name or "" for entry in entries]),
            np.frombuffer(previous, np.uint8).reshape(n, OBJECT_ID_BYTES),
            np.frombuffer(new, np.uint8).reshape(n, OBJECT_ID_BYTES),
            np.array([entry.versions or (0, 0) for entry in entries], np.uint8).reshape(n, 2),
            np.array([entry.flag or (0, 0, 0) for entry in entries], np.uint16).reshape(n, 3),
            Statuses.of([entry.status or Status() for entry in entries]),
        )

    def entry(self, row: int) -> OpsEntry:
        """Return one entry as a value. Raise ``FormatError`` if its text is damaged."""
        with reading(self.source):
            kind = UpdateKind(int(self.kinds[row]))
            return OpsEntry(
                kind,
                int(self.updated_at[row]),
                self.backups.text(row) or None,
                **{field: self._field(field, row) for field in _FIELDS[kind]},
            )

    def pushed(self, entry: OpsEntry, backup: str) -> OpsLog:
        """Return the log with a new entry at the start.

        The previous newest entry gets ``backup`` as its backup_path.
        """
        if not len(self):
            return OpsLog.of([replace(entry, backup_path=None)])
        backups = set_row(self.backups, 0, _bytes_of(backup))
        zero = bytes(OBJECT_ID_BYTES)
        return OpsLog(
            with_row(self.kinds, 0, entry.kind),
            with_row(self.updated_at, 0, entry.updated_at),
            insert_row(backups, 0, _bytes_of(None)),
            insert_row(self.names, 0, _bytes_of(entry.name)),
            with_row(self.previous, 0, np.frombuffer(entry.previous_snapshot or zero, np.uint8)),
            with_row(self.new, 0, np.frombuffer(entry.new_snapshot or zero, np.uint8)),
            with_row(self.versions, 0, entry.versions or (0, 0)),
            with_row(self.flags, 0, entry.flag or (0, 0, 0)),
            self.statuses.pushed(entry.status or Status()),
            self.source,
        )

    @staticmethod
    def concat(parts: Sequence[OpsLog]) -> OpsLog:
        """Return one log with the entries of several logs, newest first. There is at least one log."""
        columns = {name: join_rows([getattr(part, name) for part in parts]) for name in _COLUMNS}
        every = [part.statuses for part in parts]
        names = ("availability", "set_at", "reasons", "has_reason")
        statuses = Statuses(*(join_rows([getattr(each, name) for each in every]) for name in names))
        return OpsLog(**columns, statuses=statuses, source=parts[-1].source)

    def newest(self, count: int) -> OpsLog:
        """Return only the ``count`` newest entries."""
        rows = slice(count)
        columns: dict[str, Any] = {name: take_rows(getattr(self, name), rows) for name in _COLUMNS}
        return replace(self, **columns, statuses=self.statuses.take(rows))

    def violations(self) -> Iterator[Violation]:
        """Yield the broken rules that readers do not need."""
        if (self.updated_at[:-1] <= self.updated_at[1:]).any():
            yield Violation("ops-order", "updates must be sorted by time, the newest first")
        try:
            names = list(filter(None, self.backups.texts()))
        except FormatError as error:
            yield Violation("text-utf8", f"names of backups: {error.message}")
            return
        strange = [name for name in names if match_backup_name(name) is None]
        if strange:
            yield Violation("backup-name", f"{BACKUP_NAME_RULE}, got {strange[0]!r}")

    def _field(self, field: str, row: int) -> Any:
        match field:
            case "name":
                return self.names.text(row)
            case "previous_snapshot":
                return self.previous[row].tobytes()
            case "new_snapshot":
                return self.new[row].tobytes()
            case "versions":
                return tuple(self.versions[row].tolist())
            case "flag":
                id_, value, is_set = self.flags[row].tolist()
                return (id_, bool(value), bool(is_set))
            case _:
                return self.statuses.status(row)


def read_statuses(tables: Tables) -> Statuses:
    """Return the statuses of n tables. Raise ``FormatError`` for an unknown availability."""
    availability = tables.scalars(0, np.uint8)
    if (availability > max(Availability)).any():
        raise FormatError(
            f"repository availability must be 0 to {max(Availability):d}, got {int(availability.max())}",
            check="status-availability",
        )
    return Statuses(availability, tables.scalars(1, "<u8"), tables.vectors(2), tables.present(2))


def write_statuses(writer: Writer, statuses: Statuses) -> I64:
    """Write statuses and return their positions."""
    out = np.zeros(len(statuses.availability), np.int64)
    for with_reason, layout in _STATUS_LAYOUTS.items():
        rows = np.flatnonzero(statuses.has_reason == with_reason)
        if not len(rows):
            continue
        records, places = writer.tables(layout, len(rows))
        out[rows] = places
        records["f0"] = statuses.availability[rows]
        records["f1"] = statuses.set_at[rows]
        if with_reason:
            link(records, layout, 2, places, writer.strings(writable(statuses.reasons.take(rows))))
    return out


def read_ops(updates: Tables, source: str) -> OpsLog:
    """Return the log of a vector of Update tables. Raise ``FormatError`` for an unknown kind of update."""
    require(updates, "update", _REQUIRED, update_type=0, update=1)
    kinds = updates.scalars(0, np.uint8)
    strange = (kinds < min(UpdateKind)) | (kinds > max(UpdateKind))
    if strange.any():
        text = f"update of kind {int(kinds[strange][0])}, expected 1 to {max(UpdateKind):d}"
        raise FormatError(text, check="update-kind")
    n = len(updates)
    names = Ragged(updates.buffer.bytes, np.zeros(n, np.int64), np.zeros(n, np.int64))
    reasons = Ragged(updates.buffer.bytes, np.zeros(n, np.int64), np.zeros(n, np.int64))
    log = OpsLog(
        kinds=kinds,
        updated_at=updates.scalars(2, "<u8"),
        backups=updates.vectors(3),
        names=names,
        previous=np.zeros((n, OBJECT_ID_BYTES), np.uint8),
        new=np.zeros((n, OBJECT_ID_BYTES), np.uint8),
        versions=np.zeros((n, 2), np.uint8),
        flags=np.zeros((n, 3), np.uint16),
        statuses=Statuses(np.zeros(n, np.uint8), np.zeros(n, np.uint64), reasons, np.zeros(n, bool)),
        source=source,
    )
    for kind in _kinds(kinds):
        if fields := _FIELDS[kind]:
            rows = np.flatnonzero(kinds == kind)
            tables, _ = updates.take(rows).tables(1)
            for slot, field in enumerate(fields):
                _read_field(log, field, slot, rows, tables)
    return log


def _read_field(log: OpsLog, field: str, slot: int, rows: I64, tables: Tables) -> None:
    match field:
        case "name":
            require(tables, "update", _REQUIRED, **{field: slot})
            text = tables.vectors(slot)
            log.names.starts[rows], log.names.lengths[rows] = text.starts, text.lengths
        case "previous_snapshot":
            require(tables, "update", _REQUIRED, **{field: slot})
            log.previous[rows] = tables.structs(slot, OBJECT_ID_BYTES)
        case "new_snapshot":
            require(tables, "update", _REQUIRED, **{field: slot})
            log.new[rows] = tables.structs(slot, OBJECT_ID_BYTES)
        case "versions":
            log.versions[rows] = np.stack([tables.scalars(i, np.uint8) for i in range(2)], axis=1)
        case "flag":
            log.flags[rows, 0] = tables.scalars(0, "<u2")
            log.flags[rows, 1] = tables.scalars(1, np.uint8) != 0
            log.flags[rows, 2] = tables.scalars(2, np.uint8) != 0
        case _:
            inner, has_status = tables.tables(slot)
            read, to, own = read_statuses(inner), log.statuses, rows[has_status]
            to.availability[own], to.set_at[own], to.has_reason[own] = (
                read.availability,
                read.set_at,
                read.has_reason,
            )
            to.reasons.starts[own], to.reasons.lengths[own] = read.reasons.starts, read.reasons.lengths


def write_ops(writer: Writer, log: OpsLog) -> int:
    """Write the vector of Update tables and return its position."""
    vector = writer.offset_vectors([len(log)])
    targets = np.zeros(len(log), np.int64)
    backed = log.backups.lengths > 0
    entry_records = []
    for with_backup, layout in _UPDATE_LAYOUTS.items():
        rows, count = rows_where(backed == with_backup)
        if not count:
            continue
        records, places = writer.tables(layout, count)
        targets[rows] = places
        records["f0"] = log.kinds[rows]
        records["f2"] = log.updated_at[rows]
        if with_backup:
            link(records, layout, 3, places, writer.strings(writable(log.backups.take(rows))))
        entry_records.append((layout, records, places, rows))
    vector.fill(targets)
    updates = np.zeros(len(log), np.int64)
    for kind in _kinds(log.kinds):
        rows = np.flatnonzero(log.kinds == kind)
        updates[rows] = _write_updates(writer, log, rows, _LAYOUTS[kind], _FIELDS[kind])
    for layout, records, places, rows in entry_records:
        link(records, layout, 1, places, updates[rows])
    return int(vector.positions[0])


def _kinds(kinds: U8) -> list[UpdateKind]:
    """Return the kinds that occur, ascending."""
    return list(map(UpdateKind, np.flatnonzero(np.bincount(kinds)).tolist()))


def _write_updates(writer: Writer, log: OpsLog, rows: I64, layout: Layout, fields: tuple[str, ...]) -> I64:
    records, places = writer.tables(layout, len(rows))
    for slot, field in enumerate(fields):
        match field:
            case "name":
                link(records, layout, slot, places, writer.strings(writable(log.names.take(rows))))
            case "previous_snapshot":
                records[f"f{slot}"] = structs(log.previous[rows])
            case "new_snapshot":
                records[f"f{slot}"] = structs(log.new[rows])
            case "versions":
                records["f0"], records["f1"] = log.versions[rows].T
            case "flag":
                records["f0"], records["f1"], records["f2"] = log.flags[rows].T
            case _:
                link(records, layout, slot, places, write_statuses(writer, log.statuses.take(rows)))
    return places


__all__ = [
    "Availability",
    "OpsEntry",
    "OpsLog",
    "Status",
    "Statuses",
    "UpdateKind",
    "read_ops",
    "read_statuses",
    "write_ops",
    "write_statuses",
]
