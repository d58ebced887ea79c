"""Makes ``spark.read.format("frazil")`` work without a call: Spark looks for packages named ``pyspark_*``.

It imports all of them at the first use of any data source. So this one imports nothing of Frazil until it is
used.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

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
    def name(cls) -> str:
        return "frazil"

    def schema(self) -> StructType:
        return self._data_source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return self._data_source().reader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return self._data_source().writer(schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        return self._data_source().streamReader(schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return self._data_source().streamWriter(schema, overwrite)

    def _data_source(self) -> FrazilDataSource:
        from frazil.spark.data_source import FrazilDataSource

        if self._source is None:
            self._source = FrazilDataSource(self.options)
        return self._source
