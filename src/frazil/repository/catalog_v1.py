"""Changing a repository of spec version 1: each change is one conditional write of one small file.

The functions of ``mutations`` are the same as for version 2: they get a repo info whose refs and snapshots
are read when they are asked for, and give the next one with its ops log entry. There is no ops log; the
entry's kind tells which file changes, by the table ``_WRITES``. Kinds that are not in it need version 2.

*Was it written?* As in ``update``, neither a refusal nor an error proves that it was not. What Frazil
writes to a ref is recognised (``refs_v1``), and a commit also where others have built on it: its id is
among the ancestors of the branch.

*Was the repository upgraded?* A file ``repo`` makes it one of version 2, whatever lies beside. Every use of
a handle looks for it first, and every write once more afterwards: the upgrade reads the refs again after it
has written ``repo`` (``upgrade``), so a write that it did not see comes late enough to see ``repo``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from frazil.errors import ConflictError, ErrorKind, FormatError, StorageError
from frazil.format.ids import OBJECT_ID_BYTES
from frazil.format.keys import CONFIG, REPO, backup_key, backup_name, snapshot_key
from frazil.format.repo_info import Availability, OpsLog, RepoInfo, Status, UpdateKind, decode_repo_info
from frazil.format.snapshot import encode_snapshot, initial_snapshot
from frazil.repository.assets import Assets
from frazil.repository.catalog import Begun, needs_version_2, policy_of
from frazil.repository.clock import now_us
from frazil.repository.config import RepositoryConfig
from frazil.repository.config_document import from_document
from frazil.repository.config_yaml import dump_config, load_config
from frazil.repository.creating import not_empty, put_first
from frazil.repository.effective import Effective
from frazil.repository.refs_v1 import DeletedTags, RefKind, Refs, encode_ref, read_ref, ref_key, tombstone_key
from frazil.repository.snapshots_v1 import SnapshotsV1
from frazil.repository.update import Change, Changed
from frazil.repository.whole_v1 import carry_out, whole_v1
from frazil.storage.base import Condition, IfAbsent, IfVersion, Storage, Stored, Version

_MARK_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class _Put:
    """Write a file; if there was another, ``before`` goes to ``overwritten/``."""

    key: str
    data: bytes
    condition: Condition
    before: tuple[bytes, Version] | None = None


@dataclass(frozen=True, slots=True)
class _Delete:
    key: str


@dataclass(frozen=True, slots=True)
class _Nothing:
    """All that there is to write has been written."""


_Write = _Put | _Delete | _Nothing


@dataclass(frozen=True, slots=True)
class BegunV1:
    """Nothing has to be saved before a ref moves."""

    info: RepoInfo

    def save(self, storage: Storage) -> None:
        pass


@dataclass(slots=True, eq=False)
class CatalogV1:
    """The folder ``refs``, the snapshot files and ``config.yaml``.

    ``config_version`` is what the handle knows of the configuration: another one is not overwritten.
    """

    storage: Storage
    assets: Assets
    config_version: Version | None = None
    snapshots: SnapshotsV1 = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.snapshots = SnapshotsV1(self.assets)

    def __reduce__(self) -> tuple[type[CatalogV1], tuple[Storage, Assets, Version | None]]:
        return (CatalogV1, (self.storage, self.assets, self.config_version))

    @property
    def spec_version(self) -> int:
        return 1

    def create(self, config: dict[str, Any] | None, level: int) -> None:
        """Write the files of a new repository: it is there when its branch ``main`` is.

        ``InvalidInputError`` (``parent-directory-not-clean``) if another writer was first.
        """
        storage = self.storage
        snapshot = initial_snapshot(now_us(), spec_version=1)
        storage.put(snapshot_key(snapshot.id), encode_snapshot(snapshot, level=level))
        main = encode_ref(snapshot.id, _mark())
        put_first(storage, V1_MAIN, main)
        if storage.head(REPO) is not None:
            raise not_empty(storage, REPO, is_repository=True)
        # Only the one whose `main` it is has a say in the configuration.
        if config is not None:
            self._carry_out(_Put(CONFIG, dump_config(config), IfAbsent()))

    def repo_info(self) -> RepoInfo:
        if self.storage.head(REPO) is not None:
            raise _upgraded(self.storage)
        return self._unread()

    def _unread(self) -> RepoInfo:
        """Nothing of it has been read yet."""
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

    def whole(self) -> RepoInfo:
        return whole_v1(self.storage, self.repo_info())

    def update_whole(self, change: Change, settings: Effective) -> RepoInfo:
        before = self.whole()
        changed = change(before, now_us())
        carry_out(self.assets, before, changed.info, settings.compression_level)
        self.snapshots = SnapshotsV1(self.assets)
        # The entry is in no file, but tells the change which of its attempts it was.
        return replace(changed.info, ops=OpsLog.of([changed.entry]))

    def begin(self) -> BegunV1:
        return BegunV1(self.repo_info())

    def update(self, change: Change, settings: Effective, begun: Begun | None) -> RepoInfo:
        policy = policy_of(settings)
        tried: list[tuple[_Write, Changed]] = []
        failures = 0
        for attempt in range(max(policy.tries, 1)):
            if any(self._written(*each) for each in tried):
                return self._done(tried[-1][1])
            # The first attempt may have been begun before the files of a commit were written: refs may have
            # moved since, but then the write is refused.
            info = begun.info if begun is not None and not attempt else self.repo_info()
            changed = change(info, now_us())
            write = _write_of(self, info, changed)
            tried.append((write, changed))
            try:
                if self._carry_out(write):
                    return self._done(changed)
            except StorageError:
                failures += 1
                if failures >= policy.errors:
                    with suppress(StorageError):
                        if self._written(write, changed):
                            return self._done(changed)
                    raise
            time.sleep(policy.pause(attempt))
        raise ConflictError(
            message=f"all {policy.tries} attempts to update the repository met the update of another "
            "writer: try again later, or with fewer writers",
            kind=ErrorKind.UPDATE_ATTEMPTS_EXHAUSTED,
        )

    def _carry_out(self, write: _Write) -> bool:
        match write:
            case _Put(key, data, condition, before):
                if before is not None:
                    name = backup_name(now_us() // 1000, os.urandom(OBJECT_ID_BYTES), of=key)
                    self.storage.backup(key, before[1], before[0], backup_key(name))
                answer = self.storage.put(key, data, condition)
                if isinstance(answer, Stored) and key == CONFIG:
                    self.config_version = answer.version
                return isinstance(answer, Stored)
            case _Delete(key):
                self.storage.delete([key])
        return True

    def _written(self, write: _Write, changed: Changed) -> bool:
        """Whether an attempt whose answer was not "stored" has taken effect."""
        match write:
            case _Put(key, data):
                entry = changed.entry
                if entry.kind is UpdateKind.NEW_COMMIT:
                    return self._is_on_branch(entry.name or "", entry.new_snapshot or b"")
                try:
                    found, version = self.storage.get_versioned(key)
                except StorageError as error:
                    if error.kind == ErrorKind.OBJECT_NOT_FOUND:
                        return False
                    raise
                if key == CONFIG and bytes(found) == data:
                    self.config_version = version
                return bytes(found) == data
            case _Delete(key):
                return self.storage.head(key) is None
        return True

    def _is_on_branch(self, branch: str, id_: bytes) -> bool:
        """Whether a branch's history, back to the time of a new snapshot, has that snapshot."""
        ref = read_ref(self.storage, RefKind.BRANCH, branch)
        if ref is None:
            return False
        since = self.snapshots.entry(self.snapshots.find(id_)).flushed_at
        for rows in self.snapshots.parts(self.snapshots.find(ref.snapshot)):
            for entry in self.snapshots.entries(rows):
                if entry.id == id_:
                    return True
                if entry.flushed_at < since:
                    return False
        return False

    def _done(self, changed: Changed) -> RepoInfo:
        """What was changed holds, unless the repository was upgraded meanwhile and the upgrade missed it."""
        if self.storage.head(REPO) is None:
            return self._unread()
        new = changed.entry.new_snapshot
        info = decode_repo_info(self.storage.get(REPO), REPO)
        if new is not None and info.snapshots.find(new) >= 0:
            return info
        raise _upgraded(self.storage, "while this change was written, so the change may be lost")


