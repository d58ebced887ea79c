"""Repositories: create and open one, its branches, tags and history, and sessions to work in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from datetime import datetime, timedelta
from itertools import chain, filterfalse
from textwrap import indent
from typing import TYPE_CHECKING, Any, Self

from frazil.arguments import checks_arguments
from frazil.changes.change_set import ChangeSet
from frazil.display import Lines, record_html
from frazil.errors import (
    ErrorKind,
    FormatError,
    InvalidInputError,
    RepositoryNotFoundError,
)
from frazil.format.ids import INITIAL_SNAPSHOT_ID, id_to_text
from frazil.format.keys import REPO, snapshot_key, transaction_key
from frazil.format.repo_info import RepoInfo, encode_repo_info, new_repo_info
from frazil.format.snapshot import encode_snapshot, initial_snapshot
from frazil.format.transaction_log import empty_log, encode_transaction_log
from frazil.repository.asynchronous import BothWays, awaitable, awaitable_class, awaitable_static
from frazil.repository.attribution import Attribution
from frazil.repository.catalog import presentation, repo_requirements
from frazil.repository.catalog.backups import with_hint
from frazil.repository.catalog.catalog_v1 import V1_MAIN, CatalogV1, read_config_v1
from frazil.repository.catalog.collection_guard import newest_update
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.creation import create_first, not_empty
from frazil.repository.catalog.expired_versions import files_of, snapshots_wanted
from frazil.repository.catalog.generations import older_layout, refuse_older
from frazil.repository.catalog.history import ancestry, at_time, ops_log
from frazil.repository.catalog.ops_values import Update
from frazil.repository.catalog.repo_info_file import read_repo_info
from frazil.repository.catalog.repo_update import policy_of
from frazil.repository.catalog.version_info import (
    Diff,
    ManifestFileInfo,
    SessionMode,
    SnapshotInfo,
    SpecVersion,
)
from frazil.repository.catalog.version_names import snapshot_id as named
from frazil.repository.clock import from_datetime, now_us
from frazil.repository.handle.administration import Administration
from frazil.repository.handle.graph import AncestryGraph, ancestry_graph
from frazil.repository.handle.history_tables import snapshots_table, updates_table
from frazil.repository.handle.inspection import Inspection
from frazil.repository.handle.integration import Integration
from frazil.repository.handle.opening import (
    Authorized,
    attributed,
    context_of,
    is_of_creation,
    require_writable,
    saved_config,
    version_to_create,
)
from frazil.repository.handle.recovery import Recovery
from frazil.repository.handle.refs import Refs
from frazil.repository.handle.upkeep import Upkeep
from frazil.repository.session.conflicts import ConflictSolver
from frazil.repository.session.differences import difference
from frazil.repository.session.preload import preload
from frazil.repository.session.read_set import Read, ReadTracker
from frazil.repository.session.session import Session
from frazil.repository.session.session_state import SessionState
from frazil.repository.session.workspace import Workspace
from frazil.repository.settings.config import RepositoryConfig, check_session_lifetime
from frazil.repository.settings.config_document import from_document
from frazil.repository.settings.config_secrets import document_to_save
from frazil.repository.settings.feature_flags import MOVE_NODE
from frazil.storage.base import Storage
from frazil.storage.credentials import AnyCredential
from frazil.storage.probe import probe_conditions
from frazil.storage.settings import StorageSettings

if TYPE_CHECKING:
    from frazil.zarr_store import IcechunkStore


@checks_arguments
class Repository(Administration, Refs, Upkeep, Inspection, Integration, Recovery):
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

    def __init__(self, context: Context, default_metadata: Mapping[str, Any] | None = None) -> None:
        self._context = context
        self._default_metadata = dict(default_metadata or {})

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._context, self._default_metadata))

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
        version = version_to_create(spec_version)
        storage = attributed(storage, attribution)
        require_writable(storage)
        if storage.is_whole_bucket:
            raise InvalidInputError(
                "a repository needs a prefix of its own in the bucket, found an empty one: give a prefix",
                ErrorKind.EMPTY_PREFIX_CREATION,
            )
        if check_clean_root and (found := next(filterfalse(is_of_creation, storage.list("")), None)):
            raise not_empty(storage, found.key, is_repository=cls.exists(storage))
        document = None
        if config is not None and config != RepositoryConfig():
            document = document_to_save(config, store_secrets)
        context = context_of(
            storage, config, None, authorize_virtual_chunk_access, version, attribution=attribution
        )
        storage = context.storage
        if not storage.is_local:
            probe_conditions(storage)
        if isinstance(context.catalog, CatalogV1):
            context.catalog.create(document)
            return cls(context)
        level = context.settings.compression_level
        now = now_us()
        storage.put(snapshot_key(INITIAL_SNAPSHOT_ID), encode_snapshot(initial_snapshot(now), level=level))
        storage.put(
            transaction_key(INITIAL_SNAPSHOT_ID),
            encode_transaction_log(empty_log(INITIAL_SNAPSHOT_ID), level=level),
        )
        first = encode_repo_info(new_repo_info(now, document), level=level)
        create_first(storage, REPO, first, policy_of(context.settings))
        return cls(context)

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
        storage = attributed(storage, attribution)
        try:
            info, _, _ = read_repo_info(storage)
        except FormatError as error:
            raise with_hint(storage, error) from error.__cause__
        except RepositoryNotFoundError as error:
            if storage.head(V1_MAIN) is None:
                refuse_older(storage)
                raise with_hint(storage, error) from error.__cause__
            saved, version = read_config_v1(storage)
            context = context_of(
                storage,
                config,
                saved,
                authorize_virtual_chunk_access,
                1,
                version,
                attribution,
            )
        else:
            saved = None if info.config is None else from_document(info.config)
            context = context_of(
                storage, config, saved, authorize_virtual_chunk_access, attribution=attribution
            )
        return cls(context)

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
        newer = storage.head(REPO) is not None or storage.head(V1_MAIN) is not None
        return newer or older_layout(storage) is not None

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
        if storage.head(REPO) is not None:
            return SpecVersion.v2
        if storage.head(V1_MAIN) is not None:
            return SpecVersion.v1
        refuse_older(storage)
        return None

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
        credentials = (
            context.virtual.credentials
            if authorize_virtual_chunk_access is None
            else authorize_virtual_chunk_access
        )
        return type(self)(
            context_of(
                context.storage,
                config,
                context.config,
                credentials,
                spec_version,
                context.catalog.config_version if isinstance(context.catalog, CatalogV1) else None,
                context.attribution,
            ),
            self._default_metadata,
        )

    # What it is

    @property
    def storage(self) -> Storage:
        return self._context.storage

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

    # History

    def lookup_snapshot(self, snapshot_id: str) -> SnapshotInfo:
        """The time, message, metadata and parent of a snapshot.

        Raises ``SnapshotNotFoundError`` if there is none with this id, ``InvalidInputError``
        (``invalid-snapshot-id``) for a text that is not an id.
        """
        info = self._info()
        row = repo_requirements.require_snapshot(info, named(snapshot_id, lambda: info))
        return presentation.snapshot_info(info.snapshots.entry(row))

    def ancestry(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> BothWays[SnapshotInfo]:
        """A snapshot and all before it, newest first. One of the three arguments says which.

        Consoles and notebooks show the result as a table of the newest ones.

        >>> import frazil
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> [snapshot.message for snapshot in repo.ancestry(branch="main")]
        ['Repository initialized']
        """
        info = self._info()
        tip = _one(info, branch, tag, snapshot_id)

        def snapshots() -> Iterator[SnapshotInfo]:
            return chain.from_iterable(map(presentation.snapshot_infos, ancestry(info, tip)))

        ref = f"branch {branch}" if branch else f"tag {tag}" if tag else f"snapshot {snapshot_id}"
        return BothWays(snapshots(), snapshots_table(f"history of {ref}, newest first", snapshots))

    def ancestry_graph(
        self,
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
        plain: bool = False,
    ) -> AncestryGraph:
        """The history as a picture of text: of all branches, or of one ref."""
        info = self._info()
        if (branch, tag, snapshot_id) == (None, None, None):
            return ancestry_graph(info, info.branches, plain=plain)
        named = {} if branch is None else {branch: repo_requirements.branch_tip(info, branch)}
        return ancestry_graph(info, named, _one(info, branch, tag, snapshot_id), plain=plain)

    def ops_log(self) -> BothWays[Update]:
        """Everything that was ever done to the repository, newest first.

        Consoles and notebooks show the result as a table of the newest operations.
        """
        info = self._info_v2()

        def updates() -> Iterator[Update]:
            return map(presentation.update, ops_log(self.storage, info))

        return BothWays(updates(), updates_table("operations, newest first", updates))

    def diff(
        self,
        *,
        from_branch: str | None = None,
        from_tag: str | None = None,
        from_snapshot_id: str | None = None,
        to_branch: str | None = None,
        to_tag: str | None = None,
        to_snapshot_id: str | None = None,
    ) -> Diff:
        """What changed from one version to another.

        From an ancestor: all that the commits since have done. Between any others, on two branches say or
        backwards: what is different, nodes known by their ids, wherever they were moved.
        """
        info = self._info()
        before = _one(info, from_branch, from_tag, from_snapshot_id)
        after = _one(info, to_branch, to_tag, to_snapshot_id)
        with snapshots_wanted():
            return presentation.diff(difference(self._context, info, before, after))

    def list_manifest_files(self, snapshot_id: str) -> list[ManifestFileInfo]:
        """The manifest files of a snapshot."""
        id_ = named(snapshot_id, self._info)
        with files_of(self._context, id_):
            files = self._context.assets.snapshot(id_).manifests
        return [
            ManifestFileInfo(id_to_text(id_.tobytes()), int(size), int(count))
            for id_, size, count in zip(files.ids, files.size_bytes, files.num_chunk_refs, strict=True)
        ]

    # Sessions

    def readonly_session(
        self,
        branch: str | None = None,
        *,
        tag: str | None = None,
        snapshot_id: str | None = None,
        as_of: datetime | None = None,
    ) -> Session:
        """A session that reads one version: a branch's tip, a tag, a snapshot, or a branch as it was at a
        time.
        """
        info = self._info()
        if as_of is not None and branch is None:
            raise ValueError("as_of needs a branch, found none: give branch=... too")
        id_ = _one(info, branch, tag, snapshot_id)
        if as_of is not None:
            id_ = at_time(info, id_, from_datetime(as_of, "as_of"))
        workspace = Workspace(self._context, id_)
        preload(workspace)
        return Session(SessionState(workspace, None, SessionMode.readonly, 0))

    def writable_session(
        self, branch: str, *, lifetime: timedelta | None = None, track_reads: bool = False
    ) -> Session:
        """A session that changes the tip of a branch.

        ``lifetime`` is how long this session may commit, at most 7 days. Without it the configuration's
        ``session_lifetime`` counts, which is 24 hours by default. See ``Session.expires_at``.

        With ``track_reads`` the session notes which metadata, chunks and lists of members are read through it
        and its forks. A rebase, by ``rebase_with`` or ``fast_forward_timeout`` too, then fails with
        ``StaleReadError`` if others have changed any of them. See ``Session.rebase``.

        Raises ``RefNotFoundError`` without such a branch, ``ReadOnlyError`` where nothing can be written,
        and ``InvalidInputError`` (``invalid-commit-configuration``) for another lifetime.

        >>> import frazil, zarr
        >>> from datetime import UTC, datetime, timedelta
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="two arrays") as store:
        ...     for name in ("foo", "bar"):
        ...         _ = zarr.create_array(store, name=name, shape=(4,), chunks=(2,), dtype="i4")
        >>> session = repo.writable_session("main", lifetime=timedelta(days=3), track_reads=True)
        >>> session.expires_at - datetime.now(UTC) > timedelta(days=2)
        True
        >>> root = zarr.open_group(session.store)
        >>> root["bar"][:] = root["foo"][:] + 1
        >>> with repo.transaction("main", message="a correction") as store:
        ...     zarr.open_group(store)["foo"][:] = 5
        >>> try:
        ...     session.commit("bar", rebase_with=frazil.ConflictDetector())
        ... except frazil.StaleReadError as error:
        ...     print(*error.reads)
        `/foo`: others wrote the chunks [0], [1]
        """
        check_session_lifetime("lifetime", lifetime)
        return self._session(branch, SessionMode.writable, lifetime, track_reads=track_reads)

    def rearrange_session(self, branch: str) -> Session:
        """A session that moves and renames nodes of the tip of a branch, and does nothing else: see
        ``Session.move``.

        Raises ``SessionStateError`` (``feature-flag-disabled``) where the feature ``move_node`` is off.
        """
        self._context.require_version_2()
        return self._session(branch, SessionMode.rearrange)

    def _session(
        self,
        branch: str,
        mode: SessionMode,
        lifetime: timedelta | None = None,
        *,
        track_reads: bool = False,
    ) -> Session:
        require_writable(self.storage)
        info = self._info()
        repo_requirements.require_online(info)
        if mode is SessionMode.rearrange:
            repo_requirements.require_flag(info, MOVE_NODE)
        tip = repo_requirements.branch_tip(info, branch)
        opened_at = now_us()
        expires_at = opened_at + (lifetime or self._context.settings.session_lifetime) // _MICROSECOND
        reads = ReadTracker() if track_reads else None
        workspace = Workspace(self._context, tip, None, ChangeSet(), reads=reads)
        preload(workspace)
        state = SessionState(
            workspace, branch, mode, expires_at, dict(self._default_metadata), since=opened_at
        )
        state.seen = newest_update(info)
        return Session(state)

    @contextmanager
    def transaction(
        self,
        branch: str,
        *,
        message: str,
        metadata: dict[str, Any] | None = None,
        rebase_with: ConflictSolver | None = None,
        rebase_tries: int = 1000,
        allow_empty: bool = False,
        reads: Sequence[Read] = (),
        track_reads: bool = False,
    ) -> Iterator[IcechunkStore]:
        """A store to write to. The changes are committed when the block ends, and dropped when it raises.

        ``rebase_with``, ``rebase_tries``, ``allow_empty`` and ``reads`` are those of ``Session.commit``: a
        block that changes nothing raises ``SessionStateError`` (``no-changes-to-commit``) without
        ``allow_empty=True``. ``track_reads`` is that of ``writable_session``. An unknown path in ``reads`` is
        an error before the block begins.
        """
        session = self.writable_session(branch, track_reads=track_reads)
        reads = list(reads)
        session.check_reads(reads)
        yield session.store
        session.commit(
            message,
            metadata,
            rebase_with=rebase_with,
            rebase_tries=rebase_tries,
            allow_empty=allow_empty,
            reads=reads,
        )

    def _info(self) -> RepoInfo:
        return self._context.catalog.repo_info()

    def async_ancestry(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> BothWays[SnapshotInfo]:
        """``ancestry``, for ``async for``."""
        return self.ancestry(branch=branch, tag=tag, snapshot_id=snapshot_id)

    def ops_log_async(self) -> BothWays[Update]:
        """``ops_log``, for ``async for``."""
        return self.ops_log()

    create_async = awaitable_class(create)
    open_async = awaitable_class(open)  # noqa: A003  # the method above
    open_or_create_async = awaitable_class(open_or_create)
    exists_async = awaitable_static(exists)
    fetch_config_async = awaitable_static(fetch_config)
    fetch_spec_version_async = awaitable_static(fetch_spec_version)
    lookup_snapshot_async = awaitable(lookup_snapshot)
    ancestry_graph_async = awaitable(ancestry_graph)
    diff_async = awaitable(diff)
    list_manifest_files_async = awaitable(list_manifest_files)
    readonly_session_async = awaitable(readonly_session)
    writable_session_async = awaitable(writable_session)
    rearrange_session_async = awaitable(rearrange_session)
    reopen_async = awaitable(reopen)


_MICROSECOND = timedelta(microseconds=1)


def _one(info: RepoInfo, branch: str | None, tag: str | None, snapshot_id: str | None) -> bytes:
    """The snapshot that exactly one of the three names."""
    given = [name for name in (branch, tag, snapshot_id) if name is not None]
    if len(given) != 1:
        raise ValueError(
            f"expected exactly one of branch, tag and snapshot_id, found {len(given)}: "
            f"{', '.join(map(repr, given)) or 'give branch="main"'}"
        )
    if branch is not None:
        return repo_requirements.branch_tip(info, branch)
    if tag is not None:
        return repo_requirements.tag_target(info, tag)
    id_ = named(snapshot_id or "", lambda: info)
    repo_requirements.require_snapshot(info, id_)
    return id_
