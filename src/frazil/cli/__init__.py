"""The command ``frazil``: what the library does, for people at a terminal."""

from frazil.cli.main import main

__all__ = ["main"]
