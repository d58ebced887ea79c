"""The cases. Each module registers those of one subject."""

from icechunk_kit.cases import reading, script

__all__ = ["reading", "script"]
