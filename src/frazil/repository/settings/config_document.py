"""The persisted form of the configuration: a map in the repository file, as a FlexBuffer.

The shape is the reference's, key by key: all keys present, null for "the default"; names of variants in
its mixed cases (``name_matches``, but ``Axis`` and ``Included``). Frazil's own settings are under the one
key ``frazil``, which is absent when none of them is set; the reference ignores it.

Two tables describe both directions: a ``Form`` is how one type of value becomes JSON and comes back. Reading
ignores unknown keys and takes missing ones for null.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from frazil.errors import ErrorKind, FormatError, InvalidInputError
from frazil.format.flexbuffer import dumps, loads
from frazil.repository.settings.conditions import (
    ManifestPreloadCondition,
    ManifestSplitDimCondition,
    PreloadAnd,
    PreloadFalse,
    PreloadNameMatches,
    PreloadNumRefs,
    PreloadOr,
    PreloadPathMatches,
    PreloadTrue,
    SplitAnd,
    SplitAnyArray,
    SplitNameMatches,
    SplitOr,
    SplitPathMatches,
)
from frazil.repository.settings.config import (
    CachingConfig,
    ChunksConfig,
    CompressionAlgorithm,
    CompressionConfig,
    PackingConfig,
    RepositoryConfig,
    RepoUpdateRetryConfig,
)
from frazil.repository.settings.manifest_config import (
    ManifestConfig,
    ManifestPreloadConfig,
    ManifestSplittingConfig,
    ManifestVirtualChunkLocationCompressionConfig,
)
from frazil.repository.settings.virtual_containers import VirtualChunkContainer
from frazil.storage.object_store_config import ChecksumAlgorithm, ObjectStoreConfig, S3Options
from frazil.storage.settings import (
    StorageConcurrencySettings,
    StorageRetriesSettings,
    StorageSettings,
    StorageTimeoutSettings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Form:
    """How one type of value is written as JSON, and read back. None is null in every form."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


class Variant(dict[str, Any]):
    """A map of one key, the tag of a variant. In YAML, where tags have a form of their own, it has to be told
    from other maps.
    """


class _Unexpected(Exception):
    """What a document has where something else should be; becomes a ``FormatError`` with the path."""


def _write(form: Form, value: Any) -> Any:
    return None if value is None else form.write(value)


def _read(form: Form, key: str, value: Any) -> Any:
    if value is None:
        return None
    try:
        return form.read(value)
    except (_Unexpected, InvalidInputError, TypeError) as error:
        raise _Unexpected(f"{key}: {error}") from None


