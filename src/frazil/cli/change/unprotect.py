"""``frazil unprotect``."""

from frazil.cli.change.protection import unprotect as command

__all__ = ["command"]
