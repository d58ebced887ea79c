"""``frazil cherry-pick``."""

from frazil.cli.change.integration import cherry_pick as command

__all__ = ["command"]
