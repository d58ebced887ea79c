"""The saved form of the configuration: a map in the file ``repo``, as a FlexBuffer.

The map has the keys of the reference implementation. All are present, and null means the default. Frazil's
own options are under the key ``frazil``, which the reference ignores. A ``SavedForm`` is for both directions.
Readers ignore unknown keys. Everybody who can read a repository can read its saved configuration, so
``document_to_save`` refuses secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

from frazil.errors import ErrorKind, FormatError, InvalidInputError
from frazil.options import Settings, options_of
from frazil.repository.settings.conditions import (
    ConditionFamily,
    ManifestPreloadCondition,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    PreloadFalse,
    PreloadTrue,
)
from frazil.repository.settings.config import (
    ChunksConfig,
    CompressionAlgorithm,
    CompressionConfig,
    PackingConfig,
    RepositoryConfig,
    VirtualChunkContainer,
)
from frazil.repository.settings.manifest_config import (
    AUTO,
    ManifestConfig,
    ManifestPreloadConfig,
    ManifestSplittingConfig,
)
from frazil.storage.object_store_config import ChecksumAlgorithm, ObjectStoreConfig, S3Options
from frazil.storage.option_names import PLAIN_HEADERS, secret_options, shown_url
from frazil.storage.settings import StorageSettings, StorageTimeoutSettings


@dataclass(frozen=True, slots=True)
class SavedForm:
    """How values of one type are written as JSON and read back. Every form writes None as null."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


class SavedVariant(dict[str, Any]):
    """A map with one key, the tag of a variant. YAML has a special form for it."""


def unexpected(text: str) -> FormatError:
    """Return the error for a value of a wrong form. Readers put the path of keys before the text."""
    return FormatError(text, ErrorKind.CONFIG_DESERIALIZATION)


def write_optional(form: SavedForm, value: Any) -> Any:
    """Write a value; None becomes null."""
    return None if value is None else form.write(value)


def read_optional(form: SavedForm, key: str, value: Any) -> Any:
    """Read the value of a key; null becomes None."""
    if value is None:
        return None
    try:
        return form.read(value)
    except (FormatError, InvalidInputError, TypeError) as error:
        raise unexpected(f"{key}: {error}") from None


_KINDS: Final[dict[type, str]] = {dict: "a map", list: "a list", str: "text"}


def _as[T](kind: type[T], value: Any) -> T:
    """Return a value, which must be a map, a list or text."""
    if not isinstance(value, kind):
        raise unexpected(f"expected {_KINDS[kind]}, got {type(value).__name__}")
    return value


#: The unchanged value. The classes of the configuration check their own fields.
PLAIN: Final = SavedForm(lambda value: value, lambda value: value)
TEXT: Final = SavedForm(lambda value: value, partial(_as, str))
#: Options of a client. No options are None.
TEXTS: Final = SavedForm(
    lambda value: dict(value or {}),
    lambda value: {key: _as(str, text) for key, text in _as(dict, value).items()} or None,
)


def options_form(build: type[Settings], names: str | None = None, **forms: SavedForm) -> SavedForm:
    """Return the form of a class of options: a map with a key for each field.

    ``names`` are the fields (default: all), and ``forms`` are the forms of fields that are neither plain
    values nor nested options.
    """
    declared = options_of(build)
    by_name = {
        name: forms.get(name) or (options_form(type(implied)) if isinstance(implied, Settings) else PLAIN)
        for name in sorted(declared if names is None else names.split())
        for implied in [declared[name].implied]
    }

    def write(value: Any) -> dict[str, Any]:
        return {name: write_optional(form, getattr(value, name)) for name, form in by_name.items()}

    def read(value: Any) -> Any:
        document = _as(dict, value)
        fields = {name: read_optional(form, name, document.get(name)) for name, form in by_name.items()}
        return build(**{name: field for name, field in fields.items() if field is not None})

    return SavedForm(write, read)


def enumeration(names: Mapping[Any, str]) -> SavedForm:
    """Return the form of an enumeration: the name of the value."""
    values = {name: value for value, name in names.items()}

    def read(value: Any) -> Any:
        name = next(iter(value)) if isinstance(value, dict) and [*value.values()] == [None] else value
        if not isinstance(name, str) or name not in values:
            raise unexpected(f"expected one of {', '.join(values)}, got {value!r:.80}")
        return values[name]

    return SavedForm(lambda value: names[value], read)


