"""The public values that a repository returns. They can be compared, printed and pickled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import IntEnum
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from frazil.arguments import check_fields
from frazil.display import NamedEnum, Record, Shown, counted, literal, utc
from frazil.format.envelope import LateFields
from frazil.repository.clock import now_us, to_datetime
from frazil.storage.object_store_config import ChunkType as ChunkType

#: The ids of the leases of jobs begin with this text.
JOB_LEASE: Final = "job."
#: The tags that protect the chunks of views begin with this text. The name of the view follows.
VIEW_TAG: Final = "view."
#: The two tags of a hold-back begin with this text. Its name and a number follow.
HOLD_TAG: Final = "hold."
#: The ids of the leases of detached snapshots begin with this text. The id of the snapshot follows.
FLUSH_LEASE: Final = "flush."
#: Whether a commit is a new commit, or replaces the last commit.
CommitMethod = Literal["new_commit", "amend"]


class SpecVersion(IntEnum):
    """The spec version of a repository."""

    v1 = 1
    v2 = 2

    def __repr__(self) -> str:
        suffix = " (current)" if self is SpecVersion.current() else ""
        return f"SpecVersion.{self.name}{suffix}"

    __str__ = __repr__

    @staticmethod
    def current() -> SpecVersion:
        """Return the version that new repositories get: version 2."""
        return SpecVersion.v2


class SessionMode(NamedEnum):
    """The operations that a session allows: read, also write, or move nodes."""

    readonly = 0
    writable = 1
    rearrange = 2


class RepoAvailability(NamedEnum, IntEnum):
    """Whether a repository allows changes."""

    online = 0
    read_only = 1


_AVAILABILITY: Final = {RepoAvailability.online: "Online", RepoAvailability.read_only: "ReadOnly"}


@dataclass(frozen=True, slots=True, repr=False, init=False)
class RepoStatus(Record, shown_as="repository.RepoStatus"):
    """The status of a repository, which allows or refuses changes.

    Attributes:
        availability: Online, or read-only.
        set_at: When the status was set. Default: now.
        limited_availability_reason: Why the repository refuses changes. None if there is no reason.
    """

    availability: RepoAvailability
    set_at: datetime
    limited_availability_reason: str | None

    def __init__(
        self,
        availability: RepoAvailability,
        set_at: datetime | None = None,
        limited_availability_reason: str | None = None,
    ) -> None:
        object.__setattr__(self, "availability", availability)
        object.__setattr__(self, "set_at", set_at if set_at is not None else to_datetime(now_us()))
        object.__setattr__(self, "limited_availability_reason", limited_availability_reason)
        check_fields(self)
        if self.set_at.tzinfo is None:
            raise TypeError(
                f"set_at must be a datetime with a time zone, got {self.set_at.isoformat()} without one"
            )

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "availability", _AVAILABILITY[self.availability]
        yield "set_at", utc(self.set_at)
        yield "limited_availability_reason", str(self.limited_availability_reason)


@dataclass(frozen=True, slots=True, repr=False)
class SnapshotInfo(LateFields, Record, shown_as="snapshots.SnapshotInfo"):
    """The description of a snapshot in the history.

    Attributes:
        id: The id, a text of 20 characters.
        parent_id: The id of the parent snapshot. None for the first snapshot.
        written_at: The time of the commit.
        message: The message of the commit.
        metadata: The metadata of the commit.
    """

    id: str
    parent_id: str | None
    written_at: datetime
    message: str
    metadata: dict[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, repr=False)
class ManifestFileInfo(Record, shown_as="snapshots.ManifestFileInfo"):
    """The description of a manifest file of a snapshot.

    Attributes:
        id: The id, a text of 20 characters.
        size_bytes: The size of the file in bytes.
        num_chunk_refs: The number of references in the file.
    """

    id: str
    size_bytes: int
    num_chunk_refs: int


@dataclass(frozen=True, slots=True, repr=False)
class FeatureFlag(Record, shown_as="config.FeatureFlag"):
    """A feature that the owner of a repository can enable or disable.

    Attributes:
        id: The number of the feature.
        name: The name of the feature.
        default_enabled: Whether the feature is enabled by default.
        setting: The value of this repository. None for the default.
    """

    id: int
    name: str
    default_enabled: bool
    setting: bool | None = None

    @property
    def enabled(self) -> bool:
        """Whether the feature is enabled in this repository."""
        return self.default_enabled if self.setting is None else self.setting

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield from Record._rows(self)
        yield "enabled", str(self.enabled)


@dataclass(frozen=True, slots=True, repr=False)
class LeaseInfo(Record, shown_as="ops.LeaseInfo"):
    """A lease, which protects files from garbage collections. All times are by the storage's clock.

    Attributes:
        id: The id, for ``Repository.upkeep.break_lease``.
        purpose: The holder: ``fork`` for a session with forks, ``flush`` for a detached snapshot, or a job
            with its id and branch.
        taken_at: When the lease was stored.
        protects_since: Garbage collections spare all files that are not older than this time.
        ends_at: When the lease expires.
        name: The name of the session (``Repository.writable_session``), the message of the snapshot, or the
            id of the job. Empty if the holder has no name.
        host: The name of the host of the holder. Empty if it is not known.
        user: The name of the user of the holder. Empty if it is not known.
        process: The id of the process of the holder. 0 if it is not known.
        running: Whether this process runs. None if it is on another machine, or if this is not known.
        held_objects: How many files without use the lease protects from a collection with the chosen cut-off.
            Only the summary of a dry run knows it; else None. Several leases may protect the same files.
        held_bytes: The size of these files in bytes, or None.
    """

    id: str
    purpose: str
    taken_at: datetime
    protects_since: datetime
    ends_at: datetime
    name: str = ""
    host: str = ""
    user: str = ""
    process: int = 0
    running: bool | None = None
    held_objects: int | None = None
    held_bytes: int | None = None

    @property
    def is_of_job(self) -> bool:
        """Whether the lease protects the staged results of a job, which another process can continue."""
        return self.id.startswith(JOB_LEASE)

    @property
    def is_stale(self) -> bool:
        """Whether nobody can use the files any more: the process ran on this machine, and has ended.

        The lease of a job that can be continued is never stale.
        """
        return self.running is False and not self.is_of_job

    def holder(self) -> str:
        """Return the holder in words.

        Returns:
            The purpose, the name, the user and the host, as far as they are known.

        Examples:
            >>> from datetime import UTC, datetime
            >>> now = datetime.now(UTC)
            >>> LeaseInfo("1", "fork", now, now, now, name="nightly", host="h", user="ada").holder()
            'fork `nightly` of ada on h'
        """
        parts = [self.purpose]
        if self.name and f"`{self.name}`" not in self.purpose:
            parts.append(f"`{self.name}`")
        if self.user:
            parts.append(f"of {self.user}")
        if self.host:
            parts.append(f"on {self.host}")
        return " ".join(parts)

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        return ((name, literal(value)) for name, value in values if value is not None)


#: The text of a difference has at most this number of chunks of an array.
_SHOWN_CHUNKS: Final = 10

_SECTIONS: Final = (
    ("Groups created", "new_groups"),
    ("Arrays created", "new_arrays"),
    ("Group definitions updated", "updated_groups"),
    ("Array definitions updated", "updated_arrays"),
    ("Groups deleted", "deleted_groups"),
    ("Arrays deleted", "deleted_arrays"),
)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Diff(Record, shown_as="snapshots.Diff"):
    """The changes between two snapshots, or the uncommitted changes of a session.

    Attributes:
        new_groups: The paths of created groups.
        new_arrays: The paths of created arrays.
        deleted_groups: The paths of deleted groups.
        deleted_arrays: The paths of deleted arrays.
        updated_groups: The paths of groups with changed metadata.
        updated_arrays: The paths of arrays with changed metadata.
        chunk_coordinates: The indices of changed chunks by the path of the array, uint32 of shape (k, ndim).
        moved_nodes: Pairs of the old and the new path of moved nodes.

    Examples:
        >>> changes = Diff(new_arrays={"/x"}, chunk_coordinates={"/x": np.array([[0, 1]], "u4")})
        >>> changes.updated_chunks
        {'/x': [[0, 1]]}
        >>> print(changes, end="")
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

    @property
    def updated_chunks(self) -> dict[str, list[list[int]]]:
        """The indices of changed chunks by the path of the array, as lists."""
        return {path: rows.tolist() for path, rows in self.chunk_coordinates.items()}

    def is_empty(self) -> bool:
        """Return whether there are no changes.

        Returns:
            True if all fields are empty.

        Examples:
            >>> Diff().is_empty()
            True
        """
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

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # holds sets and arrays

    def __str__(self) -> str:
        """Return sections in the format of the reference, with an empty line after all except chunks."""
        parts = [
            _section(title, sorted(getattr(self, name))) + "\n"
            for title, name in _SECTIONS
            if getattr(self, name)
        ]
        lines: list[str] = []
        for path, rows in sorted(self.chunk_coordinates.items()):
            lines += [f"{path}:", *(f"    {row}" for row in rows[:_SHOWN_CHUNKS].tolist())]
            if (more := len(rows) - _SHOWN_CHUNKS) > 0:
                lines.append(f"    ... {more} more")
        if lines:
            parts.append(_section("Chunks updated", lines))
        if self.moved_nodes:
            lines = [f"{old} -> {new}" for old, new in self.moved_nodes]
            parts.append(_section("Nodes moved/renamed", lines) + "\n")
        return "".join(parts)

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        """Return the fields that are not empty."""
        for each in fields(self)[: len(_SECTIONS)]:
            if paths := getattr(self, each.name):
                yield each.name, "{" + ", ".join(map(literal, sorted(paths))) + "}"
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
