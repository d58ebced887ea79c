"""``frazil tag``."""

from frazil.cli.change.refs import tag as command

__all__ = ["command"]
