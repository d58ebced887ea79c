"""Limits that callers set for memory and requests."""

from __future__ import annotations

from collections.abc import Iterable

from frazil.errors import ErrorKind, InvalidInputError


def require_positive(**limits: int) -> Iterable[int]:
    """The limits, in their order. Raises ``InvalidInputError`` for one that is not positive."""
    for name, limit in limits.items():
        if limit < 1:
            raise InvalidInputError(f"{name}: expected at least 1, found {limit}", ErrorKind.INVALID_ARGUMENT)
    return limits.values()
