"""The catalog of spec version 1, where each change is one conditional write of a small file.

A change gets a repo info that reads refs and snapshots when they are needed. The kind of its ops log entry
selects the file that changes. After a lost answer, Frazil recognises its own ref files, and its commit among
the ancestors of the branch. A garbage collection writes each branch again before it deletes files, so that
commits check for collections again (``collection_guard``). Every use of a handle looks for a file ``repo``,
which an upgrade writes, and every write looks for it again afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from frazil import host
from frazil.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    FormatError,
    OutcomeUnknownError,
    StorageError,
)
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
from frazil.format.snapshot import encode_snapshot
from frazil.lazy_names import ModuleOnDemand
from frazil.repository.catalog.assets import SNAPSHOT, Assets
from frazil.repository.catalog.context import Catalog, needs_version_2
from frazil.repository.catalog.files_v1 import (
    DeletedTags,
    RefKind,
    SnapshotsV1,
    V1Refs,
    decode_ref,
    encode_ref,
    reached_snapshots,
    read_all_refs,
    read_all_snapshots,
    read_ref,
    ref_key,
    tombstone_key,
)
from frazil.repository.catalog.repo_changes import base_not_found
from frazil.repository.catalog.repo_update import (
    CommitStart,
    ConditionalChange,
    NewFiles,
    RepoChange,
    RepoUpdate,
    StateCheck,
    UpdateSettings,
    attempts_exhausted,
    no_check,
)
from frazil.repository.clock import now_us
from frazil.repository.ids import new_object_id
from frazil.repository.retries import not_applied, outcome_unknown, retried
from frazil.repository.settings.config import RepositoryConfig
from frazil.repository.settings.config_document import from_document
from frazil.storage.base import Condition, IfAbsent, IfVersion, Storage, Stored, Version
from frazil.storage.checks import skip_missing
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


#: The write of a change. None: the files of the change are already stored.
FileWrite = PutFile | DeleteFile | None


def new_mark() -> bytes:
    """Return random bytes for the white space of a ref file, which mark the file as ours."""
    return host.random_bytes(_MARK_BYTES)


class WriteOutcome(Enum):
    """The outcome of a write that did not report success."""

    APPLIED = "the file is as written"
    REFUSED = "the write never took effect"
    PENDING = "the write has not taken effect, and still can"
    OVERWRITTEN = "the file is another writer's, from before or after the write"


@dataclass(frozen=True, slots=True)
class SentWrite:
    """A write without success. ``is_answered``: the storage answered that the condition was not met."""

    write: FileWrite
    changed: RepoUpdate
    is_answered: bool


#: The ref of ``main``: the file that makes a repository of spec version 1.
V1_MAIN: Final = "refs/branch.main/ref.json"


@dataclass(slots=True, eq=False)
class CatalogV1(Catalog):
    """The catalog of spec version 1, in the folder ``refs``, the snapshot files and ``config.yaml``."""

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

    def repo_info(self) -> RepoInfo:
        """See ``Catalog.repo_info``."""
        if self.storage.head(REPO) is not None:
            raise FormatError(
                f"the repository in {self.storage.label()} was upgraded to spec version 2. Open it again",
                ErrorKind.UNSUPPORTED_SPEC_VERSION,
            )
        return self._unread_repo_info()

    def _unread_repo_info(self) -> RepoInfo:
        """Return a repo info that reads its parts when they are needed."""
        return RepoInfo(
            spec_version=1,
            branches=V1Refs(self.storage, RefKind.BRANCH),
            tags=V1Refs(self.storage, RefKind.TAG),
            deleted_tags=DeletedTags(self.storage),
            snapshots=self.snapshots,
            status=Status(Availability.ONLINE, 0),
            metadata={},
            ops=OpsLog.of([]),
        )

    def full_repo_info(self) -> RepoInfo:
        """Return the repo info with all refs, and with all snapshots that have a file."""
        info = self.repo_info()
        refs, results = read_all_refs(self.storage), read_all_snapshots(self.storage)
        entries = {id_: entry for id_, entry in results.items() if isinstance(entry, SnapshotEntry)}
        entries |= reached_snapshots(self.storage, results, refs.tips)
        return replace(
            info,
            branches=refs.branches,
            tags=refs.tags,
            deleted_tags=frozenset(refs.deleted_tags),
            snapshots=SnapshotTable.of(
                [each if each.parent in entries else replace(each, parent=None) for each in entries.values()]
            ),
        )

    def update_full_repo_info(self, change: ConditionalChange) -> RepoInfo | None:
        """See ``Catalog.update_full_repo_info``."""
        storage = self.storage
        while True:
            before = self.full_repo_info()
            changed = change(before, now_us())
            if changed is None:
                return None
            if self._renew_branches(before.branches):
                break
        # Write the snapshot files whose parents the garbage collection has changed.
        table, after = before.table, changed.info.table
        old, new = table.parents()[table.find_snapshots(after.ids())], after.parents()
        is_moved = (new >= 0) & (table.ids()[old] != after.ids()[new]).any(axis=1)
        for row in np.flatnonzero(is_moved).tolist():
            id_ = after.id_of(row)
            snapshot = replace(SNAPSHOT.read(storage, id_), parent_id=after.id_of(int(new[row])))
            storage.put(snapshot_key(id_), encode_snapshot(snapshot, level=self.settings.compression_level))
            self.assets.forget_snapshot(id_)
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

    def begin_commit(self, check: StateCheck = no_check) -> CommitStart:
        """See ``Catalog.begin_commit``."""
        info = self.repo_info()
        check(info)
        return CommitStart(info)

    def finish_commit(
        self, change: RepoChange, start: CommitStart, files: NewFiles | None = None
    ) -> RepoInfo | None:
        """See ``Catalog.finish_commit``."""
        if files is not None:
            self.storage.put_many(files.objects)
            files.confirm()
        return self._update(change, start)

    def _update(self, change: ConditionalChange, start: CommitStart | None = None) -> RepoInfo | None:
        """Try the change until its file is stored. Return the new repo info.

        With ``start``, return None if the branch file has another version by now: a garbage collection may
        have written it.
        """
        policy = self.settings.policy
        sent: list[SentWrite] = []
        failures = 0
        for attempt in range(max(policy.tries, 1)):
            if applied := self._applied(sent):
                return applied
            # If a ref has moved since ``start`` was read, the write is refused.
            info = start.info if start is not None and not attempt else self.repo_info()
            changed = change(info, now_us())
            if changed is None:
                return None
            write = self._file_write(info, changed)
            if start is not None and sent:
                conditions = [getattr(each, "condition", None) for each in (write, sent[0].write)]
                if conditions[0] != conditions[1]:
                    return None
            try:
                is_stored = self.write_file(write)
            except OutcomeUnknownError as error:
                raise outcome_unknown(changed.entry, error.problem) from error
            except StorageError as error:
                sent.append(SentWrite(write, changed, is_answered=False))
                failures += 1
                if failures >= policy.errors:
                    if applied := self._applied(sent, is_last=True):
                        return applied
                    raise not_applied(error) from error
                host.pause(policy.pause(attempt))
            else:
                if is_stored:
                    return self._checked(changed)
                sent.append(SentWrite(write, changed, is_answered=True))
                host.pause(policy.pause_after_loss(attempt))
        if applied := self._applied(sent, is_last=True):
            return applied
        raise attempts_exhausted(policy)

    def _file_write(self, info: RepoInfo, changed: RepoUpdate) -> FileWrite:
        """Return the write for a change. Raises ``FormatError`` if the change needs spec version 2."""
        storage, name, after = self.storage, changed.entry.name or "", changed.info
        match changed.entry.kind:
            case UpdateKind.NEW_COMMIT | UpdateKind.BRANCH_RESET:
                assert isinstance(info.branches, V1Refs)
                condition = IfVersion(info.branches.ref(name).version)
                data = encode_ref(after.branches[name], new_mark())
                return PutFile(ref_key(storage, RefKind.BRANCH, name), data, condition)
            case UpdateKind.BRANCH_CREATED:
                _require_other_file(info.branches, name)
                data = encode_ref(after.branches[name], new_mark())
                return PutFile(ref_key(storage, RefKind.BRANCH, name), data, IfAbsent())
            case UpdateKind.BRANCH_DELETED:
                return DeleteFile(ref_key(storage, RefKind.BRANCH, name))
            case UpdateKind.TAG_CREATED:
                _require_other_file(info.tags, name)
                data = encode_ref(after.tags[name], new_mark())
                return PutFile(ref_key(storage, RefKind.TAG, name), data, IfAbsent())
            case UpdateKind.TAG_DELETED:
                return PutFile(tombstone_key(storage, name), b"", IfAbsent())
            case UpdateKind.CONFIG_CHANGED:
                write, stored = first_config(after.config or {}), _stored_config(storage)
                if self.config_version != (None if stored is None else stored[1]):
                    raise ConflictError(
                        message="another writer updated the configuration. Open the repository again",
                        kind=ErrorKind.CONFIG_UPDATED,
                    )
                if stored is None:
                    return write
                return replace(write, condition=IfVersion(stored[1]), before=stored)
            case UpdateKind.NEW_DETACHED_SNAPSHOT:
                row = info.snapshots.find_snapshot(changed.entry.new_snapshot or b"")
                parent = info.snapshots.entry(row).parent
                if parent is not None and storage.head(snapshot_key(parent)) is None:
                    raise base_not_found(parent)  # it was collected, so the new snapshot lacks manifests
                return None
        raise needs_version_2()

    def write_file(self, write: FileWrite) -> bool:
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
                try:
                    self.storage.flush_folders([key.rpartition("/")[0]])
                except StorageError as error:
                    raise OutcomeUnknownError(f"`{key}` is deleted, but {error.problem}") from error
        return True

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

    # Writes that did not report success

    def _applied(self, writes: Sequence[SentWrite], *, is_last: bool = False) -> RepoInfo | None:
        """Return the repo info after the write that took effect, or None if none of them did.

        Raises ``OutcomeUnknownError`` if a write may have taken effect, or may still take effect. The latter
        is only possible with ``is_last``: otherwise another attempt follows, whose success prevents it.
        """
        for sent in writes:
            entry, key = sent.changed.entry, "" if sent.write is None else sent.write.key
            try:
                outcome, version = retried(partial(self._outcome, sent), self.settings.policy)
            except StorageError as error:
                why = f"an answer of the storage was lost, and the repository cannot be read ({error})"
                raise outcome_unknown(entry, why) from error
            if outcome is WriteOutcome.APPLIED:
                if key == CONFIG:
                    self.config_version = version
                return self._checked(sent.changed)
            if outcome is WriteOutcome.OVERWRITTEN and not sent.is_answered:
                why = f"an answer of the storage was lost, and another writer has changed `{key}` since"
                raise outcome_unknown(entry, why)
            is_pending = outcome is WriteOutcome.PENDING and not sent.is_answered
            if is_pending and is_last and not self.storage.is_local:
                why = "the storage did not answer, and may still execute the request"
                raise outcome_unknown(entry, why)
        return None

    def _outcome(self, sent: SentWrite) -> tuple[WriteOutcome, Version | None]:
        write, kind = sent.write, sent.changed.entry.kind
        if write is None:
            return WriteOutcome.APPLIED, None
        if isinstance(write, DeleteFile):
            is_deleted = self.storage.head(write.key) is None
            return WriteOutcome.APPLIED if is_deleted else WriteOutcome.PENDING, None
        try:
            data, version = self.storage.get_versioned(write.key)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            is_new = write.condition == IfAbsent()
            return WriteOutcome.PENDING if is_new else WriteOutcome.OVERWRITTEN, None
        if (stored := bytes(data)) == write.data:
            return WriteOutcome.APPLIED, version
        if write.condition == IfVersion(version):
            return WriteOutcome.PENDING, None
        if kind is UpdateKind.NEW_COMMIT:
            tip = decode_ref(stored, write.key)
            return self._outcome_of_commit(tip, sent.changed.entry.new_snapshot or b""), None
        # A tag is only written once.
        is_tag = kind is UpdateKind.TAG_CREATED
        return WriteOutcome.REFUSED if is_tag else WriteOutcome.OVERWRITTEN, None

    def _outcome_of_commit(self, tip: bytes, id_: bytes) -> WriteOutcome:
        """Return whether the new snapshot is in the history of a branch that other writers have moved.

        The search ends at the parent of the new snapshot. If the history does not contain the parent, the
        outcome is unknown: the branch was reset, or the versions since the parent were expired.
        """
        number, row = self.snapshots.find_snapshot(id_), self.snapshots.find_snapshot(tip)
        if number < 0:
            return WriteOutcome.OVERWRITTEN  # a garbage collection deleted it, so no branch contained it
        new = self.snapshots.entry(number)
        for rows in self.snapshots.parts(row) if row >= 0 else ():
            for entry in self.snapshots.entries(rows):
                if entry.id == id_:
                    return WriteOutcome.APPLIED
                if entry.id == new.parent:
                    return WriteOutcome.REFUSED
        return WriteOutcome.OVERWRITTEN


def _require_other_file(refs: Mapping[str, bytes], name: str) -> None:
    """Raise ``AlreadyExistsError`` if the file of a new ref would be that of another one."""
    other = refs.other_case(name) if isinstance(refs, V1Refs) else None
    if other is not None:
        raise AlreadyExistsError(
            f"`{other}` exists, and is `{name}` for the file system. Use another name, or upgrade",
            ErrorKind.INVALID_REF_NAME,
        )


def first_config(config: dict[str, Any]) -> PutFile:
    """Return the write of the first configuration of a repository."""
    return PutFile(CONFIG, config_yaml.dump_config(config), IfAbsent())


def _stored_config(storage: Storage) -> tuple[bytes, Version] | None:
    """Return the file of the configuration and its version, or None if there is no file."""
    with skip_missing():
        data, version = storage.get_versioned(CONFIG)
        return bytes(data), version
    return None


def read_config_v1(storage: Storage) -> tuple[RepositoryConfig | None, Version | None]:
    """Return the saved configuration and the version of its file. Both are None if there is no file."""
    stored = _stored_config(storage)
    return (None, None) if stored is None else (from_document(config_yaml.load_config(stored[0])), stored[1])
