"""The value that all tasks of an ingest share, and the open files of one task."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Self

from frazil.errors import ErrorKind, FormatError
from frazil.pipeline.ingest.arrays import TargetArray
from frazil.pipeline.ingest.file_access import FileAccess
from frazil.pipeline.ingest.file_report import state_of
from frazil.pipeline.ingest.items import Item
from frazil.pipeline.ingest.planned_array import PlannedArray
from frazil.readers.base_reader import Reader
from frazil.readers.files import find_file

#: The number of files that a task keeps open.
OPEN: Final = 128


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The value that all tasks share: the arrays of the plan by number, and the access to files."""

    arrays: tuple[PlannedArray, ...]
    access: FileAccess

    def target(self, number: int) -> TargetArray:
        """Return an array by its number."""
        return self.arrays[number].target


class Readers:
    """The readers of the files of a task. The files used last stay open.

    Each file is checked before and after the reads.
    """

    def __init__(self, access: FileAccess, item: Item) -> None:
        self._access = access
        self._item = item
        self._open: OrderedDict[int, Reader] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        while self._open:
            self._close(*self._open.popitem(), check=kind is None)

    def __getitem__(self, file: int) -> Reader:
        reader = self._open.pop(file, None)
        if reader is None:
            reader = self._access.open(self._item.urls[file])
            if state_of(reader.schema()) != self._item.fingerprints[file].tobytes().hex():
                reader.close()
                raise self._changed(file)
        self._open[file] = reader
        if len(self._open) > OPEN:
            self._close(*self._open.popitem(last=False), check=True)
        return reader

    def _close(self, file: int, reader: Reader, *, check: bool) -> None:
        schema = reader.schema()
        reader.close()
        if not check or schema.format == "zarr":  # a Zarr group is many objects
            return
        now = find_file(self._item.urls[file], self._access.storage_options)
        if (now.size, now.modified, now.etag) != (schema.size, schema.modified, schema.etag):
            raise self._changed(file)

    def _changed(self, file: int) -> FormatError:
        return FormatError(
            f"{self._item.urls[file]}: the file was changed or replaced since the inspection. Ingest again",
            ErrorKind.INVALID_FILE_FORMAT,
        )