def _upgraded(storage: Storage, when: str = "since this handle was opened") -> FormatError:
    return FormatError(
        f"the repository in {storage.place()} was upgraded to spec version 2 {when}: open it again",
        ErrorKind.UNSUPPORTED_SPEC_VERSION,
    )


def _mark() -> bytes:
    return os.urandom(_MARK_BYTES)


def _refs(refs: object) -> Refs:
    assert isinstance(refs, Refs)
    return refs


def _move_branch(catalog: CatalogV1, info: RepoInfo, changed: Changed) -> _Write:
    name = changed.entry.name or ""
    condition = IfVersion(_refs(info.branches).ref(name).version)
    key = ref_key(catalog.storage, RefKind.BRANCH, name)
    return _Put(key, encode_ref(changed.info.branches[name], _mark()), condition)


def _create_branch(catalog: CatalogV1, info: RepoInfo, changed: Changed) -> _Write:
    name = changed.entry.name or ""
    key = ref_key(catalog.storage, RefKind.BRANCH, name)
    return _Put(key, encode_ref(changed.info.branches[name], _mark()), IfAbsent())


def _delete_branch(catalog: CatalogV1, info: RepoInfo, changed: Changed) -> _Write:
    return _Delete(ref_key(catalog.storage, RefKind.BRANCH, changed.entry.name or ""))


