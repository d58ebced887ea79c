"""What a repository's handle and all of its sessions share."""

from __future__ import annotations

from dataclasses import dataclass, field

from frazil.chunks.virtual import VirtualSources
from frazil.chunks.writer import ChunkWriter, PackSettings
from frazil.format.repo_info import RepoInfo
from frazil.repository.assets import Assets
from frazil.repository.attribution import Attribution
from frazil.repository.clock import new_object_id
from frazil.repository.config import RepositoryConfig
from frazil.repository.effective import Effective
from frazil.repository.update import Attempt, Change, RetryPolicy, begin, read_repo_info, update_repo_info
from frazil.storage.base import Storage


@dataclass(frozen=True, slots=True)
class Context:
    """Can be pickled; caches then start empty, and writers flush."""

    storage: Storage
    config: RepositoryConfig
    settings: Effective
    assets: Assets
    virtual: VirtualSources
    attribution: Attribution = field(default_factory=Attribution)

    def update(self, change: Change, begun: Attempt | None = None) -> RepoInfo:
        """Change the repository; see ``repository.update``."""
        settings, retries = self.settings, self.settings.repo_update_retries
        return update_repo_info(
            self.storage,
            change,
            policy=RetryPolicy(retries.max_tries, retries.initial_backoff_ms, retries.max_backoff_ms),
            keep=settings.num_updates_per_repo_info_file,
            level=settings.compression_level,
            last_seen=self.assets.last_seen,
            begun=begun,
        )

    def begin(self) -> Attempt:
        """The first attempt of an update."""
        return begin(self.storage, self.assets.last_seen)

    def repo_info(self) -> RepoInfo:
        """The repo info as it is now."""
        return read_repo_info(self.storage, self.assets.last_seen)[0]

    def writer(self) -> ChunkWriter:
        """Where a session's new chunks go."""
        settings = self.settings
        packs = PackSettings(settings.packing, settings.pack_threshold_bytes, settings.pack_size_bytes)
        return ChunkWriter(self.storage, packs, new_object_id)
