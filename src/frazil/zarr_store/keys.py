"""Keys and byte requests of the zarr store, and what they name in a repository.

Nodes may have the names ``c`` and ``0``. The last ``c`` before a sequence of numbers begins the coordinates
of a chunk. The parser does not check whether there is such an array with this number of dimensions.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest

from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.paths import absolute

type Coords = tuple[int, ...]


class Document(Enum):
    """The kind of a key that does not name a chunk: a document of zarr version 3 or 2."""

    V3 = 3
    V2 = 2


_DOCUMENTS: Final = {
    "zarr.json": Document.V3,
    ".zgroup": Document.V2,
    ".zarray": Document.V2,
    ".zattrs": Document.V2,
    ".zmetadata": Document.V2,
}
_MAX_COORD: Final = 2**32 - 1


def parse_key(key: str) -> tuple[str, Coords | Document]:
    """Return the path of a node, and the document or the coordinates of the chunk that a key names."""
    # Chunks are the most frequent keys, so they are first. The slash is for an array at the root.
    try:
        parsed = _chunk(key) or _document(key) or _chunk("/" + key)
    except (AttributeError, TypeError):
        raise TypeError(f"key must be str, got {type(key).__name__}") from None
    if parsed is None:
        raise _invalid(key)
    return parsed


def parse_directory(path: str) -> tuple[str, Coords] | None:
    """Return the array whose chunks may be below a path, and the coordinates that these chunks share."""
    if path.endswith("/c"):
        return path.removesuffix("/c") or "/", ()
    return _chunk(path)


def document_keys(paths: list[str]) -> list[str]:
    """Return the keys of the documents of nodes."""
    return list(map(str.lstrip, map(str.__add__, paths, repeat("/zarr.json")), repeat("/")))


def chunk_keys(path: str, index: NDArray[np.uint32]) -> list[str]:
    """Return the keys of the chunks of an array at coordinates ``index`` of shape (n, ndim)."""
    prefix = f"{path}/c".lstrip("/")
    columns = [map(str, column) for column in index.T.tolist()]
    return list(map("/".join, zip(repeat(prefix, len(index)), *columns, strict=True)))


def _chunk(key: str) -> tuple[str, Coords] | None:
    prefix, separator, tail = key.rpartition("/c/")
    if not separator:
        return None
    # int() alone would accept signs, blanks, underscores and the digits of other scripts.
    digits = tail.replace("/", "")
    if not (digits.isdecimal() and digits.isascii()):
        return None
    try:
        coords = tuple(map(int, tail.split("/")))
    except ValueError:  # an empty segment, or thousands of digits
        return None
    if len(tail) > 9 and max(coords) > _MAX_COORD:
        return None
    return _node(prefix), coords


def _document(key: str) -> tuple[str, Coords | Document] | None:
    prefix, _, name = key.rpartition("/")
    document = _DOCUMENTS.get(name)
    if document is not None:
        return _node(prefix), document
    return (_node(prefix), ()) if name == "c" else None


@lru_cache(4096)
def _node(prefix: str) -> str:
    """Return the path of a node for the text before its document or chunks."""
    if prefix.endswith("/"):
        raise _invalid(prefix)
    try:
        prefix.encode()
        return absolute(prefix)
    except (InvalidInputError, UnicodeEncodeError) as error:
        raise _invalid(prefix) from error


def _invalid(key: str) -> InvalidInputError:
    return InvalidInputError(
        f"a zarr key must be <node>/zarr.json, or <array>/c and the coordinates of a chunk, got {key!r}",
        ErrorKind.INVALID_KEY,
    )


def span(request: ByteRequest | None, size: int) -> tuple[int, int]:
    """Return the first byte and the end of a request for a value of ``size`` bytes, within the value."""
    match request:
        case None:
            return 0, size
        case RangeByteRequest(start, stop):
            least = min(start, stop)
        case OffsetByteRequest(start):
            stop, least = size, start
        case SuffixByteRequest(suffix):
            start, stop, least = max(size - suffix, 0), size, suffix
        case _:
            raise _invalid_request(request)
    if least < 0:
        raise _invalid_request(request)
    stop = min(stop, size)
    return min(start, stop), stop


def _invalid_request(request: object) -> InvalidInputError:
    return InvalidInputError(
        "byte_range must be a RangeByteRequest, OffsetByteRequest or SuffixByteRequest without negative "
        f"numbers. Unexpected byte_range, got {request!r}",
        ErrorKind.INVALID_BYTE_RANGE,
    )
