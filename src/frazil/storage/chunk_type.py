"""Where the bytes of a chunk are."""

from __future__ import annotations

from frazil.display import NamedEnum


class ChunkType(NamedEnum):
    """Where the bytes of a chunk are: nowhere, in the repository, in somebody's file, or in the manifest."""

    uninitialized = 0
    native = 1
    virtual = 2
    inline = 3
