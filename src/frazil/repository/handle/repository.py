"""``Repository``: create and open one, and what its handle is."""

from __future__ import annotations

from copy import deepcopy
from textwrap import indent
from typing import Self

from frazil.arguments import checks_arguments
from frazil.display import Lines, record_html
from frazil.errors import InvalidInputError
from frazil.repository.asynchronous import awaitable, awaitable_class, awaitable_static
from frazil.repository.attribution import Attribution
from frazil.repository.catalog.catalog_v1 import CatalogV1
from frazil.repository.catalog.version_info import SpecVersion
from frazil.repository.handle.administration import Administration
from frazil.repository.handle.creation import create_context
from frazil.repository.handle.inspection import Inspection
from frazil.repository.handle.integration import Integration
from frazil.repository.handle.leases import Leases
from frazil.repository.handle.opening import (
    HandleOptions,
    StoredSettings,
    build_context,
    open_context,
    repository_exists,
    saved_config,
    stored_spec_version,
)
from frazil.repository.handle.recovery import Recovery
from frazil.repository.handle.refs import Refs
from frazil.repository.handle.sessions import Sessions
from frazil.repository.handle.storage_statistics import StorageStatistics
from frazil.repository.handle.upkeep import Upkeep
from frazil.repository.handle.version_history import VersionHistory
from frazil.repository.handle.virtual_access import Authorized
from frazil.repository.settings.config import RepositoryConfig
from frazil.storage.base import Storage
from frazil.storage.credentials import AnyCredential
from frazil.storage.settings import StorageSettings


