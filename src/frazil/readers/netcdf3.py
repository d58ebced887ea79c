"""The reader of NetCDF-3: its header, and its values.

A file is a header and big-endian values in C order. The header has the offset of each variable. A variable
without the record dimension is one piece. Variables with the record dimension are interleaved, record by
record:

    header | fixed variable | ... | a[0] b[0] c[0] | a[1] b[1] c[1] | ...

So each record of a variable is a chunk. A record is padded to four bytes, unless only one variable has
records. The header determines the size of the file, so truncated files are found without reading values. The
reader needs only numpy.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, field
from typing import Any, Final, override

import numpy as np
from numpy.typing import NDArray

from frazil.readers.base_reader import (
    Bounds,
    ChunkReferences,
    FileContents,
    NotVirtual,
    Reader,
    VariableSchema,
    bytes_codec,
    json_value,
    references_to_file,
    text,
)
from frazil.readers.files import SourceFile, damaged, no_group

#: Version byte -> (bytes of a count, bytes of an offset).
_WIDTHS: Final = {1: (4, 4), 2: (4, 8), 5: (8, 8)}
_DIMENSIONS, _VARIABLES, _ATTRIBUTES = 10, 11, 12
_NAMES: Final = ("i1", "S1", ">i2", ">i4", ">f4", ">f8", "u1", ">u2", ">u4", ">i8", ">u8")
_TYPES: Final = dict(enumerate(map(np.dtype, _NAMES), 1))
_OF_CDF5: Final = 7
#: The largest header that is read, in bytes.
_LARGEST_HEADER: Final = 1 << 30
#: Arrays of numpy have no more dimensions.
_MOST_DIMENSIONS: Final = 64


@dataclass(slots=True)
class NetCDF3Variable:
    """One variable of the header. ``begin`` is the offset of its values, or of its first record."""

    name: str
    dims: tuple[str, ...]
    attrs: dict[str, Any]
    dtype: np.dtype[Any]
    begin: int
    is_record: bool
    shape: tuple[int, ...] = ()

    @property
    def piece(self) -> int:
        """The bytes of one record, or of the whole variable if it has no records."""
        return math.prod(self.shape[self.is_record :]) * self.dtype.itemsize


@dataclass(slots=True)
class NetCDF3Header:
    """The header of a file. ``stride`` is the number of bytes from one record to the next."""

    dims: dict[str, int] = field(default_factory=dict)
    record_dim: str | None = None
    records: int = 0
    attrs: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, NetCDF3Variable] = field(default_factory=dict)
    stride: int = 0


class _HeaderParser:
    """Parses the header. Every count is compared with the size of the file before its use."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        version = file.head[3] if len(file.head) > 3 and file.head.startswith(b"CDF") else 0
        if version not in _WIDTHS:
            raise damaged(file.url, "a NetCDF-3 file (CDF and 1, 2 or 5)", repr(file.head[:4]))
        self._version = version
        self._count, self._offset = _WIDTHS[version]
        self._stream = io.BytesIO(file.head)
        self._stream.seek(4)

    def header(self) -> NetCDF3Header:
        """Return the parsed header."""
        file, header = self._file, NetCDF3Header(records=self._number(self._count))
        for at in range(self._list_length(_DIMENSIONS, "dimensions")):
            name, size = self._name(), self._number(self._count)
            if size == 0:
                if header.record_dim is not None:
                    raise self._damaged(
                        "one unlimited dimension", f"{header.record_dim!r} and {name!r} ({at})"
                    )
                header.record_dim = name
            header.dims[name] = size
        header.attrs = self._attributes()
        names = tuple(header.dims)
        for _ in range(self._list_length(_VARIABLES, "variables")):
            variable = self._variable(header, names)
            header.variables[variable.name] = variable
        records = [each for each in header.variables.values() if each.is_record]
        # A single variable with records is not padded.
        padded = [-(-each.piece // 4) * 4 for each in records]
        header.stride = records[0].piece if len(records) == 1 else sum(padded)
        if header.records == (1 << 8 * self._count) - 1:  # the file is still being written
            start = min((each.begin for each in records), default=0)
            header.records = (file.size - start) // header.stride if header.stride else 0
        if header.record_dim is not None:
            header.dims[header.record_dim] = header.records
        for each in header.variables.values():
            each.shape = tuple(header.dims[dim] for dim in each.dims)
            end = each.begin + each.piece + (header.stride * (header.records - 1) if each.is_record else 0)
            if end > file.size and 0 not in each.shape:
                owner = f"{header.records} records" if each.is_record else "it"
                expected = f"at least {end} bytes ({each.name!r}: {owner} would end there)"
                raise damaged(file.url, expected, f"{file.size}: it is truncated")
        return header

    def _variable(self, header: NetCDF3Header, names: tuple[str, ...]) -> NetCDF3Variable:
        name = self._name()
        count = self._counted("dimensions of a variable", 4)
        if count > _MOST_DIMENSIONS:
            raise self._damaged(f"at most {_MOST_DIMENSIONS} dimensions of {name!r}", count)
        codes = [self._number(self._count) for _ in range(count)]
        if any(code >= len(names) for code in codes):
            raise self._damaged(f"dimensions of {name!r} below {len(names)}", codes)
        attrs = self._attributes()
        dtype = self._type()
        self._number(self._count)  # the size of the variable, which is not reliable above 4 GiB
        begin = self._number(self._offset)
        dims = tuple(names[code] for code in codes)
        is_record = bool(dims) and dims[0] == header.record_dim
        shape = tuple(header.dims[dim] for dim in dims)
        if header.record_dim in dims[1:]:
            raise self._damaged(f"{header.record_dim!r} as the first dimension of {name!r}", dims)
        return NetCDF3Variable(name, dims, attrs, dtype, begin, is_record, shape)

    def _attributes(self) -> dict[str, Any]:
        attrs = {}
        for _ in range(self._list_length(_ATTRIBUTES, "attributes")):
            name, dtype = self._name(), self._type()
            count = self._counted(f"values of attribute {name!r}", dtype.itemsize)
            data = self._padded(count * dtype.itemsize)
            attrs[name] = text(data) if dtype.kind == "S" else json_value(np.frombuffer(data, dtype))
        return attrs

    # Rules of the grammar

    def _list_length(self, tag: int, noun: str) -> int:
        actual, count = self._number(4), self._counted(noun, 8)
        if actual not in (tag, 0) or (actual == 0 and count):
            raise self._damaged(f"a list of {noun} (tag {tag})", f"tag {actual} with {count} entries")
        return count

    def _counted(self, noun: str, smallest: int) -> int:
        count = self._number(self._count)
        if count * smallest > self._file.size:
            raise self._damaged(f"{noun} that fit in {self._file.size} bytes", f"{count} of them")
        return count

    def _type(self) -> np.dtype[Any]:
        code = self._number(4)
        if code not in _TYPES or (code >= _OF_CDF5 and self._version != 5):
            raise self._damaged(f"a type of version {self._version}", code)
        return _TYPES[code]

    def _name(self) -> str:
        return text(self._padded(self._counted("bytes of a name", 1)))

    def _padded(self, count: int) -> bytes:
        return self._read_bytes(-(-count // 4) * 4)[:count]

    def _number(self, width: int) -> int:
        return int.from_bytes(self._read_bytes(width), "big")

    def _read_bytes(self, count: int) -> bytes:
        at, size = self._stream.tell(), self._stream.getbuffer().nbytes
        stop = at + count
        if stop > size:
            if stop > min(self._file.size, _LARGEST_HEADER):
                actual = f"the end of the file at {self._file.size}: it is truncated"
                raise self._damaged("a whole header", actual)
            more = self._file.read(size, min(self._file.size, max(2 * size, stop)))
            self._stream = io.BytesIO(self._stream.getvalue() + more)
            self._stream.seek(at)
        return self._stream.read(count)

    def _damaged(self, expected: str, actual: object) -> Exception:
        return damaged(self._file.url, f"{expected} at byte {self._stream.tell()} of the header", actual)


#: The fill values of the library for variables without ``_FillValue``.
_FILL: Final[dict[str, Any]] = {
    "i1": -127,
    "S1": b"\0",
    "i2": -32767,
    "i4": -2147483647,
    "f4": 9.9692099683868690e36,
    "f8": 9.9692099683868690e36,
    "u1": 255,
    "u2": 65535,
    "u4": 4294967295,
    "i8": -9223372036854775806,
    "u8": 18446744073709551614,
}
#: One read gets two records with at most this many bytes of other variables between them.
_NEAR: Final = 64 << 10


class NetCdf3Reader(Reader):
    """The reader of a NetCDF-3 file, which has one group."""

    format = "netcdf3"

    def __init__(self, file: SourceFile, group: str = "/") -> None:
        super().__init__(file, group)
        if self.group != "/":
            raise no_group(file.url, self.group, "a NetCDF-3 file has no groups")
        self._header = _HeaderParser(file).header()

    @override
    def contents(self) -> FileContents:
        header, variables = self._header, []
        for name, each in header.variables.items():
            fill = each.attrs.get("_FillValue", _FILL[each.dtype.str[1:]])  # or that of the library
            if each.dtype.kind == "S" and isinstance(fill, str):
                fill = fill.encode("latin-1")[:1]
            fill = np.asarray(fill).astype(each.dtype)[()]
            chunks = (1, *each.shape[1:]) if each.is_record else None
            variables.append(
                VariableSchema(name, each.dims, each.shape, each.dtype, each.attrs, fill, chunks)
            )
        unlimited = frozenset(() if header.record_dim is None else (header.record_dim,))
        return FileContents(variables, header.attrs, dict(header.dims), unlimited)

    @override
    def values(self, schema: VariableSchema, bounds: Bounds) -> NDArray[Any]:
        variable = self._header.variables[schema.name]
        if variable.is_record:
            return self._records(variable, bounds)
        # Read the whole rows of the region, and cut them.
        row = variable.piece // max(variable.shape[0], 1) if variable.shape else variable.piece
        first, last = bounds[0] if bounds else (0, 1)
        data = self.file.read(variable.begin + first * row, variable.begin + last * row)
        values = np.frombuffer(data, variable.dtype).reshape((last - first, *variable.shape[1:]))
        inner = tuple(slice(start, stop) for start, stop in bounds[1:])
        return values[(slice(None), *inner)].reshape([stop - start for start, stop in bounds])

    @override
    def references(self, name: str) -> ChunkReferences | NotVirtual:
        schema = self.variable(name)
        variable = self._header.variables[name]
        records = self._header.records if variable.is_record else 1
        rows = np.arange(records if variable.piece else 0, dtype=np.int64)
        chunks = (1, *variable.shape[1:]) if variable.is_record else variable.shape
        index = np.zeros((len(rows), len(chunks)), np.uint32)
        if variable.is_record:
            index[:, 0] = rows
        return references_to_file(
            self.file.location,
            [max(size, 1) for size in chunks],
            [bytes_codec(variable.dtype)],
            variable.dtype,
            schema.fill_value,
            index,
            variable.begin + rows * self._header.stride,
            np.full(len(rows), variable.piece, np.int64),
        )

    def _records(self, variable: NetCDF3Variable, bounds: Bounds) -> NDArray[Any]:
        """Return the records ``bounds[0]``. Records close to each other are read with one request."""
        (first, last), *inner = bounds
        stride, piece, count = self._header.stride, variable.piece, last - first
        begin = variable.begin + first * stride
        if stride - piece <= max(piece, _NEAR):
            raw = np.frombuffer(self.file.read(begin, begin + (count - 1) * stride + piece), np.uint8)
            rows = np.lib.stride_tricks.as_strided(raw, (count, piece), (stride, 1), writeable=False)
            joined = rows.tobytes()
        else:
            starts = range(begin, begin + count * stride, stride)
            joined = b"".join(self.file.read_many([(start, start + piece) for start in starts]))
        values = np.frombuffer(joined, variable.dtype).reshape((count, *variable.shape[1:]))
        return values[(slice(None), *(slice(start, stop) for start, stop in inner))]
