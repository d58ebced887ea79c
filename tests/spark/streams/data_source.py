"""A data source whose driver dies, so to speak, right after the commit of batch 1: once.

The directory for marks is the option ``message``, and the message of its commits.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from frazil.spark.data_source import FrazilDataSource
from frazil.spark.streams.sink import RowsWriter


class FailingWriter(RowsWriter):
    marks: Path

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        super().commit(messages, batchId)
        if batchId == 1 and not (self.marks / "failed").exists():
            (self.marks / "failed").touch()
            raise OSError("the power is gone")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        super().abort(messages, batchId)
        (self.marks / "aborted").touch()


class Failing(FrazilDataSource):
    @classmethod
    def name(cls) -> str:
        return "failing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> RowsWriter:  # noqa: N802
        writer = super().streamWriter(schema, overwrite)
        writer.__class__ = FailingWriter
        assert isinstance(writer, FailingWriter)
        writer.marks = Path(self.options["message"])
        return writer
