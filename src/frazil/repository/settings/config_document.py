"""The saved form of the configuration: a map in the file ``repo``, as a FlexBuffer.

The map has the same keys as in the reference implementation. All keys are present, null means the default,
and the names of variants have mixed cases (``name_matches``, but ``Axis`` and ``Included``). Frazil's
additional options are under the key ``frazil``, which is absent if none of them is set. The reference
implementation ignores it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from frazil.errors import ErrorKind, FormatError, InvalidInputError
from frazil.repository.settings.condition_forms import PRELOAD_CONDITION, SPLIT_SIZES
from frazil.repository.settings.config import (
    CachingConfig,
    ChunksConfig,
    CompressionAlgorithm,
    CompressionConfig,
    PackingConfig,
    RepositoryConfig,
    RepoUpdateRetryConfig,
)
from frazil.repository.settings.forms import (
    Form,
    as_map,
    as_text,
    enumeration,
    plain_struct,
    read_optional,
    struct,
    unexpected,
    write_optional,
)
from frazil.repository.settings.manifest_config import (
    AUTO,
    ManifestConfig,
    ManifestPreloadConfig,
    ManifestSplittingConfig,
    ManifestVirtualChunkLocationCompressionConfig,
)
from frazil.repository.settings.store_forms import CONTAINERS
from frazil.storage.settings import (
    StorageConcurrencySettings,
    StorageRetriesSettings,
    StorageSettings,
    StorageTimeoutSettings,
)

RETRIES: Final = plain_struct(StorageRetriesSettings, "initial_backoff_ms", "max_backoff_ms", "max_tries")

STORAGE: Final = plain_struct(
    StorageSettings,
    "chunks_storage_class",
    "metadata_storage_class",
    "minimum_size_for_multipart_upload",
    "storage_class",
    "unsafe_use_conditional_create",
    "unsafe_use_conditional_update",
    "unsafe_use_metadata",
    concurrency=plain_struct(
        StorageConcurrencySettings, "ideal_concurrent_request_size", "max_concurrent_requests_for_object"
    ),
    retries=RETRIES,
    timeouts=plain_struct(
        StorageTimeoutSettings,
        "connect_timeout_ms",
        "operation_attempt_timeout_ms",
        "operation_timeout_ms",
        "read_timeout_ms",
    ),
)

SPLITTING: Final = struct(ManifestSplittingConfig, {"split_sizes": SPLIT_SIZES})
#: The value ``AUTO`` is stored under ``frazil``. Other implementations see that no rules are saved.
RULES: Final = Form(lambda value: None if value == AUTO else SPLITTING.write(value), SPLITTING.read)
MANIFEST: Final = plain_struct(
    ManifestConfig,
    "max_concurrent_manifest_fetches_during_commit",
    preload=plain_struct(
        ManifestPreloadConfig, "max_arrays_to_scan", "max_total_refs", preload_if=PRELOAD_CONDITION
    ),
    splitting=RULES,
    virtual_chunk_location_compression=plain_struct(
        ManifestVirtualChunkLocationCompressionConfig,
        "compression_level",
        "dictionary_max_size_bytes",
        "dictionary_max_training_samples",
        "min_num_chunks",
    ),
)

CONFIG: Final = plain_struct(
    RepositoryConfig,
    "get_partial_values_concurrency",
    "inline_chunk_threshold_bytes",
    "max_concurrent_decodes",
    "max_concurrent_requests",
    "num_updates_per_repo_info_file",
    caching=plain_struct(
        CachingConfig,
        "num_bytes_attributes",
        "num_bytes_chunks",
        "num_chunk_refs",
        "num_snapshot_nodes",
        "num_transaction_changes",
    ),
    compression=plain_struct(
        CompressionConfig, "level", algorithm=enumeration({CompressionAlgorithm.Zstd: "zstd"})
    ),
    manifest=MANIFEST,
    repo_update_retries=struct(RepoUpdateRetryConfig, {"default": RETRIES}),
    storage=STORAGE,
    virtual_chunk_containers=CONTAINERS,
)


def _read_seconds(value: Any) -> timedelta:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise unexpected(f"expected a number of seconds, got {value!r:.80}")
    return timedelta(seconds=value)


SECONDS: Final = Form(lambda value: value.total_seconds(), _read_seconds)

#: Field of the configuration -> key under ``frazil``, and its form.
OWN: Final[dict[str, tuple[str, Form]]] = {
    "packing": ("packing", plain_struct(PackingConfig, "enabled", "pack_size_bytes", "threshold_bytes")),
    "chunks": ("chunks", plain_struct(ChunksConfig, "checksums", "compare", "deduplicate")),
    "fast_forward_timeout": ("fast_forward_timeout_seconds", SECONDS),
    "session_lifetime": ("session_lifetime_seconds", SECONDS),
}


#: The key under ``frazil`` of the splitting by the number of references.
_SPLITTING: Final = "splitting"


def _read_auto(value: Any) -> str:
    if value != AUTO:
        raise unexpected(f"expected {AUTO!r} or null, got {value!r:.80}")
    return AUTO


_AUTO_FORM: Final = Form(str, _read_auto)


def splitting_document(splitting: ManifestSplittingConfig) -> dict[str, Any]:
    """Return the splitting of manifests as a part of a saved configuration."""
    document: dict[str, Any] = SPLITTING.write(splitting)
    return document


#: The keys whose values are regular expressions.
_EXPRESSIONS: Final = ("regex", "DimensionName")
#: The largest number of regular expressions. Each may take 10 ms to compile, and 256 KiB of memory.
_MOST_EXPRESSIONS: Final = 1000


def _require_few_expressions(document: dict[str, Any]) -> None:
    """Refuse a saved configuration with more regular expressions than the limit."""
    pending: list[Any] = [document.get("manifest")]
    count = 0
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            count += sum(isinstance(value.get(key), str) for key in _EXPRESSIONS)
            pending += value.values()
        elif isinstance(value, list | tuple):
            pending += value
    if count > _MOST_EXPRESSIONS:
        raise InvalidInputError(
            f"expected at most {_MOST_EXPRESSIONS} regular expressions in a saved configuration, got "
            f"{count}. Combine some of them with `|`",
            ErrorKind.CONFIG_DESERIALIZATION,
        )


def to_document(config: RepositoryConfig) -> dict[str, Any]:
    """Return the configuration as the map that is saved.

    >>> to_document(RepositoryConfig(inline_chunk_threshold_bytes=100))["inline_chunk_threshold_bytes"]
    100
    """
    document: dict[str, Any] = CONFIG.write(config)
    _require_few_expressions(document)
    document["previous_file"] = config.previous_file
    own = {key: write_optional(form, getattr(config, name)) for name, (key, form) in OWN.items()}
    if config.manifest is not None and config.manifest.splitting == AUTO:
        own[_SPLITTING] = AUTO
    if any(value is not None for value in own.values()):
        document["frazil"] = own
    return document


def _set_splitting(config: RepositoryConfig, splitting: str | None) -> None:
    """Set the splitting that is saved under ``frazil``. Rules that another implementation saved win."""
    if splitting is None:
        return
    if config.manifest is None:
        config.manifest = ManifestConfig()
    if config.manifest.splitting is None:
        config.manifest.splitting = AUTO


def from_document(document: Any) -> RepositoryConfig:
    """Return the configuration that a saved map contains."""
    try:
        config: RepositoryConfig = CONFIG.read(document)
        _require_few_expressions(document)
        previous_file = as_map(document).get("previous_file")
        config.previous_file = None if previous_file is None else as_text(previous_file)
        own = document.get("frazil")
        if own is not None:
            for name, (key, form) in OWN.items():
                setattr(config, name, read_optional(form, f"frazil.{key}", as_map(own).get(key)))
            _set_splitting(config, read_optional(_AUTO_FORM, "frazil.splitting", own.get(_SPLITTING)))
    except (FormatError, InvalidInputError, TypeError) as error:
        raise FormatError(
            f"configuration of the repository: {error}", ErrorKind.CONFIG_DESERIALIZATION
        ) from None
    return config
