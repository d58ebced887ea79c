"""The interior of a session, for rooms that are built on it: jobs and streams."""

from __future__ import annotations

from frazil.repository.session.session import Session
from frazil.repository.session.session_state import SessionState


def state_of(session: Session) -> SessionState:
    """The mutable state of a session: its workspace, its lease, and what its next commit records."""
    return session._state
