"""``frazil undo``."""

from frazil.cli.change.undoing import undo as command

__all__ = ["command"]
