"""The state of a session, and the checks of what the session may do in this state."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from frazil.changes.fork_generations import ForkGenerations
from frazil.changes.reads import ReadSet
from frazil.errors import ErrorKind, ReadOnlyError, SessionStateError
from frazil.repository.catalog.collection_guard import SessionStart
from frazil.repository.catalog.leases import Lease
from frazil.repository.catalog.repo_changes import MetadataEdit
from frazil.repository.catalog.version_info import SessionMode
from frazil.repository.clock import elapsed_us, now_us, to_datetime
from frazil.repository.ids import new_object_id
from frazil.repository.session.workspace import Workspace


@dataclass(slots=True)
class SessionState:
    """The mutable state of a session. Commits, rebases and merges change it."""

    workspace: Workspace
    branch: str | None
    mode: SessionMode
    expires_at: int
    default_metadata: dict[str, Any] = field(default_factory=dict)
    generation: int = 0
    discarded_before: int = 0
    merged: ForkGenerations = field(default_factory=ForkGenerations)
    session_id: bytes = field(default_factory=new_object_id)
    #: Time of the newest update of the repository when the session was opened, in microseconds since 1970.
    seen: int = 0
    #: Protects the files of the session from garbage collections while the session has forks.
    lease: Lease | None = None
    #: The name of the session in the list of leases.
    name: str = ""
    #: Changes the metadata of the repository in the update of the commit.
    note: MetadataEdit | None = None
    #: Time of the oldest chunk file of the session, if the file can be older than the session.
    since: int | None = None
    #: After a rebase: the snapshot that the session was opened with.
    origin: bytes | None = None
    #: Declared reads that were compared with all commits up to the session's snapshot.
    clean_reads: tuple[ReadSet, ...] = ()
    #: The time of creation, by ``elapsed_us`` of this process.
    created_at: int = field(default_factory=elapsed_us)
    #: Whether the session has tried to commit. The error of an attempt says that the changes are not saved.
    has_tried: bool = False

    def ends(self) -> int:
        """Return when the session expires, in microseconds since 1970.

        With deduplication, chunks that the writer found in storage can make this earlier.
        """
        keep_until = self.workspace.writer.keep_until
        if keep_until is not None:
            self.expires_at = min(self.expires_at, keep_until)
        return self.expires_at

    def session_start(self) -> SessionStart:
        """Return when the session started. Garbage collections spare files that are not older."""
        lifetime = self.workspace.context.settings.session_lifetime // timedelta(microseconds=1)
        starts = [self.ends() - lifetime, now_us() - (elapsed_us() - self.created_at)]
        if self.since is not None:
            starts.append(self.since)
        # The earliest of them, because this host's clock may have been set back since.
        return SessionStart(self.seen, min(starts))


class Permissions:
    """Checks of what a session may do now. Base of ``Session``."""

    _state: SessionState

    @property
    def read_only(self) -> bool:
        """Whether the session can only read. A session is read-only after its commit."""
        return self._state.mode is SessionMode.readonly

    @property
    def mode(self) -> SessionMode:
        """Whether the session is read-only, writable, or a session that moves nodes."""
        return self._state.mode

    @property
    def expires_at(self) -> datetime:
        """The time after which this session cannot write or commit.

        With deduplication, a chunk that the session found in storage can make this earlier. At least a third
        of the lifetime is left after such a chunk was found.
        """
        return to_datetime(self._state.ends())

    def require_writable(self) -> None:
        """Raise an error if this session cannot write to nodes and chunks now.

        Raises:
            ReadOnlyError: The session is read-only (``read-only-store``).
            SessionStateError: The session can only move nodes (``rearrange-session-only``), or has expired
                (``session-expired``).

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.writable_session("main").require_writable()
            >>> repo.rearrange_session("main").require_writable()
            Traceback (most recent call last):
            frazil.errors.SessionStateError: this session can only move nodes...
        """
        if self._state.mode is not SessionMode.writable:
            self._require_not_reading(ErrorKind.READ_ONLY_STORE)
            raise SessionStateError(
                "this session can only move nodes", ErrorKind.REARRANGE_SESSION_ONLY
            ).with_remedy(
                "To write, commit or discard its changes, and open a session with "
                "Repository.writable_session",
                shell="",
            )
        self._require_not_ended()

    def _require_not_ended(self) -> None:
        ends = self._state.ends()
        if now_us() >= ends:
            raise SessionStateError(
                f"this session expired at {to_datetime(ends).isoformat()}, at the end of its "
                "session_lifetime. It cannot write or commit, because garbage collection may have deleted "
                "its chunks. Write them again in a new session, or configure a longer session_lifetime",
                ErrorKind.SESSION_EXPIRED,
            )

    def _require_not_reading(self, kind: ErrorKind = ErrorKind.READ_ONLY_SESSION) -> None:
        if self.read_only:
            is_new = self._state.branch is None
            raise ReadOnlyError(
                f"this session {'is read-only' if is_new else 'has committed its changes'}", kind
            ).with_remedy(
                "To write or to move nodes, open a session with Repository.writable_session or "
                "Repository.rearrange_session",
                shell="",
            )
