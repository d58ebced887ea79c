"""What holds in a repository: the configuration with all defaults, and the features that are on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from frazil.display import some_of, suggest
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.chunk_trailer import IS_FAST
from frazil.format.manifest import LocationCompression
from frazil.format.repo_info import RepoInfo
from frazil.options import with_defaults
from frazil.repository.settings.conditions import COORDINATE_NAMES, ManifestPreloadCondition
from frazil.repository.settings.config import RepositoryConfig
from frazil.repository.settings.manifest_config import (
    AUTO,
    DEFAULT_SPLITTING,
    ManifestConfig,
    ManifestSplittingConfig,
)
from frazil.storage.settings import StorageSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.repository.settings.config import VirtualChunkContainer


@dataclass(frozen=True, slots=True)
class Flag:
    """A feature: its id in the format, its name, and whether it is on by default."""

    id: int
    name: str
    default_enabled: bool = True


MOVE_NODE: Final = Flag(3, "move_node")
CREATE_TAG: Final = Flag(4, "create_tag")
DELETE_TAG: Final = Flag(5, "delete_tag")
#: In the order of ``Repository.feature_flags``.
FLAGS: Final = (CREATE_TAG, DELETE_TAG, MOVE_NODE)


def flag_named(name: str) -> Flag:
    """Return the feature with this name."""
    for flag in FLAGS:
        if flag.name == name:
            return flag
    raise InvalidInputError(
        f"unknown feature flag `{name}`. Use one of {some_of([flag.name for flag in FLAGS], len(FLAGS))}"
        f"{suggest(name, [flag.name for flag in FLAGS])}",
        ErrorKind.INVALID_FEATURE_FLAG,
    )


def setting_of(info: RepoInfo, flag: Flag) -> bool | None:
    """Return the setting of a feature in a repository; None if it has none."""
    if flag.id in info.enabled_flags:
        return True
    return False if flag.id in info.disabled_flags else None


#: Small coordinate arrays, by their usual names.
DEFAULT_PRELOAD: Final = ManifestPreloadCondition.and_conditions(
    [
        ManifestPreloadCondition.name_matches(COORDINATE_NAMES),
        ManifestPreloadCondition.num_refs(0, 1001),
    ]
)


#: The highest level of zstd. Higher levels count as this one.
_MAX_LEVEL: Final = 22


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """The configuration with a value for every option.

    >>> ResolvedConfig.of(RepositoryConfig()).inline_chunk_threshold_bytes
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
    #: None: a small cache for remote virtual chunks alone.
    cached_chunk_bytes: int | None

    preload_max_total_refs: int
    preload_if: ManifestPreloadCondition
    preload_max_arrays_to_scan: int
    splitting: ManifestSplittingConfig
    #: Whether the number of references decides about the splitting (``AUTO``).
    has_windows: bool
    locations: LocationCompression
    concurrent_manifest_fetches: int

    #: The number of tries, and the first and the longest pause in milliseconds.
    repo_update_retries: tuple[int, int, int]
    packing: bool
    pack_threshold_bytes: int
    pack_size_bytes: int
    deduplicate: bool
    compare_chunks: bool
    checksums: bool
    statistics: bool
    fast_forward_timeout: timedelta
    session_lifetime: timedelta
    storage: StorageSettings
    virtual_chunk_containers: Mapping[str, VirtualChunkContainer]

    @staticmethod
    def of(config: RepositoryConfig) -> ResolvedConfig:
        """Return the configuration with all defaults."""
        full = with_defaults(config)
        retries = full.repo_update_retries.default
        manifest, locations = full.manifest, full.manifest.virtual_chunk_location_compression
        source = ManifestConfig() if config.manifest is None else config.manifest
        splitting = source.splitting
        if not isinstance(splitting, ManifestSplittingConfig) or splitting.split_sizes is None:
            splitting = DEFAULT_SPLITTING
        checksums = None if config.chunks is None else config.chunks.checksums
        partial_values = config.get_partial_values_concurrency
        return ResolvedConfig(
            inline_chunk_threshold_bytes=full.inline_chunk_threshold_bytes,
            get_partial_values_concurrency=None if partial_values is None else max(1, partial_values),
            max_concurrent_requests=full.max_concurrent_requests or 1,
            max_concurrent_decodes=full.max_concurrent_decodes or 1,
            # At least 1: the file must contain its newest update, where the walk of the ops log begins.
            num_updates_per_repo_info_file=full.num_updates_per_repo_info_file or 1,
            compression_level=min(full.compression.level, _MAX_LEVEL),
            cached_snapshot_nodes=full.caching.num_snapshot_nodes,
            cached_chunk_refs=full.caching.num_chunk_refs,
            cached_chunk_bytes=None if config.caching is None else config.caching.num_bytes_chunks,
            preload_max_total_refs=manifest.preload.max_total_refs,
            preload_if=manifest.preload.preload_if or DEFAULT_PRELOAD,
            preload_max_arrays_to_scan=manifest.preload.max_arrays_to_scan,
            splitting=splitting,
            has_windows=source.splitting == AUTO,
            locations=LocationCompression(
                locations.min_num_chunks,
                locations.dictionary_max_training_samples,
                locations.dictionary_max_size_bytes,
                min(locations.compression_level, _MAX_LEVEL),
            ),
            concurrent_manifest_fetches=manifest.max_concurrent_manifest_fetches_during_commit or 1,
            repo_update_retries=(retries.max_tries, retries.initial_backoff_ms, retries.max_backoff_ms),
            packing=full.packing.enabled,
            pack_threshold_bytes=full.packing.threshold_bytes,
            pack_size_bytes=full.packing.pack_size_bytes,
            deduplicate=full.chunks.deduplicate,
            compare_chunks=full.chunks.compare,
            checksums=IS_FAST if checksums is None else checksums,
            statistics=full.chunks.statistics,
            fast_forward_timeout=full.fast_forward_timeout,
            session_lifetime=full.session_lifetime,
            storage=StorageSettings() if config.storage is None else config.storage,
            virtual_chunk_containers=dict(config.virtual_chunk_containers or {}),
        )

    def preloads(self, path: str, num_refs: int) -> bool:
        """Return whether to load the manifests of this array when a session opens."""
        return num_refs <= self.preload_max_total_refs and self.preload_if.holds(path, num_refs)
