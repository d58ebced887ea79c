"""The import of repositories in formats before spec version 1, with their whole history."""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__)
