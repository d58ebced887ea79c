"""Repo info: the only file that changes, with refs, all snapshots, configuration, status and the ops log.

Snapshots and ops log are columns. ``open_repo_info`` decodes the parts of a file when they are read. A method
that changes something returns a new value. The module is pure: times, ids and names of backups are arguments.

    Repo         0 spec_version  1 tags  2 branches  3 deleted_tags  4 snapshots  5 status  6 metadata
                 7 latest_updates  8 repo_before_updates  9 config  10 enabled_feature_flags
                 11 disabled_feature_flags  12 extra
    Ref          0 name  1 snapshot_index
    Update       0 type of update  1 update  2 updated_at  3 backup_path
    RepoStatus   0 availability  1 set_at  2 limited_availability_reason
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError, InternalError, InvalidMetadataError
from frazil.format import envelope, flexbuffer
from frazil.format.columns import I64, U8, U64, Ragged, join_rows, set_rows, structs, take_rows, unshared
from frazil.format.flatbuffer import NUL, Buffer, OffsetVectors, TableLayout, Tables, TableWriter
from frazil.format.flexbuffer import MetadataColumn, read_metadata, write_metadata
from frazil.format.ids import (
    BACKUP_NAME_RULE,
    INITIAL_SNAPSHOT_ID,
    OBJECT_ID_BYTES,
    id_keys,
    id_matrix,
    match_backup_name,
)
from frazil.format.snapshot import (
    INITIAL_MESSAGE,
    INITIAL_METADATA,
    SnapshotEntry,
    Snapshots,
    SnapshotTable,
    read_snapshots,
    write_snapshots,
)

__all__ = ["SnapshotEntry", "SnapshotTable", "Snapshots"]

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
FIELDS_OF: Final[dict[UpdateKind, tuple[str, ...]]] = {
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
#: The column of each field of an entry, and the types of its slots. A status has several columns.
_STORED: Final = {
    "name": ("names", "u4"),
    "previous_snapshot": ("previous", _ID),
    "new_snapshot": ("new", _ID),
    "versions": ("versions", "u1", "u1"),
    "flag": ("flags", "u2", "u1", "u1"),
    "status": ("availability", "u4"),
}


_LAYOUTS: Final = {
    kind: TableLayout(dict(enumerate(dtypes)), slots=len(dtypes))
    for kind, dtypes in (
        (kind, [dtype for name in names for dtype in _STORED[name][1:]]) for kind, names in FIELDS_OF.items()
    )
}
_UPDATE_LAYOUTS: Final = {
    False: TableLayout({0: "u1", 1: "u4", 2: "u8"}, slots=3),
    True: TableLayout({0: "u1", 1: "u4", 2: "u8", 3: "u4"}, slots=4),
}
_STATUS_LAYOUTS: Final = {
    False: TableLayout({0: "u1", 1: "u8"}, slots=2),
    True: TableLayout({0: "u1", 1: "u8", 2: "u4"}, slots=3),
}


@dataclass(frozen=True, slots=True, eq=False)
class OpsLog:
    """The newest entries of the ops log, newest first, as columns.

    There are at most ``num_updates_per_repo_info_file`` entries.
    """

    kinds: U8  # uint8 (n,), ``UpdateKind``
    updated_at: U64  # uint64 (n,), microseconds since 1970
    backups: Ragged  # Text; an empty row if an entry has no backup_path
    names: Ragged  # Text
    previous: U8  # uint8 (n, 12), zeros if the kind has no such field
    new: U8  # uint8 (n, 12), zeros if the kind has no such field
    versions: U8  # uint8 (n, 2): from, to
    flags: NDArray[np.uint16]  # uint16 (n, 3): id, new_value, is_set
    availability: U8  # uint8 (n,), of updates of the status
    set_at: U64  # uint64 (n,), microseconds since 1970
    reasons: Ragged  # Text
    has_reason: NDArray[np.bool_]  # bool (n,)
    source: str = "repo"  # The name of the file, for errors

    def __len__(self) -> int:
        return len(self.kinds)

    @classmethod
    def of(cls, entries: Sequence[OpsEntry]) -> OpsLog:
        """Create a log of a few entries, newest first."""
        n = len(entries)
        zero = bytes(OBJECT_ID_BYTES)
        statuses = [entry.status or Status() for entry in entries]
        return cls(
            np.array([entry.kind for entry in entries], np.uint8),
            np.array([entry.updated_at for entry in entries], np.uint64),
            Ragged.of_text([entry.backup_path or "" for entry in entries]),
            Ragged.of_text([entry.name or "" for entry in entries]),
            id_matrix([entry.previous_snapshot or zero for entry in entries]),
            id_matrix([entry.new_snapshot or zero for entry in entries]),
            np.array([entry.versions or (0, 0) for entry in entries], np.uint8).reshape(n, 2),
            np.array([entry.flag or (0, 0, 0) for entry in entries], np.uint16).reshape(n, 3),
            *_status_columns(statuses),
        )

    def entry(self, row: int) -> OpsEntry:
        """Return one entry as a value. Raise ``FormatError`` if its text is damaged."""
        with envelope.reading(self.source):
            kind = UpdateKind(int(self.kinds[row]))
            values: dict[str, Any] = {}
            for name in FIELDS_OF[kind]:
                if name == "status":
                    reason = self.reasons.text(row) if self.has_reason[row] else None
                    availability = Availability(int(self.availability[row]))
                    values[name] = Status(availability, int(self.set_at[row]), reason)
                elif name == "name":
                    values[name] = self.names.text(row)
                elif name == "flag":
                    id_, value, is_set = self.flags[row].tolist()
                    values[name] = id_, bool(value), bool(is_set)
                else:
                    numbers = getattr(self, _STORED[name][0])[row]
                    values[name] = tuple(numbers.tolist()) if name == "versions" else numbers.tobytes()
            backup = self.backups.text(row) or None
            return OpsEntry(kind, int(self.updated_at[row]), backup, **values)

    @staticmethod
    def concat(parts: Sequence[OpsLog]) -> OpsLog:
        """Return one log with the entries of several logs, newest first. There is at least one log."""
        columns = {name: join_rows([getattr(part, name) for part in parts]) for name in _COLUMNS}
        return OpsLog(**columns, source=parts[-1].source)

    def newest(self, count: int) -> OpsLog:
        """Return only the ``count`` newest entries."""
        columns: dict[str, Any] = {name: take_rows(getattr(self, name), slice(count)) for name in _COLUMNS}
        return replace(self, **columns)

    def violations(self) -> Iterator[envelope.Violation]:
        """Yield the broken rules that readers do not need."""
        if (self.updated_at[:-1] <= self.updated_at[1:]).any():
            yield envelope.Violation("ops-order", "updates must be sorted by time, the newest first")
        try:
            names = list(filter(None, self.backups.texts()))
        except FormatError as error:
            yield envelope.Violation("text-utf8", f"names of backups: {error.message}")
            return
        strange = [name for name in names if match_backup_name(name) is None]
        if strange:
            yield envelope.Violation("backup-name", f"{BACKUP_NAME_RULE}, got {strange[0]!r}")


_COLUMNS: Final = tuple(name for name in OpsLog.__dataclass_fields__ if name != "source")

type _StatusColumns = tuple[U8, U64, Ragged, NDArray[np.bool_]]


def _status_columns(statuses: Sequence[Status]) -> _StatusColumns:
    """Return the availabilities, times and reasons of a few statuses, and which of them have a reason."""
    return (
        np.array([status.availability for status in statuses], np.uint8),
        np.array([status.set_at for status in statuses], np.uint64),
        Ragged.of_text([status.reason or "" for status in statuses]),
        np.array([status.reason is not None for status in statuses], bool),
    )


def _read_statuses(tables: Tables) -> _StatusColumns:
    availability = tables.scalars(0, np.uint8)
    if (availability > max(Availability)).any():
        raise FormatError(
            f"repository availability must be 0 to {max(Availability):d}, got {int(availability.max())}",
            check="status-availability",
        )
    return availability, tables.scalars(1, "<u8"), tables.vectors(2), tables.present(2)


def _write_statuses(writer: TableWriter, columns: _StatusColumns) -> I64:
    """Write statuses and return their positions."""
    availability, set_at, reasons, has_reason = columns
    out = np.zeros(len(availability), np.int64)
    for rows, statuses in writer.tables_by_shape(has_reason, _STATUS_LAYOUTS, out):
        statuses.fields["f0"], statuses.fields["f1"] = availability[rows], set_at[rows]
        if 2 in statuses.layout.offsets:
            statuses.link(2, writer.vectors(reasons.take(rows), NUL))
    return out


def _read_ops(updates: Tables, source: str) -> OpsLog:
    """Return the log of a vector of Update tables. Raise ``FormatError`` for an unknown kind of update."""
    updates.require("update", _REQUIRED, update_type=0, update=1)
    kinds = updates.scalars(0, np.uint8)
    strange = (kinds < min(UpdateKind)) | (kinds > max(UpdateKind))
    if strange.any():
        detail = f"update of kind {int(kinds[strange][0])}, expected 1 to {max(UpdateKind):d}"
        raise FormatError(detail, check="update-kind")
    n = len(updates)
    names, reasons = (
        Ragged(updates.buffer.bytes, np.zeros(n, np.int64), np.zeros(n, np.int64)) for _ in range(2)
    )
    log = OpsLog(
        kinds=kinds,
        updated_at=updates.scalars(2, "<u8"),
        backups=updates.vectors(3),
        names=names,
        previous=np.zeros((n, OBJECT_ID_BYTES), np.uint8),
        new=np.zeros((n, OBJECT_ID_BYTES), np.uint8),
        versions=np.zeros((n, 2), np.uint8),
        flags=np.zeros((n, 3), np.uint16),
        availability=np.zeros(n, np.uint8),
        set_at=np.zeros(n, np.uint64),
        reasons=reasons,
        has_reason=np.zeros(n, bool),
        source=source,
    )
    for kind in map(UpdateKind, sorted(set(kinds.tolist()))):
        rows = np.flatnonzero(kinds == kind)
        tables, _ = updates.take(rows).tables(1)
        for slot, name in enumerate(FIELDS_OF[kind]):
            column, *dtypes = _STORED[name]
            if name == "status":
                inner, has_status = tables.tables(slot)
                own, (availability, set_at, text, has_reason) = rows[has_status], _read_statuses(inner)
                log.availability[own], log.set_at[own], log.has_reason[own] = availability, set_at, has_reason
                reasons.starts[own], reasons.lengths[own] = text.starts, text.lengths
            elif len(dtypes) > 1:
                for place, dtype in enumerate(dtypes):
                    numbers = tables.scalars(place, dtype)
                    getattr(log, column)[rows, place] = numbers
            else:
                tables.require("update", _REQUIRED, **{name: slot})
                if name == "name":
                    text = tables.vectors(slot)
                    names.starts[rows], names.lengths[rows] = text.starts, text.lengths
                else:
                    getattr(log, column)[rows] = tables.structs(slot, OBJECT_ID_BYTES)
    np.minimum(log.flags[:, 1:], 1, out=log.flags[:, 1:])
    return log


def _write_ops(writer: TableWriter, log: OpsLog) -> int:
    """Write the vector of Update tables and return its position."""
    vector = OffsetVectors(writer, [len(log)])
    targets, contents = np.zeros(len(log), np.int64), np.zeros(len(log), np.int64)
    groups = []
    for rows, updates in writer.tables_by_shape(log.backups.lengths > 0, _UPDATE_LAYOUTS, targets):
        groups.append((rows, updates))
        updates.fields["f0"], updates.fields["f2"] = log.kinds[rows], log.updated_at[rows]
        if 3 in updates.layout.offsets:
            updates.link(3, writer.vectors(log.backups.take(rows), NUL))
    vector.lead(targets)
    for own, content in writer.tables_by_shape(log.kinds, _LAYOUTS, contents):
        for slot, name in enumerate(FIELDS_OF[UpdateKind(int(log.kinds[own][0]))]):
            column, *dtypes = _STORED[name]
            if name == "status":
                statuses = log.availability[own], log.set_at[own], log.reasons.take(own), log.has_reason[own]
                content.link(slot, _write_statuses(writer, statuses))
            elif name == "name":
                content.link(slot, writer.vectors(log.names.take(own), NUL))
            elif len(dtypes) > 1:
                for place, numbers in enumerate(getattr(log, column)[own].T):
                    content.fields[f"f{place}"] = numbers
            else:
                content.fields[f"f{slot}"] = structs(getattr(log, column)[own])
    for rows, updates in groups:
        updates.link(1, contents[rows])
    return int(vector.positions[0])


#: Before this version of ``marshal``, equal values have equal bytes, whatever other references they have.
_WITHOUT_REFERENCES: Final = 2


def encoded_config(config: dict[str, Any]) -> bytes:
    """Return a configuration as a flexbuffer."""
    try:
        return _encoded(marshal.dumps(config, _WITHOUT_REFERENCES))
    except (ValueError, InvalidMetadataError):
        # A value of another type. ``marshal`` stores arrays and numbers of numpy as bytes, which are refused.
        return flexbuffer.dumps(config)


@lru_cache(maxsize=16)
def _encoded(values: bytes) -> bytes:
    return flexbuffer.dumps(marshal.loads(values))


_SPEC_VERSION: Final = 2
_REF_LAYOUT: Final = TableLayout({0: "u4", 1: "u4"}, slots=2)
_ROOT_FIELDS: Final = {0: "u1", 1: "u4", 2: "u4", 3: "u4", 4: "u4", 5: "u4", 6: "u4", 7: "u4"}
#: The largest time of an update, which the file stores in 64 bits.
_LAST_TIME: Final = (1 << 64) - 1
_BEFORE, _CONFIG, _ENABLED, _DISABLED, _EXTRA = 8, 9, 10, 11, 12


@dataclass(frozen=True, slots=True, eq=False)
class RepoInfo(envelope.LateFields):
    """A repo info file (spec version 2), or its equivalent in a repository of version 1."""

    spec_version: int  # 1 or 2
    branches: Mapping[str, bytes]  # The id of the snapshot of each branch
    tags: Mapping[str, bytes]  # The id of the snapshot of each tag
    deleted_tags: Set[str]  # Names that are never used again
    snapshots: Snapshots  # All snapshots
    status: Status  # Whether the repository accepts changes
    metadata: dict[str, Any]  # JSON-like values by name
    ops: OpsLog  # The newest entries of the ops log
    repo_before_updates: str | None = None  # The backup that contains the next older entry of the ops log
    config: dict[str, Any] | None = None  # The configuration, decoded from FlexBuffers; None if there is none
    #: The ids of feature flags that the owner has turned on
    enabled_flags: frozenset[int] = field(default_factory=frozenset)
    #: The ids of feature flags that the owner has turned off
    disabled_flags: frozenset[int] = field(default_factory=frozenset)
    #: Bytes of later versions of the format, stored unchanged; None if there are none
    extra: bytes | None = None

    @property
    def table(self) -> SnapshotTable:
        """All snapshots, for upkeep. Raises ``InternalError`` if not all of them are known."""
        if not isinstance(self.snapshots, SnapshotTable):
            raise InternalError("only some snapshots are known here. `Context.whole` reads all snapshots")
        return self.snapshots

    def recorded(self, entry: OpsEntry, *, backup: str, keep: int) -> RepoInfo:
        """Return the repo info with one more entry of the ops log.

        The previous newest entry gets ``backup`` as its backup_path (the backup contains the state right
        after that entry). Of the older entries the ``keep`` newest stay. ``repo_before_updates`` then names
        the backup whose newest entry is the first dropped entry. Entries that a migration reconstructed have
        no backup: the log is never cut before such an entry, and has more than ``keep`` entries until it can
        be cut elsewhere.
        """
        if keep < 1:
            raise InternalError(f"an ops log must keep at least 1 entry, got {keep}")
        last = int(self.ops.updated_at[0]) if len(self.ops) else -1
        if entry.updated_at <= last:
            raise InternalError(f"update at {entry.updated_at}, expected later than the last one at {last}")
        if entry.updated_at > _LAST_TIME:
            raise FormatError(
                f"repo: an update must be at most at {_LAST_TIME} us since 1970, got one at {last}"
            )
        ops = OpsLog.of([replace(entry, backup_path=None)])
        if len(self.ops):
            backups = set_rows(self.ops.backups, np.zeros(1, np.int64), Ragged.of_text([backup]))
            ops = OpsLog.concat([ops, replace(self.ops, backups=backups)])
        return replace(self, ops=ops).with_short_log(keep)

    def with_short_log(self, keep: int) -> RepoInfo:
        """Return the repo info with only the ``keep`` newest entries of the ops log, if there are more.

        ``repo_before_updates`` leads to the other entries. See ``recorded``.
        """
        cuts = np.flatnonzero(self.ops.backups.lengths[keep:])
        if not len(cuts):
            return self
        length = keep + int(cuts[0])
        return replace(
            self, ops=self.ops.newest(length), repo_before_updates=self.ops.entry(length).backup_path
        )


def new_repo_info(flushed_at: int, config: dict[str, Any] | None = None, *, updated_at: int = 0) -> RepoInfo:
    """Return the repo info of a new repository: ``main`` on the initial snapshot, one entry in the ops log.

    ``flushed_at`` (microseconds) is that of the initial snapshot. The entry is of ``updated_at``, and at
    least one microsecond later, because updates are later than the snapshots that they describe.
    """
    updated_at = max(updated_at, flushed_at + 1)
    first = SnapshotEntry(INITIAL_SNAPSHOT_ID, None, flushed_at, INITIAL_MESSAGE, dict(INITIAL_METADATA))
    return RepoInfo(
        _SPEC_VERSION,
        {"main": INITIAL_SNAPSHOT_ID},
        {},
        frozenset(),
        SnapshotTable.of([first]),
        Status(Availability.ONLINE, flushed_at),
        {},
        OpsLog.of([OpsEntry(UpdateKind.REPO_INITIALIZED, updated_at)]),
        config=config,
    )


def encode_repo_info(info: RepoInfo, *, level: int = 3) -> bytes:
    """Return the file. Raise ``InternalError`` if a branch or tag is on a snapshot that is not listed."""
    snapshots = info.table
    optional = {
        _BEFORE: info.repo_before_updates is not None,
        _CONFIG: info.config is not None,
        _ENABLED: bool(info.enabled_flags),
        _DISABLED: bool(info.disabled_flags),
        _EXTRA: info.extra is not None,
    }
    stored = [slot for slot, is_set in optional.items() if is_set]
    writer = TableWriter(_root_layout(tuple(stored)))
    root: dict[int, int | bytes] = {0: _SPEC_VERSION}
    root[1] = _write_refs(writer, info.tags, snapshots)
    root[2] = _write_refs(writer, info.branches, snapshots)
    if not info.deleted_tags:
        root[3] = writer.no_elements()
    else:
        names = OffsetVectors(writer, [len(info.deleted_tags)])
        names.lead(writer.vectors(Ragged.of_text(sorted(info.deleted_tags)), NUL))
        root[3] = int(names.positions[0])
    root[5] = int(_write_statuses(writer, _status_columns([info.status]))[0])
    metadata = MetadataColumn.of([info.metadata])
    root[6] = int(write_metadata(writer, metadata)[0]) if info.metadata else writer.no_elements()
    root[7] = _write_ops(writer, info.ops)
    if info.repo_before_updates is not None:
        root[_BEFORE] = writer.vector(info.repo_before_updates.encode(), NUL)
    if info.config is not None:
        root[_CONFIG] = writer.vector(encoded_config(info.config))
    for slot, flags in ((_ENABLED, info.enabled_flags), (_DISABLED, info.disabled_flags)):
        if flags:
            root[slot] = writer.vector(np.array(sorted(flags), "<u2"))
    if info.extra is not None:
        root[_EXTRA] = writer.vector(info.extra)
    root[4] = write_snapshots(writer, snapshots)
    return envelope.seal(writer.finish(root), envelope.FileType.REPO_INFO, level=level)


@cache
def _root_layout(optional: tuple[int, ...]) -> TableLayout:
    """Return the layout of the root table with these optional slots."""
    return TableLayout(_ROOT_FIELDS | dict.fromkeys(optional, "u4"), slots=max([7, *optional]) + 1)


def _write_refs(writer: TableWriter, refs: Mapping[str, bytes], snapshots: SnapshotTable) -> int:
    if not refs:
        return writer.no_elements()
    names = sorted(refs)
    rows = snapshots.find_snapshots(id_matrix([refs[name] for name in names]))
    if (rows < 0).any():
        name = names[int(np.argmin(rows))]
        raise InternalError(f"`{name}` is on a snapshot that is not listed", ErrorKind.SNAPSHOT_NOT_FOUND)
    records, (vector,) = writer.table_vectors(_REF_LAYOUT, [len(names)])
    records.fields["f1"] = rows
    records.link(0, writer.vectors(Ragged.of_text(names), NUL))
    return int(vector)


def decode_repo_info(data: Any, name: str, broken: list[envelope.Violation] | None = None) -> RepoInfo:
    """Read a repo info of spec version 2. Raise ``FormatError`` with ``name`` for other bytes.

    ``broken`` gets the broken rules that readers do not need.
    """
    root, info = _open(data, name)
    envelope.complete(info)
    envelope.collect(broken, _violations(root, info))
    return info


def _violations(root: Tables, info: RepoInfo) -> Iterator[envelope.Violation]:
    """Yield the broken rules that readers do not need."""
    deleted = root.string_vectors(3)[0].texts()
    yield from envelope.unsorted("tags-sorted", "tags", list(info.tags))
    yield from envelope.unsorted("branches-sorted", "branches", list(info.branches))
    yield from envelope.unsorted("deleted-tags-sorted", "deleted tags", deleted)
    ids = root.children(4)[0].structs(0, OBJECT_ID_BYTES)
    yield from envelope.unsorted("snapshots-sorted", "snapshots", id_keys(ids))
    if "main" not in info.branches:
        yield envelope.Violation("main-branch", "a repository must have the branch `main`")
    for name in sorted(info.tags.keys() & info.deleted_tags):
        yield envelope.Violation("tag-reuse", f"the tag {name!r} has the name of a deleted tag")
    flags = [root.numbers(slot, "<u2").values for slot in (_ENABLED, _DISABLED)]
    yield from envelope.unsorted("enabled-flags-sorted", "ids of enabled flags", flags[0])
    yield from envelope.unsorted("disabled-flags-sorted", "ids of disabled flags", flags[1])
    if both := sorted(info.enabled_flags & info.disabled_flags):
        yield envelope.Violation(
            "flags-exclusive", f"feature flags must be enabled or disabled, got both for {both}"
        )
    yield from info.table.violations()
    yield from info.ops.violations()
    if info.repo_before_updates and match_backup_name(info.repo_before_updates) is None:
        yield envelope.Violation("backup-name", f"{BACKUP_NAME_RULE}, got {info.repo_before_updates!r}")


def open_repo_info(data: Any, name: str) -> RepoInfo:
    """Return a repo info of spec version 2 whose fields are decoded when they are read.

    Raises ``FormatError`` with ``name`` if the file has another type or version, is cut off, or has no valid
    configuration. Reads of other damaged fields raise it later.
    """
    return _open(data, name)[1]


def _open(data: Any, name: str) -> tuple[Tables, RepoInfo]:
    """Return the root table too."""
    with envelope.reading(name):
        header, payload = envelope.open_envelope(data, envelope.FileType.REPO_INFO)
        root = Buffer(payload).root()
        # First, because a later version may have other fields, such as another layout of chunk files.
        both = (header.spec_version, int(root.scalars(0, np.uint8)[0]))
        envelope.check_spec_version(max(both), "repo-spec-version")
        if both != (_SPEC_VERSION, _SPEC_VERSION):
            raise FormatError(
                f"spec versions {both} in header and file, expected {_SPEC_VERSION}",
                ErrorKind.UNSUPPORTED_SPEC_VERSION,
                "repo-spec-version",
            )
        root.require("repo info", _REQUIRED, tags=1, branches=2, deleted_tags=3, snapshots=4)
        root.require("repo info", _REQUIRED, status=5, latest_updates=7)
        config = None
        if root.present(_CONFIG)[0]:
            with envelope.reading("config", check="config-flexbuffer"):
                config = flexbuffer.loads(root.vectors(_CONFIG).bytes(0))
                if not isinstance(config, dict):
                    raise FormatError(f"the configuration must be a map, got {type(config).__name__}")

    def versions() -> dict[str, Any]:
        with envelope.reading(name):
            snapshots, number = read_snapshots(root.children(4)[0], name, data, payload)
            branches, tags = (_read_refs(root, slot, snapshots, number) for slot in (2, 1))
            return {"snapshots": snapshots, "branches": branches, "tags": tags}

    def properties() -> dict[str, Any]:
        with envelope.reading(name):
            availability, set_at, reasons, has_reason = _read_statuses(root.tables(5)[0])
            reason = reasons.text(0) if has_reason[0] else None
            return {
                "deleted_tags": frozenset(unshared(root.string_vectors(3)[0], "deleted tags").texts()),
                "status": Status(Availability(int(availability[0])), int(set_at[0]), reason),
                "metadata": read_metadata(root, 6, name).load(0),
                "enabled_flags": frozenset(root.numbers(_ENABLED, "<u2").values.tolist()),
                "disabled_flags": frozenset(root.numbers(_DISABLED, "<u2").values.tolist()),
                "extra": root.vectors(_EXTRA).bytes(0) if root.present(_EXTRA)[0] else None,
            }

    def operations() -> dict[str, Any]:
        with envelope.reading(name):
            before = root.vectors(_BEFORE).text(0) if root.present(_BEFORE)[0] else None
            return {"ops": _read_ops(root.children(7)[0], name), "repo_before_updates": before}

    others = ("deleted_tags", "status", "metadata", "enabled_flags", "disabled_flags", "extra")
    decoders: envelope.Decoders = {
        **dict.fromkeys(("snapshots", "branches", "tags"), versions),
        **dict.fromkeys(others, properties),
        **dict.fromkeys(("ops", "repo_before_updates"), operations),
    }
    return root, envelope.with_late_fields(
        RepoInfo, {"spec_version": _SPEC_VERSION, "config": config}, decoders
    )


def _read_refs(root: Tables, slot: int, snapshots: SnapshotTable, number: I64) -> dict[str, bytes]:
    refs, _ = root.children(slot)
    if not len(refs):
        return {}
    refs.require("ref", "repo-required", name=0)
    indices = refs.scalars(1, "<u4")
    if (indices >= len(snapshots)).any():
        text = f"a ref is on snapshot {int(indices.max())} of {len(snapshots)}"
        raise FormatError(text, check="ref-target")
    names = unshared(refs.vectors(0), "names of refs").texts()
    out = dict(zip(names, map(snapshots.id_of, number[indices].tolist()), strict=True))
    if len(out) != len(names):
        raise FormatError("two refs have the same name", check=("", "tags-sorted", "branches-sorted")[slot])
    return out
