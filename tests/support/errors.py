"""Checks of errors for `pytest.raises`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def of_kind(kind: str) -> Callable[[Any], bool]:
    """Return a check that an error of Frazil has a kind."""
    return lambda error: error.kind == kind
