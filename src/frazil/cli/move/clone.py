"""``frazil clone``."""

from frazil.cli.move.replication import clone as command

__all__ = ["command"]
