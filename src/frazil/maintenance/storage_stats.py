"""How many bytes the chunks of a repository take, by where they are.

    native    each range of a chunk file once, however many versions refer to it
    virtual   each range of a foreign object once
    inline    once for each manifest that holds them: they are copied when a manifest is rewritten

Versions count that a branch or tag leads to.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.ids import OBJECT_ID_BYTES
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.maintenance.garbage import referred
from frazil.maintenance.version1 import all_versions
from frazil.maintenance.walk import Bounds, all_manifests, over_manifests, read_manifest
from frazil.repository.context import Context
from frazil.repository.values import ChunkStorageStats
from frazil.storage.base import Storage

#: A range of a chunk file, or of a foreign object by a digest of its location.
_RANGE: Final = np.dtype([("source", f"V{OBJECT_ID_BYTES}"), ("offset", ">u8"), ("length", ">u8")])
_GATHERED: Final = 1 << 20

Ranges = NDArray[np.void]


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """What one manifest holds: distinct ranges of chunk files and of foreign objects, inline bytes."""

    native: Ranges
    virtual: Ranges
    inline: int


def parts_of(storage: Storage, manifest: bytes) -> Parts:
    """The piece of work for one manifest."""
    tables = list(read_manifest(storage, manifest).arrays.values())
    return Parts(
        _distinct(map(_native, tables)),
        _distinct(map(_virtual, tables)),
        sum(int(table.length[table.kind == ChunkKind.INLINE].sum()) for table in tables),
    )


def _native(table: ChunkTable) -> Ranges:
    return _ranges(table, ChunkKind.NATIVE, table.chunk_ids)


def _virtual(table: ChunkTable) -> Ranges:
    digests = b"".join(map(_digest, table.foreign.locations.blobs()))
    return _ranges(table, ChunkKind.VIRTUAL, np.frombuffer(digests, np.uint8).reshape(-1, OBJECT_ID_BYTES))


def _digest(location: bytes) -> bytes:
    return blake2b(location, digest_size=OBJECT_ID_BYTES).digest()


def _ranges(table: ChunkTable, kind: ChunkKind, ids: NDArray[np.uint8]) -> Ranges:
    rows = table.kind == kind
    out = np.zeros(int(np.count_nonzero(rows)), _RANGE)
    out["source"] = np.ascontiguousarray(ids).view(f"V{OBJECT_ID_BYTES}").reshape(-1)[table.source[rows]]
    out["offset"] = table.offset[rows]
    out["length"] = table.length[rows]
    return out


def _distinct(parts: Any) -> Ranges:
    every = np.concatenate([np.zeros(0, _RANGE), *parts])
    return np.unique(every.view(f"S{_RANGE.itemsize}")).view(_RANGE)


def storage_stats(context: Context, bounds: Bounds) -> ChunkStorageStats:
    """All of it: plan, work and finish."""
    storage, info = context.storage, all_versions(context)
    nothing = info.snapshots.ids()[:0]
    manifests = all_manifests(storage, info.snapshots.ids()[referred(info)], nothing, bounds)
    native, virtual = _Gathered(), _Gathered()
    inline = 0
    for parts in over_manifests(manifests, lambda id_: parts_of(storage, id_), bounds):
        native.add(parts.native)
        virtual.add(parts.virtual)
        inline += parts.inline
    return ChunkStorageStats(native.length(), virtual.length(), inline)


class _Gathered:
    """Distinct ranges of many manifests."""

    def __init__(self) -> None:
        self._known = np.zeros(0, _RANGE)
        self._parts: list[Ranges] = []
        self._waiting = 0

    def add(self, ranges: Ranges) -> None:
        self._parts.append(ranges)
        self._waiting += len(ranges)
        if self._waiting > max(len(self._known), _GATHERED):
            self._settle()

    def _settle(self) -> None:
        self._known, self._parts, self._waiting = _distinct([self._known, *self._parts]), [], 0

    def length(self) -> int:
        """Bytes in all."""
        self._settle()
        return int(self._known["length"].sum(dtype=np.uint64))
