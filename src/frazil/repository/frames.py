"""Compressed chunks that say that they are larger than a chunk of their array can be.

zarr's codecs make room for as many bytes as a compressed chunk says of itself: 60 KiB may say 2 GiB. The
array's metadata say how large a chunk is before compression, if its elements have a fixed size. What says
more is refused before a codec sees it.

    zstd    the content size in the header of the frame; without one, 128 KiB for each block
    blosc   the size in its header
    gzip    says nothing at the front, and grows no more than 1,032 times

Chunks that say little are let through, which costs one comparison. Sharded arrays, texts of variable length
and codecs that change sizes are not checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Buffer
from functools import lru_cache
from math import prod
from typing import Any, Final

import zstandard

from frazil.changes.zarr_metadata import chunk_lengths
from frazil.errors import FormatError

#: Chunks that say at most so much are let through.
_FREE: Final = 1 << 24
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK: Final = 1 << 17
#: Descriptors of frames with a content size in one or two bytes: less than 64 KiB + 256. Most small chunks.
_SMALL_SINGLE: Final = 0x20
_LARGE: Final = 0x80
_BLOSC_HEADER: Final = 16
_BLOSC_VERSIONS: Final = (1, 2)
_DTYPE: Final = re.compile(r"(?:u?int|float|complex|r)(\d+)")
#: Codecs between the array and its compressor that keep the number of bytes, and those that add some.
_ADDED_BYTES: Final = {"transpose": 0, "bytes": 0, "crc32c": 4, "numcodecs.shuffle": 0, "numcodecs.crc32": 4}


def claimed_bytes(data: Buffer) -> tuple[str, int] | None:
    """The compressor of some bytes and the size that they say, if it is more than a codec may take on trust.

    >>> claimed_bytes(b"raw bytes"), claimed_bytes(zstandard.compress(bytes(1 << 25)))
    (None, ('zstd', 33554432))
    """
    view = memoryview(data)
    head = bytes(view[:_BLOSC_HEADER])
    if head.startswith(_ZSTD):
        if len(head) > len(_ZSTD) and _SMALL_SINGLE <= head[len(_ZSTD)] < _LARGE:
            return None
        try:
            size = zstandard.frame_content_size(view[:32])
            size = size if size >= 0 else _ZSTD_BLOCK * _blocks(view)
        except zstandard.ZstdError:
            return None  # the codec says what is wrong
        return ("zstd", size) if size > _FREE else None
    if len(head) == _BLOSC_HEADER and head[0] in _BLOSC_VERSIONS:
        size, stored = (int.from_bytes(head[at : at + 4], "little") for at in (4, 12))
        return ("blosc", size) if size > _FREE and stored == view.nbytes else None
    return None


def _blocks(view: memoryview) -> int:
    """Blocks of the first frame."""
    parameters = view[:18]
    at = zstandard.frame_header_size(parameters)
    count = last = 0
    while not last and at + 3 <= len(view):
        block = int.from_bytes(view[at : at + 3], "little")
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        at += 3 + (1 if kind == 1 else size)
        count += 1
    return count


def require_plausible(key: str, document: bytes, claimed: tuple[str, int]) -> None:
    """``FormatError`` if a chunk says a size that no chunk of the array with this ``zarr.json`` can have."""
    expected = largest_chunk(document)
    if expected is not None and expected[0] == claimed[0] and claimed[1] > expected[1]:
        raise FormatError(
            f"{key}: expected a {claimed[0]} frame of at most {expected[1]} bytes, by the metadata of the "
            f"array, found one of {claimed[1]} bytes"
        )


@lru_cache(256)
def largest_chunk(document: bytes) -> tuple[str, int] | None:
    """The last codec of an array, and the most bytes that it can have compressed; None if that is not known.

    >>> grid = b'{"name": "regular", "configuration": {"chunk_shape": [10]}}'
    >>> codecs = b'[{"name": "bytes"}, {"name": "zstd"}]'
    >>> array = b'{"shape": [99], "data_type": "int16", "chunk_grid": %s, "codecs": %s}'
    >>> largest_chunk(array % (grid, codecs))
    ('zstd', 20)
    """
    try:
        array = json.loads(document)
        lengths = [max(each) if isinstance(each, list) else each for each in chunk_lengths(document)]
        *others, last = [_name(codec) for codec in array["codecs"]]
        added = [_ADDED_BYTES.get(name) for name in others]
        size = _itemsize(array["data_type"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None  # zarr says what is wrong with a document
    if size is None or None in added or array.get("storage_transformers"):
        return None
    return last, prod(lengths) * size + sum(filter(None, added))


def _name(codec: Any) -> str:
    name = codec if isinstance(codec, str) else codec["name"]
    return str(name).replace("numcodecs.zstd", "zstd").replace("numcodecs.blosc", "blosc")


def _itemsize(data_type: Any) -> int | None:
    if data_type == "bool":
        return 1
    match = _DTYPE.fullmatch(data_type) if isinstance(data_type, str) else None
    return None if match is None else -(-int(match[1]) // 8)