def sequence(one: Callable[[], SavedForm]) -> SavedForm:
    """Return the form of a tuple of values."""
    return SavedForm(
        lambda values: [one().write(value) for value in values],
        lambda document: tuple(one().read(value) for value in _as(list, document)),
    )


def single_field(build: Callable[[Any], Any], name: str, form: SavedForm = PLAIN) -> SavedForm:
    """Return the form of a class with one field: the form of that field."""
    return SavedForm(lambda value: form.write(getattr(value, name)), lambda value: build(form.read(value)))


def variants(table: Mapping[str, tuple[type, SavedForm | None]]) -> SavedForm:
    """Return the form of one of several classes: its tag, or a map from its tag to its content."""
    tags = {variant: tag for tag, (variant, _) in table.items()}

    def write(value: Any) -> Any:
        tag = tags[type(value)]
        form = table[tag][1]
        return tag if form is None else SavedVariant({tag: form.write(value)})

    def read(value: Any) -> Any:
        if isinstance(value, str):
            tag, content = value, None
        elif isinstance(value, bool):  # the conditions "true" and "false", without quotes
            tag, content = str(value).lower(), None
        elif isinstance(value, dict) and len(value) == 1:
            tag, content = next(iter(value.items()))
        else:
            raise unexpected(f"expected a name or a map of one key, got {value!r:.80}")
        if tag not in table:
            raise unexpected(f"expected one of {', '.join(table)}, got {tag!r:.80}")
        variant, form = table[tag]
        if form is None:
            return variant()
        instance = read_optional(form, tag, content)
        if instance is None:
            raise unexpected(f"{tag}: expected a value, got null")
        return instance

    return SavedForm(write, read)


def _read_bound(side: Any, tag: str) -> int | None:
    """Read one end of a range.

    Frazil writes a range with an included start and an excluded end, and reads other ranges as well.
    """
    if side == "Unbounded":
        return None
    if isinstance(side, dict) and len(side) == 1:
        side_tag, number = next(iter(side.items()))
        if side_tag in ("Included", "Excluded") and isinstance(number, int):
            bound: int = number + int(side_tag != tag)
            return bound
    raise unexpected(f"expected Unbounded, Included or Excluded, got {side!r:.80}")


NUM_REFS: Final = SavedForm(
    lambda value: {
        "from": "Unbounded" if value.from_refs is None else SavedVariant(Included=value.from_refs),
        "to": "Unbounded" if value.to_refs is None else SavedVariant(Excluded=value.to_refs),
    },
    lambda value: ManifestPreloadCondition.num_refs(
        _read_bound(_as(dict, value).get("from"), "Included"), _read_bound(value.get("to"), "Excluded")
    ),
)
_REGEX: Final = SavedForm(
    lambda regex: {"regex": regex}, lambda value: _as(str, _as(dict, value).get("regex"))
)


def condition_form(family: type[ConditionFamily[Any]], **others: tuple[type, SavedForm | None]) -> SavedForm:
    """Return the form of the conditions of one family."""
    several = sequence(lambda: form)
    form: SavedForm = variants(
        {
            "or": (family.Or, single_field(family.Or, "conditions", several)),
            "and": (family.And, single_field(family.And, "conditions", several)),
            "path_matches": (family.PathMatches, single_field(family.PathMatches, "regex", _REGEX)),
            "name_matches": (family.NameMatches, single_field(family.NameMatches, "regex", _REGEX)),
            **others,
        }
    )
    return form


PRELOAD_CONDITION: Final = condition_form(
    ManifestPreloadCondition,
    num_refs=(ManifestPreloadCondition.NumRefs, NUM_REFS),
    true=(PreloadTrue, None),
    false=(PreloadFalse, None),
)
SPLIT_CONDITION: Final = condition_form(
    ManifestSplitCondition, any_array=(ManifestSplitCondition.AnyArray, None)
)
_DIM: Final = ManifestSplitDimCondition
DIM_CONDITION: Final = variants(
    {
        "Axis": (_DIM.Axis, single_field(_DIM.Axis, "axis")),
        "DimensionName": (_DIM.DimensionName, single_field(_DIM.DimensionName, "regex", TEXT)),
        "Any": (_DIM.Any, None),
    }
)
DIM_SIZES: Final = sequence(
    lambda: SavedForm(
        lambda pair: {"condition": DIM_CONDITION.write(pair[0]), "num_chunks": pair[1]},
        lambda size: (DIM_CONDITION.read(_as(dict, size).get("condition")), size.get("num_chunks")),
    )
)


