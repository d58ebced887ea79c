"""``frazil redo``."""

from frazil.cli.change.undoing import redo as command

__all__ = ["command"]
