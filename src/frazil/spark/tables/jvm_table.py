"""A table of Spark whose scans this process plans: their columns, filters, sizes and tasks.

Spark (4.1 to 4.3) gives a data source in Python no columns and no sizes. It keeps the plan with the filters
of one query in the relation, and uses it for other queries of the same relation too. The interface of its
data sources in the JVM has none of these limits: Spark asks the table for a new scan for each place in each
query. So where this process has the JVM of the session, the table and its scans are objects of Python that
implement this interface, through py4j. A scan becomes a scan of Spark's own data source for Python, with the
function and the tasks that it would get from a process that plans.

A scan leaves out rows that do not meet the filters. Spark evaluates all filters again.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar, Final, Literal

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark import cloudpickle
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession

from frazil.answers.conditions import Predicate, joined
from frazil.spark.runtime.on_spark import causes_only
from frazil.spark.tables.scan import Scan, ScanRequest, ScanTask, batches, function_of, row_bytes
from frazil.spark.tables.schemas import ColumnCondition, filter_comparison, pushed_conditions, to_spark

_READ: Final = "org.apache.spark.sql.connector.read."


def frame_of_table(spark: SparkSession, request: ScanRequest, source: str, text: str) -> DataFrame:
    """Return the rows as a DataFrame of a session whose JVM this process has.

    ``source`` is a data source in Python that the session knows. Plans have the ``text``.
    """
    classic: Any = spark
    java = _Java(classic)
    ensure_callback_server_started(java.gateway)  # type: ignore[no-untyped-call]
    none = java.jvm.scala.Option.empty()
    table = _Table(java, request, source, text)
    relation = java.sql.execution.datasources.v2.DataSourceV2Relation.create(table, none, none)
    return DataFrame(java.sql.classic.Dataset.ofRows(java.session, relation), spark)


def _function(scan: Scan) -> bytes:
    """Return the function of a task, as Spark's own data source gives it to a worker."""
    whole = function_of(scan, batches), to_spark(scan.schema)
    command: bytes = cloudpickle.dumps(whole)  # type: ignore[no-untyped-call]
    return command


class _Java:
    """The JVM of a session, and the objects of Spark that a table needs."""

    def __init__(self, spark: Any) -> None:
        self.session, self.gateway = spark._jsparkSession, spark.sparkContext._gateway
        self.jvm: Any = self.gateway.jvm
        self.sql: Any = self.jvm.org.apache.spark.sql
        self._sources = self.session.sessionState().dataSourceManager()

    def struct(self, schema: pa.Schema) -> Any:
        """Return the columns of Spark."""
        return self.session.parseDataType(to_spark(schema).json())

    def table(self, source: str, schema: pa.Schema, read: Any = None) -> Any:
        """Return a new table of a data source in Python, with the function and the tasks of its scans."""
        of_python = self.sql.execution.datasources.v2.python
        # A view may be global, and a query that of another session.
        known = self.sql.classic.SparkSession.active().sessionState().dataSourceManager()
        if not known.dataSourceExists(source):
            known.registerDataSource(source, self._sources.lookupDataSource(source))
        provider = of_python.PythonDataSourceV2()
        provider.setShortName(source)
        if read is not None:
            provider.setReadInfo(of_python.PythonDataSourceReadInfo(*read))
        transforms = self.gateway.new_array(self.sql.connector.expressions.Transform, 0)
        return provider.getTable(self.struct(schema), transforms, self.jvm.java.util.HashMap())

    def sequence(self, values: Sequence[bytes]) -> Any:
        """Return a sequence of Scala."""
        every = self.jvm.java.util.ArrayList()
        for each in values:
            every.add(each)
        return self.jvm.scala.jdk.javaapi.CollectionConverters.asScala(every).toSeq()

    def predicate(self, each: Any) -> Predicate | None:
        """Return the condition of a filter; None if it has no comparison here."""
        name = each.getClass().getSimpleName()
        if name in ("And", "Or"):
            parts = [self.predicate(each.left()), self.predicate(each.right())]
            known = [part for part in parts if part is not None]
            # A part of AND that is not known only leaves more rows.
            is_usable = len(known) == 2 or (name == "And" and known)
            return joined(known, is_all=name == "And") if is_usable else None
        if name == "Not":
            # The negation of a part would leave fewer rows than that of the whole.
            child = each.child()
            is_whole = child.getClass().getSimpleName() not in ("And", "Or")
            known_child = self.predicate(child) if is_whole else None
            return None if known_child is None else known_child.negation()
        if not hasattr(each, "attribute"):
            return None
        column = each.attribute()
        if column.startswith("`"):
            column = column[1:-1].replace("``", "`")
        if name == "In":
            value: Any = tuple(map(self.literal, each.values()))
        else:
            value = None if name in ("IsNull", "IsNotNull") else self.literal(each.value())
        return filter_comparison(name, column, value)

    def literal(self, value: Any) -> Any:
        """Return a literal of a filter as Python has it. Dates and times are those of numpy."""
        unit = None if not hasattr(value, "getClass") else _UNITS.get(value.getClass().getName())
        if unit is None:
            return value
        # Spark's own conversion, because java.sql has other calendars and zones for old times.
        number: int = self.sql.catalyst.CatalystTypeConverters.convertToCatalyst(value)
        return np.datetime64(number, unit)


