"""The cases. Each module registers those of one subject. `script` registers those of the files `*.cases`."""

from icechunk_kit.cases import damage, headers, history, maintenance, reading, scale, script, turns, version1

__all__ = ["damage", "headers", "history", "maintenance", "reading", "scale", "script", "turns", "version1"]
