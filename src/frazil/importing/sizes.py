"""How large the objects are that virtual references point to, where the user allows to look."""

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
from frazil.storage.credentials import AnyCredential
from frazil.storage.foreign import ForeignObjects, open_foreign
from frazil.storage.hints import require_hint

_UNKNOWN = -1


def sizes_of(
    settings: Mapping[str, Any],
    config: RepositoryConfig | None,
    credentials: Mapping[str, AnyCredential],
) -> Sizes | None:
    """A look-up for objects below the prefixes of ``credentials``; None if there are none.

    Where they are, ``config`` says, or else the old repository's ``settings``, which are hints (see
    ``frazil.storage.hints``): ``InvalidInputError`` if they choose a server, a file or a secret. Each object
    is looked at once; one that is not there has no size.
    """
    if not credentials:
        return None
    new_settings, _ = new_config(settings, credentials, (), config)
    containers = new_settings.virtual_chunk_containers or {}
    readers: dict[str, ForeignObjects] = {
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
            return readers[prefix].size(location)
        except (StorageError, InvalidInputError):
            return _UNKNOWN

    def look_up(locations: Sequence[str]) -> NDArray[np.int64]:
        unknown = [location for location in dict.fromkeys(locations) if location not in cache]
        cache.update(zip(unknown, in_parallel(size, unknown), strict=True))
        return np.fromiter(map(cache.__getitem__, locations), np.int64, len(locations))

    return look_up


def _opened(container: VirtualChunkContainer, credential: AnyCredential) -> ForeignObjects:
    if container.from_repository:
        require_hint(container.store, container.url_prefix)
    return open_foreign(container.store, credential, container.url_prefix)
