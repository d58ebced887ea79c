"""The cases. Each module registers those of one subject."""

from icechunk_kit.cases import maintenance, reading, script, turns

__all__ = ["maintenance", "reading", "script", "turns"]
