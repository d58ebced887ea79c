"""Opening a repository: the context that its handle and the handle's sessions share."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from frazil.chunks.byte_cache import ByteCache
from frazil.chunks.virtual import VirtualSources
from frazil.errors import ErrorKind, FormatError, ReadOnlyError, RepositoryNotFoundError
from frazil.format.keys import REPO
from frazil.format.repo_info import RepoInfo
from frazil.lazy_names import ModuleOnDemand
from frazil.repository.attribution import Attribution
from frazil.repository.catalog.assets import Assets, CacheLimits
from frazil.repository.catalog.backups import with_restore_advice
from frazil.repository.catalog.catalog import Catalog, CatalogV2
from frazil.repository.catalog.catalog_v1 import V1_MAIN, CatalogV1, read_config_v1
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_info_file import RepoInfoCache, open_current_repo_info, read_repo_info
from frazil.repository.catalog.repo_update import UpdateSettings
from frazil.repository.catalog.version_info import SpecVersion
from frazil.repository.handle.virtual_access import Authorized, container_of, explicit_access
from frazil.repository.settings.config import RepositoryConfig, opened_with
from frazil.repository.settings.config_document import from_document
from frazil.repository.settings.resolved import ResolvedConfig
from frazil.storage.base import Storage, Version
from frazil.storage.foreign.on_demand import open_on_demand

if TYPE_CHECKING:
    from frazil.repository.catalog import generations
else:
    generations = ModuleOnDemand("frazil.repository.catalog.generations")


@dataclass(frozen=True, slots=True)
class HandleOptions:
    """The arguments of a caller who opens or creates a repository."""

    config: RepositoryConfig | None = None
    authorized: Authorized | None = None
    attribution: Attribution | None = None

    def attributed(self, storage: Storage) -> Storage:
        """Return the storage with the labels of ``attribution`` in its requests."""
        return storage if self.attribution is None else storage.with_user_agent(self.attribution.user_agent())


@dataclass(frozen=True, slots=True)
class StoredSettings:
    """What a repository records about itself: its saved configuration and the version of its format.

    No other object uses ``config``. ``config_version`` is the version of the configuration file of spec
    version 1, as the storage reports it.
    """

    config: RepositoryConfig | None = None
    spec_version: int = 2
    config_version: Version | None = None


def build_context(
    storage: Storage, options: HandleOptions, stored: StoredSettings, cache: RepoInfoCache | None = None
) -> Context:
    """Return the context of a new handle. ``cache`` may have the repo info that was read to open it."""
    # A saved configuration is not validated: an older version with other rules may have saved it.
    if options.config is not None:
        options.config.validate()
    # A copy, so that later changes of the caller's object do not change this handle. The others are new.
    config = opened_with(deepcopy(options.config), stored.config, storage.default_settings())
    settings = ResolvedConfig.of(config)
    storage = storage.with_settings(settings.storage)
    containers = list(map(container_of, settings.virtual_chunk_containers.values()))
    attribution = options.attribution or Attribution()
    connect = partial(open_on_demand, user_agent=attribution.user_agent())
    virtual = VirtualSources(containers, explicit_access(options.authorized), open_foreign=connect)
    limits = CacheLimits(settings.cached_snapshot_nodes, settings.cached_chunk_refs)
    assets = Assets(storage, limits, cache)
    update_settings = UpdateSettings.of(settings)
    catalog: Catalog = CatalogV2(storage, assets, update_settings, principal=attribution.principal)
    if stored.spec_version == 1:
        catalog = CatalogV1(storage, assets, update_settings, stored.config_version)
    chunk_cache = ByteCache(settings.cached_chunk_bytes) if settings.cached_chunk_bytes else None
    return Context(storage, config, settings, assets, virtual, catalog, attribution, chunk_cache)


@dataclass(frozen=True, slots=True)
class Opened:
    """A repository that was just opened.

    Attributes:
        context: The context of its handle.
        info: The refs and snapshots that were read to open it. A session that starts later reads them again,
            because others may have committed.
    """

    context: Context
    info: RepoInfo


def open_current(storage: Storage, options: HandleOptions) -> Opened:
    """Open the repository in ``storage``, and read its refs and snapshots once."""
    storage = options.attributed(storage)
    cache = RepoInfoCache()
    try:
        info = open_current_repo_info(storage, cache)
    except FormatError as error:
        raise with_restore_advice(storage, error) from error.__cause__
    except RepositoryNotFoundError as error:
        if storage.head(V1_MAIN) is None:
            generations.refuse_older(storage)
            raise with_restore_advice(storage, error) from error.__cause__
        context = build_context(storage, options, _stored_settings_v1(storage), cache)
        return Opened(context, context.catalog.repo_info())
    return Opened(opened_before(storage, options, info, cache), info)


def opened_before(
    storage: Storage, options: HandleOptions, info: RepoInfo, cache: RepoInfoCache | None = None
) -> Context:
    """Return the context of a handle on a repository of spec version 2 with this file ``repo``."""
    return build_context(storage, options, StoredSettings(_config_of(info)), cache)


def open_context(storage: Storage, options: HandleOptions) -> Context:
    """Return the context of a handle on the repository in ``storage``. See `open_current`."""
    return open_current(storage, options).context


def saved_config(storage: Storage) -> RepositoryConfig | None:
    """Return the configuration that the repository has saved, or None."""
    try:
        info, _, _ = read_repo_info(storage)
    except RepositoryNotFoundError:
        if storage.head(V1_MAIN) is None:
            raise
        return _stored_settings_v1(storage).config
    return _config_of(info)


def _config_of(info: RepoInfo) -> RepositoryConfig | None:
    return None if info.config is None else from_document(info.config)


def _stored_settings_v1(storage: Storage) -> StoredSettings:
    config, version = read_config_v1(storage)
    return StoredSettings(config, 1, version)


def stored_spec_version(storage: Storage) -> SpecVersion | None:
    """Return the version of the format of the repository in ``storage``, or None without a repository."""
    if storage.head(REPO) is not None:
        return SpecVersion.v2
    if storage.head(V1_MAIN) is not None:
        return SpecVersion.v1
    generations.refuse_older(storage)
    return None


def repository_exists(storage: Storage) -> bool:
    """Return whether ``storage`` contains a repository, of an older format as well."""
    newer = storage.head(REPO) is not None or storage.head(V1_MAIN) is not None
    return newer or generations.older_layout(storage) is not None


def require_writable(storage: Storage) -> None:
    """Raise ``ReadOnlyError`` (``read-only-storage``) if the storage is read-only."""
    if storage.is_read_only:
        raise ReadOnlyError(
            f"{storage.label()} is read-only. Open it with a writable storage", ErrorKind.READ_ONLY_STORAGE
        )
