"""Access to the state of a session, for the modules of jobs and streams."""

from __future__ import annotations

from frazil.repository.session.session import Session
from frazil.repository.session.session_state import SessionState


def state_of(session: Session) -> SessionState:
    """Return the mutable state of a session, with its workspace, its lease, and the note of its commit."""
    return session._state
