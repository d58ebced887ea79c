"""``frazil rechunk``."""

from frazil.cli.move.rewriting import rechunk as command

__all__ = ["command"]