@checks_arguments
class Repository(
    VersionHistory,
    Sessions,
    Administration,
    Refs,
    Upkeep,
    Leases,
    StorageStatistics,
    Inspection,
    Integration,
    Recovery,
):
    """A repository: a history of versions of one Zarr hierarchy, with branches and tags.

    Made by ``create``, ``open`` and ``open_or_create``. A handle keeps no lock and no state but caches:
    many of them, in many processes, may work on one repository.

    >>> import frazil, zarr
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> with repo.transaction("main", message="first") as store:
    ...     array = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
    ...     array[:] = [1, 2, 3, 4]
    >>> [commit.message for commit in repo.ancestry(branch="main")]
    ['first', 'Repository initialized']
    """

    def __repr__(self) -> str:
        storage = indent(repr(self.storage), "    ")
        return f"<{self._title()}>\nstorage:\n{storage}config: <RepositoryConfig ...>\n"

    def _title(self) -> str:
        return f"frazil.Repository ({self.spec_version.name})"

    def _repr_html_(self) -> str:
        storage = Lines("frazil.Storage", repr(self.storage))
        return record_html(self._title(), [("storage", storage), ("config", self.config)])

    # Create and open

    @classmethod
    def create(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Authorized | None = None,
        spec_version: SpecVersion | int | None = None,
        check_clean_root: bool = True,
        attribution: Attribution | None = None,
        *,
        store_secrets: bool = False,
    ) -> Self:
        """A new repository, with a branch ``main`` on an empty snapshot.

        Raises ``InvalidInputError`` if there is something already (``parent-directory-not-clean``), or in a
        bucket without a prefix (``empty-prefix-creation``); ``StorageError`` (``conditions-not-supported``)
        if the storage does not keep the conditions that make commits safe.

        ``config`` is saved in the repository. Options and headers of its virtual chunk containers that may
        hold a secret are refused (``InvalidInputError``, ``secret-in-config``) without ``store_secrets``.
        """
        options = HandleOptions(config, authorize_virtual_chunk_access, attribution)
        return cls(
            create_context(
                storage,
                options,
                spec_version,
                check_clean_root=check_clean_root,
                store_secrets=store_secrets,
            )
        )

    @classmethod
    def open(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Authorized | None = None,
        attribution: Attribution | None = None,
    ) -> Self:
        """The repository in ``storage``; ``RepositoryNotFoundError`` if there is none.

        What ``config`` sets goes before what the repository has saved. ``attribution``: see there.
        """
        return cls(open_context(storage, HandleOptions(config, authorize_virtual_chunk_access, attribution)))

    @classmethod
    def open_or_create(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Authorized | None = None,
        create_version: SpecVersion | int | None = None,
        check_clean_root: bool = True,
        attribution: Attribution | None = None,
        *,
        store_secrets: bool = False,
    ) -> Self:
        """``open``, or ``create`` where there is nothing yet."""
        if not cls.exists(storage):
            try:
                return cls.create(
                    storage,
                    config,
                    authorize_virtual_chunk_access,
                    create_version,
                    check_clean_root,
                    attribution,
                    store_secrets=store_secrets,
                )
            except InvalidInputError:
                if not cls.exists(storage):
                    raise
        return cls.open(storage, config, authorize_virtual_chunk_access, attribution)

    @staticmethod
    def exists(storage: Storage, storage_settings: StorageSettings | None = None) -> bool:
        """Whether there is a repository in ``storage``, also one that has to be imported before it opens."""
        if storage_settings is not None:
            storage = storage.with_settings(storage_settings)
        return repository_exists(storage)

    @staticmethod
    def fetch_config(storage: Storage) -> RepositoryConfig | None:
        """The configuration that the repository has saved; None if it has none."""
        return saved_config(storage)

    @staticmethod
    def fetch_spec_version(
        storage: Storage, storage_settings: StorageSettings | None = None
    ) -> SpecVersion | None:
        """The version of the format that the repository has; None if there is none.

        ``FormatError`` (``unsupported-spec-version``) for one that is older than all versions.
        """
        if storage_settings is not None:
            storage = storage.with_settings(storage_settings)
        return stored_spec_version(storage)

    def reopen(
        self,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Authorized | None = None,
    ) -> Self:
        """Another handle on this repository, with another configuration."""
        return self._at_version(self._context.spec_version, config, authorize_virtual_chunk_access)

    def reconfigure(
        self, config: RepositoryConfig, authorize_virtual_chunk_access: Authorized | None = None
    ) -> None:
        """Give this handle another configuration, and other authorised containers (as before if not given).

        Sessions that are open keep what they have. Nothing is saved: see ``save_config``.
        """
        self._context = self.reopen(config, authorize_virtual_chunk_access)._context

    def _at_version(
        self,
        spec_version: int,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Authorized | None = None,
    ) -> Self:
        """Another handle on this repository, which has this spec version now."""
        context = self._context
        if authorize_virtual_chunk_access is None:
            authorize_virtual_chunk_access = context.virtual.credentials
        options = HandleOptions(config, authorize_virtual_chunk_access, context.attribution)
        config_version = context.catalog.config_version if isinstance(context.catalog, CatalogV1) else None
        stored = StoredSettings(context.config, spec_version, config_version)
        return type(self)(build_context(context.storage, options, stored), self._default_metadata)

    # The parts of a handle

    @property
    def config(self) -> RepositoryConfig:
        """A copy of the configuration of this handle; ``reopen`` gives a handle with another one."""
        return deepcopy(self._context.config)

    @property
    def attribution(self) -> Attribution:
        """The labels that requests of this handle carry."""
        return self._context.attribution

    @property
    def spec_version(self) -> SpecVersion:
        """The version of the format that the repository has."""
        return SpecVersion(self._context.spec_version)

    @property
    def authorized_virtual_container_prefixes(self) -> set[str]:
        return set(self._context.virtual.credentials)

    @property
    def virtual_chunk_access(self) -> dict[str, AnyCredential]:
        """The credentials that this handle was given, by the prefix of their container."""
        return dict(self._context.virtual.credentials)

    create_async = awaitable_class(create)
    open_async = awaitable_class(open)  # noqa: A003  # the method above
    open_or_create_async = awaitable_class(open_or_create)
    exists_async = awaitable_static(exists)
    fetch_config_async = awaitable_static(fetch_config)
    fetch_spec_version_async = awaitable_static(fetch_spec_version)
    reopen_async = awaitable(reopen)
