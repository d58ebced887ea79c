"""The files of a task, and what is the same for all tasks."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Self

from frazil.errors import ErrorKind, FormatError
from frazil.pipeline.ingest.arrays import TargetArray
from frazil.pipeline.ingest.inspection import Options, state_of
from frazil.pipeline.ingest.items import Item
from frazil.readers.files import find_file
from frazil.readers.reader import Reader

#: Files that a task keeps open.
OPEN: Final = 128


@dataclass(frozen=True, slots=True)
class Written:
    """What is the same for all tasks. By number of array: ``shifted`` says that what was there has its new
    place already, ``adds_axis`` that the variable does not have the dimension in files, ``unpacked`` (by
    name) that values are to be unpacked.
    """

    arrays: tuple[TargetArray, ...]
    shifted: tuple[bool, ...]
    adds_axis: tuple[bool, ...]
    options: Options
    unpacked: frozenset[str] = frozenset()


class Readers:
    """The files of a task; those used last stay open.

    A file has to be what it was when it was inspected, before it is read and after. Raises ``FormatError`` if
    it is not.
    """

    def __init__(self, options: Options, item: Item) -> None:
        self._options = options
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
            reader = self._options.open(self._item.urls[file])
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
        now = find_file(self._item.urls[file], self._options.storage_options)
        if (now.size, now.modified, now.etag) != (schema.size, schema.modified, schema.etag):
            raise self._changed(file)

    def _changed(self, file: int) -> FormatError:
        return FormatError(
            f"{self._item.urls[file]}: expected the file that was inspected, found another: it was "
            "changed or replaced meanwhile; ingest again",
            ErrorKind.INVALID_FILE_FORMAT,
        )
