"""A data source for streams that finds its repository in the option ``path``.

With the option ``fails`` (a directory) the driver dies, so to speak, right after the commit of batch 1: once.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, WriterCommitMessage
from pyspark.sql.types import StructType

import frazil
from frazil.spark.streams import CHANGES, stream_reader, stream_writer
from frazil.spark.streams.sink import RowsWriter


class Failing(RowsWriter):
    marks: Path

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        super().commit(messages, batchId)
        if batchId == 1 and not (self.marks / "failed").exists():
            (self.marks / "failed").touch()
            raise OSError("the power is gone")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        super().abort(messages, batchId)
        (self.marks / "aborted").touch()


class Streams(DataSource):
    @classmethod
    def name(cls) -> str:
        return "frazil-streams"

    def schema(self) -> str:
        return CHANGES

    def _repo(self) -> frazil.Repository:
        return frazil.Repository.open(frazil.local_filesystem_storage(self.options["path"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return stream_reader(self._repo(), {**self.options}, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> RowsWriter:  # noqa: N802
        writer = stream_writer(self._repo(), {**self.options}, schema, overwrite)
        if "fails" in self.options:
            writer.__class__ = Failing
            writer.marks = Path(self.options["fails"])
        return writer
