"""The class ``Repository``, and its methods for upkeep with the names of Icechunk."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from copy import deepcopy
from datetime import datetime
from os import PathLike
from textwrap import indent
from typing import TYPE_CHECKING, Any, Final, Self, overload

from frazil import handle
from frazil import storage as storages
from frazil.about import PACKAGE_FOLDER
from frazil.arguments import checks_arguments
from frazil.display import Lines, record_html
from frazil.errors import InvalidInputError
from frazil.format.envelope import HEADER_BYTES, FileType, parse_header, reading
from frazil.format.ids import REPO
from frazil.handle.administration import Administration
from frazil.handle.detached import DetachedMerges
from frazil.handle.inspection import FileInspection
from frazil.handle.opening import (
    Authorized,
    HandleOptions,
    StoredSettings,
    build_context,
    create_context,
    open_context,
    open_current,
    refuse_older,
    repository_exists,
    saved_config,
)
from frazil.handle.sessions import Integration, SubHandle, readonly_session_of
from frazil.handle.version_history import VersionHistory, ref_rows
from frazil.maintenance.plan import ChunkStorageStats, GCSummary
from frazil.repository.asynchronous import awaitable, awaitable_class
from frazil.repository.attribution import Attribution
from frazil.repository.catalog.catalog_v1 import V1_MAIN, CatalogV1
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.version_info import CommitMethod, SpecVersion
from frazil.repository.session.session import Session
from frazil.repository.settings.config import RepositoryConfig
from frazil.storage.base import Storage
from frazil.storage.checks import skip_missing
from frazil.storage.credential_families import AnyCredential
from frazil.storage.settings import StorageSettings

if TYPE_CHECKING:
    from frazil.maintenance.backups import OpsLogRetention
    from frazil.survey.survey import Progress


def storage_at(place: Storage | str | PathLike[str], settings: StorageSettings | None = None) -> Storage:
    """Return the storage of a folder or a URL, or a storage itself, with the settings if there are some."""
    storage = place if isinstance(place, Storage) else storages.storage_from_url(place)
    return storage if settings is None else storage.with_settings(settings)


def _deprecated[**P, R](method: Callable[P, R], name: str, instead: str) -> Callable[P, R]:
    """Return a method that warns when it is called, and names the line of the caller."""

    @functools.wraps(method)
    def warning(*args: P.args, **kwargs: P.kwargs) -> R:
        warnings.warn(
            f"{name} is deprecated. Use {instead}(...).native_bytes, which takes the same arguments",
            DeprecationWarning,
            skip_file_prefixes=(PACKAGE_FOLDER,),
        )
        return method(*args, **kwargs)

    warning.__doc__ = (method.__doc__ or "").replace("_native_bytes", "total_chunks_storage")
    warning.__name__ = name
    warning.__qualname__ = f"Repository.{name}"
    return inspect.markcoroutinefunction(warning) if inspect.iscoroutinefunction(method) else warning


class SubHandleAttribute[T: SubHandle]:
    """The attribute of a repository that is a sub-handle. Of the class, it is the class of the sub-handle.

    So methods that need no handle also work on a repository that does not open.
    """

    def __init__(self, class_of: Callable[[], type[T]]) -> None:
        self._class_of = class_of

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, repo: None, owner: type) -> type[T]: ...

    @overload
    def __get__(self, repo: Integration, owner: type) -> T: ...

    def __get__(self, repo: Integration | None, owner: type) -> T | type[T]:
        class_ = self._class_of()
        if repo is None:
            return class_
        # Python looks into the dictionary of the repository before it asks this descriptor again.
        sub_handle: T = vars(repo).setdefault(self._name, class_(repo))
        return sub_handle


@checks_arguments
class Repository(VersionHistory, Administration, FileInspection, DetachedMerges):
    """A versioned Zarr hierarchy with branches and tags.

    Use ``create``, ``open`` or ``open_or_create`` to get a handle. A handle holds caches, but no lock and no
    other state. Many handles, in many processes, can work on the same repository at the same time.

    A method with an argument of a wrong type raises ``TypeError`` before it makes any request. A method that
    changes the repository raises ``ReadOnlyError`` (``read-only-repository``) if its status is read-only. The
    methods for metadata, status, features, protections and the ops log raise ``FormatError``
    (``unsupported-spec-version``) in a repository of spec version 1. Most methods have an asynchronous twin
    with the suffix ``_async``. All examples begin with ``import frazil, zarr``.

    Examples:
        >>> storage = frazil.in_memory_storage()
        >>> frazil.Repository.exists(storage)
        False
        >>> repo = frazil.Repository.create(storage, frazil.RepositoryConfig(inline_chunk_threshold_bytes=8))
        >>> with repo.transaction("main", message="first") as store:
        ...     array = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
        ...     array[:] = [1, 2, 3, 4]
        >>> [commit.message for commit in repo.ancestry(branch="main")]
        ['first', 'Repository initialized']
        >>> repo.create_tag("v1", "main")
        >>> repo.create_branch("dev", repo.lookup_tag("v1"))
        >>> repo.lookup_snapshot(repo.lookup_branch("dev")).message
        'first'
        >>> repo.delete_branch("dev")
        >>> repo.delete_tag("v1")
        >>> repo.list_branches(), repo.list_tags()
        ({'main'}, set())
        >>> protection = repo.protect_branch("release-*")
        >>> [each.pattern for each in repo.branch_protections()]
        ['release-*']
        >>> repo.unprotect_branch("release-*")
        >>> repo.set_metadata({"owner": "climate team"})
        >>> repo.update_metadata({"stage": "test"})
        {'owner': 'climate team', 'stage': 'test'}
        >>> repo.get_metadata() == repo.metadata, repo.get_status().availability.name
        (True, 'online')
        >>> repo.set_feature_flag("delete_tag", False)
        >>> [flag.name for flag in repo.disabled_feature_flags()], len(repo.enabled_feature_flags())
        (['delete_tag'], 2)
        >>> len(repo.feature_flags()), repo.default_commit_metadata()
        (3, {})
        >>> frazil.Repository.fetch_config(storage).inline_chunk_threshold_bytes
        8
        >>> frazil.Repository.fetch_spec_version(storage)
        SpecVersion.v2 (current)
        >>> repo.reconfigure(frazil.RepositoryConfig(inline_chunk_threshold_bytes=1024))
        >>> repo.reopen().config.inline_chunk_threshold_bytes
        1024
    """

    def __repr__(self) -> str:
        storage = indent(repr(self.storage), "    ")
        return f"<{self._title()}>\nstorage:\n{storage}config: <RepositoryConfig ...>\n"

    def _title(self) -> str:
        return f"frazil.Repository ({self.spec_version.name})"

    def _repr_html_(self) -> str:
        """Return the repository as HTML, for notebooks, with the branches that the handle has read last."""
        last = self._context.assets.repo_info_cache.last
        refs = () if last is None else ref_rows(last[1])
        storage = Lines("frazil.Storage", repr(self.storage))
        return record_html(self._title(), [*refs, ("storage", storage), ("config", self.config)])

    history: Final = SubHandleAttribute(lambda: handle.History)
    upkeep: Final = SubHandleAttribute(lambda: handle.Upkeep)

    # Create and open

    @classmethod
    def create(
        cls,
        storage: Storage | str | PathLike[str],
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Authorized | None = None,
        spec_version: SpecVersion | int | None = None,
        check_clean_root: bool = True,
        attribution: Attribution | None = None,
        *,
        store_secrets: bool = False,
    ) -> Self:
        """Create a repository with the branch ``main`` on an empty snapshot.

        On a storage that is not local, the method first checks that the storage supports conditional writes.

        Args:
            storage: The storage of the repository, which must be writable, or its folder or URL, such as
                ``s3://bucket/prefix``: see ``storage_from_url``.
            config: The configuration to use and to save. Default: the default, which is not saved.
            authorize_virtual_chunk_access: The virtual chunk containers that this handle may read: a dict
                from URL prefixes to credentials. ``s3://bucket/*`` means all containers at and below this
                prefix. Default: none.
            spec_version: The version of the format, 1 or 2. Default: 2.
            check_clean_root: Whether other objects in ``storage`` are an error.
            attribution: Labels for the ``User-Agent`` header of all requests of this handle. Default: no
                labels.
            store_secrets: Whether to save options and headers of virtual chunk containers that may hold a
                secret. Everybody who can read the repository can read them.

        Returns:
            A handle on the new repository.

        Raises:
            InvalidInputError: ``parent-directory-not-clean`` if ``storage`` contains a repository, or other
                objects with ``check_clean_root``. ``empty-prefix-creation`` if ``storage`` is a bucket
                without a prefix. ``secret-in-config`` if ``config`` may hold a secret, without
                ``store_secrets``.
            ReadOnlyError: ``read-only-storage`` if the storage is read-only.
            StorageError: ``conditions-not-supported`` if the storage ignores conditions of writes.
            OutcomeUnknownError: ``outcome-unknown`` if the answer to the last write is lost.
            ValueError: If ``spec_version`` is neither 1 nor 2.
        """
        storage = storage_at(storage)
        options = HandleOptions(config, authorize_virtual_chunk_access, attribution)
        return cls(create_context(storage, options, spec_version, check_clean_root, store_secrets))

    @classmethod
    def open(
        cls,
        storage: Storage | str | PathLike[str],
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Authorized | None = None,
        attribution: Attribution | None = None,
    ) -> Self:
        """Open an existing repository.

        Args:
            storage: The storage of the repository, or its folder or URL. See ``create``.
            config: Options for this handle. They override the saved configuration, which overrides the
                defaults of the storage. Virtual chunk containers replace the saved ones. Default: the saved
                configuration.
            authorize_virtual_chunk_access: See ``create``.
            attribution: See ``create``.

        Returns:
            A handle on the repository.

        Raises:
            RepositoryNotFoundError: ``repository-not-found`` if ``storage`` contains no repository.
            FormatError: ``unsupported-spec-version`` if the repository has an older or a later format. An
                older one can be imported with ``frazil.upgrade``. Other kinds if ``repo`` is damaged.

        Examples:
            >>> storage = frazil.in_memory_storage()
            >>> created = frazil.Repository.create(storage)
            >>> config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=1024)
            >>> frazil.Repository.open(storage, config).config.inline_chunk_threshold_bytes
            1024
        """
        options = HandleOptions(config, authorize_virtual_chunk_access, attribution)
        return cls(open_context(storage_at(storage), options))

    @staticmethod
    def open_session(
        storage: Storage | str | PathLike[str],
        branch: str | None = None,
        *,
        tag: str | None = None,
        snapshot_id: str | None = None,
        as_of: datetime | None = None,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Authorized | None = None,
    ) -> Session:
        """Open a repository, and a session that reads one version of it.

        The session is that of ``Repository.open(...).readonly_session(...)``, with one request less.

        Args:
            storage: The storage of the repository, or its folder or URL. See ``create``.
            branch: The name of a branch, to read its tip. Default: ``main``, if neither ``tag`` nor
                ``snapshot_id`` names a version.
            tag: The name of a tag. See ``readonly_session``.
            snapshot_id: The id of a snapshot. See ``readonly_session``.
            as_of: A time with a time zone. See ``readonly_session``.
            config: Options for this session. See ``open``.
            authorize_virtual_chunk_access: See ``create``.

        Returns:
            A session that cannot write. It does not see later commits.

        Raises:
            IcechunkError: The errors of ``open`` and ``readonly_session``.
            ValueError: If several versions are named, or if ``as_of`` is given with ``tag`` or
                ``snapshot_id``.

        Examples:
            >>> import numpy
            >>> storage = frazil.in_memory_storage()
            >>> with frazil.Repository.create(storage).transaction("main", message="an array") as store:
            ...     array = zarr.create_array(store, name="t", data=numpy.arange(3))
            >>> frazil.read(frazil.Repository.open_session(storage), "t").tolist()
            [0, 1, 2]
        """
        if branch is None and tag is None and snapshot_id is None:
            branch = "main"
        opened = open_current(storage_at(storage), HandleOptions(config, authorize_virtual_chunk_access))
        return readonly_session_of(*opened, branch, tag, snapshot_id, as_of)

    @classmethod
    def open_or_create(
        cls,
        storage: Storage | str | PathLike[str],
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Authorized | None = None,
        create_version: SpecVersion | int | None = None,
        check_clean_root: bool = True,
        attribution: Attribution | None = None,
        *,
        store_secrets: bool = False,
    ) -> Self:
        """Open the repository in ``storage``, or create it if there is none.

        If several processes call this method at the same time, one of them creates the repository and the
        others open it.

        Args:
            storage: The storage of the repository, or its folder or URL. See ``create``.
            config: See ``open`` and ``create``. It is saved only if the repository is created.
            authorize_virtual_chunk_access: See ``create``.
            create_version: The version of the format of a new repository, 1 or 2. Default: 2.
            check_clean_root: See ``create``.
            attribution: See ``create``.
            store_secrets: See ``create``.

        Returns:
            A handle on the repository.

        Raises:
            IcechunkError: The errors of ``open`` and ``create``.

        Examples:
            >>> storage = frazil.in_memory_storage()
            >>> first = frazil.Repository.open_or_create(storage)
            >>> second = frazil.Repository.open_or_create(storage)
            >>> second.lookup_branch("main") == first.lookup_branch("main")
            True
        """
        storage = storage_at(storage)
        options = HandleOptions(config, authorize_virtual_chunk_access, attribution)
        if not repository_exists(storage):
            try:
                return cls(create_context(storage, options, create_version, check_clean_root, store_secrets))
            except InvalidInputError:
                if not repository_exists(storage):
                    raise
        return cls(open_context(storage, options))

    @staticmethod
    def exists(
        storage: Storage | str | PathLike[str], storage_settings: StorageSettings | None = None
    ) -> bool:
        """Return whether ``storage`` contains a repository, of any format.

        A repository of a format older than spec version 1 counts, although it cannot be opened.

        Args:
            storage: The storage to look at, or a folder or URL. See ``create``.
            storage_settings: Options for the requests. Default: those of ``storage``.

        Returns:
            True if there is a repository.
        """
        return repository_exists(storage_at(storage, storage_settings))

    @staticmethod
    def fetch_config(storage: Storage | str | PathLike[str]) -> RepositoryConfig | None:
        """Return the saved configuration of a repository without opening it.

        Args:
            storage: The storage of the repository, or its folder or URL. See ``create``.

        Returns:
            The saved configuration, or None if the repository has none.

        Raises:
            RepositoryNotFoundError: ``repository-not-found`` if ``storage`` contains no repository.
        """
        return saved_config(storage_at(storage))

    @staticmethod
    def fetch_spec_version(
        storage: Storage | str | PathLike[str], storage_settings: StorageSettings | None = None
    ) -> SpecVersion | None:
        """Return the version of the format of a repository without opening it.

        Args:
            storage: The storage of the repository, or its folder or URL. See ``create``.
            storage_settings: See ``exists``.

        Returns:
            The version, or None if ``storage`` contains no repository.

        Raises:
            FormatError: ``unsupported-spec-version`` if the format is older than spec version 1, or later
                than the newest one that Frazil reads.
        """
        storage = storage_at(storage, storage_settings)
        with skip_missing(), reading(REPO):
            parse_header(storage.get(REPO, 0, HEADER_BYTES), FileType.REPO_INFO)
            return SpecVersion.v2
        if storage.head(V1_MAIN) is not None:
            return SpecVersion.v1
        refuse_older(storage)
        return None

    def reopen(
        self, config: RepositoryConfig | None = None, authorize_virtual_chunk_access: Authorized | None = None
    ) -> Self:
        """Return another handle on this repository, with another configuration.

        Args:
            config: Options, which override those of this handle. Default: the same configuration.
            authorize_virtual_chunk_access: See ``create``. Default: the same containers.

        Returns:
            The new handle. This handle does not change.
        """
        return self._at_version(self._context.spec_version, config, authorize_virtual_chunk_access)

    def reconfigure(
        self, config: RepositoryConfig, authorize_virtual_chunk_access: Authorized | None = None
    ) -> None:
        """Change the configuration of this handle.

        Open sessions keep the configuration that they were opened with. The repository does not save the new
        configuration: see ``save_config``.

        Args:
            config: Options for this handle. They override its present configuration.
            authorize_virtual_chunk_access: See ``create``. Default: the same containers.
        """
        self._context = self.reopen(config, authorize_virtual_chunk_access)._context

    def _at_version(
        self,
        spec_version: int,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Authorized | None = None,
    ) -> Self:
        """Return another handle on this repository, which has the given spec version now."""
        context = self._context
        if authorize_virtual_chunk_access is None:
            authorize_virtual_chunk_access = context.virtual.credentials
        options = HandleOptions(config, authorize_virtual_chunk_access, context.attribution)
        config_version = context.catalog.config_version if isinstance(context.catalog, CatalogV1) else None
        stored = StoredSettings(deepcopy(context.config), spec_version, config_version)
        return type(self)(build_context(context.storage, options, stored), self._default_metadata)

    # Upkeep, with the names of Icechunk

    def garbage_collect(
        self,
        delete_object_older_than: datetime,
        *,
        dry_run: bool = False,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 << 20,
        max_decoded_manifest_mem_bytes: int = 4 << 30,
        max_concurrent_manifest_fetches: int = 500,
        max_concurrent_deletes: int = 10,
        max_consecutive_delete_failures: int = 50,
        max_concurrent_listings: int | None = None,
        progress: Progress | None = None,
        keep_ops: OpsLogRetention | None = None,
    ) -> GCSummary:
        """Delete files that no branch, tag or young snapshot needs: see `Upkeep.collect`.

        Args:
            delete_object_older_than: A time with a time zone: ``older_than`` of `Upkeep.collect`.
            dry_run: Whether to delete nothing, and to return what would be deleted.
            max_snapshots_in_memory: See `Upkeep.collect`, as for the other limits.
            max_compressed_manifest_mem_bytes: A limit of memory.
            max_decoded_manifest_mem_bytes: A limit of memory.
            max_concurrent_manifest_fetches: A limit of requests.
            max_concurrent_deletes: A limit of requests.
            max_consecutive_delete_failures: After how many failures in a row the collection stops.
            max_concurrent_listings: A limit of requests.
            progress: A progress bar.
            keep_ops: The entries of the ops log that stay. Default: all.

        Returns:
            What was deleted. A dry run also lists the files, with reasons (``files``).

        Raises:
            IcechunkError: See `Upkeep.collect`.

        Examples:
            >>> from datetime import UTC, datetime
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.garbage_collect(datetime.now(UTC)).chunks_deleted
            0
        """
        plan = self.upkeep.collect(
            delete_object_older_than,
            max_snapshots_in_memory=max_snapshots_in_memory,
            max_compressed_manifest_mem_bytes=max_compressed_manifest_mem_bytes,
            max_decoded_manifest_mem_bytes=max_decoded_manifest_mem_bytes,
            max_concurrent_manifest_fetches=max_concurrent_manifest_fetches,
            max_concurrent_deletes=max_concurrent_deletes,
            max_consecutive_delete_failures=max_consecutive_delete_failures,
            max_concurrent_listings=max_concurrent_listings,
            progress=progress,
            keep_ops=keep_ops,
        )
        return plan.report if dry_run else plan.apply()

    def expire_snapshots(
        self,
        older_than: datetime,
        *,
        delete_expired_branches: bool = False,
        delete_expired_tags: bool = False,
        progress: Progress | None = None,
    ) -> set[str]:
        """Remove snapshots older than a time from the history: see `Upkeep.expire`.

        Args:
            older_than: A time with a time zone. A snapshot written exactly at this time is not older.
            delete_expired_branches: Whether to delete branches whose tip is older.
            delete_expired_tags: Whether to delete tags whose snapshot is older.
            progress: A progress bar.

        Returns:
            The ids of the removed snapshots.

        Raises:
            TypeError: If ``older_than`` has no time zone.

        Examples:
            >>> from datetime import UTC, datetime
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.expire_snapshots(datetime.now(UTC))
            set()
        """
        return self.upkeep.expire(
            older_than,
            delete_expired_branches=delete_expired_branches,
            delete_expired_tags=delete_expired_tags,
            progress=progress,
        ).apply()

    def rewrite_manifests(
        self,
        message: str,
        *,
        branch: str,
        metadata: dict[str, Any] | None = None,
        commit_method: CommitMethod = "new_commit",
    ) -> str:
        """Rewrite all manifests at the tip of a branch: see `Upkeep.rewrite_manifests`.

        Args:
            message: The message of the commit.
            branch: The name of the branch.
            metadata: The metadata of the commit. Default: empty.
            commit_method: ``"new_commit"`` for a new commit, ``"amend"`` to replace the last one.

        Returns:
            The id of the commit.

        Raises:
            ConflictError: ``commit-conflict`` if another commit came first.

        Examples:
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> id_ = repo.rewrite_manifests("split anew", branch="main")
            >>> repo.lookup_branch("main") == id_
            True
        """
        return self.upkeep.rewrite_manifests(
            message, branch=branch, metadata=metadata, commit_method=commit_method
        )

    def chunk_storage_stats(
        self,
        *,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 << 20,
        max_decoded_manifest_mem_bytes: int = 4 << 30,
        max_concurrent_manifest_fetches: int = 500,
    ) -> ChunkStorageStats:
        """Return how many bytes the chunks of all branches and tags take, by kind of reference.

        A range of a chunk file or of a virtual object counts once. An inline chunk counts once for each
        manifest that contains it.

        Args:
            max_snapshots_in_memory: How many snapshots to hold in memory at once.
            max_compressed_manifest_mem_bytes: How many bytes of fetched manifests to hold in memory at once.
            max_decoded_manifest_mem_bytes: How many bytes of decoded manifests to hold in memory at once.
            max_concurrent_manifest_fetches: How many manifests to fetch at once.

        Returns:
            The numbers of bytes.

        Raises:
            InvalidInputError: ``invalid-argument`` if a limit is less than 1.

        Examples:
            >>> frazil.Repository.create(frazil.in_memory_storage()).chunk_storage_stats().total_bytes()
            0
        """
        return self.upkeep.statistics(
            max_snapshots_in_memory=max_snapshots_in_memory,
            max_compressed_manifest_mem_bytes=max_compressed_manifest_mem_bytes,
            max_decoded_manifest_mem_bytes=max_decoded_manifest_mem_bytes,
            max_concurrent_manifest_fetches=max_concurrent_manifest_fetches,
        )

    def _native_bytes(
        self,
        *,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 << 20,
        max_decoded_manifest_mem_bytes: int = 4 << 30,
        max_concurrent_manifest_fetches: int = 500,
    ) -> int:
        """Return the bytes of native chunks. Deprecated: use ``chunk_storage_stats().native_bytes``.

        Args:
            max_snapshots_in_memory: See ``chunk_storage_stats``.
            max_compressed_manifest_mem_bytes: See ``chunk_storage_stats``.
            max_decoded_manifest_mem_bytes: See ``chunk_storage_stats``.
            max_concurrent_manifest_fetches: See ``chunk_storage_stats``.

        Returns:
            The number of bytes.

        Examples:
            >>> import warnings
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            ...     repo.total_chunks_storage()
            0
        """
        return self.chunk_storage_stats(
            max_snapshots_in_memory=max_snapshots_in_memory,
            max_compressed_manifest_mem_bytes=max_compressed_manifest_mem_bytes,
            max_decoded_manifest_mem_bytes=max_decoded_manifest_mem_bytes,
            max_concurrent_manifest_fetches=max_concurrent_manifest_fetches,
        ).native_bytes

    # Properties of a handle

    @property
    def config(self) -> RepositoryConfig:
        """A copy of the configuration of this handle. Use ``reopen`` or ``reconfigure`` to change it."""
        return deepcopy(self._context.config)

    @property
    def attribution(self) -> Attribution:
        """The labels that the requests of this handle carry."""
        return self._context.attribution

    @property
    def spec_version(self) -> SpecVersion:
        """The version of the format of the repository."""
        return SpecVersion(self._context.spec_version)

    @property
    def authorized_virtual_container_prefixes(self) -> set[str]:
        """The URL prefixes of the virtual chunk containers that this handle may read."""
        return set(self._context.virtual.credentials)

    @property
    def virtual_chunk_access(self) -> dict[str, AnyCredential]:
        """The credentials that this handle was opened with, by the URL prefix of their container."""
        return dict(self._context.virtual.credentials)

    create_async: Final = awaitable_class(create)
    open_async: Final = awaitable_class(open)  # noqa: A003  # the method above
    open_or_create_async: Final = awaitable_class(open_or_create)
    exists_async: Final = staticmethod(awaitable(exists))
    fetch_config_async: Final = staticmethod(awaitable(fetch_config))
    fetch_spec_version_async: Final = staticmethod(awaitable(fetch_spec_version))
    reopen_async: Final = awaitable(reopen)
    garbage_collect_async: Final = awaitable(garbage_collect)
    expire_snapshots_async: Final = awaitable(expire_snapshots)
    rewrite_manifests_async: Final = awaitable(rewrite_manifests)
    chunk_storage_stats_async: Final = awaitable(chunk_storage_stats)
    total_chunks_storage: Final = _deprecated(_native_bytes, "total_chunks_storage", "chunk_storage_stats")
    total_chunks_storage_async: Final = _deprecated(
        awaitable(_native_bytes), "total_chunks_storage_async", "chunk_storage_stats_async"
    )


def context_of(repo: Repository) -> Context:
    """Return the context that a handle and its sessions share."""
    return repo._context
