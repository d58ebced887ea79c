"""Opening a repository: the context that its handle and the handle's sessions share.

Specification: *Initialize New Repository*.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from frazil.about import PACKAGE_FOLDER
from frazil.chunks.ranges import ByteCache
from frazil.chunks.virtual import Container, VirtualSources
from frazil.errors import ErrorKind, FormatError, ReadOnlyError, RepositoryNotFoundError, StorageError
from frazil.format.ids import INITIAL_SNAPSHOT_ID, REPO, snapshot_key, transaction_key
from frazil.format.repo_info import RepoInfo, encode_repo_info, new_repo_info
from frazil.format.snapshot import encode_snapshot, initial_snapshot
from frazil.format.transaction_log import empty_log, encode_transaction_log
from frazil.lazy_names import ModuleOnDemand
from frazil.repository.attribution import Attribution
from frazil.repository.catalog.assets import Assets, CacheLimits
from frazil.repository.catalog.backups import with_restore_advice
from frazil.repository.catalog.catalog import Catalog, CatalogV2
from frazil.repository.catalog.catalog_v1 import V1_MAIN, CatalogV1, read_config_v1
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_update import (
    RepoInfoCache,
    UpdateSettings,
    open_current_repo_info,
    policy_of,
    read_repo_info,
)
from frazil.repository.catalog.spec_versions import create_first, not_empty, require_prefix
from frazil.repository.catalog.version_info import SpecVersion
from frazil.repository.clock import now_us
from frazil.repository.settings.config import RepositoryConfig, VirtualChunkContainer, opened_with
from frazil.repository.settings.config_document import document_to_save, from_document
from frazil.repository.settings.manifest_config import AUTO, ManifestConfig
from frazil.repository.settings.resolved import ResolvedConfig
from frazil.storage.access import anonymous_access
from frazil.storage.base import ObjectInfo, Storage, Version
from frazil.storage.checks import PROBES, create_and_probe, probe_conditions
from frazil.storage.chunk_places import open_on_demand
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


if TYPE_CHECKING:
    from frazil.repository.catalog import spec_versions as generations
else:
    generations = ModuleOnDemand("frazil.repository.catalog.spec_versions")


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


_FIRST_FILES: Final = {snapshot_key(INITIAL_SNAPSHOT_ID), transaction_key(INITIAL_SNAPSHOT_ID)}


def create_context(
    storage: Storage,
    options: HandleOptions,
    spec_version: SpecVersion | int | None,
    *,
    check_clean_root: bool,
    store_secrets: bool,
) -> Context:
    """Create a repository and return the context of a handle on it. See ``Repository.create``."""
    version = _version_number(spec_version)
    storage = options.attributed(storage)
    is_empty = _require_usable(storage, check_clean_root=check_clean_root)
    if version > 1:
        options = replace(options, config=_with_windows(options.config))
    config = options.config
    document = None
    if config is not None and config != RepositoryConfig():
        document = document_to_save(config, store_secrets)
    context = build_context(storage, options, StoredSettings(spec_version=version))
    if isinstance(context.catalog, CatalogV1):
        if not storage.is_local:
            probe_conditions(context.storage)
        context.catalog.create(document)
    else:
        _write_first_files(context, document, is_empty=is_empty)
    return context


def _with_windows(config: RepositoryConfig | None) -> RepositoryConfig:
    """Return the configuration of a new repository: manifests split themselves, unless it has other rules."""
    default = RepositoryConfig(manifest=ManifestConfig(splitting=AUTO))
    return default if config is None else default.merge(config)


def _version_number(version: SpecVersion | int | None) -> int:
    if version is None:
        return 2
    number = version.value if isinstance(version, SpecVersion) else version
    if number not in (1, 2):
        raise ValueError(f"spec_version must be 1 or 2, got {version!r}")
    return number


def _require_usable(storage: Storage, *, check_clean_root: bool) -> bool:
    """Raise an error if no repository can be created in ``storage``. Return whether a list of it is empty."""
    require_writable(storage)
    require_prefix(storage)
    if not check_clean_root:
        return False
    is_empty = True
    for info in storage.list(""):
        is_empty = False
        if not _is_of_creation(info):
            raise not_empty(storage, info.key, is_repository=repository_exists(storage))
    return is_empty


def _is_of_creation(info: ObjectInfo) -> bool:
    """Return whether the file may come from another creation of this repository, finished or not."""
    return info.key in _FIRST_FILES or info.key.startswith(f"{PROBES}/")


def _write_first_files(context: Context, config: dict[str, Any] | None, *, is_empty: bool) -> None:
    """Test the storage, write the first snapshot, its transaction log, and last the file ``repo``."""
    storage = context.storage
    level = context.settings.compression_level
    now = now_us()
    snapshot = (
        snapshot_key(INITIAL_SNAPSHOT_ID),
        encode_snapshot(initial_snapshot(now), level=level),
    )
    log = (
        transaction_key(INITIAL_SNAPSHOT_ID),
        encode_transaction_log(empty_log(INITIAL_SNAPSHOT_ID), level=level),
    )
    if storage.is_local or not (is_empty and _create_and_probe(storage, snapshot, log)):
        if not storage.is_local:
            probe_conditions(storage)
        for key, data in (snapshot, log):
            storage.put(key, data)
    first = encode_repo_info(new_repo_info(now, config), level=level)
    create_first(storage, REPO, first, policy_of(context.settings))


def _create_and_probe(storage: Storage, snapshot: tuple[str, bytes], log: tuple[str, bytes]) -> bool:
    """Create the files and test the storage by them. Delete them again if the storage ignores conditions.

    Return False if nothing is tested, because another writer creates a repository at the same time.
    """
    try:
        return create_and_probe(storage, snapshot, log)
    except StorageError as error:
        # A writer that does not test the storage may have created a repository, which needs these files.
        if error.kind == ErrorKind.CONDITIONS_NOT_SUPPORTED and storage.head(REPO) is None:
            storage.delete([snapshot[0], log[0]])
        raise
