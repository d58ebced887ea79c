"""The methods of ``Repository`` that open sessions: to read, to write, to move nodes."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from frazil.changes.change_set import ChangeSet
from frazil.errors import UncommittedChangesWarning
from frazil.format.repo_info import RepoInfo
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog import repo_requirements
from frazil.repository.catalog.ancestry import at_time
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_update import newest_update
from frazil.repository.catalog.version_info import SessionMode
from frazil.repository.clock import from_datetime, now_us
from frazil.repository.handle.base import RepositoryBase, snapshot_of_version
from frazil.repository.handle.opening import require_writable
from frazil.repository.session.commit import SessionState
from frazil.repository.session.conflicts import ConflictSolver
from frazil.repository.session.read_tracker import ReadTracker
from frazil.repository.session.rebase import Read
from frazil.repository.session.session import Session, state_of
from frazil.repository.session.workspace import Workspace, preload
from frazil.repository.settings.config import check_session_lifetime
from frazil.repository.settings.resolved import MOVE_NODE

if TYPE_CHECKING:
    from frazil.zarr_store import IcechunkStore

_MICROSECOND: Final = timedelta(microseconds=1)


def readonly_session_of(
    context: Context,
    info: RepoInfo,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: datetime | None = None,
) -> Session:
    """Return a session that reads one version of ``info``, the refs and snapshots that the caller has read.

    See ``Sessions.readonly_session``.
    """
    if as_of is not None and branch is None:
        raise ValueError("as_of needs a branch, got none. Pass branch=... too")
    id_ = snapshot_of_version(info, branch, tag, snapshot_id)
    if as_of is not None:
        id_ = at_time(info, id_, from_datetime(as_of, "as_of"))
    workspace = Workspace(context, id_)
    preload(workspace)
    return Session(SessionState(workspace, None, SessionMode.readonly, 0))


def _warn_of_loss(state: SessionState, process: int) -> None:
    """Warn of changes that a session never tried to commit. Copies in child processes are silent."""
    if state.has_tried or not state.workspace.has_changes or os.getpid() != process:
        return
    warnings.warn(
        f"a session of the branch `{state.branch}` was dropped with changes that it has not committed. They "
        "are lost. Keep the session and call session.commit(message), or call session.discard_changes()",
        UncommittedChangesWarning,
        stacklevel=3,
    )


class Sessions(RepositoryBase):
    """Methods of ``Repository`` that open sessions."""

    def readonly_session(
        self,
        branch: str | None = None,
        *,
        tag: str | None = None,
        snapshot_id: str | None = None,
        as_of: datetime | None = None,
    ) -> Session:
        """Open a session that reads one version of the repository.

        Exactly one of ``branch``, ``tag`` and ``snapshot_id`` names the version.

        Args:
            branch: The name of a branch, to read its tip.
            tag: The name of a tag.
            snapshot_id: The id of a snapshot, or the first characters of an id (4 or more, if only one id
                begins with them).
            as_of: A time with a time zone, together with ``branch``: the session reads the newest snapshot of
                the branch that is not younger.

        Returns:
            A session that cannot write.

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such branch or tag.
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no such snapshot.
                ``no-snapshot-at-time`` if the branch begins after ``as_of``.
            InvalidInputError: ``invalid-snapshot-id`` if ``snapshot_id`` is not an id, or if several ids
                begin with it.
            ValueError: If none or several versions are named, or if ``as_of`` is given without ``branch``.
            TypeError: If ``as_of`` has no time zone.

        Specification: *Read from Repository*.

        Examples:
            >>> import frazil, zarr
            >>> from datetime import UTC, datetime
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> before = datetime.now(UTC)
            >>> with repo.transaction("main", message="an array") as store:
            ...     array = zarr.create_array(store, name="t", shape=(2,), dtype="i4")
            ...     array[:] = [1, 2]
            >>> zarr.open_array(repo.readonly_session("main").store, path="t")[:].tolist()
            [1, 2]
            >>> repo.readonly_session("main", as_of=before).snapshot_id
            '1CECHNKREP0F1RSTCMT0'
        """
        return readonly_session_of(self._context, self._info(), branch, tag, snapshot_id, as_of)

    def writable_session(
        self,
        branch: str,
        *,
        lifetime: timedelta | None = None,
        track_reads: bool = False,
        name: str = "",
    ) -> Session:
        """Open a session that changes the tip of a branch.

        Args:
            branch: The name of the branch.
            lifetime: How long this session may commit, at most 7 days. Default: ``session_lifetime`` of the
                configuration, which is 24 hours unless set. See ``Session.expires_at``.
            track_reads: Whether the session records which metadata, chunks and lists of members are read
                through it and its forks. A rebase then raises ``StaleReadError`` if other commits have
                changed any of them. This includes rebases by ``rebase_with`` and by ``fast_forward_timeout``.
                See ``Session.rebase``.
            name: A name for people. If the session has forks, ``upkeep.leases`` and the summaries of garbage
                collections show the name, and ``break_lease`` accepts it.

        Returns:
            A session that reads the tip of the branch and can write.

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such branch.
            ReadOnlyError: ``read-only-storage`` or ``read-only-repository`` if the storage or the status of
                the repository is read-only.
            InvalidInputError: ``invalid-commit-configuration`` if ``lifetime`` is not more than 0 and at most
                7 days.

        Examples:
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
            `/foo`: another session wrote the chunks [0], [1]
        """
        check_session_lifetime("lifetime", lifetime)
        session = self._session(branch, SessionMode.writable, lifetime, track_reads=track_reads)
        state_of(session).name = name
        return session

    def rearrange_session(self, branch: str) -> Session:
        """Open a session that can only move and rename nodes of the tip of a branch.

        Args:
            branch: The name of the branch.

        Returns:
            A session for ``Session.move``.

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such branch.
            SessionStateError: ``feature-flag-disabled`` if the feature ``move_node`` is off.
            ReadOnlyError: ``read-only-storage`` or ``read-only-repository`` if the storage or the status of
                the repository is read-only.
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="a group") as store:
            ...     group = zarr.create_group(store, path="old")
            >>> session = repo.rearrange_session("main")
            >>> session.move("/old", "/new")
            >>> session.status().moved_nodes
            [('/old', '/new')]
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
        session = Session(state)
        weakref.finalize(session, _warn_of_loss, state, os.getpid())
        return session

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
        """Open a store to write to, and commit the changes when the ``with`` block ends.

        If the block raises an error, the changes are dropped.

        Args:
            branch: The name of the branch.
            message: The message of the commit.
            metadata: The metadata of the commit: a dictionary that JSON can hold. Default: empty.
            rebase_with: The solver for the conflicts of a rebase. See ``Session.commit``.
            rebase_tries: How often to rebase and commit again, at most. See ``Session.commit``.
            allow_empty: Whether to commit if the block changes nothing.
            reads: The nodes and selections that the changes were computed from. See ``Session.rebase``.
            track_reads: Whether to record what the block reads. See ``writable_session``.

        Yields:
            The store of a writable session.

        Raises:
            SessionStateError: ``no-changes-to-commit`` if the block changes nothing, without ``allow_empty``.
            ConflictError: ``commit-conflict`` if another commit came first, without ``rebase_with`` and
                without ``fast_forward_timeout`` in the configuration. See ``Session.commit`` for the errors
                of a rebase.
            NodeNotFoundError: If ``reads`` contains an unknown path. It is raised before the block begins.
            IcechunkError: The errors of ``writable_session`` and ``Session.commit``.

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="an array") as store:
            ...     array = zarr.create_array(store, name="t", shape=(2,), dtype="i4")
            ...     array[:] = [1, 2]
            >>> zarr.open_array(repo.readonly_session("main").store, path="t")[:].tolist()
            [1, 2]
        """
        session = self.writable_session(branch, track_reads=track_reads)
        reads = list(reads)
        session.check_reads(reads)
        try:
            yield session.store
        except BaseException:
            state_of(session).has_tried = True  # the error says that there is no commit
            raise
        session.commit(
            message,
            metadata,
            rebase_with=rebase_with,
            rebase_tries=rebase_tries,
            allow_empty=allow_empty,
            reads=reads,
        )

    readonly_session_async = awaitable(readonly_session)
    writable_session_async = awaitable(writable_session)
    rearrange_session_async = awaitable(rearrange_session)
