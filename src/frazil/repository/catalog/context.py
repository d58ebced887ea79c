"""The catalog of a repository, and its context: the objects that its handle and its sessions share.

The catalog has the refs, snapshots, configuration and metadata, and their updates. If a file of a snapshot
is gone, the list of snapshots tells whether it was expired or dropped. Methods of a repository then raise
``SnapshotNotFoundError``, a ``KeyError``. From a store, that would tell zarr that there is no such node, so
functions that read for a store raise ``SessionSnapshotNotFoundError``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Final

from frazil import errors
from frazil.chunks.packs import ContentStore, PackSettings
from frazil.chunks.ranges import RangeCache
from frazil.chunks.reader import ChunkReader
from frazil.chunks.virtual import VirtualSources
from frazil.chunks.writer import ChunkWriter
from frazil.format.ids import id_to_text, snapshot_key
from frazil.format.repo_info import RepoInfo
from frazil.remedies import call
from frazil.repository.attribution import Attribution
from frazil.repository.catalog import repo_update
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.collection_guard import (
    CollectionWatch,
    has_collected,
    is_collecting,
    is_copied,
)
from frazil.repository.catalog.protection import PROTECTION, require_allowed
from frazil.repository.catalog.repo_changes import snapshot_not_found
from frazil.repository.clock import MICROSECOND, now_us
from frazil.repository.ids import new_bare_chunk_id, new_chunk_id
from frazil.repository.settings.config import RepositoryConfig, ResolvedConfig
from frazil.storage.base import Storage


class Catalog(ABC):
    """The methods of the catalogs of both spec versions."""

    __slots__ = ()

    #: The spec version of the repository: 1 or 2.
    spec_version: ClassVar[int]

    @abstractmethod
    def repo_info(self) -> RepoInfo:
        """Return the current repo info."""

    def full_repo_info(self) -> RepoInfo:
        """Return the current repo info with a table of all snapshots, for maintenance."""
        return self.repo_info()

    def update_repo_info(self, change: repo_update.RepoChange) -> RepoInfo:
        """Change the repository. Return the new repo info. See ``repo_update``."""
        info = self._update(change)
        if info is None:
            raise errors.InternalError("an update without a condition was given up")
        return info

    def update_full_repo_info(self, change: repo_update.ConditionalChange) -> RepoInfo | None:
        """Change the repository with the table of all snapshots. None if ``change`` returned None."""
        return self._update(change)

    @abstractmethod
    def begin_commit(self, check: repo_update.StateCheck = repo_update.no_check) -> repo_update.CommitStart:
        """Return the state that a commit starts from, after ``check``, which may raise an error."""

    @abstractmethod
    def finish_commit(
        self,
        change: repo_update.RepoChange,
        start: repo_update.CommitStart,
        files: repo_update.NewFiles | None = None,
    ) -> RepoInfo | None:
        """Change the repository after the files of a commit and the backup of ``start`` are stored.

        With ``files``, this method stores them. Return the new repo info, or None without a change if a
        garbage collection has run since ``start`` was read, or may have run.
        """

    @abstractmethod
    def _update(self, change: repo_update.ConditionalChange) -> RepoInfo | None:
        """Try a change until it is stored. Return the new repo info, or None if ``change`` returned None."""


@dataclass(frozen=True, slots=True)
class CatalogV2(Catalog):
    """The catalog of spec version 2, in the file ``repo``."""

    storage: Storage
    assets: Assets
    settings: repo_update.UpdateSettings
    #: The principal named in the handle's attribution.
    principal: str | None = None

    spec_version: ClassVar[int] = 2

    def repo_info(self) -> RepoInfo:
        """See ``Catalog.repo_info``."""
        with repo_update.restore_advice(self.storage):
            info = repo_update.open_current_repo_info(self.storage, self.assets.repo_info_cache)
            info.snapshots  # noqa: B018  # decoded here, so that damage gets the advice
            return info

    def begin_commit(self, check: repo_update.StateCheck = repo_update.no_check) -> repo_update.UpdateStart:
        """See ``Catalog.begin_commit``."""
        with repo_update.restore_advice(self.storage):
            return repo_update.begin_update(self.storage, self.assets.repo_info_cache, check)

    def finish_commit(
        self,
        change: repo_update.ConditionalChange,
        start: repo_update.CommitStart | None,
        files: repo_update.NewFiles | None = None,
    ) -> RepoInfo | None:
        """See ``Catalog.finish_commit``. Without ``start``, garbage collections do not matter."""
        until = None if start is None else repo_update.newest_update(start.info)

        def checked(info: RepoInfo, now: int) -> repo_update.RepoUpdate | None:
            if until is not None and len(info.ops) and has_collected(info, until) is not False:
                return None
            changed = change(info, now)
            if changed is not None and PROTECTION in info.metadata:
                require_allowed(info, changed.info, self.principal)
            return changed

        at, cache = start if isinstance(start, repo_update.UpdateStart) else None, self.assets.repo_info_cache
        old = repo_update.OldBackups(self.storage, self.settings, partial(is_copied, self.storage))
        return repo_update.update_repo_info(
            self.storage, checked, self.settings, cache=cache, start=at, files=files, old_backups=old
        )

    def _update(self, change: repo_update.ConditionalChange) -> RepoInfo | None:
        return self.finish_commit(change, None)


def needs_version_2() -> errors.FormatError:
    """Return the error for an operation that spec version 1 does not support."""
    return errors.FormatError(
        "the repository must have spec version 2 for this operation, got version 1",
        errors.ErrorKind.UNSUPPORTED_SPEC_VERSION,
    ).with_remedy("Upgrade it with `{}`", call("upgrade_icechunk_repository"))


@dataclass(frozen=True, slots=True)
class Context:
    """The storage, settings, caches and catalog of a repository. A pickled copy has empty caches."""

    storage: Storage
    config: RepositoryConfig
    settings: ResolvedConfig
    assets: Assets
    virtual: VirtualSources
    catalog: Catalog
    attribution: Attribution = field(default_factory=Attribution)
    chunk_cache: RangeCache | None = None

    #: The spec version of the repository and of its new files.
    spec_version: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec_version", self.catalog.spec_version)

    @property
    def is_local(self) -> bool:
        """Whether no read waits for a network: neither the storage nor a virtual container needs one."""
        return self.storage.is_local and all(each.is_local for each in self.virtual.containers)

    def require_version_2(self) -> None:
        """Raise an error in a repository of spec version 1."""
        if self.spec_version < 2:
            raise needs_version_2()

    def chunk_access(self) -> tuple[ChunkWriter, ChunkReader]:
        """Return a writer for the new chunks of one session, and a reader for its chunks."""
        settings, content = self.settings, None
        if settings.deduplicate:
            lifetime = settings.session_lifetime // MICROSECOND
            content = ContentStore(
                self.storage,
                lifetime,
                settings.compare_chunks,
                settings.checksums,
                self.new_chunk_id,
                now_us,
                CollectionWatch(self.catalog.repo_info, self.storage),
                partial(is_collecting, self.storage),
            )
        packs = PackSettings(
            settings.packing, settings.pack_threshold_bytes, settings.pack_size_bytes, settings.checksums
        )
        writer = ChunkWriter(self.storage, packs, self.new_chunk_id, content=content)
        requests = settings.max_concurrent_requests
        cache = self.chunk_cache
        return writer, ChunkReader(self.storage, self.virtual, writer, max_requests=requests, cache=cache)

    def new_chunk_id(self) -> bytes:
        """Return the id of a new chunk file. The id says whether the file has a trailer."""
        return new_chunk_id() if self.settings.checksums else new_bare_chunk_id()


#: Errors of concurrent expirations and collections. With the current repo info, the work may succeed.
_PASSING: Final = {errors.ErrorKind.SNAPSHOT_NOT_FOUND, errors.ErrorKind.REBASE_TX_LOG_PRUNED}


def _is_why(context: Context, id_: bytes, error: errors.StorageError) -> bool:
    """Return whether the cause of ``error``, about a file of the snapshot, is that it is not listed."""
    if error.kind != errors.ErrorKind.OBJECT_NOT_FOUND:
        return False
    try:
        if context.spec_version == 1:  # version 1 has no list: a snapshot exists if its file exists
            return context.storage.head(snapshot_key(id_)) is None
        return context.catalog.repo_info().snapshots.find_snapshot(id_) < 0
    except errors.IcechunkError:
        return False  # the first error is more useful


def require_listed(context: Context, id_: bytes, error: errors.StorageError) -> None:
    """Raise ``SessionSnapshotNotFoundError`` if a file of the snapshot, lost by ``error``, was expired."""
    if _is_why(context, id_, error):
        raise errors.SessionSnapshotNotFoundError(
            f"snapshot `{id_to_text(id_)}` was expired or dropped since it was opened, and garbage "
            "collection has deleted its files. Open another version. Tags and branches protect versions, "
            "unless the options of an expiration allow their deletion"
        ) from error


@contextmanager
def files_of(context: Context, id_: bytes) -> Iterator[None]:
    """Raise ``SnapshotNotFoundError`` if the snapshot whose files the block reads was expired or dropped."""
    try:
        yield
    except errors.StorageError as error:
        if _is_why(context, id_, error):
            raise snapshot_not_found(id_to_text(id_)) from error
        raise


@contextmanager
def snapshot_errors() -> Iterator[None]:
    """Convert ``SessionSnapshotNotFoundError`` to ``SnapshotNotFoundError``, for methods of a repository."""
    try:
        yield
    except errors.SessionSnapshotNotFoundError as error:
        raise errors.SnapshotNotFoundError(error.problem) from error


def is_outdated(context: Context, info: RepoInfo, error: errors.IcechunkError) -> bool:
    """Return whether the work that raised ``error`` may succeed with the current repo info."""
    return error.kind in _PASSING and repo_update.newest_update(
        context.catalog.repo_info()
    ) != repo_update.newest_update(info)


def with_current[T](context: Context, work: Callable[[RepoInfo], T]) -> T:
    """Call ``work`` with the current repo info. Repeat it while concurrent expirations make it fail."""
    while True:
        info = context.catalog.repo_info()
        try:
            return work(info)
        except errors.IcechunkError as error:
            if not is_outdated(context, info, error):
                raise
