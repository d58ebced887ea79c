"""GRIB, editions 1 and 2, by cfgrib and eccodes.

A GRIB file is a sequence of messages, each a field of two dimensions; cfgrib makes arrays of them, with
dimensions ``time``, ``step``, ``number`` and that of the levels, where there is more than one of these, and
CF attributes. Files with fields that are not one hypercube (several types of levels, accumulated beside
instant values) are read one kind at a time: ``filter_by_keys={"typeOfLevel": "surface"}``.

Values are those that eccodes decodes, as float32, NaN where the bitmap says that there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import cfgrib  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from numpy.typing import NDArray

from frazil.errors import IcechunkError
from frazil.spark.ingest.formats.common import BaseReader, Parts, json_value
from frazil.spark.ingest.formats.files import File, damaged
from frazil.spark.ingest.sources import ChunkReferences, NotVirtual, VariableSchema

#: It tells when the file was opened.
_HIDDEN: Final = frozenset({"history"})


class GribReader(BaseReader):
    """One hypercube of a GRIB file. ``options`` are those of ``cfgrib.open_file``: ``filter_by_keys``,
    ``squeeze``, ``time_dims``, ``read_keys``, ..."""

    format = "grib"

    def __init__(self, file: File, group: str = "/", **options: Any) -> None:
        super().__init__(file, group)
        if self.group != "/":
            raise damaged(file.url, f"a group {self.group}", "a GRIB file: use filter_by_keys")
        check_messages(file)
        self._stack = ExitStack()
        path = self._stack.enter_context(file.local())
        try:
            with self._reading("fields that are one hypercube"):
                # an index would be a new file beside the original
                self._dataset = cfgrib.open_file(path, **{"indexpath": "", "errors": "raise"} | options)
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        self._stack.close()

    def parts(self) -> Parts:
        dataset = self._dataset
        return Parts(
            [_schema(name, each) for name, each in dataset.variables.items()],
            _attrs(dataset.attributes),
            dict(dataset.dimensions),
        )

    def read(self, name: str, region: tuple[slice, ...]) -> NDArray[Any]:
        variable = self.variable(name)
        bounds = self.region(name, region)
        shape = tuple(stop - start for start, stop in bounds)
        if 0 in shape:
            return np.empty(shape, variable.dtype)
        data = self._dataset.variables[name].data
        with self._reading(f"values of {name!r}"):
            values = data[tuple(slice(start, stop) for start, stop in bounds)] if bounds else data
        return np.asarray(values).astype(variable.dtype, copy=False).reshape(shape)

    def references(self, name: str) -> ChunkReferences | NotVirtual:
        self.variable(name)
        return NotVirtual("no codec of Zarr decodes messages of GRIB")

    @contextmanager
    def _reading(self, expected: str) -> Iterator[None]:
        try:
            yield
        except IcechunkError:
            raise
        except Exception as error:  # eccodes has a class for each of its codes, and cfgrib some of its own
            hint = "; choose with filter_by_keys" if isinstance(error, cfgrib.DatasetBuildError) else ""
            raise damaged(self.file.url, expected, f"{type(error).__name__}: {error}{hint}") from error


def check_messages(file: File) -> None:
    """Follow the lengths of the messages to the end of the file. Raises ``FormatError`` if one is cut off."""
    at, count = 0, 0
    with file.open() as stream:
        while True:
            stream.seek(at)
            head = stream.read(16) or b""
            if head[:4] != b"GRIB":
                break  # padding, or the end
            size = int.from_bytes(head[8:16] if head[7:8] == b"\2" else head[4:7], "big")
            if head[7:8] != b"\2" and size & 0x800000:
                break  # a large message of edition 1: its length has another meaning, which eccodes knows
            end = at + size
            if end > file.size or len(head) < 16:
                raise damaged(
                    file.url, f"message {count} of {size} bytes", f"{file.size - at} bytes: it is truncated"
                )
            stream.seek(end - 4)
            if stream.read(4) != b"7777":
                raise damaged(file.url, f"the end of message {count} (7777) at byte {end - 4}", "other bytes")
            at, count = end, count + 1
    if not count:
        raise damaged(file.url, "a GRIB file", repr(file.head[:4]))


def _schema(name: str, variable: Any) -> VariableSchema:
    dtype = np.dtype(variable.data.dtype)
    return VariableSchema(
        name, tuple(variable.dimensions), tuple(variable.data.shape), dtype, _attrs(variable.attributes)
    )


def _attrs(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: json_value(each) for name, each in attributes.items() if name not in _HIDDEN}
