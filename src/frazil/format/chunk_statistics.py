"""Statistics of chunks: columns beside the references of an array, and the files that contain them.

A row belongs to a reference, so it goes wherever the reference goes: into forks, merges, shifts and copies.
A reference of another chunk has a row of its own, or none. A row says what the elements of the chunk are that
the array has; ``extent`` is their shape, because an array that has grown or shrunk has others.

``statistics/<id>`` has the rows of the manifest with this id. The specification does not know the file, and
other implementations ignore the folder. No decision needs a file: without it, chunks are read.

    0   8 bytes   magic
    8  32 bytes   SHA-256 of the rest
   40   4 bytes   uint32, the length of the header
   44             the header as JSON: the manifest, and for each array ``ArrayHeader``
                  a zstd frame for each array, with its columns one after the other

The hash proves that the file is as it was written. The digest of the references proves that they are those of
the manifest. A file that fails one of the two, or has other sizes, is ignored.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Buffer, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import zstandard
from numpy.typing import NDArray

from frazil.format.ids import id_to_text

if TYPE_CHECKING:
    from frazil.format.chunk_table import ChunkTable

_MAGIC: Final = b"FRZSTAT1"
_HASH_BYTES: Final = 32
_LENGTH: Final = struct.Struct("<I")
_LEVEL: Final = 3
#: The most bytes of columns: this number, or this number for each byte of their frame.
_FREE_BYTES: Final = 64 << 20
_MOST_RATIO: Final = 1000
#: The numbers of native, virtual and inline references, those of ``ChunkKind``.
_KINDS: Final = (1, 2, 3)
#: The number of 32-bit digits of the exact sums of integers, and of the sums of their squares.
SUM_DIGITS: Final = 3
SQUARE_DIGITS: Final = 5

#: The types of the extremes and the sums of each kind of elements: floating-point, signed, unsigned.
_NUMBERS: Final[Mapping[str, tuple[tuple[Any, ...], ...]]] = {
    "f": (("minimum", "<f8"), ("maximum", "<f8"), ("sum", "<f8"), ("squares", "<f8")),
    **{
        kind: (
            ("minimum", f"<{kind}8"),
            ("maximum", f"<{kind}8"),
            ("sum", "<u4", (SUM_DIGITS,)),
            ("squares", "<u4", (SQUARE_DIGITS,)),
        )
        for kind in "iu"
    },
}


def row_dtype(kind: str, ndim: int) -> np.dtype[Any]:
    """Return the type of the rows for elements of a kind (``f``, ``i`` or ``u``).

    ``known``: whether the chunk has statistics. ``nan`` and ``missing``: the numbers of elements that are NaN
    or NaT, and of others that mean a missing value. The other columns are those of the remaining elements.
    """
    counts = [("known", "?"), ("nan", "<u8"), ("missing", "<u8")]
    return np.dtype([*counts, *_NUMBERS[kind], ("extent", "<u4", (ndim,))])


@dataclass(frozen=True, slots=True, eq=False)
class ChunkStatistics:
    """The statistics of n references.

    Attributes:
        context: What the elements mean, 16 bytes: rows of another context are not compared.
        rows: An array of ``row_dtype``, shape (n, cells): a cell for each inner chunk of a shard, in C order.
    """

    context: bytes
    rows: NDArray[Any]

    def take(self, rows: NDArray[Any] | slice) -> ChunkStatistics:
        """Return some of the rows."""
        return replace(self, rows=self.rows[rows])

    @property
    def kind(self) -> str:
        """The kind of the elements: ``f``, ``i`` or ``u``."""
        return self.rows.dtype["minimum"].base.kind

    def columns(self) -> NDArray[np.uint8]:
        """Return the bytes of the columns, one column after the other."""
        parts = (np.ascontiguousarray(self.rows[name]).reshape(-1) for name in self.rows.dtype.names or ())
        return np.concatenate([part.view(np.uint8) for part in parts])

    @staticmethod
    def of_columns(context: bytes, rows: NDArray[Any], columns: Buffer) -> ChunkStatistics:
        """Return the statistics with the bytes of ``columns``. The array ``rows`` becomes theirs."""
        first = 0
        for name in rows.dtype.names or ():
            base = rows.dtype[name].base
            column = np.frombuffer(columns, np.uint8 if base.kind == "b" else base, rows[name].size, first)
            rows[name] = column.reshape(rows[name].shape)
            first += column.nbytes
        return ChunkStatistics(context, rows)

    def has_shape_of(self, other: ChunkStatistics) -> bool:
        """Return whether the rows of both can be in one column."""
        same = self.context == other.context and self.rows.dtype == other.rows.dtype
        return same and self.rows.shape[1] == other.rows.shape[1]

    @staticmethod
    def concat(parts: Sequence[ChunkStatistics | None], counts: Sequence[int]) -> ChunkStatistics | None:
        """Return the rows of all parts, one after the other. The context of the last part counts.

        Parts that are None, or have another context, get ``counts`` rows that are not known.
        """
        last = next((part for part in reversed(parts) if part is not None), None)
        if last is None:
            return None
        blank = partial(np.zeros, dtype=last.rows.dtype)
        return replace(
            last,
            rows=np.concatenate(
                [
                    part.rows
                    if part is not None and part.has_shape_of(last)
                    else blank((count, last.rows.shape[1]))
                    for part, count in zip(parts, counts, strict=True)
                ]
            ),
        )


@dataclass(frozen=True, slots=True)
class ArrayHeader:
    """The part of an array in a file: its node, the shape of the columns, and the length of the frame."""

    node: str
    context: str
    kind: str
    ndim: int
    rows: int
    cells: int
    references: str
    size: int


def references_digest(table: ChunkTable) -> str:
    """Return the digest of the references of a table: coordinates, files, ranges and checksums.

    It does not depend on the order of the sources, which a reader of the manifest may number in another way.
    """
    digest = sha256()
    native, virtual, inline = (np.flatnonzero(table.kind == kind) for kind in _KINDS)
    foreign, source = table.foreign, table.source[virtual]
    objects = zip(foreign.locations.blobs(), foreign.etags.blobs(), foreign.modified.tolist(), strict=True)
    # A step for each object, of which many references are parts.
    names = b"".join(sha256(repr(each).encode()).digest() for each in objects)
    data = table.inline.take(table.source[inline]).compact()
    for column in (
        *(table.index, table.kind, table.offset, table.length, table.chunk_ids[table.source[native]]),
        *(np.frombuffer(names, f"V{_HASH_BYTES}")[source], data.values, data.lengths),
    ):
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()[:32]


def has_statistics(arrays: Mapping[bytes, ChunkTable]) -> bool:
    """Return whether a reference of a manifest has statistics."""
    parts = [table.statistics for table in arrays.values()]
    return any(part is not None and part.rows["known"].any() for part in parts)


def encode_statistics(manifest_id: bytes, arrays: Mapping[bytes, ChunkTable]) -> bytes:
    """Return the file for the references of a manifest."""
    headers, frames = [], []
    for node_id, table in arrays.items():
        statistics = table.statistics
        if statistics is None or not statistics.rows["known"].any():
            continue
        frame = zstandard.ZstdCompressor(_LEVEL).compress(statistics.columns().data)
        headers.append(
            ArrayHeader(
                node_id.hex(),
                statistics.context.hex(),
                statistics.kind,
                table.ndim,
                statistics.rows.shape[0],
                statistics.rows.shape[1],
                references_digest(table),
                len(frame),
            )
        )
        frames.append(frame)
    document = {"manifest": id_to_text(manifest_id), "arrays": list(map(asdict, headers))}
    header = json.dumps(document).encode()
    body = b"".join([_LENGTH.pack(len(header)), header, *frames])
    return b"".join([_MAGIC, sha256(body).digest(), body])


def decode_statistics(
    data: Buffer, manifest_id: bytes, arrays: Mapping[bytes, ChunkTable]
) -> dict[bytes, ChunkStatistics]:
    """Return the statistics in a file, by node id, for the references of its manifest.

    Raises ``ValueError`` for a file that is damaged, or belongs to another manifest.
    """
    view = memoryview(data)
    start = len(_MAGIC) + _HASH_BYTES
    body = view[start:]
    if bytes(view[:start]) != _MAGIC + sha256(body).digest():
        raise ValueError("it has another checksum")
    (length,) = _LENGTH.unpack_from(body)
    document = json.loads(bytes(body[_LENGTH.size : _LENGTH.size + length]))
    if document["manifest"] != id_to_text(manifest_id):
        raise ValueError("it belongs to another manifest")
    statistics = {}
    end = _LENGTH.size + length
    for header in (ArrayHeader(**each) for each in document["arrays"]):
        frame, end = body[end : end + header.size], end + header.size
        node_id = bytes.fromhex(header.node)
        table = arrays.get(node_id)
        if table is None or (len(table), table.ndim) != (header.rows, header.ndim):
            raise ValueError("it has other arrays")
        if references_digest(table) != header.references:
            raise ValueError("it has other references")
        dtype = row_dtype(header.kind, header.ndim)
        size = header.rows * header.cells * dtype.itemsize
        if not 0 < size <= max(_FREE_BYTES, _MOST_RATIO * len(frame)):
            raise ValueError("it has columns that are too large")
        if zstandard.frame_content_size(frame) != size:
            raise ValueError("it has columns of another size")
        columns = zstandard.ZstdDecompressor().decompress(frame)
        rows = np.zeros((header.rows, header.cells), dtype)
        statistics[node_id] = ChunkStatistics.of_columns(bytes.fromhex(header.context), rows, columns)
    return statistics
