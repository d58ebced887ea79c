"""Conversions of internal values to public values: ids become text, microseconds become times.

The descriptions of a part of a history share a block. The first read of a field decodes this field for all of
them, and sets the slots of the descriptions. All later reads are reads of slots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from itertools import chain, repeat
from operator import attrgetter
from threading import Lock
from typing import Any, Final

import numpy as np

from frazil.changes.diff import ChangedPaths
from frazil.display import PACKAGE, Family, Record, literal
from frazil.format.columns import I64
from frazil.format.envelope import set_decoders
from frazil.format.ids import id_matrix, id_to_text, ids_to_text
from frazil.format.manifest import ChunkRef, InlineRef, NativeRef, VirtualRef
from frazil.format.repo_info import (
    Availability,
    OpsEntry,
    RepoInfo,
    SnapshotEntry,
    SnapshotTable,
    Status,
    UpdateKind,
)
from frazil.repository.catalog.ancestry import ancestry
from frazil.repository.catalog.repo_changes import require_snapshot
from frazil.repository.catalog.version_info import ChunkType, Diff, RepoAvailability, RepoStatus, SnapshotInfo
from frazil.repository.clock import to_datetime, to_datetimes


@dataclass(frozen=True, slots=True, repr=False)
class _Kind:
    """The base of the kinds, which print as a call on one line."""

    def __repr__(self) -> str:
        texts = []
        for each in fields(self):
            value = getattr(self, each.name)
            text = literal(value)
            if isinstance(value, Record):
                rows = ", ".join(f"{name}={row}" for name, row in value._rows())
                text = f"{type(value).__name__}({rows})"
            texts.append(f"{each.name}={text}")
        return f"{PACKAGE}.ops.{type(self).__qualname__}({', '.join(texts)})"


class UpdateType(metaclass=Family):
    """The kinds of updates of a repository. Ids of snapshots are texts of 20 characters."""

    @dataclass(frozen=True, slots=True, repr=False)
    class RepoInitialized(_Kind):
        """The repository was created."""

    @dataclass(frozen=True, slots=True, repr=False)
    class RepoMigrated(_Kind):
        """The repository was upgraded to another spec version."""

        from_version: int
        to_version: int

    @dataclass(frozen=True, slots=True, repr=False)
    class RepoStatusChanged(_Kind):
        """The status of the repository changed, such as to online or read-only."""

        status: RepoStatus

    @dataclass(frozen=True, slots=True, repr=False)
    class ConfigChanged(_Kind):
        """The saved configuration was replaced."""

    @dataclass(frozen=True, slots=True, repr=False)
    class MetadataChanged(_Kind):
        """The metadata of the repository changed."""

    @dataclass(frozen=True, slots=True, repr=False)
    class FeatureFlagChanged(_Kind):
        """A feature flag was set. With ``new_value`` None, it was set back to its default."""

        id: int
        new_value: bool | None

    @dataclass(frozen=True, slots=True, repr=False)
    class TagCreated(_Kind):
        """A tag was created."""

        name: str

    @dataclass(frozen=True, slots=True, repr=False)
    class TagDeleted(_Kind):
        """A tag was deleted. It pointed to ``previous_snap_id``."""

        name: str
        previous_snap_id: str

    @dataclass(frozen=True, slots=True, repr=False)
    class BranchCreated(_Kind):
        """A branch was created."""

        name: str

    @dataclass(frozen=True, slots=True, repr=False)
    class BranchDeleted(_Kind):
        """A branch was deleted. It pointed to ``previous_snap_id``."""

        name: str
        previous_snap_id: str

    @dataclass(frozen=True, slots=True, repr=False)
    class BranchReset(_Kind):
        """A branch was moved to another snapshot. It pointed to ``previous_snap_id``."""

        name: str
        previous_snap_id: str

    @dataclass(frozen=True, slots=True, repr=False)
    class NewCommit(_Kind):
        """A commit was added to a branch."""

        branch: str
        new_snap_id: str

    @dataclass(frozen=True, slots=True, repr=False)
    class CommitAmended(_Kind):
        """The last commit of a branch was replaced."""

        branch: str
        previous_snap_id: str
        new_snap_id: str

    @dataclass(frozen=True, slots=True, repr=False)
    class NewDetachedSnapshot(_Kind):
        """A snapshot was written without a branch."""

        new_snap_id: str

    @dataclass(frozen=True, slots=True, repr=False)
    class GCRan(_Kind):
        """A garbage collection ran."""

    @dataclass(frozen=True, slots=True, repr=False)
    class ExpirationRan(_Kind):
        """An expiration ran."""

    @dataclass(frozen=True, slots=True, repr=False)
    class LogStart(_Kind):
        """The log starts here. A garbage collection has removed the updates up to this time.

        Only Frazil has this kind. It is the last entry of a log, and no update of the repository.
        """


@dataclass(frozen=True, slots=True, repr=False)
class Update(Record, shown_as="ops.Update"):
    """One entry of the operations log.

    Attributes:
        kind: The kind of the update, with its details.
        updated_at: The time of the update.
        backup_path: The file in ``overwritten/`` with the state of the repository after this update. None for
            the newest update, and if the file was deleted. Updates and garbage collections delete old files
            that the operations log does not need.
    """

    kind: _Kind
    updated_at: datetime
    backup_path: str | None


_CHUNK_TYPES: Final = {
    NativeRef: ChunkType.native,
    VirtualRef: ChunkType.virtual,
    InlineRef: ChunkType.inline,
    type(None): ChunkType.uninitialized,
}


def chunk_type(ref: ChunkRef | None) -> ChunkType:
    """Return the type of a reference, ``uninitialized`` for a missing chunk."""
    return _CHUNK_TYPES[type(ref)]


def repo_status(status: Status) -> RepoStatus:
    """Return the public status of a repository."""
    # The public enum has no member for offline. Both refuse changes.
    is_online = status.availability is Availability.ONLINE
    availability = RepoAvailability.online if is_online else RepoAvailability.read_only
    return RepoStatus(availability, to_datetime(status.set_at), status.reason)


def diff(changes: ChangedPaths) -> Diff:
    """Return the public difference of two versions."""
    names = [f"{change}_{kind}" for change in ("new", "deleted", "updated") for kind in ("groups", "arrays")]
    nodes: dict[str, set[str]] = {name: set(getattr(changes, name)) for name in names}
    return Diff(**nodes, chunk_coordinates=changes.updated_chunks, moved_nodes=list(changes.moved))


#: The field of a kind of updates -> its value in an entry of the ops log.
_VALUES: Final[dict[str, Callable[[OpsEntry], Any]]] = {
    "name": lambda entry: entry.name or "",
    "branch": lambda entry: entry.name or "",
    "previous_snap_id": lambda entry: id_to_text(entry.previous_snapshot or b""),
    "new_snap_id": lambda entry: id_to_text(entry.new_snapshot or b""),
    "from_version": lambda entry: (entry.versions or (0, 0))[0],
    "to_version": lambda entry: (entry.versions or (0, 0))[1],
    "status": lambda entry: repo_status(entry.status or Status()),
    "id": lambda entry: entry.flag[0] if entry.flag else 0,
    "new_value": lambda entry: entry.flag[1] if entry.flag and entry.flag[2] else None,
}
#: For example ``BRANCH_CREATED`` -> ``BranchCreated``.
_KINDS: Final = {
    kind: getattr(UpdateType, kind.name.title().replace("_", "").replace("Gc", "GC")) for kind in UpdateKind
}


def update(entry: OpsEntry) -> Update:
    """Return the public entry of the operations log."""
    kind = _KINDS[entry.kind]
    values = {name: _VALUES[name](entry) for name in kind.__match_args__}
    return Update(kind(**values), to_datetime(entry.updated_at), entry.backup_path)


def snapshot_info(entry: SnapshotEntry) -> SnapshotInfo:
    """Return the public description of a snapshot."""
    return snapshot_infos([entry])[0]


def snapshot_infos(entries: Sequence[SnapshotEntry]) -> list[SnapshotInfo]:
    """Return the public descriptions of many snapshots, with ``map`` for speed."""
    own = list(map(attrgetter("id"), entries))
    parents = list(map(attrgetter("parent"), entries))
    # Most of them are the parents of others.
    ids = list(dict.fromkeys(chain(own, filter(None, parents))))
    names: dict[bytes | None, str] = dict(zip(ids, ids_to_text(id_matrix(ids)), strict=True))
    return list(
        map(
            SnapshotInfo,
            map(names.__getitem__, own),
            map(names.get, parents),
            to_datetimes(list(map(attrgetter("flushed_at"), entries))),
            map(attrgetter("message"), entries),
            map(dict, map(attrgetter("metadata"), entries)),
        )
    )


#: The largest number of versions of a block. A program that has one of them has all of them in memory.
_BLOCK: Final = 1024
_SLOTS: Final = {
    name: vars(SnapshotInfo)[name].__set__
    for name in ("id", "parent_id", "written_at", "message", "metadata")
}


def history_infos(info: RepoInfo, tip: bytes) -> Iterator[SnapshotInfo]:
    """Return the public descriptions of a snapshot and all its ancestors, newest first."""
    table = info.snapshots
    if not isinstance(table, SnapshotTable):  # spec version 1, where each version is a file
        return chain.from_iterable(map(snapshot_infos, ancestry(info, tip)))
    parts = table.parts(require_snapshot(info, tip))
    blocks = (rows[at : at + _BLOCK] for rows in parts for at in range(0, len(rows), _BLOCK))
    return chain.from_iterable(_SnapshotBlock(table, rows).infos() for rows in blocks)


class _SnapshotBlock:
    """The versions in some rows of a table."""

    __slots__ = ("_infos", "_lock", "_missing", "_rows", "_table")

    def __init__(self, table: SnapshotTable, rows: I64) -> None:
        self._table = table
        self._rows = rows
        self._infos: list[SnapshotInfo] = list(map(object.__new__, repeat(SnapshotInfo, len(rows))))
        self._missing = set(_SLOTS)
        self._lock = Lock()

    def infos(self) -> list[SnapshotInfo]:
        """Return the descriptions. The block forgets them when all of their fields are decoded."""
        decoders = {name: partial(self._decode, name) for name in _SLOTS}
        deque(map(set_decoders, self._infos, repeat(decoders)), maxlen=0)
        return self._infos

    def _decode(self, name: str) -> dict[str, Any]:
        """Set the field ``name`` of all descriptions."""
        with self._lock:  # another thread may have set it, and metadata must not be replaced
            if name in self._missing:
                if name in ("message", "metadata") and self._table.is_shared(self._rows):
                    self._separate()
                else:
                    for column, values in _READERS[name](self._table, self._rows).items():
                        deque(map(_SLOTS[column], self._infos, values), maxlen=0)
                        self._missing.discard(column)
                    if not self._missing:
                        self._infos = []
        return {}

    def _separate(self) -> None:
        """Let each description decode itself.

        Rows of a damaged file may share bytes so often that only one row at a time fits into memory.
        """

        def decoded(row: int) -> dict[str, Any]:
            info = snapshot_info(self._table.entry(row))
            return {name: getattr(info, name) for name in _SLOTS}

        for info, row in zip(self._infos, self._rows.tolist(), strict=True):
            set_decoders(info, dict.fromkeys(self._missing, partial(decoded, row)))
        self._missing.clear()
        self._infos = []


def _ids(table: SnapshotTable, rows: I64) -> dict[str, list[Any]]:
    parents = table.parents()[rows]
    has_parent = parents >= 0
    # The parents of a line are the versions that follow, except for the last one.
    own, others = np.append(rows, parents[-1:]), np.append(rows[1:], parents[-1:])
    if not np.array_equal(parents, others):
        own = np.concatenate([rows, parents])
    texts: list[Any] = ids_to_text(table.ids()[own])
    after: list[Any] = texts[1:] if len(own) == len(rows) + 1 else texts[len(rows) :]
    for place in np.flatnonzero(~has_parent).tolist():
        after[place] = None
    return {"id": texts[: len(rows)], "parent_id": after}


#: The function that decodes a field of some rows, perhaps with other fields.
_READERS: Final[dict[str, Callable[[SnapshotTable, I64], dict[str, list[Any]]]]] = {
    "id": _ids,
    "parent_id": _ids,
    "written_at": lambda table, rows: {"written_at": to_datetimes(table.flushed_at()[rows])},
    "message": lambda table, rows: {"message": table.messages(rows)},
    "metadata": lambda table, rows: {"metadata": table.metadata(rows)},
}
