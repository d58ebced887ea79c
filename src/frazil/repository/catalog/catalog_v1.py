"""The catalog of spec version 1, where each change is one conditional write of a small file.

The functions of ``repo_changes`` are the same as for version 2. They get a repo info that reads refs and
snapshots when they are needed, and return the next repo info with its ops log entry. Version 1 has no ops
log: the kind of the entry selects the file that changes.

A writer whose request gets no answer finds out whether the file was written.

*Garbage collections.* A collection writes each branch again, with the same content, before it deletes files.
So a commit that has read its branch before that is refused, and checks for collections again
(``collection_guard``).

*Upgrades.* A repository with a file ``repo`` has version 2, whatever other files there are. Every use of a
handle looks for this file first. Every write looks for it again afterwards. The upgrade reads the refs again
after it has written ``repo`` (``upgrade``). So a write that the upgrade does not see is late enough to see
``repo``.

The kind of the change's ops log entry selects the file, by the table ``_WRITES``. Changes of other kinds need
spec version 2.

As in ``repo_update``, neither a refusal nor an error proves that a write had no effect. Frazil recognises
its own ref files. It also recognises its commit if other writers have committed after it: its
id is then among the ancestors of the branch.

A garbage collection may delete the parent of a snapshot that stays. It then writes another parent into the
file of this snapshot. Each file is written separately. If a collection is killed, the next collection changes
the other files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from frazil import host
from frazil.errors import ConflictError, ErrorKind, FormatError, StorageError
from frazil.format.ids import CONFIG, REPO, backup_key, backup_name, snapshot_key
from frazil.format.repo_info import (
    Availability,
    OpsLog,
    RepoInfo,
    SnapshotEntry,
    SnapshotTable,
    Status,
    UpdateKind,
    decode_repo_info,
)
from frazil.format.snapshot import encode_snapshot, initial_snapshot
from frazil.lazy_names import ModuleOnDemand
from frazil.repository.catalog.assets import SNAPSHOT, Assets
from frazil.repository.catalog.catalog import Catalog, CommitStart, needs_version_2
from frazil.repository.catalog.files_v1 import (
    DeletedTags,
    RefKind,
    Refs,
    SnapshotsV1,
    decode_ref,
    encode_ref,
    reached_snapshots,
    read_all_refs,
    read_all_snapshots,
    read_ref,
    ref_key,
    tombstone_key,
)
from frazil.repository.catalog.repo_requirements import base_not_found
from frazil.repository.catalog.repo_update import (
    ConditionalChange,
    NewFiles,
    RepoChange,
    RepoUpdate,
    UpdateSettings,
    attempts_exhausted,
)
from frazil.repository.catalog.spec_versions import create_first, not_empty
from frazil.repository.clock import now_us
from frazil.repository.ids import new_object_id
from frazil.repository.retries import RetryPolicy, not_applied, outcome_unknown, retried
from frazil.repository.settings.config import RepositoryConfig
from frazil.repository.settings.config_document import from_document
from frazil.storage.base import Condition, IfAbsent, IfVersion, Storage, Stored, Version
from frazil.storage.local_commit import put_many
from frazil.threads import Purpose, map_bounded

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


class WriteOutcome(Enum):
    """The outcome of a write that did not report success."""

    APPLIED = "the file is as written"
    REFUSED = "the write never took effect"
    PENDING = "the write has not taken effect, and still can"
    OVERWRITTEN = "the file is another writer's, from before or after the write"


@dataclass(frozen=True, slots=True)
class SentWrite:
    """A write that did not report success.

    ``is_answered`` says that the storage answered that the condition was not met.
    """

    write: FileWrite
    changed: RepoUpdate
    is_answered: bool

    @property
    def key(self) -> str:
        """The key of the file, empty if no file is written."""
        return "" if isinstance(self.write, NoFile) else self.write.key


@dataclass(frozen=True, slots=True)
class AppliedWrite:
    """A write that took effect, with the version of its file if it is known."""

    sent: SentWrite
    version: Version | None = None


@dataclass(slots=True)
class SentWrites:
    """The writes of one update that did not report success."""

    storage: Storage
    snapshots: SnapshotsV1
    policy: RetryPolicy
    _writes: list[SentWrite] = field(default_factory=list)

    @property
    def first_condition(self) -> Condition | None:
        """The condition of the first write. None if there was no write, or if it had no condition."""
        return condition_of(self._writes[0].write) if self._writes else None

    def __bool__(self) -> bool:
        return bool(self._writes)

    def add_write(self, write: FileWrite, changed: RepoUpdate, *, is_answered: bool) -> None:
        """Record a write that did not report success."""
        self._writes.append(SentWrite(write, changed, is_answered))

    def applied(self, *, is_last: bool = False) -> AppliedWrite | None:
        """Return the write that took effect, or None if there is none.

        Raises ``OutcomeUnknownError`` if a write may have taken effect, or may still take effect. The latter
        is only possible with ``is_last``: otherwise another attempt follows, whose success prevents it.
        """
        for sent in self._writes:
            try:
                outcome, version = retried(partial(self._outcome, sent), self.policy)
            except StorageError as error:
                why = f"an answer of the storage was lost, and the repository cannot be read ({error})"
                raise outcome_unknown(sent.changed.entry, why) from error
            if outcome is WriteOutcome.APPLIED:
                return AppliedWrite(sent, version)
            if outcome is WriteOutcome.OVERWRITTEN and not sent.is_answered:
                why = f"an answer of the storage was lost, and another writer has changed `{sent.key}` since"
                raise outcome_unknown(sent.changed.entry, why)
            is_pending = outcome is WriteOutcome.PENDING and not sent.is_answered
            if is_pending and is_last and not self.storage.is_local:
                why = "the storage did not answer, and may still execute the request"
                raise outcome_unknown(sent.changed.entry, why)
        return None

    def _outcome(self, sent: SentWrite) -> tuple[WriteOutcome, Version | None]:
        match sent.write:
            case PutFile():
                return self._outcome_of_put(sent.write, sent.changed)
            case DeleteFile(key):
                is_deleted = self.storage.head(key) is None
                return WriteOutcome.APPLIED if is_deleted else WriteOutcome.PENDING, None
        return WriteOutcome.APPLIED, None

    def _outcome_of_put(self, put: PutFile, changed: RepoUpdate) -> tuple[WriteOutcome, Version | None]:
        try:
            stored, version = self.storage.get_versioned(put.key)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            is_new = put.condition == IfAbsent()
            return WriteOutcome.PENDING if is_new else WriteOutcome.OVERWRITTEN, None
        if bytes(stored) == put.data:
            return WriteOutcome.APPLIED, version
        if put.condition == IfVersion(version):
            return WriteOutcome.PENDING, None
        match changed.entry.kind:
            case UpdateKind.NEW_COMMIT:
                return self._outcome_of_commit(decode_ref(bytes(stored), put.key), changed), None
            case UpdateKind.TAG_CREATED:
                return WriteOutcome.REFUSED, None  # a tag is only written once
        return WriteOutcome.OVERWRITTEN, None

    def _outcome_of_commit(self, tip: bytes, changed: RepoUpdate) -> WriteOutcome:
        """Return whether the new snapshot is in the history of a branch that other writers have moved.

        The search ends at the parent of the new snapshot. If the history does not contain the parent, the
        outcome is unknown: the branch was reset, or the versions since the parent were expired.
        """
        id_ = changed.entry.new_snapshot or b""
        try:
            new = self.snapshots.entry(self.snapshots.find_snapshot(id_))
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            return WriteOutcome.OVERWRITTEN  # a garbage collection deleted it, so no branch contained it
        row = self.snapshots.find_snapshot(tip)
        for rows in self.snapshots.parts(row) if row >= 0 else ():
            for entry in self.snapshots.entries(rows):
                if entry.id == id_:
                    return WriteOutcome.APPLIED
                if entry.id == new.parent:
                    return WriteOutcome.REFUSED
        return WriteOutcome.OVERWRITTEN


def full_repo_info_v1(storage: Storage, info: RepoInfo) -> RepoInfo:
    """Return ``info`` with all refs, and with all snapshots that have a file.

    A snapshot whose parent has no file becomes a root.
    """
    refs = read_all_refs(storage)
    results = read_all_snapshots(storage)
    entries = {id_: entry for id_, entry in results.items() if isinstance(entry, SnapshotEntry)}
    entries |= reached_snapshots(storage, results, refs.tips)
    table = SnapshotTable.of(
        [entry if entry.parent in entries else replace(entry, parent=None) for entry in entries.values()]
    )
    return replace(
        info,
        branches=refs.branches,
        tags=refs.tags,
        deleted_tags=frozenset(refs.deleted_tags),
        snapshots=table,
    )


def write_new_parents(assets: Assets, before: RepoInfo, after: RepoInfo, level: int) -> None:
    """Write the snapshot files whose parents a garbage collection has changed."""
    storage = assets.storage
    for id_, parent in _relinked(before.table, after.table):
        snapshot = replace(SNAPSHOT.read(storage, id_), parent_id=parent)
        storage.put(SNAPSHOT.key(id_), encode_snapshot(snapshot, level=level))
        assets.forget_snapshot(id_)


def _relinked(before: SnapshotTable, after: SnapshotTable) -> list[tuple[bytes, bytes]]:
    """Return the snapshots that get another parent, each with this parent."""
    rows = before.find_snapshots(after.ids())
    old, new = before.parents()[rows], after.parents()
    changed = np.flatnonzero((new >= 0) & (before.ids()[old] != after.ids()[new]).any(axis=1))
    return [(after.id_of(row), after.id_of(int(new[row]))) for row in changed.tolist()]


#: The ref of ``main``: the file that makes a repository of spec version 1.
V1_MAIN: Final = "refs/branch.main/ref.json"


@dataclass(frozen=True, slots=True)
class CommitStartV1:
    """The state that a commit starts from. Spec version 1 has no backups."""

    info: RepoInfo

    def save_backup(self, storage: Storage) -> None:
        """Do nothing."""


@dataclass(slots=True, eq=False)
class CatalogV1(Catalog):
    """The catalog of spec version 1, in the folder ``refs``, the snapshot files and ``config.yaml``.

    ``config_version`` is the version of the configuration that the handle has read. The handle does not
    overwrite another version.
    """

    storage: Storage
    assets: Assets
    settings: UpdateSettings = field(default_factory=UpdateSettings)
    config_version: Version | None = None
    snapshots: SnapshotsV1 = field(init=False, repr=False)

    spec_version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        self.snapshots = SnapshotsV1(self.assets)

    def __reduce__(self) -> tuple[type[CatalogV1], tuple[Storage, Assets, UpdateSettings, Version | None]]:
        return (CatalogV1, (self.storage, self.assets, self.settings, self.config_version))

    def create(self, config: dict[str, Any] | None) -> None:
        """Write the files of a new repository. The repository exists when its branch ``main`` exists.

        Raises ``InvalidInputError`` (``parent-directory-not-clean``) if another writer was first.
        """
        storage = self.storage
        snapshot = initial_snapshot(now_us(), spec_version=1)
        storage.put(
            snapshot_key(snapshot.id), encode_snapshot(snapshot, level=self.settings.compression_level)
        )
        main = encode_ref(snapshot.id, new_mark())
        create_first(storage, V1_MAIN, main, RetryPolicy())
        if storage.head(REPO) is not None:
            raise not_empty(storage, REPO, is_repository=True)
        # Only the creator of `main` writes the configuration.
        if config is not None:
            self._write_file(PutFile(CONFIG, config_yaml.dump_config(config), IfAbsent()))

    def repo_info(self) -> RepoInfo:
        """See ``Catalog.repo_info``."""
        if self.storage.head(REPO) is not None:
            raise _upgraded(self.storage)
        return self._unread_repo_info()

    def _unread_repo_info(self) -> RepoInfo:
        """Return a repo info that reads its parts when they are needed."""
        return RepoInfo(
            spec_version=1,
            branches=Refs(self.storage, RefKind.BRANCH),
            tags=Refs(self.storage, RefKind.TAG),
            deleted_tags=DeletedTags(self.storage),
            snapshots=self.snapshots,
            status=Status(Availability.ONLINE, 0),
            metadata={},
            ops=OpsLog.of([]),
        )

    def full_repo_info(self) -> RepoInfo:
        """See ``Catalog.full_repo_info``."""
        return full_repo_info_v1(self.storage, self.repo_info())

    def update_full_repo_info(self, change: ConditionalChange) -> RepoInfo | None:
        """See ``Catalog.update_full_repo_info``."""
        while True:
            before = self.full_repo_info()
            changed = change(before, now_us())
            if changed is None:
                return None
            if self._renew_branches(before.branches):
                break
        write_new_parents(self.assets, before, changed.info, self.settings.compression_level)
        self.snapshots = SnapshotsV1(self.assets)
        # No file has the entry. It tells the change which of its attempts took effect.
        return replace(changed.info, ops=OpsLog.of([changed.entry]))

    def _renew_branches(self, branches: Mapping[str, bytes]) -> bool:
        """Write the file of every branch again. Return False if a branch has moved, or may have moved."""

        def renew(name: str) -> bool:
            ref = read_ref(self.storage, RefKind.BRANCH, name)
            if ref is None or ref.snapshot != branches[name]:
                return False
            key = ref_key(self.storage, RefKind.BRANCH, name)
            answer = self.storage.put(key, encode_ref(ref.snapshot, new_mark()), IfVersion(ref.version))
            return isinstance(answer, Stored)

        return all(map_bounded(Purpose.CATALOG_WRITES, renew, branches))

    def begin_commit(self) -> CommitStartV1:
        """See ``Catalog.begin_commit``."""
        return CommitStartV1(self.repo_info())

    def finish_commit(
        self, change: RepoChange, start: CommitStart, files: NewFiles | None = None
    ) -> RepoInfo | None:
        """See ``Catalog.finish_commit``."""
        if files is not None:
            put_many(self.storage, files.objects)
            files.confirm()
        return self._update(change, start)

    def _update(self, change: ConditionalChange, start: CommitStart | None = None) -> RepoInfo | None:
        """Try the change until its file is stored. Return the new repo info.

        With ``start``, return None if the branch file has another version by now: a garbage collection may
        have written it.
        """
        policy = self.settings.policy
        sent = SentWrites(self.storage, self.snapshots, policy)
        failures = 0
        for attempt in range(max(policy.tries, 1)):
            if applied := sent.applied():
                return self._finished(applied)
            # If a ref has moved since ``start`` was read, the write is refused.
            info = start.info if start is not None and not attempt else self.repo_info()
            changed = change(info, now_us())
            if changed is None:
                return None
            write = file_write(StateV1(self.storage, info, self.config_version), changed)
            if start is not None and sent and condition_of(write) != sent.first_condition:
                return None
            try:
                is_stored = self._write_file(write)
            except StorageError as error:
                sent.add_write(write, changed, is_answered=False)
                failures += 1
                if failures >= policy.errors:
                    if applied := sent.applied(is_last=True):
                        return self._finished(applied)
                    raise not_applied(error) from error
                host.pause(policy.pause(attempt))
            else:
                if is_stored:
                    return self._checked(changed)
                sent.add_write(write, changed, is_answered=True)
                host.pause(policy.pause_after_loss(attempt))
        if applied := sent.applied(is_last=True):
            return self._finished(applied)
        raise attempts_exhausted(policy)

    def _write_file(self, write: FileWrite) -> bool:
        """Make a write. Return False if its condition is not met."""
        match write:
            case PutFile(key, data, condition, before):
                if before is not None:
                    name = backup_name(now_us() // 1000, new_object_id(), of=key)
                    self.storage.backup(key, before[1], before[0], backup_key(name))
                answer = self.storage.put(key, data, condition)
                if isinstance(answer, Stored) and key == CONFIG:
                    self.config_version = answer.version
                return isinstance(answer, Stored)
            case DeleteFile(key):
                self.storage.delete([key])
        return True

    def _finished(self, applied: AppliedWrite) -> RepoInfo:
        """Return the repo info after a write whose success Frazil found out later."""
        if applied.sent.key == CONFIG:
            self.config_version = applied.version
        return self._checked(applied.sent.changed)

    def _checked(self, changed: RepoUpdate) -> RepoInfo:
        """Return the repo info after a change. Raises an error if an upgrade may have missed the change."""
        policy = self.settings.policy
        try:
            if retried(partial(self.storage.head, REPO), policy) is None:
                return self._unread_repo_info()
            new = changed.entry.new_snapshot
            info = decode_repo_info(retried(partial(self.storage.get, REPO), policy), REPO)
        except StorageError as error:
            why = f"it was stored, but Frazil cannot read whether an upgrade has missed it ({error})"
            raise outcome_unknown(changed.entry, why) from error
        if new is not None and info.snapshots.find_snapshot(new) >= 0:
            return info
        # The upgrade may have missed the file, or may read it and write `repo` again.
        why = f"another process upgraded the repository in {self.storage.label()} to spec version 2 meanwhile"
        raise outcome_unknown(changed.entry, why)


def _upgraded(storage: Storage) -> FormatError:
    return FormatError(
        f"the repository in {storage.label()} was upgraded to spec version 2 since this handle was opened. "
        "Open it again",
        ErrorKind.UNSUPPORTED_SPEC_VERSION,
    )


def read_config_v1(storage: Storage) -> tuple[RepositoryConfig | None, Version | None]:
    """Return the saved configuration and the version of its file. Both are None if there is no file."""
    try:
        data, version = storage.get_versioned(CONFIG)
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        return None, None
    return from_document(config_yaml.load_config(data)), version
