"""``frazil recompress``."""

from frazil.cli.move.rewriting import recompress as command

__all__ = ["command"]
