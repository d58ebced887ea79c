"""The file that a change of a repository of spec version 1 writes or deletes.

The kind of the change's ops log entry selects the file, by the table ``_WRITES``. Changes of other kinds need
spec version 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from frazil import host
from frazil.errors import ConflictError, ErrorKind, StorageError
from frazil.format.keys import CONFIG, snapshot_key
from frazil.format.repo_info import RepoInfo, UpdateKind
from frazil.lazy_names import ModuleOnDemand
from frazil.repository.catalog.catalog import needs_version_2
from frazil.repository.catalog.refs_v1 import RefKind, Refs, encode_ref, ref_key, tombstone_key
from frazil.repository.catalog.repo_requirements import base_not_found
from frazil.repository.catalog.repo_update import RepoUpdate
from frazil.storage.base import Condition, IfAbsent, IfVersion, Storage, Version

if TYPE_CHECKING:
    from frazil.repository.settings import config_yaml
else:
    config_yaml = ModuleOnDemand("frazil.repository.settings.config_yaml")


_MARK_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class PutFile:
    """Write a file. If it replaces a file, ``before``, the old content, is backed up in ``overwritten/``."""

    key: str
    data: bytes
    condition: Condition
    before: tuple[bytes, Version] | None = None


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """Delete a file."""

    key: str


@dataclass(frozen=True, slots=True)
class NoFile:
    """Write nothing, because the files of the change are already stored."""


FileWrite = PutFile | DeleteFile | NoFile


@dataclass(frozen=True, slots=True)
class StateV1:
    """The state that a write depends on.

    It has the repo info before the change, and the version of the configuration that this handle has read.
    """

    storage: Storage
    info: RepoInfo
    config_version: Version | None


def file_write(state: StateV1, changed: RepoUpdate) -> FileWrite:
    """Return the write for a change. Raises ``FormatError`` if the change needs spec version 2."""
    make = _WRITES.get(changed.entry.kind)
    if make is None:
        raise needs_version_2()
    return make(state, changed)


def condition_of(write: FileWrite) -> Condition | None:
    """Return the condition of a write, or None for a deletion and for no write."""
    return write.condition if isinstance(write, PutFile) else None


def new_mark() -> bytes:
    """Return random bytes for the white space of a ref file, which mark the file as ours."""
    return host.random_bytes(_MARK_BYTES)


def _move_branch(state: StateV1, changed: RepoUpdate) -> FileWrite:
    name = changed.entry.name or ""
    refs = state.info.branches
    assert isinstance(refs, Refs)
    key = ref_key(state.storage, RefKind.BRANCH, name)
    data = encode_ref(changed.info.branches[name], new_mark())
    return PutFile(key, data, IfVersion(refs.ref(name).version))


def _create_branch(state: StateV1, changed: RepoUpdate) -> FileWrite:
    name = changed.entry.name or ""
    key = ref_key(state.storage, RefKind.BRANCH, name)
    return PutFile(key, encode_ref(changed.info.branches[name], new_mark()), IfAbsent())


def _delete_branch(state: StateV1, changed: RepoUpdate) -> FileWrite:
    return DeleteFile(ref_key(state.storage, RefKind.BRANCH, changed.entry.name or ""))


def _create_tag(state: StateV1, changed: RepoUpdate) -> FileWrite:
    name = changed.entry.name or ""
    key = ref_key(state.storage, RefKind.TAG, name)
    return PutFile(key, encode_ref(changed.info.tags[name], new_mark()), IfAbsent())


def _delete_tag(state: StateV1, changed: RepoUpdate) -> FileWrite:
    return PutFile(tombstone_key(state.storage, changed.entry.name or ""), b"", IfAbsent())


def _save_config(state: StateV1, changed: RepoUpdate) -> FileWrite:
    data = config_yaml.dump_config(changed.info.config or {})
    try:
        stored, version = state.storage.get_versioned(CONFIG)
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        stored, version = b"", None
    if version != state.config_version:
        raise ConflictError(
            message="another writer updated the configuration since this repository was opened. Open the "
            "repository again, and repeat the change",
            kind=ErrorKind.CONFIG_UPDATED,
        )
    if version is None:
        return PutFile(CONFIG, data, IfAbsent())
    return PutFile(CONFIG, data, IfVersion(version), (bytes(stored), version))


def _detach_snapshot(state: StateV1, changed: RepoUpdate) -> FileWrite:
    """Check that the parent's file exists. If it was collected, the new snapshot lacks manifests."""
    snapshots = state.info.snapshots
    new = snapshots.entry(snapshots.find_snapshot(changed.entry.new_snapshot or b""))
    if new.parent is not None and state.storage.head(snapshot_key(new.parent)) is None:
        raise base_not_found(new.parent)
    return NoFile()


_WRITES: Final[dict[UpdateKind, Callable[[StateV1, RepoUpdate], FileWrite]]] = {
    UpdateKind.NEW_COMMIT: _move_branch,
    UpdateKind.BRANCH_RESET: _move_branch,
    UpdateKind.BRANCH_CREATED: _create_branch,
    UpdateKind.BRANCH_DELETED: _delete_branch,
    UpdateKind.TAG_CREATED: _create_tag,
    UpdateKind.TAG_DELETED: _delete_tag,
    UpdateKind.CONFIG_CHANGED: _save_config,
    UpdateKind.NEW_DETACHED_SNAPSHOT: _detach_snapshot,
}
