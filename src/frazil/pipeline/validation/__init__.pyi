__all__: list[str]

from frazil.pipeline.validation.operation import RuleCheck as RuleCheck
from frazil.pipeline.validation.operation import validate as validate
from frazil.pipeline.validation.rules import Attributes as Attributes
from frazil.pipeline.validation.rules import Condition as Condition
from frazil.pipeline.validation.rules import Dims as Dims
from frazil.pipeline.validation.rules import DType as DType
from frazil.pipeline.validation.rules import Exists as Exists
from frazil.pipeline.validation.rules import Filled as Filled
from frazil.pipeline.validation.rules import Finite as Finite
from frazil.pipeline.validation.rules import Monotonic as Monotonic
from frazil.pipeline.validation.rules import NanShare as NanShare
from frazil.pipeline.validation.rules import NoDuplicates as NoDuplicates
from frazil.pipeline.validation.rules import Range as Range
from frazil.pipeline.validation.rules import Regular as Regular
from frazil.pipeline.validation.rules import Report as Report
from frazil.pipeline.validation.rules import Row as Row
from frazil.pipeline.validation.rules import Rule as Rule
from frazil.pipeline.validation.rules import Shape as Shape
from frazil.pipeline.validation.rules import StatisticsAgainst as StatisticsAgainst
from frazil.pipeline.validation.rules import Units as Units
from frazil.pipeline.validation.rules import rules_from as rules_from
