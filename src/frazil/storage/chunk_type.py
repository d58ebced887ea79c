"""The places where the bytes of a chunk can be."""

from __future__ import annotations

from enum import IntEnum

from frazil.display import NamedEnum


class ChunkType(NamedEnum, IntEnum):
    """The place of the bytes of a chunk.

    The value is a number, so that callers can compare it with columns of numbers.

    Attributes:
        uninitialized: The chunk is missing. A read returns the fill value.
        native: A chunk file of the repository.
        virtual: An object outside of the repository.
        inline: The manifest.
    """

    uninitialized = 0
    native = 1
    virtual = 2
    inline = 3
