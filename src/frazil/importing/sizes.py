"""The sizes of the objects of virtual references, where the user allows requests to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.errors import InvalidInputError, StorageError
from frazil.importing.containers import new_config
from frazil.importing.manifests import Sizes
from frazil.importing.source import in_parallel
from frazil.repository.settings.config import RepositoryConfig
from frazil.repository.settings.virtual_containers import VirtualChunkContainer
from frazil.storage.credential_families import AnyCredential
from frazil.storage.foreign.base import ForeignObjects as ForeignReader
from frazil.storage.foreign.factory import open_foreign
from frazil.storage.hints import require_hint

_UNKNOWN = -1


def sizes_of(
    settings: Mapping[str, Any],
    config: RepositoryConfig | None,
    credentials: Mapping[str, AnyCredential],
) -> Sizes | None:
    """Return a function that looks up sizes of objects below the prefixes of ``credentials``, or None.

    ``config`` says where the objects are, or otherwise the ``settings`` of the old repository. These settings
    are hints: see ``frazil.storage.hints``. Each object is looked up once. A missing object has no size.
    """
    if not credentials:
        return None
    new_settings, _ = new_config(settings, credentials, (), config)
    containers = new_settings.virtual_chunk_containers or {}
    readers: dict[str, ForeignReader] = {
        prefix: _opened(containers[prefix], credential)
        for prefix, credential in credentials.items()
        if prefix in containers
    }
    cache: dict[str, int] = {}

    def size(location: str) -> int:
        prefix = max(filter(location.startswith, readers), key=len, default=None)
        if prefix is None:
            return _UNKNOWN
        try:
            return int(readers[prefix].size(location))
        except (StorageError, InvalidInputError):
            return _UNKNOWN

    def look_up(locations: Sequence[str]) -> NDArray[np.int64]:
        unknown = [location for location in dict.fromkeys(locations) if location not in cache]
        cache.update(zip(unknown, in_parallel(size, unknown), strict=True))
        return np.fromiter(map(cache.__getitem__, locations), np.int64, len(locations))

    return look_up


def _opened(container: VirtualChunkContainer, credential: AnyCredential) -> ForeignReader:
    if container.from_repository:
        require_hint(container.store, container.url_prefix)
    return open_foreign(container.store, credential, container.url_prefix)
