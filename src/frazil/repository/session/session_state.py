"""The state of a session, and what the session may do in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from frazil.changes.fork_generations import ForkGenerations
from frazil.changes.reads import ReadSet
from frazil.errors import ErrorKind, ReadOnlyError, SessionStateError
from frazil.repository.catalog.collection_guard import SessionStart
from frazil.repository.catalog.leases import Lease
from frazil.repository.catalog.repo_changes import Note
from frazil.repository.catalog.version_info import SessionMode
from frazil.repository.clock import elapsed_us, new_object_id, now_us, to_datetime
from frazil.repository.session.workspace import Workspace


@dataclass(slots=True)
class SessionState:
    """The mutable state of a session: a commit, a rebase and a merge change it."""

    workspace: Workspace
    branch: str | None
    mode: SessionMode
    expires_at: int
    default_metadata: dict[str, Any] = field(default_factory=dict)
    generation: int = 0
    discarded_before: int = 0
    merged: ForkGenerations = field(default_factory=ForkGenerations)
    session_id: bytes = field(default_factory=new_object_id)
    #: Time of the newest update of the repository when the session was opened.
    seen: int = 0
    #: Spares the files of the session from garbage collections while there are forks.
    lease: Lease | None = None
    #: Changes the metadata of the repository in the update of the commit.
    note: Note | None = None
    #: When the oldest chunk file of the session may have been written, if that is before its lifetime.
    since: int | None = None
    #: The snapshot that the session was opened with, after a rebase to another.
    origin: bytes | None = None
    #: Declared reads that were compared with all commits up to the session's snapshot.
    clean_reads: tuple[ReadSet, ...] = ()
    #: When the session was created, by ``elapsed_us`` of this process.
    created_at: int = field(default_factory=elapsed_us)

    def ends(self) -> int:
        """When the session can no longer commit. Chunks that were found in storage may bring that forward."""
        keep_until = self.workspace.writer.keep_until
        if keep_until is not None:
            self.expires_at = min(self.expires_at, keep_until)
        return self.expires_at

    def session_start(self) -> SessionStart:
        """When the session started: garbage collections spare files that are not older."""
        lifetime = self.workspace.context.settings.session_lifetime // timedelta(microseconds=1)
        starts = [self.ends() - lifetime, now_us() - (elapsed_us() - self.created_at)]
        if self.since is not None:
            starts.append(self.since)
        # The earliest: this host's clock may have been set back since.
        return SessionStart(self.seen, min(starts))


class Permissions:
    """What a session may do now. Base of ``Session``."""

    _state: SessionState

    @property
    def read_only(self) -> bool:
        return self._state.mode is SessionMode.readonly

    @property
    def mode(self) -> SessionMode:
        return self._state.mode

    @property
    def expires_at(self) -> datetime:
        """When this session can no longer commit. With deduplication, a chunk that was found in storage may
        bring it forward, to no less than a third of the lifetime after it was found.
        """
        return to_datetime(self._state.ends())

    def require_writable(self) -> None:
        """``ReadOnlyError`` (``read-only-store``) if this session can only read, ``SessionStateError``
        (``rearrange-session-only``) if it can only move nodes, and (``session-expired``) after its end.
        """
        self._require_changeable()
        if self.mode is SessionMode.rearrange:
            raise SessionStateError(
                "this session only moves nodes: commit or discard its changes, and open one with "
                "Repository.writable_session to write",
                ErrorKind.REARRANGE_SESSION_ONLY,
            )
        self._require_not_ended()

    def _require_not_ended(self) -> None:
        ends = self._state.ends()
        if now_us() >= ends:
            raise SessionStateError(
                f"this session ended at {to_datetime(ends).isoformat()}, at the end of its "
                "session_lifetime, and cannot write or commit: garbage collection may have deleted its "
                "chunks. Write them in a new session, or configure a longer session_lifetime",
                ErrorKind.SESSION_EXPIRED,
            )

    def _require_changeable(self) -> None:
        if self.read_only:
            raise ReadOnlyError(
                "this session only reads: open one with Repository.writable_session to change something",
                ErrorKind.READ_ONLY_STORE,
            )

    def _require_not_reading(self) -> None:
        if self.read_only:
            raise ReadOnlyError(
                "this session only reads: open another one with Repository.writable_session, or "
                "rearrange_session, to change something",
                ErrorKind.READ_ONLY_SESSION,
            )
