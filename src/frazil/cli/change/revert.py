"""``frazil revert``."""

from frazil.cli.change.integration import revert as command

__all__ = ["command"]
