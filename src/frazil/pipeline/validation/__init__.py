"""Rules about data, checked before anybody else sees them.

rules       what can be asked, from Python, YAML or JSON
values      one pass over an array for all rules about its data
checking    `validate`
report      what came of it
"""

from frazil.pipeline.validation.checks import validate
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
