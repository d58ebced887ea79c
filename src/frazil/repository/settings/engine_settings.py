"""The configuration with all defaults, as the engine uses it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from frazil.format.chunk_trailer import IS_FAST
from frazil.repository.settings.array_conditions import COORDINATE_NAMES
from frazil.repository.settings.conditions import ManifestPreloadCondition
from frazil.repository.settings.config import (
    DEFAULT_SESSION_LIFETIME,
    REPO_UPDATE_RETRIES,
    CachingConfig,
    ChunksConfig,
    CompressionConfig,
    PackingConfig,
    RepositoryConfig,
    RepoUpdateRetryConfig,
    available_cpus,
)
from frazil.repository.settings.manifest_config import (
    AUTO,
    DEFAULT_SPLITTING,
    ManifestConfig,
    ManifestPreloadConfig,
    ManifestSplittingConfig,
    ManifestVirtualChunkLocationCompressionConfig,
    split_sizes_for,
)
from frazil.storage.settings import StorageRetriesSettings, StorageSettings
from frazil.threads import SIZES, Purpose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.repository.settings.virtual_containers import VirtualChunkContainer

#: Small coordinate arrays, by their usual names.
DEFAULT_PRELOAD: Final = ManifestPreloadCondition.and_conditions(
    [
        ManifestPreloadCondition.name_matches(COORDINATE_NAMES),
        ManifestPreloadCondition.num_refs(0, 1001),
    ]
)


#: Options that the configuration lacks. Nobody changes them.
_COMPRESSION: Final = CompressionConfig()
_CACHING: Final = CachingConfig()
_MANIFEST: Final = ManifestConfig()
_PRELOAD: Final = ManifestPreloadConfig()
_LOCATIONS: Final = ManifestVirtualChunkLocationCompressionConfig()
_PACKING: Final = PackingConfig()
_CHUNKS: Final = ChunksConfig()
_UPDATE_RETRIES: Final = RepoUpdateRetryConfig()
_STORAGE: Final = StorageSettings()

#: The highest level of zstd. Higher levels count as this one.
_MAX_LEVEL: Final = 22


@dataclass(frozen=True, slots=True)
class Retries:
    """The number of tries, and the shortest and longest pause between them in milliseconds."""

    max_tries: int
    initial_backoff_ms: int
    max_backoff_ms: int


def _or[T](value: T | None, default: T) -> T:
    return default if value is None else value


def _retries(settings: StorageRetriesSettings | None) -> Retries:
    """Return the retries with defaults for fields that are None, as ``str`` of the configuration shows them.

    If a configuration is given, the defaults of its fields are those of a storage.
    """
    given = settings if settings is not None else StorageRetriesSettings(*REPO_UPDATE_RETRIES)
    return Retries(
        _or(given.max_tries, 10), _or(given.initial_backoff_ms, 100), _or(given.max_backoff_ms, 180_000)
    )


@dataclass(frozen=True, slots=True)
class Effective:
    """The configuration with a value for every option.

    >>> Effective.of(RepositoryConfig()).inline_chunk_threshold_bytes
    512
    """

    inline_chunk_threshold_bytes: int
    #: None means no limit.
    get_partial_values_concurrency: int | None
    max_concurrent_requests: int
    max_concurrent_decodes: int
    num_updates_per_repo_info_file: int
    compression_level: int

    cached_snapshot_nodes: int
    cached_chunk_refs: int
    cached_transaction_changes: int
    cached_attribute_bytes: int
    cached_chunk_bytes: int

    preload_max_total_refs: int
    preload_if: ManifestPreloadCondition
    preload_max_arrays_to_scan: int
    splitting: ManifestSplittingConfig
    #: Whether the number of references decides about the splitting (``AUTO``).
    has_windows: bool
    location_compression_min_chunks: int
    location_dictionary_samples: int
    location_dictionary_bytes: int
    location_compression_level: int
    concurrent_manifest_fetches: int

    repo_update_retries: Retries
    packing: bool
    pack_threshold_bytes: int
    pack_size_bytes: int
    deduplicate: bool
    compare_chunks: bool
    checksums: bool
    fast_forward_timeout: timedelta
    session_lifetime: timedelta
    storage: StorageSettings
    virtual_chunk_containers: Mapping[str, VirtualChunkContainer]

    @staticmethod
    def of(config: RepositoryConfig) -> Effective:
        """Return the configuration with all defaults."""
        compression = _or(config.compression, _COMPRESSION)
        caching = _or(config.caching, _CACHING)
        manifest = _or(config.manifest, _MANIFEST)
        preload = _or(manifest.preload, _PRELOAD)
        splitting = DEFAULT_SPLITTING
        if isinstance(manifest.splitting, ManifestSplittingConfig):
            splitting = manifest.splitting
        locations = _or(manifest.virtual_chunk_location_compression, _LOCATIONS)
        packing = _or(config.packing, _PACKING)
        chunks = _or(config.chunks, _CHUNKS)
        partial_values = config.get_partial_values_concurrency
        return Effective(
            inline_chunk_threshold_bytes=_or(config.inline_chunk_threshold_bytes, 512),
            get_partial_values_concurrency=None if partial_values is None else max(1, partial_values),
            max_concurrent_requests=_or(config.max_concurrent_requests, SIZES[Purpose.CHUNK_READS]) or 1,
            max_concurrent_decodes=_or(config.max_concurrent_decodes, available_cpus()) or 1,
            # At least 1: the file must contain its newest update, where the walk of the ops log begins.
            num_updates_per_repo_info_file=_or(config.num_updates_per_repo_info_file, 1000) or 1,
            compression_level=min(_or(compression.level, 3), _MAX_LEVEL),
            cached_snapshot_nodes=_or(caching.num_snapshot_nodes, 500_000),
            cached_chunk_refs=_or(caching.num_chunk_refs, 15_000_000),
            cached_transaction_changes=_or(caching.num_transaction_changes, 0),
            cached_attribute_bytes=_or(caching.num_bytes_attributes, 0),
            cached_chunk_bytes=_or(caching.num_bytes_chunks, 0),
            preload_max_total_refs=_or(preload.max_total_refs, 10_000),
            preload_if=_or(preload.preload_if, DEFAULT_PRELOAD),
            preload_max_arrays_to_scan=_or(preload.max_arrays_to_scan, 50),
            splitting=splitting if splitting.split_sizes is not None else DEFAULT_SPLITTING,
            has_windows=manifest.splitting == AUTO,
            location_compression_min_chunks=_or(locations.min_num_chunks, 1000),
            location_dictionary_samples=_or(locations.dictionary_max_training_samples, 100),
            location_dictionary_bytes=_or(locations.dictionary_max_size_bytes, 2048),
            location_compression_level=min(_or(locations.compression_level, 3), _MAX_LEVEL),
            concurrent_manifest_fetches=_or(manifest.max_concurrent_manifest_fetches_during_commit, 1) or 1,
            repo_update_retries=_retries(_or(config.repo_update_retries, _UPDATE_RETRIES).default),
            packing=_or(packing.enabled, True),
            pack_threshold_bytes=_or(packing.threshold_bytes, 1024 * 1024),
            pack_size_bytes=_or(packing.pack_size_bytes, 16 * 1024 * 1024),
            deduplicate=_or(chunks.deduplicate, False),
            compare_chunks=_or(chunks.compare, True),
            checksums=_or(chunks.checksums, IS_FAST),
            fast_forward_timeout=_or(config.fast_forward_timeout, timedelta(0)),
            session_lifetime=_or(config.session_lifetime, DEFAULT_SESSION_LIFETIME),
            storage=_or(config.storage, _STORAGE),
            virtual_chunk_containers=dict(config.virtual_chunk_containers or {}),
        )

    @property
    def is_split_configured(self) -> bool:
        """Whether the configuration sets the splitting of manifests."""
        return self.splitting.split_sizes != DEFAULT_SPLITTING.split_sizes

    def split_sizes_for(
        self, path: str, dimension_names: Sequence[str | None] | None, num_chunks: Sequence[int]
    ) -> tuple[int, ...]:
        """Return the chunks of one manifest along each dimension; see ``manifest_config.split_sizes_for``."""
        return split_sizes_for(self.splitting, path, dimension_names, num_chunks)

    def preloads(self, path: str, num_refs: int) -> bool:
        """Return whether to load the manifests of this array when a session opens."""
        return num_refs <= self.preload_max_total_refs and self.preload_if.holds(path, num_refs)