def _read_rule(value: Any) -> tuple[Any, Any]:
    rule = _as(list, value)
    if len(rule) != 2:
        raise unexpected(f"expected a condition and a list of sizes, got {len(rule)} values")
    return SPLIT_CONDITION.read(rule[0]), DIM_SIZES.read(rule[1])


SPLIT_SIZES: Final = sequence(
    lambda: SavedForm(lambda rule: [SPLIT_CONDITION.write(rule[0]), DIM_SIZES.write(rule[1])], _read_rule)
)

S3_OPTIONS: Final = options_form(
    S3Options,
    checksum_algorithm=enumeration(
        {each: "crc64_nvme" if each.name == "Crc64Nvme" else each.name.lower() for each in ChecksumAlgorithm}
    ),
)


def _write_http(value: ObjectStoreConfig.Http) -> dict[str, Any]:
    headers = {"headers": dict(value.headers)} if value.headers else {}
    return {**(value.opts or {}), **headers}


def _read_http(value: Any) -> ObjectStoreConfig.Http:
    options = dict(_as(dict, value))
    headers = options.pop("headers", None)
    return ObjectStoreConfig.Http(TEXTS.read(options), None if headers is None else TEXTS.read(headers))


_STORES: Final = ObjectStoreConfig
STORE: Final = variants(
    {
        "in_memory": (_STORES.InMemory, None),
        "local_file_system": (_STORES.LocalFileSystem, single_field(_STORES.LocalFileSystem, "path")),
        "s3_compatible": (_STORES.S3Compatible, single_field(_STORES.S3Compatible, "options", S3_OPTIONS)),
        "s3": (_STORES.S3, single_field(_STORES.S3, "options", S3_OPTIONS)),
        "gcs": (_STORES.Gcs, single_field(_STORES.Gcs, "opts", TEXTS)),
        "azure": (_STORES.Azure, single_field(_STORES.Azure, "opts", TEXTS)),
        "tigris": (_STORES.Tigris, single_field(_STORES.Tigris, "opts", S3_OPTIONS)),
        "http": (_STORES.Http, SavedForm(_write_http, _read_http)),
    }
)
CONTAINER: Final = options_form(VirtualChunkContainer, "name store url_prefix", store=STORE)


def _read_containers(value: Any) -> dict[str, VirtualChunkContainer]:
    """Read the containers that a repository has saved, and mark them as such."""
    containers = {
        prefix: read_optional(CONTAINER, prefix, {} if each is None else each)
        for prefix, each in _as(dict, value).items()
    }
    for container in containers.values():
        container.from_repository = True
    return containers


def _read_seconds(value: Any) -> timedelta:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise unexpected(f"expected a number of seconds, got {value!r:.80}")
    return timedelta(seconds=value)


SPLITTING: Final = options_form(ManifestSplittingConfig, split_sizes=SPLIT_SIZES)
SECONDS: Final = SavedForm(lambda value: value.total_seconds(), _read_seconds)
#: Field of the configuration that only Frazil has -> key under ``frazil``, and its form.
OWN: Final[dict[str, tuple[str, SavedForm]]] = {
    "packing": ("packing", options_form(PackingConfig)),
    "chunks": ("chunks", options_form(ChunksConfig)),
    "fast_forward_timeout": ("fast_forward_timeout_seconds", SECONDS),
    "session_lifetime": ("session_lifetime_seconds", SECONDS),
}
CONFIG: Final = options_form(
    RepositoryConfig,
    " ".join(name for name in options_of(RepositoryConfig) if name not in OWN),
    compression=options_form(CompressionConfig, algorithm=enumeration({CompressionAlgorithm.Zstd: "zstd"})),
    manifest=options_form(
        ManifestConfig,
        preload=options_form(ManifestPreloadConfig, preload_if=PRELOAD_CONDITION),
        # ``AUTO`` is stored under ``frazil``. Other implementations see that no rules are saved.
        splitting=SavedForm(lambda value: None if value == AUTO else SPLITTING.write(value), SPLITTING.read),
    ),
    storage=options_form(StorageSettings, timeouts=options_form(StorageTimeoutSettings)),
    virtual_chunk_containers=SavedForm(
        lambda value: {prefix: CONTAINER.write(container) for prefix, container in value.items()},
        _read_containers,
    ),
)

