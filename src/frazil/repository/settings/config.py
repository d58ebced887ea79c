"""The configuration of a repository, with its containers of virtual chunks.

When a repository opens, the options of the caller override the saved configuration (``config_document``),
which overrides the defaults of the storage (``opened_with``). ``ResolvedConfig`` has the values with all
defaults.

The options ``packing``, ``chunks``, ``session_lifetime`` and ``fast_forward_timeout`` are Frazil's own. The
reference implementation leaves them unchanged, except that its ``save_config`` drops them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from enum import Enum, IntEnum
from typing import Any, ClassVar, Final, Self
from urllib.parse import urlsplit

from frazil.arguments import require_choice, wrong_type
from frazil.display import Shown, some_of, span, suggest
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.chunk_trailer import IS_FAST
from frazil.format.manifest import LocationCompression
from frazil.format.repo_info import RepoInfo
from frazil.options import Check, Settings, merged, option, unsigned, with_defaults
from frazil.repository.settings.conditions import COORDINATE_NAMES, ManifestPreloadCondition
from frazil.repository.settings.manifest_config import (
    AUTO,
    DEFAULT_SPLITTING,
    ManifestConfig,
    ManifestSplittingConfig,
)
from frazil.storage.access import require_scheme
from frazil.storage.object_store_config import AnyObjectStoreConfig, ObjectStoreConfig
from frazil.storage.option_names import check_headers, shown_url
from frazil.storage.settings import StorageRetriesSettings, StorageSettings
from frazil.threads import SIZES, Purpose


def _on_changed(name: str, value: Any) -> None:
    if value is not None:
        require_choice(name, value, ("raise", "warn"))


@dataclass(slots=True, repr=False)
class VirtualChunkContainer(Settings):
    """A prefix of virtual references, with the access to it.

    Attributes:
        url_prefix: The beginning of all locations in this container. It must end with ``/``.
        store: The kind of storage, with its options.
        name: The name for relative locations, ``vcc://<name>/<path>``. Default: no name.
        on_changed: What a read of a file does whose etag or time differs from the reference: "raise" an
            error, or "warn" once for each file and return the data. It is not saved, because each reader
            decides. Default: "raise".

    Examples:
        >>> from frazil.storage.object_store_config import s3_store
        >>> container = VirtualChunkContainer("s3://bucket/era5/", s3_store(region="eu-west-1"))
        >>> container.validate()
        >>> container.as_own() == container
        True
    """

    url_prefix: str
    store: AnyObjectStoreConfig
    name: str | None = None
    on_changed: str | None = option("raise", _on_changed)
    #: Whether it was read from a repository, so that it is only a hint: see ``frazil.storage.access``.
    from_repository: bool = field(default=False, init=False, repr=False, compare=False)

    shown_as: ClassVar[str] = "virtual.VirtualChunkContainer"
    order: ClassVar[tuple[str, ...]] = ("name",)

    def validate(self) -> None:
        """Raise an error if the prefix, the store and the name do not fit together.

        Raises:
            InvalidInputError: ``invalid-virtual-ref`` if they do not.
        """
        if not self.url_prefix.endswith("/"):
            raise _invalid("url_prefix must end with /", self.url_prefix)
        url = urlsplit(self.url_prefix)
        require_scheme(self.store, self.url_prefix)
        if url.scheme in ("s3", "tigris") and not url.netloc:
            raise _invalid("url_prefix must contain a bucket", self.url_prefix)
        if self.name is not None and (not self.name or "/" in self.name):
            raise _invalid("name must not be empty or contain /", repr(self.name))
        if isinstance(self.store, ObjectStoreConfig.Http):
            check_headers(self.store.headers)

    def as_own(self) -> VirtualChunkContainer:
        """Return a copy that counts as configured by the caller, even if a repository saved this container.

        A repository may not choose the server, files and secrets that its readers use. Check a saved
        container first, then set its copy in the configuration that you open the repository with.

        Returns:
            The copy.
        """
        return VirtualChunkContainer(self.url_prefix, deepcopy(self.store), self.name, self.on_changed)

    def _displayed(self, name: str) -> Any:
        value = getattr(self, name)
        return shown_url(value) if name == "url_prefix" else value


def _invalid(expected: str, actual: str) -> InvalidInputError:
    return InvalidInputError(
        f"virtual chunk container: {expected}, got {shown_url(actual)}", ErrorKind.INVALID_VIRTUAL_REF
    )


@dataclass(frozen=True, slots=True)
class VirtualChunkSpec:
    """One chunk to set as a virtual chunk: its index in the chunk grid, and its range of bytes.

    If a checksum is given, reading another version of the object raises an error.

    Attributes:
        index: The index of the chunk in the chunk grid.
        location: The URL of the object, or a relative location ``vcc://<name>/<path>``.
        offset: Where the chunk begins in the object, in bytes.
        length: The length of the chunk in bytes.
        etag_checksum: The etag of the object.
        last_updated_at_checksum: The latest allowed modification time of the object, with a time zone.
    """

    index: list[int] = field(hash=False)
    location: str
    offset: int
    length: int
    etag_checksum: str | None = None
    last_updated_at_checksum: datetime | None = None

    def __post_init__(self) -> None:
        index: Any = self.index
        if isinstance(index, str | bytes) or not hasattr(index, "__len__") or getattr(index, "ndim", 1) == 0:
            raise TypeError(f"index must be a sequence of integers, got {type(index).__name__}")
        for i in index:
            unsigned(32)("index", i)
        object.__setattr__(self, "index", list(index))
        unsigned(64)("offset", self.offset)
        unsigned(64)("length", self.length)
        moment = self.last_updated_at_checksum
        if moment is not None and (not isinstance(moment, datetime) or moment.tzinfo is None):
            raise TypeError(f"last_updated_at_checksum must be a datetime with a time zone, got {moment}")


#: The longest lifetime of a writable session.
MAX_SESSION_LIFETIME: Final = timedelta(days=7)
DEFAULT_SESSION_LIFETIME: Final = timedelta(hours=24)


class CompressionAlgorithm(IntEnum):
    """The compression of metadata files."""

    Zstd = 0

    __str__ = Enum.__str__

    def __repr__(self) -> str:
        return f"CompressionAlgorithm.{self.name}"

    @staticmethod
    def default() -> CompressionAlgorithm:
        """Return Zstd, the only algorithm."""
        return CompressionAlgorithm.Zstd


class DefaultSettings:
    """The base of configurations with the method ``default``, as in the reference."""

    __slots__ = ()

    @classmethod
    def default(cls) -> Self:
        """Return a configuration in which all fields are None.

        Returns:
            The same as a call of the class without arguments.
        """
        return cls()


@dataclass(slots=True, repr=False)
class CompressionConfig(DefaultSettings, Settings):
    """Compression of metadata files. Chunks are compressed by their own codecs.

    Attributes:
        algorithm: The algorithm. Default: Zstd.
        level: The level. Default: 3. Levels above 22 count as 22.

    Examples:
        >>> CompressionConfig.default() == CompressionConfig()
        True
    """

    algorithm: CompressionAlgorithm | None = option("Zstd")
    level: int | None = option(3, unsigned(8))

    @staticmethod
    def _shown(value: Any, implied: Any) -> Shown:
        return value.name if isinstance(value, CompressionAlgorithm) else Settings._shown(value, implied)


@dataclass(slots=True, repr=False)
class CachingConfig(DefaultSettings, Settings):
    """Sizes of the caches of a repository.

    A node counts as 1 KiB and a chunk reference as 64 bytes; larger ones count as several. A snapshot counts
    as at least 1,000 nodes and a manifest as at least 2,000 references, so that many small files do not take
    more memory than a few large files. The most recently used file always stays in the cache.

    Attributes:
        num_snapshot_nodes: How many nodes of snapshots to cache. Default: 500,000.
        num_chunk_refs: How many chunk references of manifests to cache. Default: 15,000,000.
        num_transaction_changes: Accepted for compatibility, has no effect.
        num_bytes_attributes: Accepted for compatibility, has no effect.
        num_bytes_chunks: How many bytes of remote chunks to cache: virtual chunks with a checksum, and the
            repository's own chunks. Default: 64 MiB for virtual chunks with a checksum, 0 for own chunks.

    Examples:
        >>> CachingConfig.default() == CachingConfig()
        True
    """

    num_snapshot_nodes: int | None = option(500_000, unsigned(64))
    num_chunk_refs: int | None = option(15_000_000, unsigned(64))
    num_transaction_changes: int | None = option(0, unsigned(64))
    num_bytes_attributes: int | None = option(0, unsigned(64))
    num_bytes_chunks: int | None = option(0, unsigned(64))


#: Tries, first and longest pause (in ms) of a conditional update of the repository that meets conflicts.
REPO_UPDATE_RETRIES: Final = (100, 50, 30_000)


@dataclass(slots=True, repr=False)
class RepoUpdateRetryConfig(Settings):
    """Retries of repository updates that conflict with an update of another writer.

    Attributes:
        default: The retries. Default: 100 tries, with pauses of 50 ms to 30 s.
    """

    default: StorageRetriesSettings | None = option(StorageRetriesSettings(*REPO_UPDATE_RETRIES))


@dataclass(slots=True, repr=False)
class PackingConfig(Settings):
    """Packing of small chunks into common files.

    Only Frazil writes packs, but every reader of the format reads them.

    Attributes:
        enabled: Whether to pack chunks. Default: True.
        threshold_bytes: Chunks with fewer bytes are packed. Default: 1 MiB.
        pack_size_bytes: The approximate size of a pack. Default: 16 MiB.
    """

    enabled: bool | None = option(True)
    threshold_bytes: int | None = option(1 << 20, unsigned(63))
    pack_size_bytes: int | None = option(16 << 20, unsigned(63, zero=False))


@dataclass(slots=True, repr=False)
class ChunksConfig(Settings):
    """Deduplication, checksums and statistics of chunks. Every reader of the format reads such chunks.

    With ``deduplicate``, Frazil names chunk files by the SHA-256 of their bytes, and does not store bytes
    again that are already stored, in whatever session they were written. Packed chunks (``PackingConfig``)
    are deduplicated within one session only.

    Attributes:
        deduplicate: Whether to store identical chunks once. Default: False.
        compare: Whether to read the stored chunk and to compare its bytes before using it. Default: True. Do
            not turn it off where other people choose the bytes that you write.
        checksums: Whether to write the checksums of all chunks at the end of their files. ``verify`` then
            detects changed bytes. Default: True, but False where the package ``google-crc32c`` is installed
            without its compiled part.
        statistics: Whether to store statistics of the chunks that are written: the smallest and the largest
            element, sums and counts. ``frazil.reduce`` then answers without reading chunks. The attribute
            ``frazil_statistics`` of an array, true or false, overrides it. Default: False.
    """

    deduplicate: bool | None = option(False)
    compare: bool | None = option(True)
    checksums: bool | None = option(True)
    statistics: bool | None = option(False)


def _time(expected: str, least: timedelta) -> Check:
    """Return a check that accepts None and times from ``least`` to ``MAX_SESSION_LIFETIME``."""

    def check(name: str, value: Any) -> None:
        if value is not None and not isinstance(value, timedelta):
            raise wrong_type(name, value, "timedelta", "None")
        if value is not None and not least <= value <= MAX_SESSION_LIFETIME:
            raise InvalidInputError(
                f"{name} must be {expected} {span(MAX_SESSION_LIFETIME)}, got {span(value)}",
                ErrorKind.INVALID_COMMIT_CONFIGURATION,
            )

    return check


#: The check of a lifetime: more than 0, and at most 7 days.
check_session_lifetime: Final = _time("more than 0 and at most", timedelta(microseconds=1))


def _containers(name: str, value: Any) -> None:
    if value is not None and not isinstance(value, dict):
        raise wrong_type(name, value, "dict", "None")
    for prefix, container in (value or {}).items():
        if not isinstance(prefix, str) or not isinstance(container, VirtualChunkContainer):
            actual = f"{type(prefix).__name__} to {type(container).__name__}"
            raise TypeError(f"{name} must be a dict of str to VirtualChunkContainer, got one of {actual}")


def available_cpus() -> int:
    """Return how many processors this process may use."""
    count = getattr(os, "process_cpu_count", os.cpu_count)() or 1
    affinity = getattr(os, "sched_getaffinity", None)
    return min(count, len(affinity(0))) if affinity is not None else count


@dataclass(slots=True, repr=False)
class RepositoryConfig(DefaultSettings, Settings):
    """The configuration of a repository. Every field is optional and can be assigned; None means the default.

    Attributes:
        inline_chunk_threshold_bytes: Chunks of at most this many bytes are stored in the manifest. Default:
            512.
        get_partial_values_concurrency: How many ranges one call of ``get_partial_values`` reads at once.
            Default: all of them.
        compression: Compression of metadata files.
        max_concurrent_requests: How many requests for chunks one session sends at once. Default: 64.
        caching: Sizes of the caches.
        storage: Time-outs, retries, concurrency and storage classes.
        virtual_chunk_containers: Where virtual chunks may be, by ``url_prefix``. Default: none.
        manifest: Preloading, splitting and compression of manifests.
        repo_update_retries: Retries of repository updates that conflict with other updates.
        num_updates_per_repo_info_file: How many operations the file ``repo`` contains, at most. Default:
            1000.
        max_concurrent_decodes: Accepted for compatibility, has no effect.
        packing: Packing of small chunks into common files.
        chunks: Deduplication, checksums and statistics of chunks.
        fast_forward_timeout: How long to rebase and retry a late commit that does not conflict, at most 7
            days. Default: 0, so that a late commit raises ``ConflictError`` at once.
        session_lifetime: How long a writable session may commit, at most 7 days. Default: 24 hours. A commit
            of an older session is refused.
        previous_file: The value of this name in the saved configuration, unchanged.

    Examples:
        >>> config = RepositoryConfig(inline_chunk_threshold_bytes=0)
        >>> config.compression = CompressionConfig(level=9)
        >>> config.merge(RepositoryConfig(inline_chunk_threshold_bytes=100)).inline_chunk_threshold_bytes
        100
        >>> from frazil.storage.object_store_config import s3_store
        >>> config.set_virtual_chunk_container(VirtualChunkContainer("s3://bucket/", s3_store()))
        >>> config.validate()
        >>> config.get_virtual_chunk_container("s3://bucket/").name is None
        True
        >>> config.clear_virtual_chunk_containers()
        >>> config.virtual_chunk_containers, RepositoryConfig.default() == RepositoryConfig()
        ({}, True)
    """

    inline_chunk_threshold_bytes: int | None = option(512, unsigned(16))
    get_partial_values_concurrency: int | None = option("all", unsigned(16))
    compression: CompressionConfig | None = option(CompressionConfig())
    max_concurrent_requests: int | None = option(SIZES[Purpose.CHUNK_READS], unsigned(16))
    caching: CachingConfig | None = option(CachingConfig())
    storage: StorageSettings | None = None
    virtual_chunk_containers: dict[str, VirtualChunkContainer] | None = option(check=_containers)
    manifest: ManifestConfig | None = option(ManifestConfig())
    repo_update_retries: RepoUpdateRetryConfig | None = option(RepoUpdateRetryConfig())
    num_updates_per_repo_info_file: int | None = option(1000, unsigned(16))
    max_concurrent_decodes: int | None = option(available_cpus(), unsigned(16))
    _: KW_ONLY
    packing: PackingConfig | None = option(PackingConfig())
    chunks: ChunksConfig | None = option(ChunksConfig())
    fast_forward_timeout: timedelta | None = option(timedelta(0), _time("between 0 and", timedelta(0)))
    session_lifetime: timedelta | None = option(DEFAULT_SESSION_LIFETIME, check_session_lifetime)
    previous_file: str | None = field(default=None, init=False)

    order: ClassVar[tuple[str, ...]] = (
        "inline_chunk_threshold_bytes",
        "get_partial_values_concurrency",
        "max_concurrent_requests",
        "max_concurrent_decodes",
        "num_updates_per_repo_info_file",
        "compression",
        "caching",
        "storage",
        "manifest",
        "repo_update_retries",
    )

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        for name, shown in Settings._rows(self):
            yield name, "{}" if shown == {} else shown

    def _displayed(self, name: str) -> Any:
        value = getattr(self, name)
        if name != "virtual_chunk_containers" or value is None:
            return value
        return {shown_url(prefix): container for prefix, container in value.items()}

    def get_virtual_chunk_container(self, name: str) -> VirtualChunkContainer | None:
        """Return the virtual chunk container with this prefix.

        Args:
            name: The ``url_prefix`` of the container.

        Returns:
            The container, or None if there is no such container.
        """
        return (self.virtual_chunk_containers or {}).get(name)

    def set_virtual_chunk_container(self, cont: VirtualChunkContainer) -> None:
        """Add a virtual chunk container, or replace the container with the same ``url_prefix``.

        Args:
            cont: The container.

        Raises:
            InvalidInputError: ``invalid-virtual-ref`` if the container is not valid.
        """
        cont.validate()
        self.virtual_chunk_containers = {**(self.virtual_chunk_containers or {}), cont.url_prefix: cont}

    def clear_virtual_chunk_containers(self) -> None:
        """Remove all virtual chunk containers.

        The field becomes an empty dictionary. Unlike None, it overrides saved containers when a repository is
        opened.
        """
        self.virtual_chunk_containers = {}

    def validate(self) -> None:
        """Raise an error if a virtual chunk container is not valid.

        Raises:
            InvalidInputError: ``invalid-virtual-ref`` if the prefix, the store and the name of a container do
                not fit together.
        """
        for container in (self.virtual_chunk_containers or {}).values():
            container.validate()

    def merge(self, other: RepositoryConfig) -> RepositoryConfig:
        """Return a new configuration in which another configuration overrides this one.

        Nested configurations are merged field by field, except preloading and splitting, which are replaced
        as a whole. The result has the virtual chunk containers of both.

        Args:
            other: The overriding configuration. Its fields that are None do not override.

        Returns:
            The merged configuration.
        """
        result = _over(other, self)
        if other.virtual_chunk_containers is not None and self.virtual_chunk_containers is not None:
            result.virtual_chunk_containers = {
                **self.virtual_chunk_containers,
                **other.virtual_chunk_containers,
            }
        return result


def _over(over: RepositoryConfig, under: RepositoryConfig) -> RepositoryConfig:
    result = merged(over, under) or over
    result.previous_file = over.previous_file or under.previous_file
    return result


def opened_with(
    user: RepositoryConfig | None, persisted: RepositoryConfig | None, storage: StorageSettings
) -> RepositoryConfig:
    """Return the configuration of an opened repository.

    The caller's configuration overrides the saved one, which overrides the defaults of the storage. Unlike in
    ``RepositoryConfig.merge``, the virtual chunk containers of the caller replace the saved ones.
    """
    config = RepositoryConfig(storage=storage)
    for layer in (persisted, user):
        if layer is not None:
            config = _over(layer, config)
    return config


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
    [ManifestPreloadCondition.name_matches(COORDINATE_NAMES), ManifestPreloadCondition.num_refs(0, 1001)]
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
    #: None: a small cache, only for remote virtual chunks.
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
