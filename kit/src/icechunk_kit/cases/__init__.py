"""The cases. Each module registers those of one subject."""

from icechunk_kit.cases import headers, history, reading, version1

__all__ = ["headers", "history", "reading", "version1"]
