"""Changing a repository of spec version 1: each change is one conditional write of one small file.

The functions of ``mutations`` are the same as for version 2: they get a repo info whose refs and snapshots
are read when they are asked for, and give the next one with its ops log entry. There is no ops log; the
entry's kind tells which file changes, by the table ``_WRITES``. Kinds that are not in it need version 2.

*Was it written?* As in ``update``, neither a refusal nor an error proves that it was not. What Frazil
writes to a ref is recognised (``refs_v1``), and a commit also where others have built on it: its id is
among the ancestors of the branch.

*Was garbage collected?* A collection writes each branch again, unchanged, before it deletes anything. So a
commit that has read its branch before that is refused, and looks back at collections again (``in_use``).

*Was the repository upgraded?* A file ``repo`` makes it one of version 2, whatever lies beside. Every use of
a handle looks for it first, and every write once more afterwards: the upgrade reads the refs again after it
has written ``repo`` (``upgrade``), so a write that it did not see comes late enough to see ``repo``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, Final

from frazil.errors import ConflictError, ErrorKind, FormatError, StorageError
from frazil.format.ids import OBJECT_ID_BYTES
from frazil.format.keys import CONFIG, REPO, backup_key, backup_name, snapshot_key
from frazil.format.repo_info import Availability, OpsLog, RepoInfo, Status, UpdateKind, decode_repo_info
from frazil.format.snapshot import encode_snapshot, initial_snapshot
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.catalog import Begun, needs_version_2, policy_of
from frazil.repository.catalog.collection_guard import CollectedMeanwhile
from frazil.repository.catalog.creation import create_first, not_empty
from frazil.repository.catalog.full_catalog_v1 import carry_out, whole_v1
from frazil.repository.catalog.refs_v1 import (
    DeletedTags,
    RefKind,
    Refs,
    decode_ref,
    encode_ref,
    read_ref,
    ref_key,
    tombstone_key,
)
from frazil.repository.catalog.repo_changes import base_not_found
from frazil.repository.catalog.repo_update import Change, Changed
from frazil.repository.catalog.snapshots_v1 import SnapshotsV1
from frazil.repository.clock import now_us
from frazil.repository.outcome import not_made, outcome_unknown
from frazil.repository.retries import RetryPolicy, retried
from frazil.repository.settings.config import RepositoryConfig
from frazil.repository.settings.config_document import from_document
from frazil.repository.settings.config_yaml import dump_config, load_config
from frazil.repository.settings.engine_settings import Effective
from frazil.storage.base import Condition, IfAbsent, IfVersion, Storage, Stored, Version
from frazil.threads import Purpose, map_bounded

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


class _Fate(Enum):
    """What became of an attempt whose answer was not "stored"."""

    APPLIED = "it is there"
    REFUSED = "it never took effect"
    PENDING = "it has not taken effect, and could still do so"
    OVERWRITTEN = "something else is there, which came before it or after it"


@dataclass(frozen=True, slots=True)
class _Tried:
    """An attempt; ``answered`` if the storage said that the condition did not hold."""

    write: _Write
    changed: Changed
    answered: bool

    @property
    def key(self) -> str:
        return "" if isinstance(self.write, _Nothing) else self.write.key


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
        create_first(storage, V1_MAIN, main, RetryPolicy())
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
        while True:
            before = self.whole()
            changed = change(before, now_us())
            if self._written_again(before.branches):
                break
        carry_out(self.assets, before, changed.info, settings.compression_level)
        self.snapshots = SnapshotsV1(self.assets)
        # The entry is in no file, but tells the change which of its attempts it was.
        return replace(changed.info, ops=OpsLog.of([changed.entry]))

    def _written_again(self, branches: Mapping[str, bytes]) -> bool:
        """Give every branch a new version; False where one has moved, or may have."""

        def write(name: str) -> bool:
            ref = read_ref(self.storage, RefKind.BRANCH, name)
            if ref is None or ref.snapshot != branches[name]:
                return False
            key = ref_key(self.storage, RefKind.BRANCH, name)
            answer = self.storage.put(key, encode_ref(ref.snapshot, _mark()), IfVersion(ref.version))
            return isinstance(answer, Stored)

        return all(map_bounded(Purpose.CATALOG_WRITES, write, branches))

    def begin(self) -> BegunV1:
        return BegunV1(self.repo_info())

    def update(self, change: Change, settings: Effective, begun: Begun | None) -> RepoInfo:
        policy = policy_of(settings)
        tried: list[_Tried] = []
        failures = 0
        for attempt in range(max(policy.tries, 1)):
            if applied := self._applied(tried, policy):
                return self._done(applied.changed, policy)
            # The first attempt may have been begun before the files of a commit were written: refs may have
            # moved since, but then the write is refused.
            info = begun.info if begun is not None and not attempt else self.repo_info()
            changed = change(info, now_us())
            write = _write_of(self, info, changed)
            if begun is not None and tried and _condition(write) != _condition(tried[0].write):
                raise CollectedMeanwhile
            try:
                stored = self._carry_out(write)
            except StorageError as error:
                tried.append(_Tried(write, changed, answered=False))
                failures += 1
                if failures >= policy.errors:
                    if applied := self._applied(tried, policy, last=True):
                        return self._done(applied.changed, policy)
                    raise not_made(error) from error
            else:
                if stored:
                    return self._done(changed, policy)
                tried.append(_Tried(write, changed, answered=True))
            time.sleep(policy.pause(attempt))
        if applied := self._applied(tried, policy, last=True):
            return self._done(applied.changed, policy)
        raise ConflictError(
            message=f"all {policy.tries} attempts to update the repository met the update of another "
            "writer. The update had no effect: repeat it later, or with fewer writers",
            kind=ErrorKind.UPDATE_ATTEMPTS_EXHAUSTED,
        )

    def _applied(self, tried: list[_Tried], policy: RetryPolicy, *, last: bool = False) -> _Tried | None:
        """The attempt that has taken effect. Raises ``OutcomeUnknownError`` where one may have, or may still:
        ``last`` says that no other attempt follows, whose success would keep it from that.
        """
        for each in tried:
            try:
                fate = retried(partial(self._fate, each), policy)
            except StorageError as error:
                why = f"an answer of the storage was lost, and what would tell cannot be read ({error})"
                raise outcome_unknown(each.changed.entry, why) from error
            if fate is _Fate.APPLIED:
                return each
            if fate is _Fate.OVERWRITTEN and not each.answered:
                why = f"an answer of the storage was lost, and others have changed `{each.key}` since"
                raise outcome_unknown(each.changed.entry, why)
            if fate is _Fate.PENDING and not each.answered and last and not self.storage.is_local:
                why = "the storage did not answer, and may still carry out what it was asked for"
                raise outcome_unknown(each.changed.entry, why)
        return None

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

    def _fate(self, tried: _Tried) -> _Fate:
        """What became of an attempt whose answer was not "stored"."""
        match tried.write:
            case _Put(key, data, condition):
                try:
                    found, version = self.storage.get_versioned(key)
                except StorageError as error:
                    if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                        raise
                    return _Fate.PENDING if condition == IfAbsent() else _Fate.OVERWRITTEN
                if bytes(found) == data:
                    if key == CONFIG:
                        self.config_version = version
                    return _Fate.APPLIED
                if condition == IfVersion(version):
                    return _Fate.PENDING
                match tried.changed.entry.kind:
                    case UpdateKind.NEW_COMMIT:
                        return self._fate_of_commit(decode_ref(bytes(found), key), tried.changed)
                    case UpdateKind.TAG_CREATED:
                        return _Fate.REFUSED  # nobody writes a tag twice
                return _Fate.OVERWRITTEN
            case _Delete(key):
                return _Fate.APPLIED if self.storage.head(key) is None else _Fate.PENDING
        return _Fate.APPLIED

    def _fate_of_commit(self, tip: bytes, changed: Changed) -> _Fate:
        """Whether the history of a branch that others have moved has a new snapshot, looked for back to the
        parent of that. Where it does not lead to the parent nobody can tell: the branch was reset, or the
        versions since the parent were expired.
        """
        id_ = changed.entry.new_snapshot or b""
        try:
            new = self.snapshots.entry(self.snapshots.find_snapshot(id_))
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            return _Fate.OVERWRITTEN  # no branch led to it when garbage was collected
        row = self.snapshots.find_snapshot(tip)
        for rows in self.snapshots.parts(row) if row >= 0 else ():
            for entry in self.snapshots.entries(rows):
                if entry.id == id_:
                    return _Fate.APPLIED
                if entry.id == new.parent:
                    return _Fate.REFUSED
        return _Fate.OVERWRITTEN

    def _done(self, changed: Changed, policy: RetryPolicy) -> RepoInfo:
        """What was changed holds, unless the repository was upgraded meanwhile and the upgrade missed it."""
        try:
            if retried(partial(self.storage.head, REPO), policy) is None:
                return self._unread()
            new = changed.entry.new_snapshot
            info = decode_repo_info(retried(partial(self.storage.get, REPO), policy), REPO)
        except StorageError as error:
            why = f"it was stored, and whether an upgrade has missed it cannot be read ({error})"
            raise outcome_unknown(changed.entry, why) from error
        if new is not None and info.snapshots.find_snapshot(new) >= 0:
            return info
        raise _upgraded(self.storage, "while this change was written, so the change may be lost")


def _upgraded(storage: Storage, when: str = "since this handle was opened") -> FormatError:
    return FormatError(
        f"the repository in {storage.label()} was upgraded to spec version 2 {when}: open it again",
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


def _detach(catalog: CatalogV1, info: RepoInfo, changed: Changed) -> _Write:
    """Nothing is written; but files of a parent that was collected are not there for the new snapshot."""
    new = catalog.snapshots.entry(catalog.snapshots.find_snapshot(changed.entry.new_snapshot or b""))
    if new.parent is not None and catalog.storage.head(snapshot_key(new.parent)) is None:
        raise base_not_found(new.parent)
    return _Nothing()


_WRITES: Final[dict[UpdateKind, Callable[[CatalogV1, RepoInfo, Changed], _Write]]] = {
    UpdateKind.NEW_COMMIT: _move_branch,
    UpdateKind.BRANCH_RESET: _move_branch,
    UpdateKind.BRANCH_CREATED: _create_branch,
    UpdateKind.BRANCH_DELETED: _delete_branch,
    UpdateKind.TAG_CREATED: _create_tag,
    UpdateKind.TAG_DELETED: _delete_tag,
    UpdateKind.CONFIG_CHANGED: _change_config,
    UpdateKind.NEW_DETACHED_SNAPSHOT: _detach,
}


def _condition(write: _Write) -> Condition | None:
    return write.condition if isinstance(write, _Put) else None


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
