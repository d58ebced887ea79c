"""Opening and creation of repositories: the context that a handle and its sessions share.

A repository of an older format than spec version 1 cannot be opened, only imported (``frazil.upgrade``).

Specification: *Initialize New Repository*.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from frazil import host
from frazil.about import PACKAGE_FOLDER
from frazil.chunks.ranges import RangeCache
from frazil.chunks.virtual import Container, VirtualSources, open_on_demand
from frazil.errors import (
    ErrorKind,
    FormatError,
    InvalidInputError,
    ReadOnlyError,
    RepositoryNotFoundError,
    StorageError,
)
from frazil.format.ids import INITIAL_SNAPSHOT_ID, REPO, snapshot_key, transaction_key
from frazil.format.repo_info import RepoInfo, encode_repo_info, new_repo_info
from frazil.format.snapshot import decode_snapshot, encode_snapshot, initial_snapshot
from frazil.format.transaction_log import empty_log, encode_transaction_log
from frazil.remedies import call
from frazil.repository.attribution import Attribution
from frazil.repository.catalog.assets import Assets, CacheLimits
from frazil.repository.catalog.catalog_v1 import V1_MAIN, CatalogV1, first_config, new_mark, read_config_v1
from frazil.repository.catalog.context import Catalog, CatalogV2, Context
from frazil.repository.catalog.files_v1 import encode_ref
from frazil.repository.catalog.repo_update import (
    RepoInfoCache,
    UpdateSettings,
    open_current_repo_info,
    read_repo_info,
    with_restore_advice,
)
from frazil.repository.catalog.version_info import SpecVersion
from frazil.repository.clock import now_us
from frazil.repository.retries import RetryPolicy, write_once
from frazil.repository.settings.config import (
    RepositoryConfig,
    ResolvedConfig,
    VirtualChunkContainer,
    opened_with,
)
from frazil.repository.settings.config_document import document_to_save, from_document
from frazil.repository.settings.manifest_config import AUTO, ManifestConfig
from frazil.storage.access import anonymous_access
from frazil.storage.base import IfAbsent, Refused, Storage, Version
from frazil.storage.checks import PROBES, create_and_probe, probe_conditions
from frazil.storage.credential_families import AnyCredential
from frazil.storage.object_store_config import ObjectStoreConfig
from frazil.storage.option_names import shown_url

#: The folder of the refs of ``main`` in a format before spec version 1 -> the writers of this format.
_OLDER: Final = {
    "refs/branch.main": "icechunk 0.1.0a2 to 0.1.3",
    "refs/branch:main": "icechunk 0.1.0a1",
    "r/main": "the draft of 2024",
}
#: The names of the files there: a number of 40 or 64 bits, in Crockford base32.
_OLDER_FILE: Final = re.compile(r"[0-9A-HJKMNP-TV-Z]{8}([0-9A-HJKMNP-TV-Z]{4}[02468ACEGJMPRTWY])?\.json")


def older_refs(storage: Storage) -> str | None:
    """Return the folder of the refs of ``main`` in an older repository. None if there is none to list."""
    for folder in _OLDER:
        with suppress(StorageError):
            if any(_OLDER_FILE.fullmatch(info.key.rpartition("/")[2]) for info in storage.list(folder)):
                return folder
    return None


def refuse_older(storage: Storage) -> None:
    """Raise ``FormatError`` (``unsupported-spec-version``) if the storage has an older repository."""
    folder = older_refs(storage)
    if folder is not None:
        raise FormatError(
            f"{storage.label()} has a repository of an older format, as written by {_OLDER[folder]}, "
            "which cannot be opened",
            ErrorKind.UNSUPPORTED_SPEC_VERSION,
        ).with_remedy("Import it with `{}`", call("upgrade"))


def spec_version() -> SpecVersion:
    """Return the version of the format that new repositories get.

    Returns:
        The newest version.

    Examples:
        >>> spec_version()
        SpecVersion.v2 (current)
    """
    return SpecVersion.current()


def supported_spec_versions() -> list[SpecVersion]:
    """Return the versions of the format that this library reads and writes.

    Returns:
        The versions, the newest first.

    Examples:
        >>> supported_spec_versions()
        [SpecVersion.v2 (current), SpecVersion.v1]
    """
    return sorted(SpecVersion, key=int, reverse=True)


def not_empty(storage: Storage, key: str, *, is_repository: bool) -> InvalidInputError:
    """Return the error for a new repository in a storage that already has the object ``key``."""
    kind = ErrorKind.PARENT_DIRECTORY_NOT_CLEAN
    if is_repository:
        error = InvalidInputError(f"a repository already exists in the storage {storage.label()}", kind)
        return error.with_remedy("Open it with Repository.open", shell="")
    return InvalidInputError(
        f"the storage must be empty for a new repository, got `{key}` in {storage.label()}", kind
    ).with_remedy(
        "Use an empty directory or prefix, or pass check_clean_root=False to keep the other files",
        shell="Use an empty directory or prefix",
    )


def require_prefix(storage: Storage) -> None:
    """Raise an error if a new repository would be at the root of a bucket."""
    if storage.is_whole_bucket:
        raise InvalidInputError(
            f"a new repository must have a prefix in the bucket, got {storage.label()}. Pass a prefix",
            ErrorKind.EMPTY_PREFIX_CREATION,
        )


#: Credentials by URL prefix.
Authorized = Mapping[str, AnyCredential | None]


def container_of(container: VirtualChunkContainer) -> Container:
    """Return the container in the form that readers of chunks use."""
    store = container.store
    # A path that a repository has saved could point anywhere, and the caller has authorised only the prefix.
    if isinstance(store, ObjectStoreConfig.LocalFileSystem) and container.from_repository:
        store = ObjectStoreConfig.LocalFileSystem("")
    is_given, warns = not container.from_repository, container.on_changed == "warn"
    return Container(container.name, container.url_prefix, store, is_given, warns)


def explicit_access(authorized: Authorized | None) -> dict[str, AnyCredential]:
    """Return the credentials by prefix. None grants access without credentials; it is deprecated."""
    if authorized is None:
        return {}
    if not isinstance(authorized, Mapping) or not all(isinstance(prefix, str) for prefix in authorized):
        raise TypeError(
            "authorize_virtual_chunk_access must be a dict from URL prefixes to credentials, "
            f"got {type(authorized).__name__}"
        )
    access = {
        prefix: anonymous_access(prefix) if each is None else each for prefix, each in authorized.items()
    }
    for prefix in (prefix for prefix, each in authorized.items() if each is None):
        warnings.warn(
            f"`None` in authorize_virtual_chunk_access for the container {shown_url(prefix)!r} is "
            "deprecated. It grants access without credentials. Pass LocalFileSystemAccess or HttpAccess "
            "instead, or use containers_credentials(), for example with s3_anonymous_credentials() or "
            "s3_from_env_credentials()",
            DeprecationWarning,
            skip_file_prefixes=(PACKAGE_FOLDER,),
        )
    return access


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
    """The saved configuration of a repository, its spec version, and the version of the file of version 1."""

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
    size = settings.cached_chunk_bytes
    chunk_cache = RangeCache(size) if size else None
    if size is None:
        chunk_cache = RangeCache(_VIRTUAL_CACHE, only_virtual=True)
    return Context(storage, config, settings, assets, virtual, catalog, attribution, chunk_cache)


#: The size of the cache for remote virtual chunks if the configuration does not set one, in bytes.
_VIRTUAL_CACHE: Final = 64 << 20


def open_current(storage: Storage, options: HandleOptions) -> tuple[Context, RepoInfo]:
    """Open the repository in ``storage``. Return its context, and the refs and snapshots that were read."""
    storage = options.attributed(storage)
    cache = RepoInfoCache()
    try:
        info = open_current_repo_info(storage, cache)
    except FormatError as error:
        raise with_restore_advice(storage, error) from error.__cause__
    except RepositoryNotFoundError as error:
        if storage.head(V1_MAIN) is None:
            refuse_older(storage)
            raise with_restore_advice(storage, error) from error.__cause__
        config, version = read_config_v1(storage)
        context = build_context(storage, options, StoredSettings(config, 1, version), cache)
        return context, context.catalog.repo_info()
    return opened_before(storage, options, info, cache), info


def opened_before(
    storage: Storage, options: HandleOptions, info: RepoInfo, cache: RepoInfoCache | None = None
) -> Context:
    """Return the context of a handle on a repository of spec version 2 with this file ``repo``."""
    return build_context(storage, options, StoredSettings(_config_of(info)), cache)


def open_context(storage: Storage, options: HandleOptions) -> Context:
    """Return the context of a handle on the repository in ``storage``. See `open_current`."""
    return open_current(storage, options)[0]


def saved_config(storage: Storage) -> RepositoryConfig | None:
    """Return the configuration that the repository has saved, or None."""
    try:
        info, _, _ = read_repo_info(storage)
    except RepositoryNotFoundError:
        if storage.head(V1_MAIN) is None:
            raise
        return read_config_v1(storage)[0]
    return _config_of(info)


def _config_of(info: RepoInfo) -> RepositoryConfig | None:
    return None if info.config is None else from_document(info.config)


def repository_exists(storage: Storage) -> bool:
    """Return whether ``storage`` contains a repository, of an older format as well."""
    is_newer = any(storage.head(key) is not None for key in (REPO, V1_MAIN))
    return is_newer or older_refs(storage) is not None


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
    check_clean_root: bool,
    store_secrets: bool,
) -> Context:
    """Create a repository and return the context of a handle on it. See ``Repository.create``."""
    version = 2 if spec_version is None else int(spec_version)
    if version not in (1, 2):
        raise ValueError(f"spec_version must be 1 or 2, got {spec_version!r}")
    storage = options.attributed(storage)
    require_writable(storage)
    require_prefix(storage)
    is_empty = check_clean_root
    for info in storage.list("") if check_clean_root else ():
        is_empty = False
        # Another creation of this repository, finished or not, may have left these files.
        if info.key not in _FIRST_FILES and not info.key.startswith(f"{PROBES}/"):
            raise not_empty(storage, info.key, is_repository=repository_exists(storage))
    if version > 1:  # the manifests of new repositories split themselves, unless there are other rules
        default = RepositoryConfig(manifest=ManifestConfig(splitting=AUTO))
        config = default if options.config is None else default.merge(options.config)
        options = replace(options, config=config)
    document = None
    if options.config is not None and options.config != RepositoryConfig():
        document = document_to_save(options.config, store_secrets)
    context = build_context(storage, options, StoredSettings(spec_version=version))
    if isinstance(context.catalog, CatalogV1):
        _write_first_files_v1(context.catalog, document)
    else:
        _write_first_files(context, document, is_empty=is_empty)
    return context


def _write_first_files(context: Context, config: dict[str, Any] | None, *, is_empty: bool) -> None:
    """Test the storage, write the first snapshot, its transaction log, and last the file ``repo``."""
    storage, level, now = context.storage, context.settings.compression_level, now_us()
    log = encode_transaction_log(empty_log(INITIAL_SNAPSHOT_ID), level=level)
    files = (
        (snapshot_key(INITIAL_SNAPSHOT_ID), encode_snapshot(initial_snapshot(now), level=level)),
        (transaction_key(INITIAL_SNAPSHOT_ID), log),
    )
    is_tested = False
    if is_empty and not storage.is_local:
        try:  # False if another writer creates a repository at the same time
            is_tested = create_and_probe(storage, *files)
        except StorageError as error:
            # A writer that does not test the storage may have created a repository, which needs these files.
            if error.kind == ErrorKind.CONDITIONS_NOT_SUPPORTED and storage.head(REPO) is None:
                storage.delete([key for key, _ in files])
            raise
    flushed_at = now
    if not is_tested:
        if not storage.is_local:
            probe_conditions(storage)
        refused = [key for key, data in files if isinstance(storage.put(key, data, IfAbsent()), Refused)]
        storage.flush_folders([key.partition("/")[0] for key in refused])
        if snapshot_key(INITIAL_SNAPSHOT_ID) in refused:
            # Another creation has written the snapshot. It stays, because `repo` of either has its time. The
            # random microseconds make the bytes of both differ.
            key = snapshot_key(INITIAL_SNAPSHOT_ID)
            flushed_at = decode_snapshot(storage.get(key), key).flushed_at
            now = max(now, flushed_at) + 2 + int.from_bytes(host.random_bytes(2))
    first = encode_repo_info(new_repo_info(flushed_at, config, updated_at=now), level=level)
    _create_first(storage, REPO, first, UpdateSettings.of(context.settings).policy)


def _write_first_files_v1(catalog: CatalogV1, config: dict[str, Any] | None) -> None:
    """Write the files of a repository of spec version 1. It exists when its branch ``main`` exists."""
    storage = catalog.storage
    if not storage.is_local:
        probe_conditions(storage)
    snapshot = initial_snapshot(now_us(), spec_version=1)
    data = encode_snapshot(snapshot, level=catalog.settings.compression_level)
    storage.put(snapshot_key(snapshot.id), data)
    _create_first(storage, V1_MAIN, encode_ref(snapshot.id, new_mark()), RetryPolicy())
    try:
        if storage.head(REPO) is not None:
            raise not_empty(storage, REPO, is_repository=True)
        if config is not None:  # only the creator of `main` writes the configuration
            catalog.write_file(first_config(config))
    except StorageError as error:
        raise StorageError(
            f"the repository in {storage.label()} was created, but without a configuration: "
            f"{error.problem}. Open it with `Repository.open`, and call `save_config`",
            error.kind,
        ) from error


def _create_first(storage: Storage, key: str, data: bytes, policy: RetryPolicy) -> None:
    """Write the first file of a repository, unless another writer has written it with other bytes."""
    if not write_once(storage, key, data, policy, IfAbsent(), "the creation of the repository"):
        raise not_empty(storage, key, is_repository=True)
