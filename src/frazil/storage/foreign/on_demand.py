"""The opening of foreign objects, for modules that every process imports.

Most repositories have no virtual chunks. Their processes need none of the clients of storages and web
servers, which take 6 MB of memory and a tenth of a second. The first call imports the clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.storage.class_methods import PUBLIC

if TYPE_CHECKING:
    from frazil.storage.credential_families import AnyCredential
    from frazil.storage.foreign.base import ForeignObjects
    from frazil.storage.object_store_config import AnyObjectStoreConfig


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
