"""Paths of nodes: absolute and canonical.

Specification: *Node Paths*.
"""

from __future__ import annotations

from frazil.errors import ErrorKind, InvalidInputError


def absolute(path: str) -> str:
    """Return the canonical form of the path of a node, with or without a leading slash.

    Args:
        path: The path.

    Returns:
        The path with a leading slash, without a trailing one. The root is ``/``.

    Raises:
        InvalidInputError: ``invalid-path`` if a segment is empty, ``.`` or ``..``.

    Examples:
        >>> absolute("group/array"), absolute("/"), absolute("")
        ('/group/array', '/', '/')
    """
    inner = path.strip("/") if path in ("", "/") else path.removeprefix("/").removesuffix("/")
    if not inner:
        return "/"
    if not {"", ".", ".."}.isdisjoint(inner.split("/")):
        raise InvalidInputError(
            f"a path must not have an empty, '.' or '..' segment, got {path!r}", ErrorKind.INVALID_PATH
        )
    return "/" + inner
