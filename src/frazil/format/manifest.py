"""Manifests: for each array, where the bytes of its chunks are.

The references of one array are a ``ChunkTable``: columns, sorted by coordinates.

    kind     source            offset, length
    NATIVE   a chunk file      range in that file (a pack holds many chunks)
    VIRTUAL  a foreign object  range in that object
    INLINE   the bytes         0, number of bytes

``source`` numbers the rows of ``chunk_ids``, ``foreign`` or ``inline``: what many references share
is there once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import U8, Ragged


class ChunkKind(IntEnum):
    """Kind of a chunk reference; numbers as in the public ``ChunkType``. ``ABSENT`` marks a deletion in a change set."""

    ABSENT = 0
    NATIVE = 1
    VIRTUAL = 2
    INLINE = 3


@dataclass(frozen=True, slots=True)
class NativeRef:
    """Bytes in a chunk file of the repository."""

    chunk_id: bytes
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class VirtualRef:
    """Bytes in somebody else's object; ``modified`` in seconds since 1970."""

    location: str
    offset: int
    length: int
    etag: str | None = None
    modified: int | None = None


@dataclass(frozen=True, slots=True)
class InlineRef:
    """The bytes themselves."""

    data: bytes


ChunkRef = NativeRef | VirtualRef | InlineRef


@dataclass(frozen=True, slots=True, eq=False)
class ForeignObjects:
    """The distinct objects that virtual references point to, with what is known of their state.

    ``etags`` has an empty row where there is none; ``modified`` (uint32, seconds since 1970) is 0 where unknown.
    A location used with two different checksums is two rows.
    """

    locations: Ragged
    etags: Ragged
    modified: NDArray[np.uint32]


@dataclass(frozen=True, slots=True, eq=False)
class ChunkTable:
    """Chunk references of one array, n rows, strictly ascending by ``index``.

    index    uint32 (n, ndim)   chunk coordinates (n, 0) for a scalar array
    kind     uint8 (n,)         ``ChunkKind``
    source   uint32 (n,)        row of chunk_ids, foreign or inline, by kind (0 for ABSENT)
    offset   uint64 (n,)        first byte in the source
    length   uint64 (n,)        number of bytes

    >>> table = ChunkTable.empty(2)
    >>> len(table), table.index.shape
    (0, (0, 2))
    """

    index: NDArray[np.uint32]
    kind: U8
    source: NDArray[np.uint32]
    offset: NDArray[np.uint64]
    length: NDArray[np.uint64]
    chunk_ids: U8  # (m, 12)
    foreign: ForeignObjects
    inline: Ragged

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def ndim(self) -> int:
        return self.index.shape[1]

    @classmethod
    def empty(cls, ndim: int) -> ChunkTable: ...

    def find(self, coords: tuple[int, ...]) -> int:
        """Row of the reference at ``coords``, -1 if there is none. Binary search."""

    def find_many(self, coords: NDArray[np.uint32]) -> NDArray[np.int64]:
        """``find`` for coordinates of shape (k, ndim)."""

    def take(self, rows: NDArray[Any] | slice) -> ChunkTable:
        """Some of the rows (ascending, or a mask). Sources stay as they are, used or not."""

    def prune(self) -> ChunkTable:
        """The same references without sources that none of them uses."""

    @staticmethod
    def merge(tables: list[ChunkTable]) -> ChunkTable:
        """Union by coordinates of tables of one rank; where two have the same coordinates, the later table wins."""

    @staticmethod
    def duplicates(tables: list[ChunkTable]) -> NDArray[np.uint32]:
        """Coordinates (k, ndim) that more than one of the tables has."""

    def stored(self) -> ChunkTable:
        """Without the rows that mark deletions."""

    def bounds(self) -> NDArray[np.uint32]:
        """Tight half-open box around all coordinates, shape (ndim, 2). The table must not be empty."""


@dataclass(frozen=True, slots=True, eq=False)
class Manifest:
    """A manifest file: its id and the references of each array, keyed by node id (8 bytes)."""

    id: bytes
    arrays: dict[bytes, ChunkTable]


@dataclass(frozen=True, slots=True)
class LocationCompression:
    """When and how locations are compressed with a dictionary; the defaults are those of the format's configuration."""

    min_num_chunks: int = 1000
    max_training_samples: int = 100
    max_dictionary_bytes: int = 2048
    level: int = 3


def encode_manifest(
    manifest: Manifest, *, level: int = 3, locations: LocationCompression | None = None
) -> bytes: ...


def decode_manifest(data: Any, name: str) -> Manifest:
    """A manifest from the bytes of its file; ``FormatError`` naming ``name`` if they are not one."""
