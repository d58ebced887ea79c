"""References to the tiles and strips of a TIFF, from its first directory.

Tiles and strips can have references if they are not compressed, or compressed by deflate or zstd without a
predictor. The last strip of an image may have fewer rows than the others, but all chunks of Zarr have one
shape. So this strip is an inline chunk, filled up with zeros.

A directory is a list of entries: tag, type, count, and the values or their offset. A damaged file may have
any number in it, so every read is checked against the size of the file. The values of all tags together are
not larger than the file: many tags could have the same large values.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import zstandard
from numpy.typing import NDArray

from frazil.readers.file_schema import (
    ChunkReferences,
    NotVirtual,
    VariableSchema,
    bytes_codec,
    references_to_file,
)
from frazil.readers.files import File, damaged

#: Type of an entry -> dtype. Entries of other types are read as bytes.
_TYPES: Final = {1: "u1", 3: "u2", 4: "u4", 13: "u4", 16: "u8", 18: "u8"}
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _FILL_ORDER, _SAMPLES, _ROWS, _PLANAR, _PREDICTOR = (
    256,
    257,
    258,
    259,
    262,
    266,
    277,
    278,
    284,
    317,
)
_MOST_TAGS: Final = 4096
#: Tag -> its values.
type Directory = dict[int, NDArray[Any]]
_STRIPS, _STRIP_SIZES, _TILE_WIDTH, _TILE_HEIGHT, _TILES, _TILE_SIZES = 273, 279, 322, 323, 324, 325


@dataclass(frozen=True, slots=True)
class Layout:
    """The storage layout of the pixels of an image.

    ``chunk`` is (rows, columns) of a tile or strip. ``offset`` and ``length`` (bytes) have an entry for each
    tile or strip, row by row, and band by band if ``planar`` (otherwise each one has all bands, pixel by
    pixel). Length 0: the tile is not stored. ``photometric`` is the code of the meaning of numbers as
    colours. ``reversed_bits``: the first bit of a byte is its lowest (FillOrder 2).
    """

    width: int
    height: int
    bands: int
    bits: tuple[int, ...]
    big_endian: bool
    compression: int
    predictor: int
    photometric: int
    reversed_bits: bool
    planar: bool
    tiled: bool
    chunk: tuple[int, int]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]


def read_layout(file: File, tags: Directory | None = None) -> Layout:
    """Return the layout of the first image. ``tags`` is the result of `read_directory`, if already read."""
    tags = read_directory(file) if tags is None else tags

    def one(tag: int, default: int | None = None) -> int:
        values = tags.get(tag)
        if values is None or not len(values):
            if default is None:
                raise damaged(file.url, f"a TIFF with tag {tag}", f"tags {sorted(tags)}")
            return default
        return int(values[0])

    width, height, bands = one(_WIDTH), one(_HEIGHT), one(_SAMPLES, 1)
    tiled = _TILES in tags
    if tiled:
        chunk = one(_TILE_HEIGHT), one(_TILE_WIDTH)
        offset, length = tags.get(_TILES), tags.get(_TILE_SIZES)
    else:
        chunk = min(one(_ROWS, height), height), width
        offset, length = tags.get(_STRIPS), tags.get(_STRIP_SIZES)
    planar = one(_PLANAR, 1) == 2 and bands > 1
    if offset is None or length is None or 0 in chunk:
        raise damaged(file.url, "the offsets of tiles or strips", f"tags {sorted(tags)}")
    count = -(-height // chunk[0]) * -(-width // chunk[1]) * (bands if planar else 1)
    if len(offset) != count or len(length) != count:
        raise damaged(file.url, f"{count} tiles or strips", f"{len(offset)} offsets and {len(length)} sizes")
    end = max(map(int, (offset.max(initial=0), length.max(initial=0))))
    if end <= file.size:  # then the sums do not overflow
        end = int((offset.astype(np.int64) + length.astype(np.int64)).max(initial=0))
    if end > file.size:
        raise damaged(file.url, f"at least {end} bytes", f"{file.size}: it is truncated")
    return Layout(
        width,
        height,
        bands,
        tuple(map(int, tags.get(_BITS, [1]))),
        file.head[:2] == b"MM",
        one(_COMPRESSION, 1),
        one(_PREDICTOR, 1),
        one(_PHOTOMETRIC, 1),
        one(_FILL_ORDER, 1) == 2,
        planar,
        tiled,
        chunk,
        offset.astype(np.int64),
        length.astype(np.int64),
    )


def read_directory(file: File, page: int = 1) -> Directory:
    """Return the values of all tags of the image ``page`` (from 1). Texts are bytes."""
    order = ">" if file.head[:2] == b"MM" else "<"

    def number(start: int, size: int) -> int:
        return int(np.frombuffer(file.read(start, start + size), f"{order}u{size}")[0])

    big = number(2, 2) == 43
    first, counted, entry, inline = (8, 8, 20, 8) if big else (4, 2, 12, 4)
    at = number(first, inline)
    count = number(at, counted)
    for _ in range(page - 1):
        at = number(at + counted + count * entry, inline)
        if not at:
            raise damaged(file.url, f"a TIFF with {page} pages", "fewer")
        count = number(at, counted)
    if count > _MOST_TAGS:
        raise damaged(file.url, f"a directory of at most {_MOST_TAGS} tags", count)
    at += counted
    raw = file.read(at, at + count * entry)
    fields = [
        ("tag", f"{order}u2"),
        ("type", f"{order}u2"),
        ("count", f"{order}u{inline}"),
        ("value", f"V{inline}"),
    ]
    tags = {}
    total = 0
    for row in np.frombuffer(raw, fields):
        dtype = np.dtype(order + _TYPES.get(int(row["type"]), "u1"))
        size = int(row["count"]) * dtype.itemsize
        total += size
        if total > file.size + len(raw):
            raise damaged(file.url, f"tags with at most {file.size} bytes of values", f"{total} bytes")
        data = row["value"].tobytes()
        if size > inline:
            place = int(np.frombuffer(data, f"{order}u{inline}")[0])
            data = file.read(place, place + size)
        tags[int(row["tag"])] = np.frombuffer(data[:size], dtype)
    return tags


#: The variable of the pixels.
DATA: Final = "band_data"
#: A function that reads a region of a variable: `frazil.readers.file_schema.Reader.read`.
type ReadRegion = Callable[[str, tuple[slice, ...]], NDArray[Any]]

_COMPRESSIONS: Final = {
    1: "none",
    5: "LZW",
    6: "JPEG",
    7: "JPEG",
    8: "deflate",
    32773: "packbits",
    32946: "deflate",
    34887: "LERC",
    34925: "LZMA",
    50000: "zstd",
    50001: "WebP",
    50002: "JPEG XL",
}
#: Photometric interpretations for which GDAL returns the stored numbers: grey, RGB, palette, mask.
_STORED_COLOURS: Final = (0, 1, 2, 3, 4)
_OTHER_COLOURS: Final = {5: "CMYK", 6: "YCbCr", 8: "CIE L*a*b*", 9: "ICC L*a*b*", 10: "ITU L*a*b*"}
#: Compression -> codecs of Zarr that decode it.
_CODECS: Final[dict[str, list[dict[str, Any]]]] = {
    "none": [],
    "deflate": [{"name": "numcodecs.zlib", "configuration": {"level": 6}}],
    "zstd": [{"name": "zstd", "configuration": {"level": 9, "checksum": False}}],
}
_ENCODERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "none": bytes,
    "deflate": zlib.compress,
    "zstd": lambda data: zstandard.compress(data, 9),
}


def compression_name(code: int) -> str:
    """Return the name of a compression, by the value of its tag."""
    return _COMPRESSIONS.get(code, f"compression {code}")


def image_references(
    url: str, layout: Layout, variable: VariableSchema, read: ReadRegion
) -> ChunkReferences | NotVirtual:
    """Return references to the tiles or strips of the first image of the file ``url``.

    ``read`` reads the pixels of a last strip that is shorter than the others.
    """
    reason = _why_not(layout, variable)
    if reason is not None:
        return NotVirtual(reason)
    dtype = variable.dtype.newbyteorder(">" if layout.big_endian else "<")
    codecs: list[dict[str, Any]] = [bytes_codec(dtype)]
    if layout.bands > 1 and not layout.planar:
        codecs.insert(0, {"name": "transpose", "configuration": {"order": [1, 2, 0]}})
    codecs += _CODECS[_COMPRESSIONS[layout.compression]]
    rows, columns = -(-layout.height // layout.chunk[0]), -(-layout.width // layout.chunk[1])
    grid = (layout.bands if layout.planar else 1, rows, columns)
    index = np.indices(grid, np.uint32).reshape(3, -1).T
    stored = np.flatnonzero(layout.length)
    references = references_to_file(
        url,
        (1 if layout.planar else layout.bands, *layout.chunk),
        codecs,
        dtype,
        variable.fill_value if variable.fill_value is not None else dtype.type(0),
        index[stored],
        layout.offset[stored],
        layout.length[stored],
    )
    if not layout.tiled and layout.height % layout.chunk[0]:
        return references.with_inline(_last_strips(layout, references, rows - 1, read))
    return references


def _why_not(layout: Layout, variable: VariableSchema) -> str | None:
    """Return the reason why tiles and strips cannot be chunks of a Zarr array; None if they can."""
    compression = compression_name(layout.compression)
    if compression not in _CODECS:
        return f"{compression}: no codec in Zarr"
    if layout.predictor != 1:
        return f"predictor {layout.predictor}: no codec in Zarr"
    if set(layout.bits) != {variable.dtype.itemsize * 8}:
        return f"pixels of {layout.bits[0]} bits"
    if layout.photometric not in _STORED_COLOURS or layout.bands != variable.shape[0]:
        colours = _OTHER_COLOURS.get(layout.photometric, f"photometric interpretation {layout.photometric}")
        return f"{colours}: GDAL converts the stored colours"
    if layout.reversed_bits:
        return "bytes with the lowest bit first (FillOrder 2)"
    if compression == "none" and not _has_whole_chunks(layout, variable.dtype.itemsize):
        return "tiles or strips that are longer or shorter than their pixels"
    return None


def _has_whole_chunks(layout: Layout, itemsize: int) -> bool:
    """Return whether tiles and strips, except the last strip, have exactly the bytes of their pixels."""
    rows, columns = layout.chunk
    whole = rows * columns * itemsize * (1 if layout.planar else layout.bands)
    strips = -(-layout.height // rows)
    last = not layout.tiled and layout.height % rows and np.arange(len(layout.length)) % strips == strips - 1
    return bool(((layout.length == whole) | (layout.length == 0) | last).all())


def _last_strips(
    layout: Layout, references: ChunkReferences, last: int, read: ReadRegion
) -> dict[int, bytes]:
    """Return the encoded bytes of the last strips, filled up to whole chunks, by row of the references."""
    strips = {}
    encode = _ENCODERS[_COMPRESSIONS[layout.compression]]
    first = last * layout.chunk[0]
    for row in np.flatnonzero(references.index[:, 1] == last).tolist():
        band = int(references.index[row, 0])
        bands = slice(band, band + 1) if layout.planar else slice(0, layout.bands)
        values = read(DATA, (bands, slice(first, layout.height), slice(0, layout.width)))
        whole = np.zeros(references.chunks, references.dtype)
        whole[:, : values.shape[1]] = values
        strips[row] = encode((whole if layout.planar else whole.transpose(1, 2, 0)).tobytes())
    return strips
