"""What it takes to open or create a repository: everything that its handle and sessions share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from functools import partial

from frazil.chunks.kept import KeptBytes
from frazil.chunks.virtual import Container, VirtualSources
from frazil.errors import ErrorKind, ReadOnlyError
from frazil.format.ids import INITIAL_SNAPSHOT_ID
from frazil.format.keys import snapshot_key, transaction_key
from frazil.repository.assets import Assets, CacheLimits
from frazil.repository.attribution import Attribution
from frazil.repository.catalog import Catalog, CatalogV2
from frazil.repository.catalog_v1 import CatalogV1
from frazil.repository.config import RepositoryConfig, opened_with
from frazil.repository.context import Context
from frazil.repository.effective import Effective
from frazil.repository.values import SpecVersion
from frazil.repository.virtual_values import VirtualChunkContainer
from frazil.storage.base import ObjectInfo, Storage, Version
from frazil.storage.credentials import AnyCredential
from frazil.storage.foreign import open_foreign
from frazil.storage.object_store_config import ObjectStoreConfig
from frazil.storage.probe import PROBES

#: Prefixes of URLs, and what opens them.
Authorized = Mapping[str, AnyCredential | None]

_FIRST_FILES = {snapshot_key(INITIAL_SNAPSHOT_ID), transaction_key(INITIAL_SNAPSHOT_ID)}


def context_of(
    storage: Storage,
    user: RepositoryConfig | None,
    saved: RepositoryConfig | None,
    credentials: Authorized | None,
    spec_version: int = 2,
    config_version: Version | None = None,
    attribution: Attribution | None = None,
    known: Collection[Container] = (),
) -> Context:
    """``user`` is the configuration that the user gave, ``saved`` that of the repository; ``known`` are the
    containers of a handle that is opened anew.
    """
    if user is not None:
        user.validate()  # what is saved may be of a version that had other rules
    # A copy: what becomes of the user's configuration afterwards is no business of this handle.
    config = deepcopy(opened_with(user, saved, storage.default_settings()))
    settings = Effective.of(config)
    storage = storage.with_settings(settings.storage)
    given = {container.url_prefix for container in known if container.is_given}
    if user is not None and user.virtual_chunk_containers is not None:
        given = set(settings.virtual_chunk_containers)
    containers = [
        _container(container, container.url_prefix in given)
        for container in settings.virtual_chunk_containers.values()
    ]
    authorized = {} if credentials is None else credentials
    if not isinstance(authorized, Mapping) or not all(isinstance(prefix, str) for prefix in authorized):
        raise TypeError(
            "authorize_virtual_chunk_access: expected a dict of URL prefixes to credentials or None, "
            f"found {type(credentials).__name__}"
        )
    attribution = attribution or Attribution()
    connect = partial(open_foreign, user_agent=attribution.user_agent())
    virtual = VirtualSources(containers, dict(credentials or {}), open_foreign=connect)
    limits = CacheLimits(settings.cached_snapshot_nodes, settings.cached_chunk_refs)
    assets = Assets(storage, limits)
    catalog: Catalog = CatalogV2(storage, assets)
    if spec_version == 1:
        catalog = CatalogV1(storage, assets, config_version)
    kept = KeptBytes(settings.cached_chunk_bytes) if settings.cached_chunk_bytes else None
    return Context(storage, config, settings, assets, virtual, catalog, attribution, kept)


def _container(container: VirtualChunkContainer, is_given: bool) -> Container:
    """A path of local files counts if the user gave it: one that a repository brings along could lead
    anywhere, and what the user has authorised is the prefix.
    """
    store = container.store
    if isinstance(store, ObjectStoreConfig.LocalFileSystem) and not is_given:
        store = ObjectStoreConfig.LocalFileSystem("")
    return Container(container.name, container.url_prefix, store, is_given)


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
