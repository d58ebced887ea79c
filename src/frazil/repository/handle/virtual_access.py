"""The virtual chunks that a handle may read: containers and their credentials."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from frazil.about import PACKAGE_FOLDER
from frazil.chunks.virtual import Container
from frazil.repository.settings.virtual_containers import VirtualChunkContainer
from frazil.storage.access import anonymous_access
from frazil.storage.credential_families import AnyCredential
from frazil.storage.object_store_config import ObjectStoreConfig
from frazil.storage.option_names import shown_url

#: Credentials by URL prefix.
Authorized = Mapping[str, AnyCredential | None]


def container_of(container: VirtualChunkContainer) -> Container:
    """Return the container in the form that readers of chunks use.

    The path of a local container is used only if the caller configured the container. A path that a
    repository has saved could point anywhere, and the caller has authorised only the prefix.
    """
    store = container.store
    if isinstance(store, ObjectStoreConfig.LocalFileSystem) and container.from_repository:
        store = ObjectStoreConfig.LocalFileSystem("")
    return Container(container.name, container.url_prefix, store, not container.from_repository)


def explicit_access(authorized: Authorized | None) -> dict[str, AnyCredential]:
    """Return the credentials by prefix.

    The value None grants access without credentials; it is deprecated.
    """
    if authorized is None:
        return {}
    if not isinstance(authorized, Mapping) or not all(isinstance(prefix, str) for prefix in authorized):
        raise TypeError(
            "authorize_virtual_chunk_access must be a dict from URL prefixes to credentials, "
            f"got {type(authorized).__name__}"
        )
    return {prefix: _explicit_credential(prefix, credential) for prefix, credential in authorized.items()}


def _explicit_credential(prefix: str, credential: AnyCredential | None) -> AnyCredential:
    if credential is not None:
        return credential
    access = anonymous_access(prefix)
    warnings.warn(
        f"`None` in authorize_virtual_chunk_access for the container {shown_url(prefix)!r} is deprecated. It "
        "grants access without credentials. Pass LocalFileSystemAccess or HttpAccess instead, or use "
        "containers_credentials(), for example with s3_anonymous_credentials() or s3_from_env_credentials()",
        DeprecationWarning,
        skip_file_prefixes=(PACKAGE_FOLDER,),
    )
    return access
