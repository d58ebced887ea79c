"""The cases. Each module registers those of one subject."""

from icechunk_kit.cases import damage, headers, history, reading, scale, version1

__all__ = ["damage", "headers", "history", "reading", "scale", "version1"]
