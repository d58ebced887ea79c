"""The catalog of spec version 1, where each change is one conditional write of a small file.

The functions of ``repo_changes`` are the same as for version 2. They get a repo info that reads refs and
snapshots when they are needed, and return the next repo info with its ops log entry. Version 1 has no ops
log: the kind of the entry selects the file that changes (``file_writes_v1``).

A writer whose request gets no answer finds out whether the file was written (``sent_writes_v1``).

*Garbage collections.* A collection writes each branch again, with the same content, before it deletes files.
So a commit that has read its branch before that is refused, and checks for collections again
(``collection_guard``).

*Upgrades.* A repository with a file ``repo`` has version 2, whatever other files there are. Every use of a
handle looks for this file first. Every write looks for it again afterwards. The upgrade reads the refs again
after it has written ``repo`` (``upgrade``). So a write that the upgrade does not see is late enough to see
``repo``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from frazil import host
from frazil.errors import ErrorKind, FormatError, StorageError
from frazil.format.keys import CONFIG, REPO, backup_key, backup_name, snapshot_key
from frazil.format.repo_info import Availability, OpsLog, RepoInfo, Status, decode_repo_info
from frazil.format.snapshot import encode_snapshot, initial_snapshot
from frazil.lazy_names import ModuleOnDemand
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.catalog import Catalog, CommitStart
from frazil.repository.catalog.creation import create_first, not_empty
from frazil.repository.catalog.file_writes_v1 import (
    DeleteFile,
    FileWrite,
    PutFile,
    StateV1,
    condition_of,
    file_write,
    new_mark,
)
from frazil.repository.catalog.full_catalog_v1 import full_repo_info_v1, write_new_parents
from frazil.repository.catalog.refs_v1 import DeletedTags, RefKind, Refs, encode_ref, read_ref, ref_key
from frazil.repository.catalog.repo_update import (
    ConditionalChange,
    NewFiles,
    RepoChange,
    RepoUpdate,
    UpdateSettings,
    attempts_exhausted,
)
from frazil.repository.catalog.sent_writes_v1 import AppliedWrite, SentWrites
from frazil.repository.catalog.snapshots_v1 import SnapshotsV1
from frazil.repository.clock import now_us
from frazil.repository.ids import new_object_id
from frazil.repository.outcome import not_applied, outcome_unknown
from frazil.repository.retries import RetryPolicy, retried
from frazil.repository.settings.config import RepositoryConfig
from frazil.repository.settings.config_document import from_document
from frazil.storage.base import IfAbsent, IfVersion, Storage, Stored, Version
from frazil.storage.local_commit import put_many
from frazil.threads import Purpose, map_bounded

if TYPE_CHECKING:
    from frazil.repository.settings import config_yaml
else:
    config_yaml = ModuleOnDemand("frazil.repository.settings.config_yaml")


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
