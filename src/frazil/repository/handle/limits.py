"""Limits of memory and requests that callers set."""

from __future__ import annotations

from collections.abc import Iterable

from frazil.errors import ErrorKind, InvalidInputError


def require_positive(**limits: int) -> Iterable[int]:
    """Return the limits in the order of the arguments."""
    for name, limit in limits.items():
        if limit < 1:
            raise InvalidInputError(f"{name} must be at least 1, got {limit}", ErrorKind.INVALID_ARGUMENT)
    return limits.values()
