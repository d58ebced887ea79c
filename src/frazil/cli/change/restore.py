"""``frazil restore``."""

from frazil.cli.change.undoing import restore as command

__all__ = ["command"]
