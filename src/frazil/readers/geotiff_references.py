"""References to the tiles or strips of a GeoTIFF.

Tiles and strips can have references if they are not compressed, or compressed by deflate or zstd without a
predictor. The last strip of an image may have fewer rows than the others, but all chunks of Zarr have one
shape. So this strip is an inline chunk, filled up with zeros.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import zstandard
from numpy.typing import NDArray

from frazil.readers.reader import ChunkReferences, NotVirtual, VariableSchema
from frazil.readers.references import bytes_codec, references_to_file
from frazil.readers.tiff_layout import Layout

#: The variable of the pixels.
DATA: Final = "band_data"
#: A function that reads a region of a variable: `frazil.readers.reader.Reader.read`.
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
