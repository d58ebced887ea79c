"""The virtual chunks that a handle may read: containers, and credentials for them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from frazil.about import PACKAGE_FOLDER
from frazil.chunks.virtual import Container
from frazil.repository.settings.virtual_containers import VirtualChunkContainer
from frazil.storage.access import anonymous_access
from frazil.storage.credentials import AnyCredential
from frazil.storage.object_store_config import ObjectStoreConfig
from frazil.storage.option_names import shown_url

#: Prefixes of URLs, and the credentials for each.
Authorized = Mapping[str, AnyCredential | None]


def container_of(container: VirtualChunkContainer) -> Container:
    """The container as readers of chunks take it.

    The path of a local container counts only if the user configured the container. A path that a repository
    saved could lead anywhere, while the user authorised only the prefix.
    """
    store = container.store
    if isinstance(store, ObjectStoreConfig.LocalFileSystem) and container.from_repository:
        store = ObjectStoreConfig.LocalFileSystem("")
    return Container(container.name, container.url_prefix, store, not container.from_repository)


def explicit_access(authorized: Authorized | None) -> dict[str, AnyCredential]:
    """The credentials by prefix.

    ``None`` for a prefix grants access without credentials; that is deprecated.
    """
    if authorized is None:
        return {}
    if not isinstance(authorized, Mapping) or not all(isinstance(prefix, str) for prefix in authorized):
        raise TypeError(
            "authorize_virtual_chunk_access: expected a dict of URL prefixes to credentials, "
            f"found {type(authorized).__name__}"
        )
    return {prefix: _explicit_credential(prefix, credential) for prefix, credential in authorized.items()}


def _explicit_credential(prefix: str, credential: AnyCredential | None) -> AnyCredential:
    if credential is not None:
        return credential
    access = anonymous_access(prefix)
    warnings.warn(
        f"`None` in authorize_virtual_chunk_access for the container {shown_url(prefix)!r} is deprecated. It "
        "grants access without credentials; name the access that you mean: LocalFileSystemAccess or "
        "HttpAccess, or with containers_credentials() for example s3_anonymous_credentials() or "
        "s3_from_env_credentials()",
        DeprecationWarning,
        skip_file_prefixes=(PACKAGE_FOLDER,),
    )
    return access
