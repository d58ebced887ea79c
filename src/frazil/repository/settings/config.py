"""The configuration of a repository: values with every field optional, None meaning "the default".

Three layers are merged when a repository opens: what the caller says, over what is persisted in the
repository, over what its kind of storage does by default (``opened_with``). Persisting is in
``config_document``; what finally holds, with no None left, is in ``engine_settings``.

Frazil adds settings of its own: ``packing``, ``chunks``, ``session_lifetime`` and ``fast_forward_timeout``.
They are persisted beside the others, where the reference neither reads nor disturbs them (but its
``save_config`` drops them).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final

from frazil.display import Check, Default, Settings, instance, span, unsigned
from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.settings.manifest_config import ManifestConfig
from frazil.repository.settings.virtual_containers import VirtualChunkContainer
from frazil.storage.option_names import shown_url
from frazil.storage.settings import StorageRetriesSettings, StorageSettings, merged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from frazil.display import Shown

#: The longest life of a writable session.
MAX_SESSION_LIFETIME: Final = timedelta(days=7)
DEFAULT_SESSION_LIFETIME: Final = timedelta(hours=24)


class CompressionAlgorithm(IntEnum):
    """How metadata files are compressed."""

    Zstd = 0

    __str__ = Enum.__str__

    def __repr__(self) -> str:
        return f"CompressionAlgorithm.{self.name}"

    @staticmethod
    def default() -> CompressionAlgorithm:
        """Zstd, the only one."""
        return CompressionAlgorithm.Zstd


@dataclass(slots=True, repr=False)
class CompressionConfig(Settings):
    """Compression of metadata files (not of chunks: that is their codec's)."""

    algorithm: CompressionAlgorithm | None = None
    level: int | None = None

    shown_as: ClassVar[str] = "config.CompressionConfig"
    _fields: ClassVar[dict[str, Default | None]] = {"algorithm": Default("Zstd"), "level": Default(3)}
    _checks: ClassVar[dict[str, Check]] = {
        "algorithm": instance(CompressionAlgorithm),
        "level": unsigned(8),
    }

    @staticmethod
    def default() -> CompressionConfig:
        """All fields None."""
        return CompressionConfig()

    @staticmethod
    def _shown(value: Any, default: Default | None) -> Shown:
        if isinstance(value, CompressionAlgorithm):
            return value.name
        return Settings._shown(value, default)


@dataclass(slots=True, repr=False)
class CachingConfig(Settings):
    """Sizes of the caches of a repository, each in the unit of its name.

    A node counts as 1 KiB, a chunk reference as 64 bytes; larger ones count as several. A snapshot counts as
    at least 1,000 nodes and a manifest as at least 2,000 references, so that many small files do not take
    more memory than a few large ones. The file that was used last always stays.
    """

    num_snapshot_nodes: int | None = None
    num_chunk_refs: int | None = None
    num_transaction_changes: int | None = None
    num_bytes_attributes: int | None = None
    num_bytes_chunks: int | None = None

    shown_as: ClassVar[str] = "config.CachingConfig"
    _fields: ClassVar[dict[str, Default | None]] = {
        "num_snapshot_nodes": Default(500_000),
        "num_chunk_refs": Default(15_000_000),
        "num_transaction_changes": Default(0),
        "num_bytes_attributes": Default(0),
        "num_bytes_chunks": Default(0),
    }
    _checks: ClassVar[dict[str, Check]] = dict.fromkeys(_fields, unsigned(64))

    @staticmethod
    def default() -> CachingConfig:
        """All fields None."""
        return CachingConfig()


#: How often and how fast a conditional update of the repository is tried again after a conflict.
REPO_UPDATE_RETRIES: Final = (100, 50, 30_000)


@dataclass(slots=True, repr=False)
class RepoUpdateRetryConfig(Settings):
    """Retries of updates to the repository that met another writer's."""

    default: StorageRetriesSettings | None = None

    shown_as: ClassVar[str] = "config.RepoUpdateRetryConfig"
    _fields: ClassVar[dict[str, Default | None]] = {
        "default": Default(StorageRetriesSettings(*REPO_UPDATE_RETRIES))
    }
    _checks: ClassVar[dict[str, Check]] = {"default": instance(StorageRetriesSettings)}


@dataclass(slots=True, repr=False)
class PackingConfig(Settings):
    """Packing of small chunks into common files (Frazil only; every reader of the format reads them).

    Chunks of fewer than ``threshold_bytes`` are gathered in files of about ``pack_size_bytes``.
    """

    enabled: bool | None = None
    threshold_bytes: int | None = None
    pack_size_bytes: int | None = None

    shown_as: ClassVar[str] = "config.PackingConfig"
    _fields: ClassVar[dict[str, Default | None]] = {
        "enabled": Default(True),
        "threshold_bytes": Default(1024 * 1024),
        "pack_size_bytes": Default(16 * 1024 * 1024),
    }
    _checks: ClassVar[dict[str, Check]] = {
        "enabled": instance(bool),
        "threshold_bytes": unsigned(63),
        "pack_size_bytes": unsigned(63, zero=False),
    }


@dataclass(slots=True, repr=False)
class ChunksConfig(Settings):
    """How chunks are stored (Frazil only; every reader of the format reads them).

    With ``deduplicate``, chunk files are named by the SHA-256 of their bytes, and bytes that are stored
    already are not stored again: whoever wrote them, in whatever session. Chunks that are packed
    (``PackingConfig``) are recognised within one session. ``compare`` (on unless turned off) reads what was
    found before trusting it: leave it on where others choose the bytes that you write.
    """

    deduplicate: bool | None = None
    compare: bool | None = None

    shown_as: ClassVar[str] = "config.ChunksConfig"
    _fields: ClassVar[dict[str, Default | None]] = {"deduplicate": Default(False), "compare": Default(True)}
    _checks: ClassVar[dict[str, Check]] = {"deduplicate": instance(bool), "compare": instance(bool)}


def _timeout(name: str, value: Any) -> None:
    instance(timedelta)(name, value)
    if value is not None and not timedelta(0) <= value <= MAX_SESSION_LIFETIME:
        raise InvalidInputError(
            f"{name} must be between 0 and {span(MAX_SESSION_LIFETIME)}, got {span(value)}",
            ErrorKind.INVALID_COMMIT_CONFIGURATION,
        )


def check_session_lifetime(name: str, value: Any) -> None:
    """Raise ``TypeError``, or ``InvalidInputError`` for a time that is not above 0 and at most 7 days."""
    instance(timedelta)(name, value)
    if value is not None and not timedelta(0) < value <= MAX_SESSION_LIFETIME:
        raise InvalidInputError(
            f"{name} must be more than 0 and at most {span(MAX_SESSION_LIFETIME)}, got {span(value)}",
            ErrorKind.INVALID_COMMIT_CONFIGURATION,
        )


def _containers(name: str, value: Any) -> None:
    instance(dict)(name, value)
    for prefix, container in (value or {}).items():
        if not isinstance(prefix, str) or not isinstance(container, VirtualChunkContainer):
            actual = f"{type(prefix).__name__} to {type(container).__name__}"
            raise TypeError(f"{name}: expected a dict of str to VirtualChunkContainer, found one of {actual}")


def available_cpus() -> int:
    """Processors that this process may use."""
    count = getattr(os, "process_cpu_count", os.cpu_count)() or 1
    affinity = getattr(os, "sched_getaffinity", None)
    return min(count, len(affinity(0))) if affinity is not None else count


@dataclass(slots=True, repr=False, init=False)
class RepositoryConfig(Settings):
    """Configuration of a repository. Every field is optional and can be assigned.

    ``virtual_chunk_containers`` are keyed by their ``url_prefix``. ``session_lifetime`` is at most 7 days;
    a commit of an older session is refused. ``fast_forward_timeout``: for so long a commit that meets others
    goes on top of them if there is no conflict, and tries again (nothing: it raises ``ConflictError`` at
    once).

    >>> config = RepositoryConfig(inline_chunk_threshold_bytes=0)
    >>> config.compression = CompressionConfig(level=9)
    >>> config.merge(RepositoryConfig(inline_chunk_threshold_bytes=100)).inline_chunk_threshold_bytes
    100
    """

    inline_chunk_threshold_bytes: int | None
    get_partial_values_concurrency: int | None
    compression: CompressionConfig | None
    max_concurrent_requests: int | None
    caching: CachingConfig | None
    storage: StorageSettings | None
    virtual_chunk_containers: dict[str, VirtualChunkContainer] | None
    manifest: ManifestConfig | None
    repo_update_retries: RepoUpdateRetryConfig | None
    num_updates_per_repo_info_file: int | None
    max_concurrent_decodes: int | None
    packing: PackingConfig | None
    chunks: ChunksConfig | None
    fast_forward_timeout: timedelta | None
    session_lifetime: timedelta | None
    previous_file: str | None

    shown_as: ClassVar[str] = "config.RepositoryConfig"
    _fields: ClassVar[dict[str, Default | None]] = {
        "inline_chunk_threshold_bytes": Default(512),
        "get_partial_values_concurrency": Default(10),
        "max_concurrent_requests": Default(256),
        "max_concurrent_decodes": Default(available_cpus()),
        "num_updates_per_repo_info_file": Default(1000),
        "compression": Default(CompressionConfig()),
        "caching": Default(CachingConfig()),
        "storage": None,
        "manifest": Default(ManifestConfig()),
        "repo_update_retries": Default(RepoUpdateRetryConfig()),
        "virtual_chunk_containers": None,
        "packing": Default(PackingConfig()),
        "chunks": Default(ChunksConfig()),
        "fast_forward_timeout": Default(str(timedelta(0))),
        "session_lifetime": Default(str(DEFAULT_SESSION_LIFETIME)),
    }
    _checks: ClassVar[dict[str, Check]] = {
        "inline_chunk_threshold_bytes": unsigned(16),
        "get_partial_values_concurrency": unsigned(16),
        "max_concurrent_requests": unsigned(16),
        "max_concurrent_decodes": unsigned(16),
        "num_updates_per_repo_info_file": unsigned(16),
        "compression": instance(CompressionConfig),
        "caching": instance(CachingConfig),
        "storage": instance(StorageSettings),
        "manifest": instance(ManifestConfig),
        "repo_update_retries": instance(RepoUpdateRetryConfig),
        "virtual_chunk_containers": _containers,
        "packing": instance(PackingConfig),
        "chunks": instance(ChunksConfig),
        "fast_forward_timeout": _timeout,
        "session_lifetime": check_session_lifetime,
    }

    def __init__(
        self,
        inline_chunk_threshold_bytes: int | None = None,
        get_partial_values_concurrency: int | None = None,
        compression: CompressionConfig | None = None,
        max_concurrent_requests: int | None = None,
        caching: CachingConfig | None = None,
        storage: StorageSettings | None = None,
        virtual_chunk_containers: dict[str, VirtualChunkContainer] | None = None,
        manifest: ManifestConfig | None = None,
        repo_update_retries: RepoUpdateRetryConfig | None = None,
        num_updates_per_repo_info_file: int | None = None,
        max_concurrent_decodes: int | None = None,
        *,
        packing: PackingConfig | None = None,
        chunks: ChunksConfig | None = None,
        fast_forward_timeout: timedelta | None = None,
        session_lifetime: timedelta | None = None,
    ) -> None:
        self.inline_chunk_threshold_bytes = inline_chunk_threshold_bytes
        self.get_partial_values_concurrency = get_partial_values_concurrency
        self.compression = compression
        self.max_concurrent_requests = max_concurrent_requests
        self.caching = caching
        self.storage = storage
        self.virtual_chunk_containers = virtual_chunk_containers
        self.manifest = manifest
        self.repo_update_retries = repo_update_retries
        self.num_updates_per_repo_info_file = num_updates_per_repo_info_file
        self.max_concurrent_decodes = max_concurrent_decodes
        self.packing = packing
        self.chunks = chunks
        self.fast_forward_timeout = fast_forward_timeout
        self.session_lifetime = session_lifetime
        self.previous_file = None

    @staticmethod
    def default() -> RepositoryConfig:
        """All fields None."""
        return RepositoryConfig()

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        for name, shown in Settings._rows(self):
            yield name, "{}" if shown == {} else shown

    def _displayed(self, name: str) -> Any:
        value = getattr(self, name)
        if name != "virtual_chunk_containers" or value is None:
            return value
        return {shown_url(prefix): container for prefix, container in value.items()}

    def get_virtual_chunk_container(self, name: str) -> VirtualChunkContainer | None:
        """The container under this key (its ``url_prefix``), or None."""
        return (self.virtual_chunk_containers or {}).get(name)

    def set_virtual_chunk_container(self, cont: VirtualChunkContainer) -> None:
        """Add a container, or replace the one with the same ``url_prefix``."""
        cont.validate()
        self.virtual_chunk_containers = {**(self.virtual_chunk_containers or {}), cont.url_prefix: cont}

    def clear_virtual_chunk_containers(self) -> None:
        """Leave no container (an empty dict, which is not None)."""
        self.virtual_chunk_containers = {}

    def validate(self) -> None:
        """Raise ``InvalidInputError`` if a virtual chunk container is not usable."""
        for container in (self.virtual_chunk_containers or {}).values():
            container.validate()

    def merge(self, other: RepositoryConfig) -> RepositoryConfig:
        """A new configuration: ``other`` where it says something, this one where it does not.

        Nested settings are merged field by field, but preloading and splitting go as a whole; containers
        of both are kept, ``other``'s where the keys are the same.
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
    """What holds for an opened repository: the caller's, over the persisted, over the storage's defaults.

    Unlike in ``RepositoryConfig.merge``, the caller's virtual chunk containers replace the persisted.
    """
    config = RepositoryConfig(storage=storage)
    for layer in (persisted, user):
        if layer is not None:
            config = _over(layer, config)
    return config
