"""Named columns of numbers and bytes, as one compressed message.

A message is one zstd frame (with its checksum) around one Arrow batch, which has a row for each column::

    name: utf8    width: uint8, bytes for each number    values: large_binary

Each number of a column takes as many bytes as the largest number needs. The bytes are stored in planes (all
low bytes, then all second bytes, ...), because planes of equal bytes compress to almost nothing.
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
#: The most memory for a message: this number of bytes, or this number for each byte of the message.
_FREE_BYTES: Final = 1 << 28
_MOST_RATIO: Final = 1000


class ColumnWriter:
    """Collects columns by name, and encodes them as one message."""

    def __init__(self) -> None:
        self._columns: dict[str, tuple[int, Any]] = {}
        self._memory = 0

    def needs_memory(self, size: int) -> None:
        """Say how many bytes a reader needs for the values, besides the columns."""
        self._memory += size

    def raw(self, name: str, values: Any) -> None:
        """Add a column of bytes."""
        if len(values):
            self._columns[name] = (1, values)

    def numbers(self, name: str, values: NDArray[Any], least: int = 0) -> None:
        """Add a column of non-negative numbers, with at least ``least`` bytes for each."""
        if not len(values):
            return
        whole = np.ascontiguousarray(values).astype(np.uint64, copy=False)
        width = max(least, (int(whole.max()).bit_length() + 7) // 8)
        planes = np.ascontiguousarray(whole.view(np.uint8).reshape(len(whole), 8)[:, :width].T)
        self._columns[name] = (width, planes.reshape(-1))

    def steps(self, name: str, values: I64) -> None:
        """Add a column of small numbers, which may be negative."""
        self.numbers(name, ((values << 1) ^ (values >> 63)).view(np.uint64))

    def rows(self, name: str, rows: Ragged) -> None:
        """Add a column of rows of bytes."""
        self.numbers(f"{name} lengths", rows.lengths, least=1)
        self.raw(name, rows.compact().values)

    def sealed(self) -> bytes:
        """Return all columns as one compressed message."""
        names, pairs = list(self._columns), self._columns.values()
        size = sum(len(values) for _, values in pairs)
        if size > MAX_COPIED_BYTES:
            raise InvalidInputError(
                f"the changes of a task must have at most {MAX_COPIED_BYTES} bytes of references and inline "
                f"chunks, got {size}. Divide the work into smaller tasks",
                ErrorKind.NOT_ALLOWED,
            )
        widths = [width for width, _ in pairs]
        values = [memoryview(values) for _, values in pairs]
        columns = [
            pa.array(each, kind) for each, kind in zip((names, widths, values), _SCHEMA.types, strict=True)
        ]
        message = pa.RecordBatch.from_arrays(columns, schema=_SCHEMA).serialize()
        data: bytes = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(message)
        memory = max(message.size, self._memory)
        if memory > _most_memory(data):
            # Such columns are equal numbers or equal inline chunks. A padding lets readers accept them.
            data += _padding(memory // _MOST_RATIO)
        return data


def _most_memory(data: bytes) -> int:
    """Return the most bytes of memory that the values of a message may need."""
    return max(_FREE_BYTES, _MOST_RATIO * len(data))


def _most_bytes(data: bytes) -> int:
    """Return the most bytes that a message may have after decompression."""
    return min(_most_memory(data), MAX_COPIED_BYTES + (1 << 20))


def _padding(size: int) -> bytes:
    """Return a frame of zstd that readers skip."""
    return b"\x50\x2a\x4d\x18" + size.to_bytes(4, "little") + bytes(size)


_NOTHING: Final = (0, np.zeros(0, np.uint8))
_NO_ROWS: Final = Ragged.empty()


class ColumnReader:
    """The columns of a message, by name."""

    def __init__(self, columns: Mapping[str, tuple[int, U8]], most_memory: int) -> None:
        self._columns = columns
        self._most_memory = most_memory

    def require_memory(self, size: int) -> None:
        """Raise ``FormatError`` if the values need more memory than such a message may need.

        Columns of zeros need almost no bytes in a message, so a message of 300 bytes can stand for 64 GiB.
        """
        if size > self._most_memory:
            raise FormatError(f"expected values of at most {self._most_memory} bytes, got {size}")

    def has(self, names: frozenset[str]) -> bool:
        """Return whether the message has one of these columns."""
        return not names.isdisjoint(self._columns)

    def raw(self, name: str, width: int = 1) -> U8:
        """Return the bytes of a column; their number must be a multiple of ``width``."""
        values = self._columns.get(name, _NOTHING)[1]
        if len(values) % width:
            raise FormatError(f"{name}: expected a multiple of {width} bytes, got {len(values)}")
        return values

    def ids(self, name: str, size: int) -> U8:
        """Return a column of ids, (ids, size)."""
        return self.raw(name, size).reshape(-1, size)

    def numbers(self, name: str, count: int) -> U64:
        """Return a column of ``count`` non-negative numbers."""
        width, values = self._columns.get(name, _NOTHING)
        if width > 8 or len(values) != width * count:
            raise FormatError(f"{name}: expected {count} numbers of {width} bytes, got {len(values)} bytes")
        if not width:
            return np.zeros(count, np.uint64)
        wide = np.zeros((count, 8), np.uint8)
        wide[:, :width] = values.reshape(width, count).T
        return wide.view(np.uint64)[:, 0]

    def steps(self, name: str, count: int) -> I64:
        """Return a column of ``count`` numbers that may be negative."""
        folded = self.numbers(name, count)
        steps: I64 = ((folded >> np.uint64(1)) ^ -(folded & np.uint64(1))).view(np.int64)
        return steps

    def count(self, name: str) -> int:
        """Return the length of a column. It never exceeds the bytes of the column."""
        width, values = self._columns.get(name, _NOTHING)
        return len(values) // max(width, 1)

    def rows(self, name: str) -> Ragged:
        """Return a column of rows of bytes."""
        values = self.raw(name)
        count = self.count(f"{name} lengths")
        if not count and not len(values):
            return _NO_ROWS
        lengths = self.numbers(f"{name} lengths", count)
        if (count and int(lengths.max()) > len(values)) or int(lengths.sum()) != len(values):
            raise FormatError(f"{name}: the lengths of {count} rows do not add up to {len(values)} bytes")
        return Ragged.from_lengths(values, lengths)


def read_columns(data: bytes) -> ColumnReader:
    """Return the columns of a message, or raise ``FormatError`` for other bytes."""
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= _most_bytes(data):
            raise FormatError(f"expected at most {_most_bytes(data)} bytes, got {size}")
        # Memory grows with the decompressed bytes, not with the size that the frame declares.
        payload = zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
        batch = pa.ipc.read_record_batch(pa.py_buffer(payload), _SCHEMA)
        batch.validate(full=True)
        names, widths, values = batch.columns
        if names.null_count or widths.null_count or values.null_count:
            raise FormatError("a column without name or values")
        _, places, content = values.buffers()
        # A damaged message may have a buffer that is longer than the places.
        stops = np.frombuffer(places, np.int64, len(values) + 1, 8 * values.offset).tolist()
        every = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
        parts = map(every.__getitem__, map(slice, stops[:-1], stops[1:]))
        pairs = zip(widths.to_pylist(), parts, strict=True)
        return ColumnReader(dict(zip(names.to_pylist(), pairs, strict=True)), _most_memory(data))
    except (zstandard.ZstdError, pa.ArrowException, OSError, EOFError) as error:
        raise FormatError(f"neither Arrow nor zstd: {error}") from error
