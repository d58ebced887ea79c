"""Repositories, sessions and their configuration: the room that both decides and does I/O."""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__)
