"""Keys of the zarr store: what each one names in a repository.

    zarr.json   group/array/zarr.json     the document of a node
    c/0/1       group/array/c/0/1         a chunk of an array of two dimensions
    c           group/scalar/c            the chunk of an array without dimensions
    .zgroup     group/.zarray  ...        zarr version 2: never there, and cannot be set

Nodes may be called ``c`` or ``0``: the last ``c`` followed by nothing but numbers begins the coordinates.
Whether there is such an array, of that rank, is for the repository to say.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.paths import absolute

type Coords = tuple[int, ...]


class Document(Enum):
    """What a key names if it is not a chunk."""

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
    """The path of a node, and which part of it a key names.

    Raises ``InvalidInputError`` (``invalid-key``).

    >>> parse_key("group/array/c/0/12"), parse_key("c")
    (('/group/array', (0, 12)), ('/', ()))
    >>> parse_key("array/zarr.json")
    ('/array', <Document.V3: 3>)
    """
    # Chunks come by the million: first, and with few calls. The slash in front is for arrays at the root.
    try:
        parsed = _chunk(key) or _document(key) or _chunk("/" + key)
    except (AttributeError, TypeError):
        raise TypeError(f"key: expected str, found {type(key).__name__}") from None
    if parsed is None:
        raise _invalid(key)
    return parsed


def parse_directory(path: str) -> tuple[str, Coords] | None:
    """The array whose chunks would lie below a path, and the coordinates that they share.

    >>> parse_directory("/array/c/0"), parse_directory("/array/c"), parse_directory("/array")
    (('/array', (0,)), ('/array', ()), None)
    """
    if path.endswith("/c"):
        return path.removesuffix("/c") or "/", ()
    return _chunk(path)


def document_keys(paths: list[str]) -> list[str]:
    """The keys of the documents of some nodes.

    >>> document_keys(["/", "/group/array"])
    ['zarr.json', 'group/array/zarr.json']
    """
    return list(map(str.lstrip, map(str.__add__, paths, repeat("/zarr.json")), repeat("/")))


def chunk_keys(path: str, index: NDArray[np.uint32]) -> list[str]:
    """The keys of the chunks of an array at coordinates ``index`` of shape (n, ndim).

    >>> chunk_keys("/array", np.array([[0, 1], [0, 2]], np.uint32))
    ['array/c/0/1', 'array/c/0/2']
    """
    prefix = f"{path}/c".lstrip("/")
    columns = [map(str, column) for column in index.T.tolist()]
    return list(map("/".join, zip(repeat(prefix, len(index)), *columns, strict=True)))


def _chunk(key: str) -> tuple[str, Coords] | None:
    prefix, separator, tail = key.rpartition("/c/")
    if not separator:
        return None
    # int() alone would take signs, blanks, underscores and the digits of other scripts.
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
    """The path of a node, given what stands in front of its document or chunks."""
    if prefix.endswith("/"):
        raise _invalid(prefix)
    try:
        prefix.encode()
        return absolute(prefix)
    except (InvalidInputError, UnicodeEncodeError) as error:
        raise _invalid(prefix) from error


def _invalid(key: str) -> InvalidInputError:
    return InvalidInputError(
        f"invalid zarr key {key!r}: expected <node>/zarr.json, or <array>/c and the coordinates of a chunk",
        ErrorKind.INVALID_KEY,
    )
