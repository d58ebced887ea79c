"""The reader of NetCDF-3: classic, 64-bit offset, and 64-bit data (CDF-5).

A file is a header and big-endian values in C order. The header has the offset of each variable. A variable
without the record dimension is one piece. Variables with the record dimension are interleaved, record by
record:

    header | fixed variable | ... | a[0] b[0] c[0] | a[1] b[1] c[1] | ...

So each record of a variable is a chunk. A record is padded to four bytes, unless only one variable has
records. The header determines the size of the file, so truncated files are found without reading values. The
reader needs only numpy.
"""

from __future__ import annotations

from typing import Any, Final, override

import numpy as np
from numpy.typing import NDArray

from frazil.readers.base_reader import FileContents, Reader
from frazil.readers.file_errors import no_group
from frazil.readers.files import File
from frazil.readers.netcdf3_header import Header, Variable, read_header
from frazil.readers.reader import ChunkReferences, NotVirtual, VariableSchema
from frazil.readers.references import bytes_codec, references_to_file

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

    def __init__(self, file: File, group: str = "/") -> None:
        super().__init__(file, group)
        if self.group != "/":
            raise no_group(file.url, self.group, "a NetCDF-3 file has no groups")
        self._header = read_header(file)

    @override
    def contents(self) -> FileContents:
        header = self._header
        return FileContents(
            [_schema(each, header) for each in header.variables.values()],
            header.attrs,
            dict(header.dims),
            frozenset(() if header.record_dim is None else (header.record_dim,)),
        )

    @override
    def read(self, name: str, region: tuple[slice, ...]) -> NDArray[Any]:
        self.variable(name)
        variable = self._header.variables[name]
        bounds = self.region(name, region)
        shape = tuple(stop - start for start, stop in bounds)
        if 0 in shape:
            return np.empty(shape, variable.dtype)
        if variable.is_record:
            return self._records(variable, bounds).reshape(shape)
        # Read the whole rows of the region, and cut them.
        row = variable.piece // max(variable.shape[0], 1) if variable.shape else variable.piece
        first, last = bounds[0] if bounds else (0, 1)
        data = self.file.read(variable.begin + first * row, variable.begin + last * row)
        values = np.frombuffer(data, variable.dtype).reshape((last - first, *variable.shape[1:]))
        inner = tuple(slice(start, stop) for start, stop in bounds[1:])
        return values[(slice(None), *inner)].reshape(shape)

    @override
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
        return references_to_file(
            self.file.location,
            [max(size, 1) for size in chunks],
            [bytes_codec(variable.dtype)],
            variable.dtype,
            schema.fill_value,
            index,
            offset,
            np.full(rows, variable.piece, np.int64),
        )

    def _records(self, variable: Variable, bounds: tuple[tuple[int, int], ...]) -> NDArray[Any]:
        """Return the records ``bounds[0]``. Records close to each other are read with one request."""
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


def _schema(variable: Variable, header: Header) -> VariableSchema:
    dtype = variable.dtype
    # The default is the fill value of the library.
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
