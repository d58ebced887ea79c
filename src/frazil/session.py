"""Sessions, under the name that users of the format know."""

from frazil.repository.session import ForkSession, Session
from frazil.repository.values import SessionMode

__all__ = ["ForkSession", "Session", "SessionMode"]
