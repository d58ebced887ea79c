"""Names of types."""

from typing import Literal

#: Whether a commit is a new one, or takes the place of the last one.
CommitMethod = Literal["new_commit", "amend"]

__all__ = ["CommitMethod"]
