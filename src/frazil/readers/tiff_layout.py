"""The positions of the tiles or strips of a TIFF, from its first directory, classic or BigTIFF.

A directory is a list of entries: tag, type, count, and the values or their offset. A damaged file may have
any number in it, so every read is checked against the size of the file. The values of all tags together are
not larger than the file: many tags could have the same large values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.readers.file_errors import damaged
from frazil.readers.files import File

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
