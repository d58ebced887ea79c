"""Repo info: the one file that changes. Refs, all snapshots, configuration, status and the ops log.

Snapshots and ops log are columns; the methods that change something return a new value. Everything here is pure: times,
ids and names of backups come in as arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import U8, Ragged


class Availability(IntEnum):
    ONLINE = 0
    READ_ONLY = 1
    OFFLINE = 2


class UpdateKind(IntEnum):
    """Union members of UpdateType, in the order of the schema (1 = RepoInitializedUpdate ... 16 = RepoStatusChangedUpdate)."""

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
    availability: Availability = Availability.ONLINE
    set_at: int = 0  # microseconds since 1970
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class OpsEntry:
    """One entry of the ops log; fields that its kind does not have stay None.

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


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """One snapshot as the repo info knows it. ``parent`` is None for the initial one."""

    id: bytes
    parent: bytes | None
    flushed_at: int
    message: str
    metadata: dict[str, Any]
    pruned_ancestor_tx_logs: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotTable:
    """All snapshots as columns, sorted by id bytes. Inner columns are the implementer's; the methods are the contract."""

    def __len__(self) -> int: ...

    def find(self, id_: bytes) -> int:
        """Row of a snapshot, -1 if there is none. Binary search."""

    def entry(self, row: int) -> SnapshotEntry: ...

    def id_of(self, row: int) -> bytes: ...

    def ids(self) -> U8:
        """(n, 12)"""

    def parents(self) -> NDArray[np.int32]:
        """Row of each one's parent, -1 where there is none."""

    def flushed_at(self) -> NDArray[np.uint64]: ...

    def chain(self, row: int) -> NDArray[np.int64]:
        """Rows from this snapshot to the root, itself first. ``FormatError`` on a cycle."""

    def added(self, entry: SnapshotEntry) -> SnapshotTable:
        """With one more; parents' rows are renumbered. The entry's parent must be there."""

    def kept(self, keep: NDArray[np.bool_], new_parents: dict[bytes, bytes | None], pruned: dict[bytes, tuple[bytes, ...]]) -> SnapshotTable:
        """Only some, with new parents and pruned lists for those named (expiration and garbage collection)."""


@dataclass(frozen=True, slots=True, eq=False)
class OpsLog:
    """Newest first, as columns (at most num_updates_per_repo_info_file entries)."""

    def __len__(self) -> int: ...

    def entry(self, row: int) -> OpsEntry: ...


@dataclass(frozen=True, slots=True, eq=False)
class RepoInfo:
    """A repo info file (spec version 2).

    branches, tags     name -> snapshot id
    deleted_tags       names that are never used again
    metadata           JSON-like values by name
    config             the decoded FlexBuffers map, None if there is none
    enabled_flags, disabled_flags   ids of feature flags set by the user
    repo_before_updates             backup that holds the ops log's next older entry
    """

    spec_version: int
    branches: dict[str, bytes]
    tags: dict[str, bytes]
    deleted_tags: frozenset[str]
    snapshots: SnapshotTable
    status: Status
    metadata: dict[str, Any]
    ops: OpsLog
    repo_before_updates: str | None = None
    config: dict[str, Any] | None = None
    enabled_flags: frozenset[int] = frozenset()
    disabled_flags: frozenset[int] = frozenset()

    def recorded(self, entry: OpsEntry, *, backup: str, keep: int) -> RepoInfo:
        """With one more ops log entry on top.

        The entry that was newest until now gets ``backup`` as its backup_path (the backup holds the state right
        after it); only the ``keep`` newest entries stay, and ``repo_before_updates`` then names the backup whose
        newest entry is the first one that was dropped.
        """


def new_repo_info(now: int, config: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None) -> RepoInfo:
    """Branch main on the initial snapshot, ops log with RepoInitialized."""


def encode_repo_info(info: RepoInfo, *, level: int = 3) -> bytes: ...


def decode_repo_info(data: Any, name: str) -> RepoInfo:
    """``FormatError`` naming ``name`` if the bytes are not a repo info of spec version 2."""
