"""Names of types."""

from frazil.repository.values import CommitMethod

__all__ = ["CommitMethod"]
