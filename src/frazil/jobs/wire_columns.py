"""Named columns of numbers and bytes, as one compressed message.

A message is one zstd frame (with its checksum) around one Arrow batch, which has a row for each column::

    name: utf8    width: uint8, bytes for each number    values: large_binary

Numbers take as few bytes as the largest of the column needs, and lie byte by byte (all low bytes, then all
second bytes, ...): equal bytes vanish in compression, random ones cost what they have to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import zstandard
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError, InvalidInputError
from frazil.format.columns import I64, MAX_COPIED_BYTES, U8, U64, Ragged

_SCHEMA: Final = pa.schema([("name", pa.utf8()), ("width", pa.uint8()), ("values", pa.large_binary())])
_LEVEL: Final = 3


class ColumnWriter:
    """Columns by name, on their way out."""

    def __init__(self) -> None:
        self._columns: dict[str, tuple[int, Any]] = {}

    def raw(self, name: str, values: Any) -> None:
        if len(values):
            self._columns[name] = (1, values)

    def numbers(self, name: str, values: NDArray[Any], least: int = 0) -> None:
        """Numbers that are not negative, of at least so many bytes each."""
        if not len(values):
            return
        whole = np.ascontiguousarray(values).astype(np.uint64, copy=False)
        width = max(least, (int(whole.max()).bit_length() + 7) // 8)
        planes = np.ascontiguousarray(whole.view(np.uint8).reshape(len(whole), 8)[:, :width].T)
        self._columns[name] = (width, planes.reshape(-1))

    def steps(self, name: str, values: I64) -> None:
        """Small numbers, perhaps negative."""
        self.numbers(name, ((values << 1) ^ (values >> 63)).view(np.uint64))

    def rows(self, name: str, rows: Ragged) -> None:
        """Rows of bytes."""
        self.numbers(f"{name} lengths", rows.lengths, least=1)
        self.raw(name, rows.compact().values)

    def sealed(self) -> bytes:
        names, pairs = list(self._columns), self._columns.values()
        size = sum(len(values) for _, values in pairs)
        if size > MAX_COPIED_BYTES:
            raise InvalidInputError(
                f"a task changed {size} bytes of references and inline chunks, at most {MAX_COPIED_BYTES} "
                "can be sent: give each task less to do",
                ErrorKind.NOT_ALLOWED,
            )
        widths = [width for width, _ in pairs]
        values = [memoryview(values) for _, values in pairs]
        columns = [
            pa.array(each, kind) for each, kind in zip((names, widths, values), _SCHEMA.types, strict=True)
        ]
        message = pa.RecordBatch.from_arrays(columns, schema=_SCHEMA).serialize()
        return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(message)


_NOTHING: Final = (0, np.zeros(0, np.uint8))
_NO_ROWS: Final = Ragged.empty()


class ColumnReader:
    """Columns by name, as they came in."""

    def __init__(self, columns: Mapping[str, tuple[int, U8]]) -> None:
        self._columns = columns

    def has(self, names: frozenset[str]) -> bool:
        """Whether one of these is there."""
        return not names.isdisjoint(self._columns)

    def raw(self, name: str, width: int = 1) -> U8:
        values = self._columns.get(name, _NOTHING)[1]
        if len(values) % width:
            raise FormatError(f"{name}: {len(values)} bytes, expected a multiple of {width}")
        return values

    def ids(self, name: str, size: int) -> U8:
        return self.raw(name, size).reshape(-1, size)

    def numbers(self, name: str, count: int) -> U64:
        width, values = self._columns.get(name, _NOTHING)
        if width > 8 or len(values) != width * count:
            raise FormatError(f"{name}: {len(values)} bytes, expected {count} numbers of {width} bytes")
        if not width:
            return np.zeros(count, np.uint64)
        wide = np.zeros((count, 8), np.uint8)
        wide[:, :width] = values.reshape(width, count).T
        return wide.view(np.uint64)[:, 0]

    def steps(self, name: str, count: int) -> I64:
        folded = self.numbers(name, count)
        steps: I64 = ((folded >> np.uint64(1)) ^ -(folded & np.uint64(1))).view(np.int64)
        return steps

    def count(self, name: str) -> int:
        """How many numbers of at least one byte there are."""
        width, values = self._columns.get(name, _NOTHING)
        return len(values) // max(width, 1)

    def rows(self, name: str) -> Ragged:
        values = self.raw(name)
        count = self.count(f"{name} lengths")
        if not count and not len(values):
            return _NO_ROWS
        lengths = self.numbers(f"{name} lengths", count)
        if (count and int(lengths.max()) > len(values)) or int(lengths.sum()) != len(values):
            raise FormatError(f"{name}: {count} rows do not make {len(values)} bytes")
        return Ragged.from_lengths(values, lengths)


def read_columns(data: bytes) -> ColumnReader:
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= MAX_COPIED_BYTES + (1 << 20):
            raise FormatError(f"{size} bytes, at most {MAX_COPIED_BYTES} expected")
        # Memory grows with what is there, whatever the frame says of its size.
        payload = zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
        batch = pa.ipc.read_record_batch(pa.py_buffer(payload), _SCHEMA)
        batch.validate(full=True)
        names, widths, values = batch.columns
        if names.null_count or widths.null_count or values.null_count:
            raise FormatError("a column without name or values")
        _, places, content = values.buffers()
        stops = np.frombuffer(places, np.int64)[values.offset : values.offset + len(values) + 1].tolist()
        every = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
        parts = map(every.__getitem__, map(slice, stops[:-1], stops[1:]))
        pairs = zip(widths.to_pylist(), parts, strict=True)
        return ColumnReader(dict(zip(names.to_pylist(), pairs, strict=True)))
    except (zstandard.ZstdError, pa.ArrowException, OSError) as error:
        raise FormatError(f"neither Arrow nor zstd: {error}") from error
