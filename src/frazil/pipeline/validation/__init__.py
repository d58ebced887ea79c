"""Rules about data, which `publishing` checks before it moves a branch.

rules       the rules, from Python, YAML or JSON, and the report of a validation
operation   `validate`, the check of each rule, and one scan of an array for all rules about its values
"""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__, extra="pipeline")
