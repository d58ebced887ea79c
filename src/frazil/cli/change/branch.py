"""``frazil branch``."""

from frazil.cli.change.refs import branch as command

__all__ = ["command"]