#: The key under ``frazil`` of the splitting by the number of references.
_SPLITTING: Final = "splitting"


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
            f"expected at most {_MOST_EXPRESSIONS} regular expressions, got {count}. Combine some with `|`",
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


def from_document(document: Any) -> RepositoryConfig:
    """Return the configuration that a saved map contains."""
    try:
        config: RepositoryConfig = CONFIG.read(document)
        _require_few_expressions(document)
        previous_file = document.get("previous_file")
        config.previous_file = None if previous_file is None else _as(str, previous_file)
        own = document.get("frazil")
        if own is not None:
            for name, (key, form) in OWN.items():
                setattr(config, name, read_optional(form, f"frazil.{key}", _as(dict, own).get(key)))
            if (splitting := own.get(_SPLITTING)) is not None:
                if splitting != AUTO:
                    raise unexpected(f"frazil.splitting: expected {AUTO!r} or null, got {splitting!r:.80}")
                config.manifest = config.manifest or ManifestConfig()
                # Rules that another implementation saved win.
                config.manifest.splitting = config.manifest.splitting or AUTO
    except (FormatError, InvalidInputError, TypeError) as error:
        raise FormatError(
            f"configuration of the repository: {error}", ErrorKind.CONFIG_DESERIALIZATION
        ) from None
    return config


def document_to_save(
    config: RepositoryConfig,
    store_secrets: bool = False,
    saved: Callable[[], RepositoryConfig | None] = lambda: None,
) -> dict[str, Any]:
    """Return the configuration in the form in which it is saved.

    ``saved`` returns the saved configuration of the repository. Its containers may be saved again. It is
    called only if the configuration has secrets.
    """
    document = to_document(config)
    if store_secrets:
        return document
    containers = config.virtual_chunk_containers or {}
    secrets = {prefix: names for prefix, each in containers.items() if (names := [*_secrets(each)])}
    if secrets:
        earlier = to_document(saved() or RepositoryConfig())["virtual_chunk_containers"] or {}
        written = document["virtual_chunk_containers"]
        secrets = {key: names for key, names in secrets.items() if earlier.get(key) != written[key]}
    offences = [
        f"{option} of the container {shown_url(prefix)!r}"
        for prefix, options in secrets.items()
        for option in options
    ]
    if offences:
        raise InvalidInputError(
            f"the configuration may hold secrets, for all readers: {', '.join(offences)}",
            ErrorKind.SECRET_IN_CONFIG,
        ).with_remedy(
            "Pass credentials with authorize_virtual_chunk_access, or store_secrets=True to save them",
            shell="Leave them out: readers take credentials from their environment",
        )
    return document


def _secrets(container: VirtualChunkContainer) -> Iterator[str]:
    """Yield the names of the parts of a container that may hold a secret."""
    options: Mapping[str, str] = {}
    if shown_url(container.url_prefix) != container.url_prefix:
        yield "the user name in the URL"
    match container.store:
        case ObjectStoreConfig.S3(s3) | ObjectStoreConfig.S3Compatible(s3) | ObjectStoreConfig.Tigris(s3) if (
            s3.endpoint_url is not None
        ):
            options = {"endpoint_url": s3.endpoint_url}
        case ObjectStoreConfig.Gcs(opts) | ObjectStoreConfig.Azure(opts) | ObjectStoreConfig.Http(opts):
            options = opts or {}
    yield from (f"option `{name}`" for name in secret_options(options))
    if isinstance(container.store, ObjectStoreConfig.Http):
        headers = container.store.headers or {}
        yield from (f"header `{name}`" for name in headers if name.lower() not in PLAIN_HEADERS)
