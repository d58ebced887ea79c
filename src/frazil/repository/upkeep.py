"""Upkeep of a repository: expiration, garbage collection, rewritten manifests, statistics."""

from __future__ import annotations

from frazil.repository.context import Context


class Upkeep:
    """Methods of ``Repository``."""

    _context: Context
