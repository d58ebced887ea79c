"""The sessions of a repository: to read one version, to change a branch, to move nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from frazil.changes.change_set import ChangeSet
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog import repo_requirements
from frazil.repository.catalog.collection_guard import newest_update
from frazil.repository.catalog.history import at_time
from frazil.repository.catalog.version_info import SessionMode
from frazil.repository.clock import from_datetime, now_us
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.handle.opening import require_writable
from frazil.repository.handle.version_argument import snapshot_of_version
from frazil.repository.session.conflicts import ConflictSolver
from frazil.repository.session.declared_reads import Read
from frazil.repository.session.preload import preload
from frazil.repository.session.read_tracker import ReadTracker
from frazil.repository.session.session import Session
from frazil.repository.session.session_state import SessionState
from frazil.repository.session.workspace import Workspace
from frazil.repository.settings.config import check_session_lifetime
from frazil.repository.settings.feature_flags import MOVE_NODE

if TYPE_CHECKING:
    from frazil.zarr_store import IcechunkStore

_MICROSECOND: Final = timedelta(microseconds=1)


class Sessions(RepositoryBase):
    """The methods of ``Repository`` that open sessions."""

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
        id_ = snapshot_of_version(info, branch, tag, snapshot_id)
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

    readonly_session_async = awaitable(readonly_session)
    writable_session_async = awaitable(writable_session)
    rearrange_session_async = awaitable(rearrange_session)
