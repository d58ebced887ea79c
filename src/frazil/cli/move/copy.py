"""``frazil copy``."""

from frazil.cli.move.replication import copy as command

__all__ = ["command"]
