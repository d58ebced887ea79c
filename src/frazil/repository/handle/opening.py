"""What it takes to open or create a repository: everything that its handle and sessions share."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from typing import Final

from frazil.chunks.byte_cache import KeptBytes
from frazil.chunks.virtual import Container, VirtualSources
from frazil.errors import ErrorKind, ReadOnlyError, RepositoryNotFoundError
from frazil.format.ids import INITIAL_SNAPSHOT_ID
from frazil.format.keys import snapshot_key, transaction_key
from frazil.repository.attribution import Attribution
from frazil.repository.catalog.assets import Assets, CacheLimits
from frazil.repository.catalog.catalog import Catalog, CatalogV2
from frazil.repository.catalog.catalog_v1 import V1_MAIN, CatalogV1, read_config_v1
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_info_file import read_repo_info
from frazil.repository.catalog.repo_update import UpdateSettings
from frazil.repository.catalog.version_info import SpecVersion
from frazil.repository.settings.config import RepositoryConfig, opened_with
from frazil.repository.settings.config_document import from_document
from frazil.repository.settings.engine_settings import Effective
from frazil.repository.settings.virtual_containers import VirtualChunkContainer
from frazil.storage.access import anonymous_access
from frazil.storage.base import ObjectInfo, Storage, Version
from frazil.storage.credentials import AnyCredential
from frazil.storage.foreign import open_foreign
from frazil.storage.object_store_config import ObjectStoreConfig
from frazil.storage.option_names import shown_url
from frazil.storage.probe import PROBES

#: Prefixes of URLs, and what opens them.
Authorized = Mapping[str, AnyCredential | None]

#: A warning names the line of the user's program that called into this folder.
_PACKAGE: Final = os.path.dirname(os.path.dirname(__file__)) + os.sep
_FIRST_FILES = {snapshot_key(INITIAL_SNAPSHOT_ID), transaction_key(INITIAL_SNAPSHOT_ID)}


def context_of(
    storage: Storage,
    user: RepositoryConfig | None,
    saved: RepositoryConfig | None,
    credentials: Authorized | None,
    spec_version: int = 2,
    config_version: Version | None = None,
    attribution: Attribution | None = None,
) -> Context:
    """``user`` is the configuration that the user gave, ``saved`` that of the repository."""
    if user is not None:
        user.validate()  # what is saved may be of a version that had other rules
    # A copy: what becomes of the user's configuration afterwards is no business of this handle.
    config = deepcopy(opened_with(user, saved, storage.default_settings()))
    settings = Effective.of(config)
    storage = storage.with_settings(settings.storage)
    containers = list(map(_container, settings.virtual_chunk_containers.values()))
    attribution = attribution or Attribution()
    connect = partial(open_foreign, user_agent=attribution.user_agent())
    virtual = VirtualSources(containers, explicit_access(credentials), open_foreign=connect)
    limits = CacheLimits(settings.cached_snapshot_nodes, settings.cached_chunk_refs)
    assets = Assets(storage, limits)
    update_settings = UpdateSettings.of(settings)
    catalog: Catalog = CatalogV2(storage, assets, update_settings)
    if spec_version == 1:
        catalog = CatalogV1(storage, assets, update_settings, config_version)
    kept = KeptBytes(settings.cached_chunk_bytes) if settings.cached_chunk_bytes else None
    return Context(storage, config, settings, assets, virtual, catalog, attribution, kept)


def saved_config(storage: Storage) -> RepositoryConfig | None:
    """The configuration that the repository has saved; None if it has none."""
    try:
        info, _, _ = read_repo_info(storage)
    except RepositoryNotFoundError:
        if storage.head(V1_MAIN) is None:
            raise
        return read_config_v1(storage)[0]
    return None if info.config is None else from_document(info.config)


def _container(container: VirtualChunkContainer) -> Container:
    """A path of local files counts if the user gave it: one that a repository names could lead anywhere, and
    what the user has authorised is the prefix.
    """
    store = container.store
    if isinstance(store, ObjectStoreConfig.LocalFileSystem) and container.from_repository:
        store = ObjectStoreConfig.LocalFileSystem("")
    return Container(container.name, container.url_prefix, store, not container.from_repository)


def explicit_access(given: Authorized | None) -> dict[str, AnyCredential]:
    """The credentials by prefix. ``None`` for one grants access without credentials, and is deprecated."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(prefix, str) for prefix in given):
        raise TypeError(
            "authorize_virtual_chunk_access: expected a dict of URL prefixes to credentials, "
            f"found {type(given).__name__}"
        )
    return {prefix: _explicit(prefix, credential) for prefix, credential in given.items()}


def _explicit(prefix: str, credential: AnyCredential | None) -> AnyCredential:
    if credential is not None:
        return credential
    granted = anonymous_access(prefix)
    warnings.warn(
        f"`None` in authorize_virtual_chunk_access for the container {shown_url(prefix)!r} is deprecated. It "
        "grants access without credentials; name the access that you mean: LocalFileSystemAccess or "
        "HttpAccess, or with containers_credentials() for example s3_anonymous_credentials() or "
        "s3_from_env_credentials()",
        DeprecationWarning,
        skip_file_prefixes=(_PACKAGE,),
    )
    return granted


def attributed(storage: Storage, attribution: Attribution | None) -> Storage:
    return storage if attribution is None else storage.with_user_agent(attribution.user_agent())


def version_to_create(version: SpecVersion | int | None) -> int:
    if version is None:
        return 2
    number = version.value if isinstance(version, SpecVersion) else version
    if number not in (1, 2):
        raise ValueError(f"spec_version: expected spec version 1 or 2, found {version!r}")
    return number


def is_of_creation(found: ObjectInfo) -> bool:
    """A file of somebody who creates a repository at the same time, or was killed while doing so."""
    return found.key in _FIRST_FILES or found.key.startswith(f"{PROBES}/")


def require_writable(storage: Storage) -> None:
    if storage.is_read_only:
        raise ReadOnlyError(
            f"{storage.place()} is read only: open it with a storage that writes", ErrorKind.READ_ONLY_STORAGE
        )