def _as_map(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Unexpected(f"expected a map, found {type(value).__name__}")
    return value


def _as_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _Unexpected(f"expected a list, found {type(value).__name__}")
    return value


def _as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Unexpected(f"expected text, found {type(value).__name__}")
    return value


# The classes check their own fields, so that a plain value passes as it is.
PLAIN: Final = Form(lambda value: value, lambda value: value)


def _struct(build: type, forms: Mapping[str, Form]) -> Form:
    """A map with these keys, for a class with these fields."""

    def write(value: Any) -> dict[str, Any]:
        return {name: _write(form, getattr(value, name)) for name, form in forms.items()}

    def read(value: Any) -> Any:
        given = _as_map(value)
        known = {name: _read(form, name, given.get(name)) for name, form in forms.items()}
        return build(**{name: found for name, found in known.items() if found is not None})

    return Form(write, read)


def _enum(names: Mapping[Any, str]) -> Form:
    values = {name: value for value, name in names.items()}

    def read(value: Any) -> Any:
        name = next(iter(value)) if isinstance(value, dict) and [*value.values()] == [None] else value
        if not isinstance(name, str) or name not in values:
            raise _Unexpected(f"expected one of {', '.join(values)}, found {value!r:.80}")
        return values[name]

    return Form(lambda value: names[value], read)


def _variants(table: Mapping[str, tuple[type, Form | None]]) -> Form:
    """One of several classes: its tag, or a map of one key if it holds something."""
    tags = {variant: tag for tag, (variant, _) in table.items()}

    def write(value: Any) -> Any:
        tag = tags[type(value)]
        form = table[tag][1]
        return tag if form is None else Variant({tag: form.write(value)})

    def read(value: Any) -> Any:
        if isinstance(value, str):
            tag, content = value, None
        elif isinstance(value, bool):  # the conditions "true" and "false", without quotes
            tag, content = str(value).lower(), None
        elif isinstance(value, dict) and len(value) == 1:
            tag, content = next(iter(value.items()))
        else:
            raise _Unexpected(f"expected a name, or a map of one key, found {value!r:.80}")
        if tag not in table:
            raise _Unexpected(f"expected one of {', '.join(table)}, found {tag!r:.80}")
        variant, form = table[tag]
        if form is None:
            return variant()
        found = _read(form, tag, content)
        if found is None:
            raise _Unexpected(f"{tag}: expected a value, found null")
        return found

    return Form(write, read)


def _inside(build: Callable[[Any], Any], name: str, form: Form = PLAIN) -> Form:
    """A class with one field, written as that field alone."""
    return Form(lambda value: form.write(getattr(value, name)), lambda value: build(form.read(value)))


def _regex(build: Callable[[str], Any]) -> Form:
    return Form(
        lambda value: {"regex": value.regex},
        lambda value: build(_as_text(_as_map(value).get("regex"))),
    )


def _several(build: Callable[[tuple[Any, ...]], Any], one: Callable[[], Form]) -> Form:
    return Form(
        lambda value: [one().write(condition) for condition in value.conditions],
        lambda value: build(tuple(one().read(condition) for condition in _as_list(value))),
    )


# --------------------------------------------------------------------------------------- conditions


def _bound(side: Any, tag: str) -> int | None:
    """One end of a range. Ranges are written from an included to an excluded end; others are read."""
    if side == "Unbounded":
        return None
    if isinstance(side, dict) and len(side) == 1:
        found, number = next(iter(side.items()))
        if found in ("Included", "Excluded") and isinstance(number, int):
            inside: int = number + int(found != tag)
            return inside
    raise _Unexpected(f"expected Unbounded, Included or Excluded, found {side!r:.80}")


NUM_REFS: Final = Form(
    lambda value: {
        "from": "Unbounded" if value.from_refs is None else Variant(Included=value.from_refs),
        "to": "Unbounded" if value.to_refs is None else Variant(Excluded=value.to_refs),
    },
    lambda value: ManifestPreloadCondition.num_refs(
        _bound(_as_map(value).get("from"), "Included"), _bound(value.get("to"), "Excluded")
    ),
)

PRELOAD_CONDITION: Final[Form] = _variants(
    {
        "or": (PreloadOr, _several(PreloadOr, lambda: PRELOAD_CONDITION)),
        "and": (PreloadAnd, _several(PreloadAnd, lambda: PRELOAD_CONDITION)),
        "path_matches": (PreloadPathMatches, _regex(PreloadPathMatches)),
        "name_matches": (PreloadNameMatches, _regex(PreloadNameMatches)),
        "num_refs": (PreloadNumRefs, NUM_REFS),
        "true": (PreloadTrue, None),
        "false": (PreloadFalse, None),
    }
)

SPLIT_CONDITION: Final[Form] = _variants(
    {
        "or": (SplitOr, _several(SplitOr, lambda: SPLIT_CONDITION)),
        "and": (SplitAnd, _several(SplitAnd, lambda: SPLIT_CONDITION)),
        "path_matches": (SplitPathMatches, _regex(SplitPathMatches)),
        "name_matches": (SplitNameMatches, _regex(SplitNameMatches)),
        "any_array": (SplitAnyArray, None),
    }
)

DIM_CONDITION: Final = _variants(
    {
        "Axis": (ManifestSplitDimCondition.Axis, _inside(ManifestSplitDimCondition.Axis, "axis")),
        "DimensionName": (
            ManifestSplitDimCondition.DimensionName,
            Form(
                lambda value: value.regex,
                lambda value: ManifestSplitDimCondition.DimensionName(_as_text(value)),
            ),
        ),
        "Any": (ManifestSplitDimCondition.Any, None),
    }
)


def _write_dim(pair: tuple[Any, int]) -> dict[str, Any]:
    condition, size = pair
    return {"condition": DIM_CONDITION.write(condition), "num_chunks": size}


def _read_dim(value: Any) -> tuple[Any, Any]:
    given = _as_map(value)
    return DIM_CONDITION.read(given.get("condition")), given.get("num_chunks")


def _read_rule(value: Any) -> tuple[Any, list[tuple[Any, Any]]]:
    rule = _as_list(value)
    if len(rule) != 2:
        raise _Unexpected(f"expected a condition and a list of sizes, found {len(rule)} values")
    return SPLIT_CONDITION.read(rule[0]), [_read_dim(size) for size in _as_list(rule[1])]


SPLIT_SIZES: Final = Form(
    lambda rules: [
        [SPLIT_CONDITION.write(array), [_write_dim(size) for size in sizes]] for array, sizes in rules
    ],
    lambda value: [_read_rule(rule) for rule in _as_list(value)],
)


# ------------------------------------------------------------------------------------------- stores

CHECKSUM: Final = _enum(
    {
        ChecksumAlgorithm.Crc32: "crc32",
        ChecksumAlgorithm.Crc32c: "crc32c",
        ChecksumAlgorithm.Crc64Nvme: "crc64_nvme",
        ChecksumAlgorithm.Sha1: "sha1",
        ChecksumAlgorithm.Sha256: "sha256",
    }
)

S3_OPTIONS: Final = _struct(
    S3Options,
    {
        "allow_http": PLAIN,
        "anonymous": PLAIN,
        "checksum_algorithm": CHECKSUM,
        "endpoint_url": PLAIN,
        "force_path_style": PLAIN,
        "network_stream_timeout_seconds": PLAIN,
        "region": PLAIN,
        "requester_pays": PLAIN,
    },
)


def _read_options(value: Any) -> dict[str, str]:
    return {key: _as_text(text) for key, text in _as_map(value).items()}


def _options(build: Callable[[Any], Any]) -> Form:
    return Form(lambda value: dict(value.opts or {}), lambda value: build(_read_options(value) or None))


def _write_http(value: ObjectStoreConfig.Http) -> dict[str, Any]:
    headers = {"headers": dict(value.headers)} if value.headers else {}
    return {**(value.opts or {}), **headers}


def _read_http(value: Any) -> ObjectStoreConfig.Http:
    options = dict(_as_map(value))
    headers = options.pop("headers", None)
    return ObjectStoreConfig.Http(
        _read_options(options) or None, _read_options(headers) or None if headers is not None else None
    )


STORE: Final = _variants(
    {
        "in_memory": (ObjectStoreConfig.InMemory, None),
        "local_file_system": (
            ObjectStoreConfig.LocalFileSystem,
            _inside(ObjectStoreConfig.LocalFileSystem, "path"),
        ),
        "s3_compatible": (
            ObjectStoreConfig.S3Compatible,
            _inside(ObjectStoreConfig.S3Compatible, "options", S3_OPTIONS),
        ),
        "s3": (ObjectStoreConfig.S3, _inside(ObjectStoreConfig.S3, "options", S3_OPTIONS)),
        "gcs": (ObjectStoreConfig.Gcs, _options(ObjectStoreConfig.Gcs)),
        "azure": (ObjectStoreConfig.Azure, _options(ObjectStoreConfig.Azure)),
        "tigris": (ObjectStoreConfig.Tigris, _inside(ObjectStoreConfig.Tigris, "opts", S3_OPTIONS)),
        "http": (ObjectStoreConfig.Http, Form(_write_http, _read_http)),
    }
)

_CONTAINER: Final = _struct(VirtualChunkContainer, {"name": PLAIN, "store": STORE, "url_prefix": PLAIN})


def _read_container(value: Any) -> VirtualChunkContainer:
    """A container that a repository has saved; it carries that mark wherever it goes."""
    container: VirtualChunkContainer = _CONTAINER.read(value)
    container.from_repository = True
    return container


CONTAINER: Final = Form(_CONTAINER.write, _read_container)

CONTAINERS: Final = Form(
    lambda value: {prefix: CONTAINER.write(container) for prefix, container in value.items()},
    lambda value: {
        prefix: _read(CONTAINER, prefix, container if container is not None else {})
        for prefix, container in _as_map(value).items()
    },
)


# --------------------------------------------------------------------------------------- the config


def _plain(build: type, *names: str, **forms: Form) -> Form:
    return _struct(build, dict.fromkeys(names, PLAIN) | forms)


RETRIES: Final = _plain(StorageRetriesSettings, "initial_backoff_ms", "max_backoff_ms", "max_tries")

STORAGE: Final = _plain(
    StorageSettings,
    "chunks_storage_class",
    "metadata_storage_class",
    "minimum_size_for_multipart_upload",
    "storage_class",
    "unsafe_use_conditional_create",
    "unsafe_use_conditional_update",
    "unsafe_use_metadata",
    concurrency=_plain(
        StorageConcurrencySettings, "ideal_concurrent_request_size", "max_concurrent_requests_for_object"
    ),
    retries=RETRIES,
    timeouts=_plain(
        StorageTimeoutSettings,
        "connect_timeout_ms",
        "operation_attempt_timeout_ms",
        "operation_timeout_ms",
        "read_timeout_ms",
    ),
)

SPLITTING: Final = _struct(ManifestSplittingConfig, {"split_sizes": SPLIT_SIZES})
MANIFEST: Final = _plain(
    ManifestConfig,
    "max_concurrent_manifest_fetches_during_commit",
    preload=_plain(
        ManifestPreloadConfig, "max_arrays_to_scan", "max_total_refs", preload_if=PRELOAD_CONDITION
    ),
    splitting=SPLITTING,
    virtual_chunk_location_compression=_plain(
        ManifestVirtualChunkLocationCompressionConfig,
        "compression_level",
        "dictionary_max_size_bytes",
        "dictionary_max_training_samples",
        "min_num_chunks",
    ),
)

CONFIG: Final = _plain(
    RepositoryConfig,
    "get_partial_values_concurrency",
    "inline_chunk_threshold_bytes",
    "max_concurrent_decodes",
    "max_concurrent_requests",
    "num_updates_per_repo_info_file",
    caching=_plain(
        CachingConfig,
        "num_bytes_attributes",
        "num_bytes_chunks",
        "num_chunk_refs",
        "num_snapshot_nodes",
        "num_transaction_changes",
    ),
    compression=_plain(CompressionConfig, "level", algorithm=_enum({CompressionAlgorithm.Zstd: "zstd"})),
    manifest=MANIFEST,
    repo_update_retries=_struct(RepoUpdateRetryConfig, {"default": RETRIES}),
    storage=STORAGE,
    virtual_chunk_containers=CONTAINERS,
)


def _seconds(value: Any) -> timedelta:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise _Unexpected(f"expected a number of seconds, found {value!r:.80}")
    return timedelta(seconds=value)


SECONDS: Final = Form(lambda value: value.total_seconds(), _seconds)

#: Field of the configuration -> key below ``frazil``, and its form.
OWN: Final[dict[str, tuple[str, Form]]] = {
    "packing": ("packing", _plain(PackingConfig, "enabled", "pack_size_bytes", "threshold_bytes")),
    "chunks": ("chunks", _plain(ChunksConfig, "compare", "deduplicate")),
    "fast_forward_timeout": ("fast_forward_timeout_seconds", SECONDS),
    "session_lifetime": ("session_lifetime_seconds", SECONDS),
}


def splitting_document(splitting: ManifestSplittingConfig) -> dict[str, Any]:
    """How manifests are split, as part of a document."""
    document: dict[str, Any] = SPLITTING.write(splitting)
    return document


def to_document(config: RepositoryConfig) -> dict[str, Any]:
    """The configuration as the map that is persisted.

    >>> to_document(RepositoryConfig(inline_chunk_threshold_bytes=100))["inline_chunk_threshold_bytes"]
    100
    """
    document: dict[str, Any] = CONFIG.write(config)
    document["previous_file"] = config.previous_file
    own = {key: _write(form, getattr(config, name)) for name, (key, form) in OWN.items()}
    if any(value is not None for value in own.values()):
        document["frazil"] = own
    return document


def from_document(document: Any) -> RepositoryConfig:
    """The configuration of a persisted map.

    Raises ``FormatError`` of kind ``config-deserialization``, naming the key, for a wrong value.
    """
    try:
        config: RepositoryConfig = CONFIG.read(document)
        previous_file = _as_map(document).get("previous_file")
        config.previous_file = None if previous_file is None else _as_text(previous_file)
        own = document.get("frazil")
        if own is not None:
            for name, (key, form) in OWN.items():
                setattr(config, name, _read(form, f"frazil.{key}", _as_map(own).get(key)))
    except (_Unexpected, InvalidInputError, TypeError) as error:
        raise FormatError(
            f"configuration of the repository: {error}", ErrorKind.CONFIG_DESERIALIZATION
        ) from None
    return config


def encode_config(config: RepositoryConfig) -> bytes:
    """The configuration as the bytes of the ``config`` field of the repository file."""
    return dumps(to_document(config))


def decode_config(data: bytes) -> RepositoryConfig:
    """The configuration from the bytes of the ``config`` field. Raises ``FormatError``."""
    return from_document(loads(data, "configuration of the repository"))
