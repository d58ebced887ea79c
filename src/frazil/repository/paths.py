"""Paths of nodes: absolute, canonical (specification, "Node Paths")."""

from __future__ import annotations

from frazil.errors import ErrorKind, InvalidInputError


def absolute(path: str) -> str:
    """The canonical form of a node's path, with or without the slash in front.

    Raises ``InvalidInputError`` (``invalid-path``) for empty, ``.`` or ``..`` segments.

    >>> absolute("group/array"), absolute("/"), absolute("")
    ('/group/array', '/', '/')
    """
    inner = path.strip("/") if path in ("", "/") else path.removeprefix("/").removesuffix("/")
    if not inner:
        return "/"
    if not {"", ".", ".."}.isdisjoint(inner.split("/")):
        raise InvalidInputError(
            f"invalid path {path!r}: expected no empty, '.' or '..' segment", ErrorKind.INVALID_PATH
        )
    return "/" + inner
