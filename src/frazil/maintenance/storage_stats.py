"""The size of the chunks of a repository in bytes, by their place.

    native    each range of a chunk file once, even if many versions refer to it
    virtual   each range of an object outside of the repository once
    inline    once for each manifest that holds the chunk, because a rewrite of a manifest copies it

Only versions that a branch or tag leads to count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import chain
from operator import methodcaller

import numpy as np

from frazil.format.columns import U8, Ragged
from frazil.format.ids import OBJECT_ID_BYTES
from frazil.format.manifest import ChunkKind, ChunkRanges
from frazil.maintenance.digests import id_words, mixed
from frazil.maintenance.distinct_ranges import DistinctRanges, Ranges
from frazil.maintenance.garbage_files import ChunkStorageStats
from frazil.maintenance.garbage_plan import referred
from frazil.maintenance.joined_ranges import joined
from frazil.maintenance.walk import Bounds, LocalWalk, all_manifests, read_manifests
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.files import MANIFEST_CHUNK_RANGES
from frazil.storage.base import Storage


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The content of one manifest: ranges of chunk files, ranges of foreign objects, and inline bytes."""

    native: Ranges
    virtual: Ranges
    inline: int


def parts_of(storage: Storage, manifest: bytes) -> Parts:
    """Return the content of one manifest. This is a piece of work."""
    return _parts(MANIFEST_CHUNK_RANGES.read(storage, manifest))


def _parts(chunks: ChunkRanges) -> Parts:
    native, virtual = ChunkKind.NATIVE, ChunkKind.VIRTUAL
    return Parts(
        _ranges(chunks, native, chunks.chunk_ids),
        _ranges(chunks, virtual, _location_ids(chunks.locations)),
        int(chunks.length[chunks.kind == ChunkKind.INLINE].sum()),
    )


def _location_ids(locations: Ragged) -> U8:
    hashes = map(partial(blake2b, digest_size=OBJECT_ID_BYTES), locations.blobs())
    digests = b"".join(map(methodcaller("digest"), hashes))
    return np.frombuffer(digests, np.uint8).reshape(-1, OBJECT_ID_BYTES)


def _ranges(chunks: ChunkRanges, kind: ChunkKind, ids: U8) -> Ranges:
    rows = chunks.kind == kind
    if rows.all():
        rows = np.s_[:]
    lengths = chunks.length[rows]
    sources = mixed(*id_words(ids))[chunks.source[rows]]
    return Ranges.of(mixed(mixed(sources, chunks.offset[rows]), lengths), lengths)


def storage_stats(context: Context, bounds: Bounds) -> ChunkStorageStats:
    """Return the statistics: plan, work and finish."""
    storage, info = context.storage, context.catalog.full_repo_info()
    manifests = all_manifests(storage, info.snapshots.ids()[referred(info)], LocalWalk(bounds))
    files = chain.from_iterable(read_manifests(storage, MANIFEST_CHUNK_RANGES, manifests, bounds))
    return summed(map(_parts, joined(files)))


def summed(pieces: Iterable[Parts]) -> ChunkStorageStats:
    """Return the statistics of many manifests. This is the finish."""
    native, virtual = DistinctRanges(), DistinctRanges()
    inline = 0
    for parts in pieces:
        native.add(parts.native)
        virtual.add(parts.virtual)
        inline += parts.inline
    return ChunkStorageStats(native.length(), virtual.length(), inline)
