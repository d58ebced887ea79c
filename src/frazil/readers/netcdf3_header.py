"""The header of a NetCDF-3 file: dimensions, attributes, and the offset of each variable."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from frazil.readers.attribute_values import json_value, text
from frazil.readers.file_errors import damaged
from frazil.readers.files import File

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
class Variable:
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
class Header:
    """The header of a file. ``stride`` is the number of bytes from one record to the next."""

    dims: dict[str, int] = field(default_factory=dict)
    record_dim: str | None = None
    records: int = 0
    attrs: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    stride: int = 0


def read_header(file: File) -> Header:
    """Parse the header of a file."""
    return _Parser(file).header()


class _Parser:
    """Parses the header. Every count is compared with the size of the file before its use."""

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
        """Return the parsed header."""
        header = Header(records=self._number(self._count))
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
        self._count_records(header, records)
        for each in header.variables.values():
            each.shape = tuple(header.dims[dim] for dim in each.dims)
        self._check_end(header)
        return header

    def _variable(self, header: Header, names: tuple[str, ...]) -> Variable:
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
        return Variable(name, dims, attrs, dtype, begin, is_record, shape)

    def _count_records(self, header: Header, records: list[Variable]) -> None:
        """Set the number of records, from the size of the file if the file is still being written."""
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
                owner = f"{header.records} records" if each.is_record else "it"
                raise damaged(
                    self._file.url,
                    f"at least {end} bytes ({each.name!r}: {owner} would end there)",
                    f"{self._file.size}: it is truncated",
                )

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
        if at + count > size:
            self._read_more(at, at + count, size)
        return self._stream.read(count)

    def _read_more(self, at: int, stop: int, size: int) -> None:
        if stop > min(self._file.size, _LARGEST_HEADER):
            raise self._damaged(
                "a whole header", f"the end of the file at {self._file.size}: it is truncated"
            )
        more = self._file.read(size, min(self._file.size, max(2 * size, stop)))
        self._stream = io.BytesIO(self._stream.getvalue() + more)
        self._stream.seek(at)

    def _damaged(self, expected: str, actual: object) -> Exception:
        return damaged(self._file.url, f"{expected} at byte {self._stream.tell()} of the header", actual)
