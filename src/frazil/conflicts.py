"""The conflicts of a rebase or merge, and the solvers that decide them."""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__)
