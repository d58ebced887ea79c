"""Virtual chunk containers for an imported repository.

The old formats had one container for a whole scheme (``s3://``, ``file``). The new formats need a bucket or a
folder. Therefore each bucket and folder with a reference gets a container, with the store that the old
configuration had for its scheme.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import repeat, takewhile
from operator import itemgetter
from typing import Any, Final
from urllib.parse import unquote

from frazil.errors import InvalidInputError
from frazil.format.keys import CONFIG
from frazil.format.older.elements import decoding, mapping, text
from frazil.repository.settings.config import RepositoryConfig
from frazil.repository.settings.config_document import from_document
from frazil.repository.settings.virtual_containers import VirtualChunkContainer

_FILE: Final = "file://"
#: Scheme -> store as a configuration document, if the old configuration has none.
_DEFAULT_STORES: Final[dict[str, Any]] = {
    "s3": {"s3": {}},
    "tigris": {"tigris": {}},
    "gs": {"gcs": {}},
    "gcs": {"gcs": {}},
    "az": {"azure": {}},
    "azure": {"azure": {}},
    "abfs": {"azure": {}},
    "http": {"http": {}},
    "https": {"http": {}},
}
#: Names of variants up to 0.1.0a15. Later names are those of today.
_STORE_NAMES: Final = {
    "S3Compatible": "s3_compatible",
    "S3": "s3",
    "Azure": "azure",
    "Gcs": "gcs",
    "Tigris": "tigris",
    "LocalFileSystem": "local_file_system",
    "InMemory": "in_memory",
}


def url_prefixes(locations: Iterable[str]) -> frozenset[str]:
    """Return the buckets, or the common folder, of locations."""
    given = set(locations)
    files = {location for location in given if location.startswith(_FILE)}
    parts = map(str.split, given - files, repeat("/"), repeat(3))
    out = {f"{scheme}//{bucket}/" for scheme, _, bucket, *_ in map(_four, parts) if scheme}
    if files:
        # The common prefix of the first and the last path in order is the prefix of all.
        pairs = takewhile(lambda pair: pair[0] == pair[1], zip(min(files), max(files), strict=False))
        common = "".join(map(itemgetter(0), pairs))
        out.add(common[: common.rindex("/") + 1])
    return frozenset(out)


def merged_prefixes(parts: Iterable[frozenset[str]]) -> tuple[str, ...]:
    """Return the prefixes of several manifests, again with one folder for all files."""
    return tuple(sorted(url_prefixes(prefix for part in parts for prefix in part)))


def new_config(
    settings: Mapping[str, Any],
    prefixes: Iterable[str],
    extra: Iterable[VirtualChunkContainer],
    over: RepositoryConfig | None,
) -> tuple[RepositoryConfig, list[str]]:
    """Return the configuration to save, and the prefixes that were left out with the reasons.

    ``extra`` has further containers. ``over`` overrides everything else.
    """
    with decoding(CONFIG):
        document = {
            "inline_chunk_threshold_bytes": settings.get("inline_chunk_threshold_bytes"),
            "compression": {"level": (settings.get("compression") or {}).get("level")},
        }
        config = from_document(document)
        old = {
            text(container["url_prefix"]): mapping(container["store"])
            for container in mapping(settings.get("virtual_chunk_containers") or {}).values()
        }
        left_out = []
        for prefix in prefixes:
            store = _store(prefix, old)
            try:
                if store is None:
                    raise InvalidInputError(
                        "its location must be in S3, GCS, Azure, on a web server or in local files"
                    )
                container = _container(prefix, store)
                container.validate()
            except InvalidInputError as error:
                left_out.append(f"a container for virtual chunks below {prefix}: {error}")
                continue
            config.set_virtual_chunk_container(container)
    for container in extra:
        config.set_virtual_chunk_container(container)
    return config if over is None else config.merge(over), left_out


def _container(prefix: str, store: Any) -> VirtualChunkContainer:
    document = {"virtual_chunk_containers": {prefix: {"url_prefix": prefix, "store": store}}}
    containers = from_document(document).virtual_chunk_containers or {}
    return containers[prefix]


def _store(prefix: str, old: Mapping[str, Any]) -> Any:
    """Return the store as a configuration document. None if there is none for such locations."""
    scheme = prefix.partition("://")[0]
    if scheme == "file":
        return {"local_file_system": unquote(prefix.removeprefix(_FILE))}
    fitting = [prefixes for prefixes in old if prefix.startswith(prefixes)]
    if not fitting:
        return _DEFAULT_STORES.get(scheme)
    ((variant, options),) = old[max(fitting, key=len)].items()
    name = _STORE_NAMES.get(variant, variant)
    if name == "s3_compatible":
        # Old versions always used path style for such servers. Later it became an option.
        options = {"force_path_style": True, **(options or {})}
    return {name: options or {}}


def _four(parts: list[str]) -> list[str]:
    return [*parts, "", "", "", ""][:4]
