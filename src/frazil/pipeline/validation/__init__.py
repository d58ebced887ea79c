"""Rules about data, which `publishing` checks before it moves a branch.

rules       the rules, from Python, YAML or JSON
checks      the check of each rule
scan        one scan of an array for all rules about its values
operation   `validate`
report      its result
"""

from frazil.pipeline.validation.operation import validate
from frazil.pipeline.validation.report import Report, Row
from frazil.pipeline.validation.rules import (
    Attributes,
    Dims,
    DType,
    Exists,
    Filled,
    Finite,
    Monotonic,
    NanShare,
    NoDuplicates,
    Range,
    Regular,
    Rule,
    Shape,
    StatisticsAgainst,
    Units,
    rules_from,
)

__all__ = [
    "Attributes",
    "DType",
    "Dims",
    "Exists",
    "Filled",
    "Finite",
    "Monotonic",
    "NanShare",
    "NoDuplicates",
    "Range",
    "Regular",
    "Report",
    "Row",
    "Rule",
    "Shape",
    "StatisticsAgainst",
    "Units",
    "rules_from",
    "validate",
]
