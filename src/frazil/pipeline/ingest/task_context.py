"""What is the same for all tasks, and the open files of one task."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Self

from frazil.errors import ErrorKind, FormatError
from frazil.pipeline.ingest.arrays import TargetArray
from frazil.pipeline.ingest.file_access import FileAccess
from frazil.pipeline.ingest.file_report import state_of
from frazil.pipeline.ingest.items import Item
from frazil.readers.files import find_file
from frazil.readers.reader import Reader

#: Files that a task keeps open.
OPEN: Final = 128


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What is the same for all tasks: the arrays of the plan as columns (see `PlannedArray`), and how files
    are opened. ``unpacked`` are names of variables.
    """

    arrays: tuple[TargetArray, ...]
    shifted: tuple[bool, ...]
    adds_axis: tuple[bool, ...]
    access: FileAccess
    unpacked: frozenset[str] = frozenset()


class Readers:
    """The files of a task; those used last stay open.

    A file has to be what it was when it was inspected, before it is read and after. Raises ``FormatError`` if
    it is not.
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
        if not check or schema.format == "zarr":  # a group is many objects
            return
        now = find_file(self._item.urls[file], self._access.storage_options)
        if (now.size, now.modified, now.etag) != (schema.size, schema.modified, schema.etag):
            raise self._changed(file)

    def _changed(self, file: int) -> FormatError:
        return FormatError(
            f"{self._item.urls[file]}: expected the file that was inspected, found another: it was "
            "changed or replaced meanwhile; ingest again",
            ErrorKind.INVALID_FILE_FORMAT,
        )
