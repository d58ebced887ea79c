"""The engine ``"spark"``: an entry point of the group ``frazil.engines``."""

from __future__ import annotations

from frazil.spark.runtime.on_spark import OnSpark
from frazil.spark.runtime.session import get_spark


def engine() -> OnSpark:
    """Tasks on the active Spark session, or on one that this starts."""
    return OnSpark(get_spark())
