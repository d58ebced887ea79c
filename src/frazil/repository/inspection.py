"""What the files of a repository say, as plain dictionaries."""

from __future__ import annotations

from frazil.repository.context import Context


class Inspection:
    """Methods of ``Repository``."""

    _context: Context
