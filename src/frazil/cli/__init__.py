"""The command ``frazil``: operations of the library for a terminal."""

from frazil.cli.main import main

__all__ = ["main"]
