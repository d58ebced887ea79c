"""A function for upkeep as a class that Spark calls: ``analyze`` on the driver, ``eval`` in a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.functions import udtf
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from frazil.spark.functions.constants import bound, constants
from frazil.spark.functions.upkeep_function import Call, Kind, Pin, UpkeepFunction
from frazil.spark.tables import location
from frazil.spark.tables.process_errors import causes_only
from frazil.spark.tables.profiles import Profiles
from frazil.spark.tables.schemas import to_spark


@dataclass
class UpkeepAnalysis(AnalyzeResult):
    """The columns of a function, and the state that its work starts from."""

    pin: Pin = field(default_factory=dict)


def upkeep_udtf(function: UpkeepFunction, profiles: Profiles) -> Any:
    """Return a function of SQL, for the registration with Spark."""
    times = tuple(each.name for each in function.arguments if each.kind is Kind.TIME)
    schema = to_spark(function.schema)

    @causes_only
    class Upkeep:
        """One function."""

        def __init__(self, analysis: UpkeepAnalysis) -> None:
            self._pin = analysis.pin

        @staticmethod
        def analyze(*args: AnalyzeArgument, **kwargs: AnalyzeArgument) -> UpkeepAnalysis:
            values = constants(function.name, function.parameters, args, kwargs, variable=times)
            variable = [
                name for name in bound(function.name, function.parameters, args, kwargs) if name not in values
            ]
            call = _call(function, profiles, values, variable)
            return UpkeepAnalysis(schema, pin=function.pin(call))

        def eval(self, *args: Any, **kwargs: Any) -> Iterator[tuple[Any, ...]]:
            call = _call(function, profiles, bound(function.name, function.parameters, args, kwargs))
            pinned = Call(call.repo, call.values, call.profiles, self._pin)
            for row in function.work(pinned):
                yield tuple(row[name] for name in function.schema.names)

    Upkeep.__name__ = Upkeep.__qualname__ = function.name
    return udtf(Upkeep)


def _call(
    function: UpkeepFunction, profiles: Profiles, values: Mapping[str, Any], later: list[str] | None = None
) -> Call:
    """Return a call. The values of the arguments ``later`` are not known yet."""
    options, given = function.split(values)
    unset = dict.fromkeys(later or (), None)
    all_values = function.with_defaults({**unset, **given})
    return Call(location.repository_at(profiles.resolve(options)), all_values, profiles)
