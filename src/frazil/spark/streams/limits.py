"""The limits of a batch of a stream: names of Spark 4.2 and later.

Spark 4.1 does not have these names. There a batch takes all available commits, and the stand-ins of this
module only keep the source importable.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

#: Whether Spark asks a source for a part of the available data.
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
        """At most ``max_files`` commits."""

        max_files: int

    @dataclass
    class ReadMaxRows(ReadLimit):
        """At most ``max_rows`` rows."""

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
