"""What a session is at a moment, and may do."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from frazil.changes.fork_generations import Seen
from frazil.changes.reads import ReadSet
from frazil.errors import ErrorKind, ReadOnlyError, SessionStateError
from frazil.repository.catalog.collection_guard import SessionStart
from frazil.repository.catalog.leases import Lease
from frazil.repository.catalog.repo_changes import Note
from frazil.repository.catalog.version_info import SessionMode
from frazil.repository.clock import elapsed_us, new_object_id, now_us, to_datetime
from frazil.repository.session.workspace import Workspace


@dataclass(slots=True)
class State:
    """What of a session moves on when it commits."""

    workspace: Workspace
    branch: str | None
    mode: SessionMode
    expires_at: int
    default_metadata: dict[str, Any] = field(default_factory=dict)
    generation: int = 0
    discarded_before: int = 0
    merged: Seen = field(default_factory=Seen)
    session_id: bytes = field(default_factory=new_object_id)
    #: Time of the newest update of the repository when the session was opened.
    seen: int = 0
    #: What keeps garbage collections away while there are forks.
    lease: Lease | None = None
    #: What its commit puts into the metadata of the repository, in the same update.
    note: Note | None = None
    #: When what it relies on was begun, if that is not its lifetime before its end.
    since: int | None = None
    #: The snapshot that it was opened with, if a rebase has left that.
    origin: bytes | None = None
    #: Declared reads that have been compared with all that was committed up to its snapshot.
    clean_reads: tuple[ReadSet, ...] = ()
    #: When it was made, by ``elapsed_us`` of this process.
    made_at: int = field(default_factory=elapsed_us)

    def ends(self) -> int:
        """When it can no longer commit. Chunks that were found again may bring that forward."""
        found = self.workspace.writer.keep_until
        if found is not None:
            self.expires_at = min(self.expires_at, found)
        return self.expires_at

    def session_start(self) -> SessionStart:
        """When the session started: garbage collections spare files that are not older."""
        lifetime = self.workspace.context.settings.session_lifetime // timedelta(microseconds=1)
        starts = [self.ends() - lifetime, now_us() - (elapsed_us() - self.made_at)]
        if self.since is not None:
            starts.append(self.since)
        # The earliest: this host's clock may have been set back since.
        return SessionStart(self.seen, min(starts))


class Permissions:
    """What a session may do now. Base of ``Session``."""

    _state: State

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
