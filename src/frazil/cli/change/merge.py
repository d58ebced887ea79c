"""``frazil merge``."""

from frazil.cli.change.integration import merge as command

__all__ = ["command"]
