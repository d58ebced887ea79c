"""What a repository's handle and all of its sessions share."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final

from frazil.chunks.byte_cache import ByteCache
from frazil.chunks.content_addressing import ContentSettings, ContentStore
from frazil.chunks.reader import MAX_REQUESTS, ChunkReader
from frazil.chunks.virtual import VirtualSources
from frazil.chunks.writer import ChunkWriter, PackSettings
from frazil.format.repo_info import RepoInfo
from frazil.repository.attribution import Attribution
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.catalog import Begun, Catalog, needs_version_2
from frazil.repository.catalog.collection_guard import is_collecting
from frazil.repository.catalog.collection_watch import CollectionWatch
from frazil.repository.catalog.repo_update import Change
from frazil.repository.clock import new_object_id, now_us
from frazil.repository.settings.config import RepositoryConfig
from frazil.repository.settings.engine_settings import Effective
from frazil.storage.base import Storage

_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Context:
    """Can be pickled; caches then start empty, and writers flush."""

    storage: Storage
    config: RepositoryConfig
    settings: Effective
    assets: Assets
    virtual: VirtualSources
    catalog: Catalog
    attribution: Attribution = field(default_factory=Attribution)
    chunk_cache: ByteCache | None = None

    @property
    def spec_version(self) -> int:
        """Of the repository, and of the files that are written to it."""
        return self.catalog.spec_version

    def require_version_2(self) -> None:
        """``FormatError`` (``unsupported-spec-version``) in a repository of version 1."""
        if self.spec_version < 2:
            raise needs_version_2()

    def update(self, change: Change, begun: Begun | None = None) -> RepoInfo:
        """Change the repository; see ``repository.update``."""
        return self.catalog.update(change, self.settings, begun)

    def begin(self) -> Begun:
        """The first attempt of an update."""
        return self.catalog.begin()

    def repo_info(self) -> RepoInfo:
        """The repo info as it is now."""
        return self.catalog.repo_info()

    def whole(self) -> RepoInfo:
        """The repo info with a table of all snapshots, for upkeep."""
        return self.catalog.whole()

    def update_whole(self, change: Change) -> RepoInfo:
        """``update`` for a change that needs that table."""
        return self.catalog.update_whole(change, self.settings)

    def reader(self, writer: ChunkWriter) -> ChunkReader:
        """Where a session's chunks come from."""
        requests = self.config.max_concurrent_requests or MAX_REQUESTS
        return ChunkReader(self.storage, self.virtual, writer, max_requests=requests, cache=self.chunk_cache)

    def writer(self) -> ChunkWriter:
        """Where a session's new chunks go."""
        settings = self.settings
        packs = PackSettings(settings.packing, settings.pack_threshold_bytes, settings.pack_size_bytes)
        return ChunkWriter(self.storage, packs, new_object_id, content=self._content())

    def _content(self) -> ContentStore | None:
        settings = self.settings
        if not settings.deduplicate:
            return None
        lifetime = settings.session_lifetime // _MICROSECOND
        return ContentStore(
            self.storage,
            ContentSettings(lifetime, settings.compare_found_chunks),
            new_object_id,
            now_us,
            CollectionWatch(self.catalog.repo_info, self.storage),
            partial(is_collecting, self.storage),
        )
