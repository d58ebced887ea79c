"""A data source for streams that finds its repository in the option ``path``."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

import frazil
from frazil.spark.streams import CHANGES, stream_reader, stream_writer


class Streams(DataSource):
    @classmethod
    def name(cls) -> str:
        return "frazil-streams"

    def schema(self) -> str:
        return CHANGES

    def _repo(self) -> frazil.Repository:
        return frazil.Repository.open(frazil.local_filesystem_storage(self.options["path"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader: # noqa: N802
        return stream_reader(self._repo(), {**self.options}, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter: # noqa: N802
        return stream_writer(self._repo(), {**self.options}, schema, overwrite)
