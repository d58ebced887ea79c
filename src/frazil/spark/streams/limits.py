"""How much of a stream a batch may take: names of Spark 4.2 and later.

Spark 4.1 has none of them: there a batch takes all that is available, and nobody asks for less. The stand-ins
keep the source importable there.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

#: Whether Spark asks a source for a part of what is available.
HAS_LIMITS: Final = find_spec("pyspark.sql.streaming.datasource") is not None

if TYPE_CHECKING or HAS_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """How much to take."""

    class ReadAllAvailable(ReadLimit):
        """All of it."""

    @dataclass
    class ReadMaxFiles(ReadLimit):
        """At most so many commits."""

        max_files: int

    @dataclass
    class ReadMaxRows(ReadLimit):
        """At most so many rows."""

        max_rows: int

    class SupportsTriggerAvailableNow:
        """A mark."""


__all__ = [
    "HAS_LIMITS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxFiles",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]
