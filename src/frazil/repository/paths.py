"""Paths of nodes: absolute and canonical.

Specification: *Node Paths*.
"""

from __future__ import annotations

from typing import Final

from frazil.errors import ErrorKind, InvalidInputError

#: The name of the groups that Frazil writes for itself, such as the ledger of an ingest.
HIDDEN: Final = ".frazil"
#: The group of the tables of derived arrays.
DERIVED: Final = f"/{HIDDEN}/derived"


def absolute(path: str) -> str:
    """Return the canonical form of the path of a node, with or without a leading slash."""
    inner = path.strip("/") if path in ("", "/") else path.removeprefix("/").removesuffix("/")
    if not inner:
        return "/"
    if not {"", ".", ".."}.isdisjoint(inner.split("/")):
        raise InvalidInputError(
            f"a path must not have an empty, '.' or '..' segment, got {path!r}", ErrorKind.INVALID_PATH
        )
    return "/" + inner


def utf8(name: str, text: str, kind: ErrorKind) -> bytes:
    """Return the bytes of a text. The error for a lone surrogate has the name of the text."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"{name} must be text that UTF-8 can encode, without lone surrogates, got {text!r:.80}", kind
        ) from None
