"""Virtual chunk containers for an imported repository.

The old formats had one container for a whole scheme (``s3://``, ``file``). The new ones want a bucket, or a
folder. So each bucket and folder that references really name gets a container, with the store that the
old configuration had for its scheme.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Any, Final

from frazil.errors import InvalidInputError
from frazil.repository.config import CompressionConfig, RepositoryConfig
from frazil.repository.config_document import STORE
from frazil.repository.virtual_values import VirtualChunkContainer
from frazil.storage.object_store_config import AnyObjectStoreConfig, ObjectStoreConfig, S3Options

_FILE: Final = "file://"
#: Scheme -> the store where the old configuration has none.
_DEFAULT_STORES: Final = {
    "s3": lambda: ObjectStoreConfig.S3(S3Options()),
    "tigris": lambda: ObjectStoreConfig.Tigris(S3Options()),
    "gs": lambda: ObjectStoreConfig.Gcs(None),
    "gcs": lambda: ObjectStoreConfig.Gcs(None),
    "az": lambda: ObjectStoreConfig.Azure(None),
    "azure": lambda: ObjectStoreConfig.Azure(None),
    "abfs": lambda: ObjectStoreConfig.Azure(None),
    "http": lambda: ObjectStoreConfig.Http(None),
    "https": lambda: ObjectStoreConfig.Http(None),
}
#: Names of variants up to 0.1.0a15, and later.
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
    """The buckets, or the folder in common, of locations.

    >>> sorted(url_prefixes(["s3://b/x/1", "s3://b/2", "file:///a/b/c.nc", "file:///a/bc.nc"]))
    ['file:///a/', 's3://b/']
    """
    given = set(locations)
    files = {location for location in given if location.startswith(_FILE)}
    parts = map(str.split, given - files, repeat("/"), repeat(3))
    out = {f"{scheme}//{bucket}/" for scheme, _, bucket, *_ in map(_four, parts) if scheme}
    if files:
        common = os.path.commonprefix([min(files), max(files)])
        out.add(common[: common.rindex("/") + 1])
    return frozenset(out)


def merged_prefixes(parts: Iterable[frozenset[str]]) -> tuple[str, ...]:
    """The prefixes of several manifests; again one folder for all files."""
    return tuple(sorted(url_prefixes(prefix for part in parts for prefix in part)))


def new_config(
    settings: Mapping[str, Any], prefixes: Iterable[str], extra: Iterable[VirtualChunkContainer]
) -> tuple[RepositoryConfig, list[str]]:
    """The configuration to save, and what of the old one or of ``prefixes`` was left out.

    Raises ``FormatError`` where the old configuration is not what it should be.
    """
    config = RepositoryConfig()
    threshold = settings.get("inline_chunk_threshold_bytes")
    if threshold is not None:
        config.inline_chunk_threshold_bytes = threshold
    compression = settings.get("compression") or {}
    if compression.get("level") is not None:
        config.compression = CompressionConfig(level=compression["level"])
    old = {
        container["url_prefix"]: container
        for container in (settings.get("virtual_chunk_containers") or {}).values()
    }
    left_out = []
    for prefix in prefixes:
        try:
            container = VirtualChunkContainer(prefix, _store(prefix, old))
            container.validate()
        except InvalidInputError as error:
            left_out.append(f"virtual chunks below {prefix}: no container can be made for them ({error})")
            continue
        config.set_virtual_chunk_container(container)
    for container in extra:
        config.set_virtual_chunk_container(container)
    return config, left_out


def _store(prefix: str, old: Mapping[str, Any]) -> AnyObjectStoreConfig:
    scheme = prefix.partition("://")[0]
    if scheme == "file":
        return ObjectStoreConfig.LocalFileSystem(prefix.removeprefix(_FILE))
    fitting = [known for known in old if prefix.startswith(known)]
    if fitting:
        return _old_store(old[max(fitting, key=len)]["store"])
    if scheme not in _DEFAULT_STORES:
        raise InvalidInputError(f"the scheme {scheme!r} is not known")
    return _DEFAULT_STORES[scheme]()


def _old_store(store: Mapping[str, Any]) -> AnyObjectStoreConfig:
    ((variant, options),) = store.items()
    name = _STORE_NAMES.get(variant, variant)
    if name == "s3_compatible":
        # It always was so for such servers; later it became an option.
        options = {"force_path_style": True, **(options or {})}
    found: AnyObjectStoreConfig = STORE.read({name: options})
    return found


def _four(parts: list[str]) -> list[str]:
    return [*parts, "", "", "", ""][:4]
