"""``frazil protect``."""

from frazil.cli.change.protection import protect as command

__all__ = ["command"]
