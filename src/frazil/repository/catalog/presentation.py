"""Conversions of internal values to public values: ids become text, microseconds become times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from frazil.changes.diff import ChangedPaths
from frazil.format.ids import id_to_text
from frazil.format.manifest import ChunkRef, InlineRef, NativeRef, VirtualRef
from frazil.format.repo_info import Availability, OpsEntry, Status, UpdateKind
from frazil.repository.catalog.ops_values import AnyUpdateType, Update, UpdateType
from frazil.repository.catalog.version_info import ChunkType, Diff, RepoAvailability, RepoStatus
from frazil.repository.clock import to_datetime

_AVAILABILITY: Final = {
    Availability.ONLINE: RepoAvailability.online,
    Availability.READ_ONLY: RepoAvailability.read_only,
    # The public enum has no member for offline. Both refuse changes.
    Availability.OFFLINE: RepoAvailability.read_only,
}
_STORED: Final = {
    RepoAvailability.online: Availability.ONLINE,
    RepoAvailability.read_only: Availability.READ_ONLY,
}

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
    return RepoStatus(_AVAILABILITY[status.availability], to_datetime(status.set_at), status.reason)


def stored_availability(availability: RepoAvailability) -> Availability:
    """Return the value that the repo info stores for a public availability."""
    return _STORED[availability]


def diff(changes: ChangedPaths) -> Diff:
    """Return the public difference of two versions."""
    return Diff(
        new_groups=set(changes.new_groups),
        new_arrays=set(changes.new_arrays),
        deleted_groups=set(changes.deleted_groups),
        deleted_arrays=set(changes.deleted_arrays),
        updated_groups=set(changes.updated_groups),
        updated_arrays=set(changes.updated_arrays),
        chunk_coordinates=changes.updated_chunks,
        moved_nodes=list(changes.moved),
    )


def update(entry: OpsEntry) -> Update:
    """Return the public entry of the operations log."""
    return Update(_KINDS[entry.kind](entry), to_datetime(entry.updated_at), entry.backup_path)


def _name(entry: OpsEntry) -> str:
    return entry.name or ""


def _previous(entry: OpsEntry) -> str:
    return id_to_text(entry.previous_snapshot or b"")


def _new(entry: OpsEntry) -> str:
    return id_to_text(entry.new_snapshot or b"")


def _migrated(entry: OpsEntry) -> AnyUpdateType:
    return UpdateType.RepoMigrated(*(entry.versions or (0, 0)))


def _flag(entry: OpsEntry) -> AnyUpdateType:
    id_, value, is_set = entry.flag or (0, False, False)
    return UpdateType.FeatureFlagChanged(id_, value if is_set else None)


_KINDS: Final[dict[UpdateKind, Callable[[OpsEntry], AnyUpdateType]]] = {
    UpdateKind.REPO_INITIALIZED: lambda _: UpdateType.RepoInitialized(),
    UpdateKind.REPO_MIGRATED: _migrated,
    UpdateKind.CONFIG_CHANGED: lambda _: UpdateType.ConfigChanged(),
    UpdateKind.METADATA_CHANGED: lambda _: UpdateType.MetadataChanged(),
    UpdateKind.TAG_CREATED: lambda entry: UpdateType.TagCreated(_name(entry)),
    UpdateKind.TAG_DELETED: lambda entry: UpdateType.TagDeleted(_name(entry), _previous(entry)),
    UpdateKind.BRANCH_CREATED: lambda entry: UpdateType.BranchCreated(_name(entry)),
    UpdateKind.BRANCH_DELETED: lambda entry: UpdateType.BranchDeleted(_name(entry), _previous(entry)),
    UpdateKind.BRANCH_RESET: lambda entry: UpdateType.BranchReset(_name(entry), _previous(entry)),
    UpdateKind.NEW_COMMIT: lambda entry: UpdateType.NewCommit(_name(entry), _new(entry)),
    UpdateKind.COMMIT_AMENDED: lambda entry: UpdateType.CommitAmended(
        _name(entry), _previous(entry), _new(entry)
    ),
    UpdateKind.NEW_DETACHED_SNAPSHOT: lambda entry: UpdateType.NewDetachedSnapshot(_new(entry)),
    UpdateKind.GC_RAN: lambda _: UpdateType.GCRan(),
    UpdateKind.EXPIRATION_RAN: lambda _: UpdateType.ExpirationRan(),
    UpdateKind.FEATURE_FLAG_CHANGED: _flag,
    UpdateKind.REPO_STATUS_CHANGED: lambda entry: UpdateType.RepoStatusChanged(
        repo_status(entry.status or Status())
    ),
}
