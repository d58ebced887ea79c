"""The size of the chunks of a repository in bytes, by their place.

    native    each range of a chunk file once, also if many versions refer to it
    virtual   each range of an object outside of the repository once
    inline    once for each manifest that holds the chunk, because a rewrite of a manifest copies it

Only versions that a branch or tag leads to count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from operator import methodcaller
from typing import Final

import numpy as np

from frazil.format.columns import U8, U64
from frazil.format.ids import OBJECT_ID_BYTES
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.maintenance.digests import id_words, mixed
from frazil.maintenance.garbage_plan import referred
from frazil.maintenance.walk import Bounds, LocalWalk, all_manifests, over_manifests
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.files import MANIFEST
from frazil.repository.catalog.version_info import ChunkStorageStats
from frazil.storage.base import Storage

_GATHERED: Final = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Distinct ranges of chunk files or foreign objects: digest and length of each, uint64 (k,).

    With a billion ranges, one repository in forty has two different ranges with the same digest. Then the
    statistics miss one of them.
    """

    digests: U64
    lengths: U64

    def __len__(self) -> int:
        return len(self.digests)

    @staticmethod
    def union(parts: Sequence[Ranges]) -> Ranges:
        """Return each range once."""
        nothing = np.zeros(0, np.uint64)
        digests = np.concatenate([nothing, *(part.digests for part in parts)])
        lengths = np.concatenate([nothing, *(part.lengths for part in parts)])
        digests, first = np.unique(digests, return_index=True)
        return Ranges(digests, lengths[first])


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The content of one manifest: ranges of chunk files, ranges of foreign objects, and inline bytes."""

    native: Ranges
    virtual: Ranges
    inline: int


def parts_of(storage: Storage, manifest: bytes) -> Parts:
    """Return the content of one manifest. This is a piece of work."""
    tables = list(MANIFEST.read(storage, manifest).arrays.values())
    return Parts(
        Ranges.union(list(map(_native, tables))),
        Ranges.union(list(map(_virtual, tables))),
        sum(int(table.length[table.kind == ChunkKind.INLINE].sum()) for table in tables),
    )


def _native(table: ChunkTable) -> Ranges:
    return _ranges(table, ChunkKind.NATIVE, table.chunk_ids)


def _virtual(table: ChunkTable) -> Ranges:
    hashes = map(partial(blake2b, digest_size=OBJECT_ID_BYTES), table.foreign.locations.blobs())
    digests = b"".join(map(methodcaller("digest"), hashes))
    return _ranges(table, ChunkKind.VIRTUAL, np.frombuffer(digests, np.uint8).reshape(-1, OBJECT_ID_BYTES))


def _ranges(table: ChunkTable, kind: ChunkKind, ids: U8) -> Ranges:
    rows = table.kind == kind
    sources = mixed(*id_words(ids))[table.source[rows]]
    lengths = table.length[rows]
    return Ranges(mixed(mixed(sources, table.offset[rows]), lengths), lengths)


def storage_stats(context: Context, bounds: Bounds) -> ChunkStorageStats:
    """Return the statistics: plan, work and finish."""
    storage, info = context.storage, context.catalog.full_repo_info()
    manifests = all_manifests(storage, info.snapshots.ids()[referred(info)], LocalWalk(bounds))
    return summed(over_manifests(manifests, lambda id_: parts_of(storage, id_), bounds))


def summed(pieces: Iterable[Parts]) -> ChunkStorageStats:
    """Return the statistics of many manifests. This is the finish.

    Args:
        pieces: Contents of the manifests.

    Returns:
        The size of native, virtual and inline chunks in bytes.

    Examples:
        >>> summed([]).native_bytes
        0
    """
    native, virtual = _Gathered(), _Gathered()
    inline = 0
    for parts in pieces:
        native.add(parts.native)
        virtual.add(parts.virtual)
        inline += parts.inline
    return ChunkStorageStats(native.length(), virtual.length(), inline)


class _Gathered:
    """Collects distinct ranges of many manifests."""

    def __init__(self) -> None:
        self._settled = Ranges.union([])
        self._parts: list[Ranges] = []
        self._waiting = 0

    def add(self, ranges: Ranges) -> None:
        """Add the ranges of one manifest."""
        self._parts.append(ranges)
        self._waiting += len(ranges)
        if self._waiting > max(len(self._settled), _GATHERED):
            self._settle()

    def _settle(self) -> None:
        self._settled, self._parts, self._waiting = Ranges.union([self._settled, *self._parts]), [], 0

    def length(self) -> int:
        """Return the total size in bytes."""
        self._settle()
        return int(self._settled.lengths.sum(dtype=np.uint64))
