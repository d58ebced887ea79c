"""The context of a repository: the objects that its handle and its sessions share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final

from frazil.chunks.byte_cache import ByteCache
from frazil.chunks.content_addressing import ContentSettings, ContentStore
from frazil.chunks.pack import PackSettings
from frazil.chunks.reader import ChunkReader
from frazil.chunks.virtual import VirtualSources
from frazil.chunks.writer import ChunkWriter
from frazil.repository.attribution import Attribution
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.catalog import Catalog, needs_version_2
from frazil.repository.catalog.collection_records import is_collecting
from frazil.repository.catalog.collection_watch import CollectionWatch
from frazil.repository.clock import now_us
from frazil.repository.ids import new_bare_chunk_id, new_chunk_id
from frazil.repository.settings.config import RepositoryConfig
from frazil.repository.settings.resolved import ResolvedConfig
from frazil.storage.base import Storage

_MICROSECOND: Final = timedelta(microseconds=1)


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
    chunk_cache: ByteCache | None = None

    @property
    def spec_version(self) -> int:
        """The spec version of the repository and of its new files."""
        return self.catalog.spec_version

    def require_version_2(self) -> None:
        """Raise an error in a repository of spec version 1."""
        if self.spec_version < 2:
            raise needs_version_2()

    def reader(self, writer: ChunkWriter) -> ChunkReader:
        """Return a reader for the chunks of one session."""
        requests = self.settings.max_concurrent_requests
        return ChunkReader(self.storage, self.virtual, writer, max_requests=requests, cache=self.chunk_cache)

    def writer(self) -> ChunkWriter:
        """Return a writer for the new chunks of one session."""
        settings = self.settings
        packs = PackSettings(
            settings.packing, settings.pack_threshold_bytes, settings.pack_size_bytes, settings.checksums
        )
        return ChunkWriter(self.storage, packs, self.new_chunk_id, content=self._content())

    @property
    def new_chunk_id(self) -> Callable[[], bytes]:
        """A function that returns the id of a new chunk file. The id says whether the file has a trailer."""
        return new_chunk_id if self.settings.checksums else new_bare_chunk_id

    def _content(self) -> ContentStore | None:
        settings = self.settings
        if not settings.deduplicate:
            return None
        lifetime = settings.session_lifetime // _MICROSECOND
        return ContentStore(
            self.storage,
            ContentSettings(lifetime, settings.compare_chunks, settings.checksums),
            self.new_chunk_id,
            now_us,
            CollectionWatch(self.catalog.repo_info, self.storage),
            partial(is_collecting, self.storage),
        )
