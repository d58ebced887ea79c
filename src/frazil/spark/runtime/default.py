"""The engine ``"spark"``: an entry point of the group ``frazil.engines``."""

from __future__ import annotations

from frazil.spark.runtime.on_spark import OnSpark
from frazil.spark.runtime.session import get_spark


def engine() -> OnSpark:
    """Return an engine on the active Spark session, or on a session that this call starts."""
    return OnSpark(get_spark())
