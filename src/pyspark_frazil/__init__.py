"""Makes ``spark.read.format("frazil")`` work without a call: Spark looks for packages named ``pyspark_*``.

Spark imports all of these packages at the first use of any data source. So this package does not import
Frazil until it is used.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, override

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from frazil.spark.data_source import FrazilDataSource

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The data source ``frazil``: see ``frazil.spark.data_source``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._source: FrazilDataSource | None = None

    @classmethod
    @override
    def name(cls) -> str:
        return "frazil"

    @override
    def schema(self) -> StructType:
        return self._data_source().schema()

    @override
    def reader(self, schema: StructType) -> DataSourceReader:
        return self._data_source().reader(schema)

    @override
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return self._data_source().writer(schema, overwrite)

    @override
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return self._data_source().streamReader(schema)

    @override
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return self._data_source().streamWriter(schema, overwrite)

    def _data_source(self) -> FrazilDataSource:
        from frazil.spark.data_source import FrazilDataSource

        if self._source is None:
            self._source = FrazilDataSource(self.options)
        return self._source
