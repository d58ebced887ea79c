"""What a repository answers: values that are compared, printed and pickled, and do nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np

from frazil.arguments import check_fields
from frazil.display import NamedEnum, Record, Shown, counted, literal, utc
from frazil.storage.chunk_type import ChunkType as ChunkType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray


#: Whether a commit is a new one, or takes the place of the last one.
CommitMethod = Literal["new_commit", "amend"]


class SpecVersion(IntEnum):
    """Version of the format that a repository is in."""

    v1 = 1
    v2 = 2

    def __repr__(self) -> str:
        suffix = " (current)" if self is SpecVersion.current() else ""
        return f"SpecVersion.{self.name}{suffix}"

    __str__ = __repr__

    @staticmethod
    def current() -> SpecVersion:
        """Return the version that new repositories get."""
        return SpecVersion.v2


class SessionMode(NamedEnum):
    """What a session may do."""

    readonly = 0
    writable = 1
    rearrange = 2


class RepoAvailability(NamedEnum, IntEnum):
    """Whether a repository takes changes."""

    online = 0
    read_only = 1


_AVAILABILITY: Final = {RepoAvailability.online: "Online", RepoAvailability.read_only: "ReadOnly"}


@dataclass(frozen=True, slots=True, repr=False, init=False)
class RepoStatus(Record):
    """Whether a repository takes changes, since when, and why not. ``set_at`` is now if not given."""

    availability: RepoAvailability
    set_at: datetime
    limited_availability_reason: str | None

    shown_as: ClassVar[str] = "repository.RepoStatus"

    def __init__(
        self,
        availability: RepoAvailability,
        set_at: datetime | None = None,
        limited_availability_reason: str | None = None,
    ) -> None:
        object.__setattr__(self, "availability", availability)
        object.__setattr__(self, "set_at", set_at if set_at is not None else datetime.now(UTC))
        object.__setattr__(self, "limited_availability_reason", limited_availability_reason)
        check_fields(self)
        if self.set_at.tzinfo is None:
            raise TypeError(
                f"set_at: expected a datetime with a time zone, found {self.set_at.isoformat()} without one"
            )

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "availability", _AVAILABILITY[self.availability]
        yield "set_at", utc(self.set_at)
        yield "limited_availability_reason", str(self.limited_availability_reason)


@dataclass(frozen=True, slots=True, repr=False)
class SnapshotInfo(Record):
    """One snapshot: a commit, seen from the history."""

    id: str
    parent_id: str | None
    written_at: datetime
    message: str
    metadata: dict[str, Any] = field(default_factory=dict, hash=False)

    shown_as: ClassVar[str] = "snapshots.SnapshotInfo"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "id", self.id
        yield "parent_id", str(self.parent_id)
        yield "written_at", utc(self.written_at)
        yield "message", self.message
        yield "metadata", literal(self.metadata)


@dataclass(frozen=True, slots=True, repr=False)
class ManifestFileInfo(Record):
    """One manifest file of a snapshot."""

    id: str
    size_bytes: int
    num_chunk_refs: int

    shown_as: ClassVar[str] = "snapshots.ManifestFileInfo"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "id", self.id
        yield "size_bytes", str(self.size_bytes)
        yield "num_chunk_refs", str(self.num_chunk_refs)


@dataclass(frozen=True, slots=True, repr=False)
class FeatureFlag(Record):
    """A feature that can be switched off or on for a repository; ``setting`` None is the default."""

    id: int
    name: str
    default_enabled: bool
    setting: bool | None = None

    shown_as: ClassVar[str] = "config.FeatureFlag"

    @property
    def enabled(self) -> bool:
        """Whether the feature is on."""
        return self.default_enabled if self.setting is None else self.setting

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "id", str(self.id)
        yield "name", self.name
        yield "default_enabled", str(self.default_enabled)
        yield "setting", str(self.setting)
        yield "enabled", str(self.enabled)


@dataclass(frozen=True, slots=True, repr=False)
class LeaseInfo(Record):
    """A lease: garbage collections spare all files that are not older than ``protects_since``, until
    ``ends_at``. All times are by the storage's clock.

    ``id`` names it for ``Repository.break_lease``. ``purpose`` says who holds it: ``fork``, a session with
    forks, or a job with its id and branch. ``taken_at`` is when it was stored.
    """

    id: str
    purpose: str
    taken_at: datetime
    protects_since: datetime
    ends_at: datetime

    shown_as: ClassVar[str] = "ops.LeaseInfo"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        return ((each.name, literal(getattr(self, each.name))) for each in fields(self))


@dataclass(frozen=True, slots=True, repr=False)
class GCSummary(Record):
    """What a garbage collection deleted: bytes, objects of each kind, and what went wrong.

    ``bytes_deleted`` is the size of snapshots, transaction logs, manifests and chunks. Backups of the
    repository's state in ``overwritten/`` are counted apart: ``backups_deleted``, ``backup_bytes_deleted``.

    ``leases_respected`` is the number of leases, of sessions with forks and of jobs, that were older than the
    limit: files not older than ``spared_since``, a time of the storage's clock, were spared because of them.
    ``Repository.list_leases`` shows them.
    """

    bytes_deleted: int = 0
    chunks_deleted: int = 0
    manifests_deleted: int = 0
    snapshots_deleted: int = 0
    attributes_deleted: int = 0
    transaction_logs_deleted: int = 0
    objects_failed_to_delete: int = 0
    throttled_batches: int = 0
    delete_errors: list[str] = field(default_factory=list, hash=False)
    skipped_phases: list[str] = field(default_factory=list, hash=False)
    backups_deleted: int = 0
    backup_bytes_deleted: int = 0
    leases_respected: int = 0
    spared_since: datetime | None = None

    shown_as: ClassVar[str] = "ops.GCSummary"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        values = [(each.name, getattr(self, each.name)) for each in fields(self)]
        return ((name, literal(value)) for name, value in values if name not in _SHOWN_IF_SET or value)


#: Fields of ``GCSummary`` that the reference does not have.
_SHOWN_IF_SET: Final = {"backups_deleted", "backup_bytes_deleted", "leases_respected", "spared_since"}


@dataclass(frozen=True, slots=True, repr=False)
class ChunkStorageStats(Record):
    """Bytes of chunks by where they are. Statistics of parts can be added."""

    native_bytes: int = 0
    virtual_bytes: int = 0
    inlined_bytes: int = 0

    shown_as: ClassVar[str] = "ops.ChunkStorageStats"

    def non_virtual_bytes(self) -> int:
        """Return bytes that the repository itself stores."""
        return self.native_bytes + self.inlined_bytes

    def total_bytes(self) -> int:
        """Return all bytes that are referred to."""
        return self.native_bytes + self.virtual_bytes + self.inlined_bytes

    def __add__(self, other: ChunkStorageStats) -> ChunkStorageStats:
        return ChunkStorageStats(
            self.native_bytes + other.native_bytes,
            self.virtual_bytes + other.virtual_bytes,
            self.inlined_bytes + other.inlined_bytes,
        )

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        return ((each.name, str(getattr(self, each.name))) for each in fields(self))


#: Chunks of one array that are printed before the rest is only counted.
_SHOWN_CHUNKS: Final = 10

_SECTIONS: Final = (
    ("Groups created", "new_groups"),
    ("Arrays created", "new_arrays"),
    ("Group definitions updated", "updated_groups"),
    ("Array definitions updated", "updated_arrays"),
    ("Groups deleted", "deleted_groups"),
    ("Arrays deleted", "deleted_arrays"),
)


_NODES: Final = (
    "new_groups",
    "new_arrays",
    "deleted_groups",
    "deleted_arrays",
    "updated_groups",
    "updated_arrays",
)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Diff(Record):
    """What changed between two snapshots, or in a session: paths of nodes, and indices of chunks.

    ``chunk_coordinates`` has, for each array with changed chunks, their indices: uint32, one row for each
    chunk. ``updated_chunks`` is the same as lists.

    >>> print(Diff(new_arrays={"/x"}, chunk_coordinates={"/x": np.array([[0, 1]], "u4")}), end="")
    Arrays created:
        /x
    <BLANKLINE>
    Chunks updated:
        /x:
            [0, 1]
    """

    new_groups: set[str] = field(default_factory=set)
    new_arrays: set[str] = field(default_factory=set)
    deleted_groups: set[str] = field(default_factory=set)
    deleted_arrays: set[str] = field(default_factory=set)
    updated_groups: set[str] = field(default_factory=set)
    updated_arrays: set[str] = field(default_factory=set)
    chunk_coordinates: Mapping[str, NDArray[np.uint32]] = field(default_factory=dict)
    moved_nodes: list[tuple[str, str]] = field(default_factory=list)

    shown_as: ClassVar[str] = "snapshots.Diff"

    @property
    def updated_chunks(self) -> dict[str, list[list[int]]]:
        """Indices of changed chunks by array."""
        return {path: rows.tolist() for path, rows in self.chunk_coordinates.items()}

    def is_empty(self) -> bool:
        """Return whether nothing changed."""
        return not (
            any(getattr(self, name) for _, name in _SECTIONS) or self.chunk_coordinates or self.moved_nodes
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Diff):
            return NotImplemented
        mine, theirs = self.chunk_coordinates, other.chunk_coordinates
        return (
            all(getattr(self, name) == getattr(other, name) for _, name in _SECTIONS)
            and self.moved_nodes == other.moved_nodes
            and mine.keys() == theirs.keys()
            and all(np.array_equal(rows, theirs[path]) for path, rows in mine.items())
        )

    __hash__ = None  # type: ignore[assignment]  # holds sets and arrays

    def __str__(self) -> str:
        """Sections as the reference writes them: an empty line after each but that of the chunks."""
        parts = [
            _section(title, sorted(getattr(self, name))) + "\n"
            for title, name in _SECTIONS
            if getattr(self, name)
        ]
        if self.chunk_coordinates:
            lines = [line for path in sorted(self.chunk_coordinates) for line in self._chunk_lines(path)]
            parts.append(_section("Chunks updated", lines))
        if self.moved_nodes:
            lines = [f"{old} -> {new}" for old, new in self.moved_nodes]
            parts.append(_section("Nodes moved/renamed", lines) + "\n")
        return "".join(parts)

    def _chunk_lines(self, path: str) -> list[str]:
        rows = self.chunk_coordinates[path]
        lines = [f"{path}:", *(f"    {row}" for row in rows[:_SHOWN_CHUNKS].tolist())]
        more = len(rows) - _SHOWN_CHUNKS
        return [*lines, f"    ... {more} more"] if more > 0 else lines

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        """Only what changed: most fields are empty."""
        for name in _NODES:
            if paths := getattr(self, name):
                yield name, "{" + ", ".join(map(literal, sorted(paths))) + "}"
        if self.chunk_coordinates:
            chunks = (
                f"{literal(path)}: {counted(len(rows), 'chunk')}"
                for path, rows in sorted(self.chunk_coordinates.items())
            )
            yield "updated_chunks", "{" + ", ".join(chunks) + "}"
        if self.moved_nodes:
            yield "moved_nodes", literal(self.moved_nodes)
        if self.is_empty():
            yield "changes", "none"


def _section(title: str, lines: list[str]) -> str:
    return f"{title}:\n" + "".join(f"    {line}\n" for line in lines)
