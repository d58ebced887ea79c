"""The function ``frazil_rows``: the rows of arrays of one version.

    SELECT time, max(tas) FROM frazil_rows('climate', tag => 'v1', where => 'lat > 0') GROUP BY time

Spark calls ``analyze`` once for a statement, in a process of the driver: the columns are those of the version
then, and every evaluation reads this version. One task reads all rows, one Python object for each value,
because Spark gives the arguments of a function to one task. The data source reads by many tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql.functions import udtf
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from frazil.spark.functions.arguments import options_of_call
from frazil.spark.functions.constants import constants
from frazil.spark.tables import location
from frazil.spark.tables.data_source_reader import GridReader, schema_of_rows
from frazil.spark.tables.location import VERSION_OPTIONS
from frazil.spark.tables.options import ROWS, Use
from frazil.spark.tables.process_errors import causes_only
from frazil.spark.tables.profiles import Profiles
from frazil.spark.tables.schemas import to_arrow_schema, to_spark

#: The positional arguments.
_POSITIONAL: Final = ("path", "options")
_USE: Final = Use("frazil_rows", ROWS.options)


@dataclass
class RowsAnalysis(AnalyzeResult):
    """The columns of a call, and its options with the id of the snapshot."""

    options: Mapping[str, str] = field(default_factory=dict)


def rows_function(profiles: Profiles) -> Any:
    """Return the function, for the registration with Spark."""

    @causes_only
    class Rows:
        """The rows of one version."""

        def __init__(self, analysis: RowsAnalysis) -> None:
            self._analysis = analysis

        @staticmethod
        def analyze(*args: AnalyzeArgument, **kwargs: AnalyzeArgument) -> RowsAnalysis:
            values = constants("frazil_rows", _POSITIONAL, args, kwargs)
            options = profiles.resolve(options_of_call(values, _USE))
            session = location.open_session_at(options)
            version = {"snapshot-id": session.snapshot_id}
            pinned = {name: each for name, each in options.items() if name not in VERSION_OPTIONS} | version
            return RowsAnalysis(to_spark(schema_of_rows(session, options)), options=pinned)

        def eval(self, *args: Any, **kwargs: Any) -> Iterator[tuple[Any, ...]]:
            options = self._analysis.options
            session = location.open_session_at(options)
            reader = GridReader(session, options, to_arrow_schema(self._analysis.schema))
            for partition in reader.partitions():
                for batch in reader.read(partition):
                    yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    return udtf(Rows)
