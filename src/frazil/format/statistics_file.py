"""The files with statistics of chunks: ``statistics/<id>`` has the rows of the manifest with this id.

The specification does not know the file, and other implementations ignore the folder. No decision needs a
file: without it, chunks are read.

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
from collections.abc import Buffer, Mapping
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from typing import Any, Final

import numpy as np
import zstandard

from frazil.format.chunk_statistics import ChunkStatistics, row_columns, row_dtype_of
from frazil.format.chunk_table import ChunkKind, ChunkTable
from frazil.format.ids import id_to_text

_MAGIC: Final = b"FRZSTAT2"
_HASH_BYTES: Final = 32
_LENGTH: Final = struct.Struct("<I")
_LEVEL: Final = 3
#: The most bytes of all columns: this number, or this number for each byte of the file.
_FREE_BYTES: Final = 64 << 20
_MOST_RATIO: Final = 1000


@dataclass(frozen=True, slots=True)
class ArrayHeader:
    """The part of an array in a file.

    Attributes:
        node: The id of the array, 16 hexadecimal digits.
        context: What the elements mean, 32 hexadecimal digits. See ``Meaning.context``.
        rows: The number of references.
        tiles: The number of rows of each reference: 1, or the number of inner chunks of a shard.
        columns: The name, the type and the shape of each column: of its values in one row.
        references: The digest of the references, 32 hexadecimal digits.
        size: The number of bytes of the frame.
    """

    node: str
    context: str
    rows: int
    tiles: int
    columns: list[list[Any]]
    references: str
    size: int

    @staticmethod
    def of(document: Mapping[str, Any]) -> ArrayHeader:
        """Return the part of a header in JSON. Keys of later versions mean nothing."""
        return ArrayHeader(**{each.name: document[each.name] for each in fields(ArrayHeader)})


def references_digest(table: ChunkTable) -> str:
    """Return the digest of the references of a table: coordinates, files, ranges and checksums.

    It does not depend on the order of the sources, which a reader of the manifest may number in another way.
    """
    digest = sha256()
    native, virtual, inline = (
        np.flatnonzero(table.kind == kind) for kind in (ChunkKind.NATIVE, ChunkKind.VIRTUAL, ChunkKind.INLINE)
    )
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
        rows, tiles = statistics.rows.shape
        frame = zstandard.ZstdCompressor(_LEVEL).compress(statistics.columns().data)
        headers.append(
            ArrayHeader(
                node_id.hex(),
                statistics.context.hex(),
                rows,
                tiles,
                row_columns(statistics.rows.dtype),
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
    statistics = dict[bytes, ChunkStatistics]()
    most = max(_FREE_BYTES, _MOST_RATIO * len(view))
    end = _LENGTH.size + length
    for header in (ArrayHeader.of(each) for each in document["arrays"]):
        frame, end = body[end : end + header.size], end + header.size
        node_id = bytes.fromhex(header.node)
        table = arrays.get(node_id)
        if table is None or node_id in statistics:
            raise ValueError("it has other arrays")
        try:
            dtype = row_dtype_of(header.columns)
        except ValueError:  # of another version
            continue
        is_expected = (len(table), (table.ndim,)) == (header.rows, dtype["extent"].shape)
        if not is_expected or references_digest(table) != header.references:
            raise ValueError("it has other references")
        size = header.rows * header.tiles * dtype.itemsize
        if not 0 < size <= most:
            raise ValueError("it has columns that are too large")
        most -= size
        if zstandard.frame_content_size(frame) != size:
            raise ValueError("it has columns of another size")
        columns = zstandard.ZstdDecompressor().decompress(frame)
        rows = np.zeros((header.rows, header.tiles), dtype)
        statistics[node_id] = ChunkStatistics.of_columns(bytes.fromhex(header.context), rows, columns)
    return statistics
