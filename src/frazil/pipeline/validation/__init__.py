"""Rules about data, which `publishing` checks before it moves a branch.

rules       the rules, from Python, YAML or JSON, and the report of a validation
operation   `validate`, the check of each rule, and one scan of an array for all rules about its values
"""

from typing import TYPE_CHECKING

from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
    from frazil.pipeline.validation.operation import RuleCheck, validate
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
        Report,
        Row,
        Rule,
        Shape,
        StatisticsAgainst,
        Units,
        rules_from,
    )

import_on_demand(
    __name__,
    {
        "RuleCheck": "frazil.pipeline.validation.operation",
        "validate": "frazil.pipeline.validation.operation",
        "Report": "frazil.pipeline.validation.rules",
        "Row": "frazil.pipeline.validation.rules",
        "Attributes": "frazil.pipeline.validation.rules",
        "Dims": "frazil.pipeline.validation.rules",
        "DType": "frazil.pipeline.validation.rules",
        "Exists": "frazil.pipeline.validation.rules",
        "Filled": "frazil.pipeline.validation.rules",
        "Finite": "frazil.pipeline.validation.rules",
        "Monotonic": "frazil.pipeline.validation.rules",
        "NanShare": "frazil.pipeline.validation.rules",
        "NoDuplicates": "frazil.pipeline.validation.rules",
        "Range": "frazil.pipeline.validation.rules",
        "Regular": "frazil.pipeline.validation.rules",
        "Rule": "frazil.pipeline.validation.rules",
        "Shape": "frazil.pipeline.validation.rules",
        "StatisticsAgainst": "frazil.pipeline.validation.rules",
        "Units": "frazil.pipeline.validation.rules",
        "rules_from": "frazil.pipeline.validation.rules",
    },
    extra="pipeline",
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
    "RuleCheck",
    "Shape",
    "StatisticsAgainst",
    "Units",
    "rules_from",
    "validate",
]
