"""The cases. Each module registers those of one subject."""

from icechunk_kit.cases import headers, history, reading

__all__ = ["headers", "history", "reading"]
