"""Bringing changes from one branch to another: merge, cherry-pick, revert."""

from __future__ import annotations

from frazil.repository.context import Context


class Integration:
    """Methods of ``Repository``."""

    _context: Context
