"""Where the bytes of a chunk are."""

from __future__ import annotations

from enum import IntEnum

from frazil.display import NamedEnum


class ChunkType(NamedEnum, IntEnum):
    """Where the bytes of a chunk are: nowhere, in the repository, in somebody's file, or in the manifest.

    A number, so that columns of kinds can be compared with it.
    """

    uninitialized = 0
    native = 1
    virtual = 2
    inline = 3