def _create_tag(catalog: CatalogV1, info: RepoInfo, changed: Changed) -> _Write:
    name = changed.entry.name or ""
    key = ref_key(catalog.storage, RefKind.TAG, name)
    return _Put(key, encode_ref(changed.info.tags[name], _mark()), IfAbsent())


def _delete_tag(catalog: CatalogV1, info: RepoInfo, changed: Changed) -> _Write:
    return _Put(tombstone_key(catalog.storage, changed.entry.name or ""), b"", IfAbsent())


def _change_config(catalog: CatalogV1, info: RepoInfo, changed: Changed) -> _Write:
    data = dump_config(changed.info.config or {})
    try:
        found, version = catalog.storage.get_versioned(CONFIG)
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        found, version = b"", None
    if version != catalog.config_version:
        raise ConflictError(
            message="another writer updated the configuration since this repository was opened: open it "
            "again, and repeat the change",
            kind=ErrorKind.CONFIG_UPDATED,
        )
    if version is None:
        return _Put(CONFIG, data, IfAbsent())
    return _Put(CONFIG, data, IfVersion(version), (bytes(found), version))


def _nothing(catalog: CatalogV1, info: RepoInfo, changed: Changed) -> _Write:
    return _Nothing()


_WRITES: Final[dict[UpdateKind, Callable[[CatalogV1, RepoInfo, Changed], _Write]]] = {
    UpdateKind.NEW_COMMIT: _move_branch,
    UpdateKind.BRANCH_RESET: _move_branch,
    UpdateKind.BRANCH_CREATED: _create_branch,
    UpdateKind.BRANCH_DELETED: _delete_branch,
    UpdateKind.TAG_CREATED: _create_tag,
    UpdateKind.TAG_DELETED: _delete_tag,
    UpdateKind.CONFIG_CHANGED: _change_config,
    UpdateKind.NEW_DETACHED_SNAPSHOT: _nothing,
}


def _write_of(catalog: CatalogV1, info: RepoInfo, changed: Changed) -> _Write:
    write = _WRITES.get(changed.entry.kind)
    if write is None:
        raise needs_version_2()
    return write(catalog, info, changed)


# Opening

V1_MAIN: Final = "refs/branch.main/ref.json"


def read_config_v1(storage: Storage) -> tuple[RepositoryConfig | None, Version | None]:
    """What was saved, and which version of it; None if nothing was."""
    try:
        data, version = storage.get_versioned(CONFIG)
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        return None, None
    return from_document(load_config(data)), version


__all__ = ["V1_MAIN", "BegunV1", "CatalogV1", "read_config_v1"]