_UNITS: Final[dict[str, Literal["us", "D"]]] = {
    **dict.fromkeys(("java.sql.Timestamp", "java.time.Instant", "java.time.LocalDateTime"), "us"),
    **dict.fromkeys(("java.sql.Date", "java.time.LocalDate"), "D"),
}


class _Object:
    """What the JVM asks of every object: its identity."""

    def equals(self, other: Any) -> bool:
        return other is self

    def hashCode(self) -> int:
        return id(self) & 0x7FFF_FFFF

    def toString(self) -> str:
        return type(self).__name__


@causes_only
class _Table(_Object):
    """The table: its name, its columns, and a builder for each scan."""

    def __init__(self, java: _Java, request: ScanRequest, source: str, text: str) -> None:
        self._java, self._request, self._source, self._text = java, request, source, text
        self._plain = java.table(source, request.schema)

    def name(self) -> str:
        return self._text

    def capabilities(self) -> Any:
        read = self._java.sql.connector.catalog.TableCapability.BATCH_READ
        return self._java.jvm.java.util.Collections.singleton(read)

    def newScanBuilder(self, options: Any) -> _Scan:
        return _Scan(self._java, self._request, self._source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)  # columns, partitioning, properties, ...

    class Java:
        implements: ClassVar = ["org.apache.spark.sql.connector.catalog.SupportsRead"]


@causes_only
class _Scan(_Object):
    """A scan, its builder and its size: Spark gives filters and columns, then asks for sizes and tasks."""

    def __init__(self, java: _Java, request: ScanRequest, source: str) -> None:
        self._java, self._request, self._source = java, request, source
        self._pushed: list[ColumnCondition] = []

    def pushFilters(self, filters: Any) -> Any:
        pushed = map(self._java.predicate, filters)
        self._pushed = pushed_conditions(self._request.grid, self._request.schema, pushed)
        return filters

    def pushedFilters(self) -> Any:
        return self._java.gateway.new_array(self._java.sql.sources.Filter, 0)

    def pruneColumns(self, schema: Any) -> None:
        fields = map(self._request.schema.field, schema.fieldNames())
        self._request = replace(self._request, schema=pa.schema(fields))

    def build(self) -> _Scan:
        return self

    @cached_property
    def _plan(self) -> tuple[Scan, list[ScanTask]]:
        return replace(self._request, where=(*self._request.where, *self._pushed)).plan()

    @cached_property
    def _of_spark(self) -> Any:
        scan, tasks = self._plan
        read = _function(scan), self._java.sequence([pickle.dumps(each) for each in tasks])
        options = self._java.sql.util.CaseInsensitiveStringMap.empty()
        return self._java.table(self._source, scan.schema, read).newScanBuilder(options).build()

    def readSchema(self) -> Any:
        return self._java.struct(self._request.schema)

    def description(self) -> str:
        pushed = [each.predicate for each in self._pushed]
        return f"reads where {joined(pushed, is_all=True)}" if pushed else ""

    def estimateStatistics(self) -> _Scan:
        return self

    def reflectsFullyPushedDownFilters(self) -> bool:
        return False

    def numRows(self) -> Any:
        scan, tasks = self._plan
        rows = sum(len(each.blocks) for each in tasks) * prod(scan.grid.block)
        return self._java.jvm.java.util.OptionalLong.of(rows)

    def sizeInBytes(self) -> Any:
        size = self.numRows().getAsLong() * row_bytes(self._plan[0].grid.columns)
        return self._java.jvm.java.util.OptionalLong.of(size)

    def estimateSizeInBytes(self) -> Any:
        return self.sizeInBytes()

    def columnStats(self) -> Any:
        return self._java.jvm.java.util.HashMap()

    def of_spark(self) -> Any:
        """Return the scan of Spark's own data source. A class for Spark guards only public methods."""
        return self._of_spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of_spark(), name)  # toBatch, columnarSupportMode, ...

    class Java:
        implements: ClassVar = [
            *(f"{_READ}SupportsPushDown{part}" for part in ("Filters", "RequiredColumns")),
            *(f"{_READ}SupportsReportStatistics", f"{_READ}Statistics"),
        ]
