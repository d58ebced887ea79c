"""NetCDF-3: the classic format, with 64-bit offsets, and with 64-bit data (CDF-5).

A file is a header and big-endian values in plain order. The header says where each variable begins. Variables
without the record dimension are one piece; those with it are interleaved, record by record:

    header | fixed variable | ... | a[0] b[0] c[0] | a[1] b[1] c[1] | ...

so each record of a variable is a chunk. A record is padded to four bytes, unless there is only one variable
with records. The size of the file is known from the header, so one that was cut off is noticed at once.
Nothing but numpy is needed.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.readers.conventions import BaseReader, Parts, bytes_codec, json_value, one_location, text
from frazil.readers.files import File, damaged, no_group
from frazil.readers.reader import ChunkReferences, NotVirtual, VariableSchema

#: Version byte -> (bytes of a count, bytes of an offset).
_WIDTHS: Final = {1: (4, 4), 2: (4, 8), 5: (8, 8)}
_DIMENSIONS, _VARIABLES, _ATTRIBUTES = 10, 11, 12
_NAMES: Final = ("i1", "S1", ">i2", ">i4", ">f4", ">f8", "u1", ">u2", ">u4", ">i8", ">u8")
_TYPES: Final = dict(enumerate(map(np.dtype, _NAMES), 1))
_OF_CDF5: Final = 7
#: What the library fills variables with that have no ``_FillValue``.
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
#: A header is hardly ever larger than what is read first.
_MOST: Final = 1 << 30


@dataclass(slots=True)
class Variable:
    """One variable of the header; its values, or those of its first record, are at ``begin``."""

    name: str
    dims: tuple[str, ...]
    attrs: dict[str, Any]
    dtype: np.dtype[Any]
    begin: int
    is_record: bool
    shape: tuple[int, ...] = ()

    @property
    def piece(self) -> int:
        """Bytes of one record; of all of it if it has none."""
        return math.prod(self.shape[self.is_record :]) * self.dtype.itemsize


@dataclass(slots=True)
class Header:
    """What is before the values. ``stride`` is the number of bytes from one record to the next."""

    dims: dict[str, int] = field(default_factory=dict)
    record_dim: str | None = None
    records: int = 0
    attrs: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    stride: int = 0


class NetCdf3Reader(BaseReader):
    """A NetCDF-3 file: it has one group."""

    format = "netcdf3"

    def __init__(self, file: File, group: str = "/") -> None:
        super().__init__(file, group)
        if self.group != "/":
            raise no_group(file.url, self.group, "a NetCDF-3 file: it has no groups")
        self._header = _Parser(file).header()

    def parts(self) -> Parts:
        header = self._header
        return Parts(
            [_schema(each, header) for each in header.variables.values()],
            header.attrs,
            dict(header.dims),
            frozenset(() if header.record_dim is None else (header.record_dim,)),
        )

    def read(self, name: str, region: tuple[slice, ...]) -> NDArray[Any]:
        self.variable(name)
        variable = self._header.variables[name]
        bounds = self.region(name, region)
        shape = tuple(stop - start for start, stop in bounds)
        if 0 in shape:
            return np.empty(shape, variable.dtype)
        if variable.is_record:
            return self._records(variable, bounds).reshape(shape)
        # the rows that hold the region are read, the rest is cut away
        row = variable.piece // max(variable.shape[0], 1) if variable.shape else variable.piece
        first, last = bounds[0] if bounds else (0, 1)
        data = self.file.read(variable.begin + first * row, variable.begin + last * row)
        values = np.frombuffer(data, variable.dtype).reshape((last - first, *variable.shape[1:]))
        inner = tuple(slice(start, stop) for start, stop in bounds[1:])
        return values[(slice(None), *inner)].reshape(shape)

    def references(self, name: str) -> ChunkReferences | NotVirtual:
        schema = self.variable(name)
        variable = self._header.variables[name]
        if variable.is_record:
            rows = self._header.records if variable.piece else 0
            offset = variable.begin + np.arange(rows, dtype=np.int64) * self._header.stride
            chunks = (1, *variable.shape[1:])
        else:
            rows = min(variable.piece, 1)
            offset = np.full(rows, variable.begin, np.int64)
            chunks = variable.shape
        index = np.zeros((rows, len(chunks)), np.uint32)
        if variable.is_record:
            index[:, 0] = np.arange(rows, dtype=np.uint32)
        return one_location(
            self.file.url,
            [max(size, 1) for size in chunks],
            [bytes_codec(variable.dtype)],
            variable.dtype,
            schema.fill_value,
            index,
            offset,
            np.full(rows, variable.piece, np.int64),
        )

    def _records(self, variable: Variable, bounds: tuple[tuple[int, int], ...]) -> NDArray[Any]:
        """Records that are close to each other come in one read; others each in one."""
        (first, last), *inner = bounds
        stride, piece = self._header.stride, variable.piece
        begin = variable.begin + first * stride
        count = last - first
        if stride - piece <= max(piece, _NEAR):
            data = self.file.read(begin, begin + (count - 1) * stride + piece)
            raw = np.frombuffer(data, np.uint8)
            rows = np.lib.stride_tricks.as_strided(raw, (count, piece), (stride, 1), writeable=False)
            joined = rows.tobytes()
        else:
            joined = b"".join(
                self.file.read_many(
                    [(begin + at * stride, begin + at * stride + piece) for at in range(count)]
                )
            )
        values = np.frombuffer(joined, variable.dtype).reshape((count, *variable.shape[1:]))
        return values[(slice(None), *(slice(start, stop) for start, stop in inner))]


#: Bytes of other variables that are read in vain rather than asking once more.
_NEAR: Final = 64 << 10


def _schema(variable: Variable, header: Header) -> VariableSchema:
    dtype = variable.dtype
    # without a user's value: what the library would have written
    fill = variable.attrs.get("_FillValue", _FILL[dtype.str[1:]])
    if dtype.kind == "S":
        fill = fill.encode("latin-1")[:1] if isinstance(fill, str) else fill
    chunks = (1, *variable.shape[1:]) if variable.is_record else None
    return VariableSchema(
        variable.name,
        variable.dims,
        variable.shape,
        dtype,
        variable.attrs,
        np.asarray(fill).astype(dtype)[()],
        chunks,
    )


class _Parser:
    """Reads the header. Every count is checked against the size of the file before it is believed."""

    def __init__(self, file: File) -> None:
        self._file = file
        version = file.head[3] if len(file.head) > 3 and file.head.startswith(b"CDF") else 0
        if version not in _WIDTHS:
            raise damaged(file.url, "a NetCDF-3 file (CDF and 1, 2 or 5)", repr(file.head[:4]))
        self._version = version
        self._count, self._offset = _WIDTHS[version]
        self._stream = io.BytesIO(file.head)
        self._stream.seek(4)

    def header(self) -> Header:
        header = Header(records=self._number(self._count))
        for at in range(self._list(_DIMENSIONS, "dimensions")):
            name, size = self._name(), self._number(self._count)
            if size == 0:
                if header.record_dim is not None:
                    raise self._wrong("one unlimited dimension", f"{header.record_dim!r} and {name!r} ({at})")
                header.record_dim = name
            header.dims[name] = size
        header.attrs = self._attributes()
        for _ in range(self._list(_VARIABLES, "variables")):
            variable = self._variable(header)
            header.variables[variable.name] = variable
        records = [each for each in header.variables.values() if each.is_record]
        # one variable alone is not padded
        padded = [-(-each.piece // 4) * 4 for each in records]
        header.stride = records[0].piece if len(records) == 1 else sum(padded)
        self._count_records(header, records)
        for each in header.variables.values():
            each.shape = tuple(header.dims[dim] for dim in each.dims)
        self._check_end(header)
        return header

    def _variable(self, header: Header) -> Variable:
        name = self._name()
        names = list(header.dims)
        codes = [self._number(self._count) for _ in range(self._counted("dimensions of a variable", 4))]
        if any(code >= len(names) for code in codes):
            raise self._wrong(f"dimensions of {name!r} below {len(names)}", codes)
        attrs = self._attributes()
        dtype = self._type()
        self._number(self._count)  # its size, which is not to be trusted above 4 GiB
        begin = self._number(self._offset)
        dims = tuple(names[code] for code in codes)
        is_record = bool(dims) and dims[0] == header.record_dim
        shape = tuple(header.dims[dim] for dim in dims)
        if header.record_dim in dims[1:]:
            raise self._wrong(f"{header.record_dim!r} as the first dimension of {name!r}", dims)
        return Variable(name, dims, attrs, dtype, begin, is_record, shape)

    def _count_records(self, header: Header, records: list[Variable]) -> None:
        """A file that is still being written says that it does not know how many there are."""
        if header.records == (1 << 8 * self._count) - 1:
            start = min((each.begin for each in records), default=0)
            header.records = (self._file.size - start) // header.stride if header.stride else 0
        if header.record_dim is not None:
            header.dims[header.record_dim] = header.records

    def _check_end(self, header: Header) -> None:
        for each in header.variables.values():
            if 0 in each.shape:
                continue
            end = each.begin + each.piece + (header.stride * (header.records - 1) if each.is_record else 0)
            if end > self._file.size:
                what = f"{header.records} records" if each.is_record else "it"
                raise damaged(
                    self._file.url,
                    f"at least {end} bytes ({each.name!r}: {what} would end there)",
                    f"{self._file.size}: it is truncated",
                )

    def _attributes(self) -> dict[str, Any]:
        found = {}
        for _ in range(self._list(_ATTRIBUTES, "attributes")):
            name, dtype = self._name(), self._type()
            count = self._counted(f"values of attribute {name!r}", dtype.itemsize)
            data = self._padded(count * dtype.itemsize)
            found[name] = text(data) if dtype.kind == "S" else json_value(np.frombuffer(data, dtype))
        return found

    # the grammar's words

    def _list(self, tag: int, what: str) -> int:
        found, count = self._number(4), self._counted(what, 8)
        if found not in (tag, 0) or (found == 0 and count):
            raise self._wrong(f"a list of {what} (tag {tag})", f"tag {found} with {count} entries")
        return count

    def _counted(self, what: str, smallest: int) -> int:
        count = self._number(self._count)
        if count * smallest > self._file.size:
            raise self._wrong(f"{what} that fit in {self._file.size} bytes", f"{count} of them")
        return count

    def _type(self) -> np.dtype[Any]:
        code = self._number(4)
        if code not in _TYPES or (code >= _OF_CDF5 and self._version != 5):
            raise self._wrong(f"a type of version {self._version}", code)
        return _TYPES[code]

    def _name(self) -> str:
        return text(self._padded(self._counted("bytes of a name", 1)))

    def _padded(self, count: int) -> bytes:
        return self._take(-(-count // 4) * 4)[:count]

    def _number(self, width: int) -> int:
        return int.from_bytes(self._take(width), "big")

    def _take(self, count: int) -> bytes:
        at, have = self._stream.tell(), self._stream.getbuffer().nbytes
        if at + count > have:
            self._read_more(at, at + count, have)
        return self._stream.read(count)

    def _read_more(self, at: int, stop: int, have: int) -> None:
        if stop > min(self._file.size, _MOST):
            raise self._wrong("a whole header", f"the end of the file at {self._file.size}: it is truncated")
        more = self._file.read(have, min(self._file.size, max(2 * have, stop)))
        self._stream = io.BytesIO(self._stream.getvalue() + more)
        self._stream.seek(at)

    def _wrong(self, expected: str, found: object) -> Exception:
        return damaged(self._file.url, f"{expected} at byte {self._stream.tell()} of the header", found)
