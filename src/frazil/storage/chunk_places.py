"""The places where the bytes of a chunk can be, and the access to those outside of the repository.

Most processes need none of the clients of storages and web servers, which take 6 MB of memory and a tenth of
a second. The first call imports them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from frazil.display import NamedEnum
from frazil.storage.class_methods import PUBLIC

if TYPE_CHECKING:
    from frazil.storage.credential_families import AnyCredential
    from frazil.storage.foreign_objects import ForeignObjects
    from frazil.storage.object_store_config import AnyObjectStoreConfig


class ChunkType(NamedEnum, IntEnum):
    """The place of the bytes of a chunk.

    The value is a number, so that callers can compare it with columns of numbers.

    Attributes:
        uninitialized: The chunk is missing. A read returns the fill value.
        native: A chunk file of the repository.
        virtual: An object outside of the repository.
        inline: The manifest.
    """

    uninitialized = 0
    native = 1
    virtual = 2
    inline = 3


def open_on_demand(
    config: AnyObjectStoreConfig,
    credentials: AnyCredential | None,
    url_prefix: str,
    *,
    user_agent: str | None = None,
) -> ForeignObjects:
    """Return the result of ``open_foreign``."""
    objects: ForeignObjects = PUBLIC.open_foreign(config, credentials, url_prefix, user_agent=user_agent)
    return objects
