"""Creating a repository: its first files, and the context of its first handle.

Specification: *Initialize New Repository*.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from frazil.errors import ErrorKind, StorageError
from frazil.format.ids import INITIAL_SNAPSHOT_ID
from frazil.format.keys import REPO, snapshot_key, transaction_key
from frazil.format.repo_info import encode_repo_info, new_repo_info
from frazil.format.snapshot import encode_snapshot, initial_snapshot
from frazil.format.transaction_log import empty_log, encode_transaction_log
from frazil.repository.catalog.catalog_v1 import CatalogV1
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.creation import create_first, not_empty, require_prefix
from frazil.repository.catalog.repo_update import policy_of
from frazil.repository.catalog.version_info import SpecVersion
from frazil.repository.clock import now_us
from frazil.repository.handle.opening import (
    HandleOptions,
    StoredSettings,
    build_context,
    repository_exists,
    require_writable,
)
from frazil.repository.settings.config import RepositoryConfig
from frazil.repository.settings.config_document import document_to_save
from frazil.repository.settings.manifest_config import AUTO, ManifestConfig
from frazil.storage.base import ObjectInfo, Storage
from frazil.storage.probe import PROBES, create_and_probe, probe_conditions

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
