"""The size of the chunks of a repository in bytes, by their place.

    native    each range of a chunk file once, even if many versions refer to it
    virtual   each range of an object outside of the repository once
    inline    once for each manifest that holds the chunk, because a rewrite of a manifest copies it

Only versions that a branch or tag leads to count.
"""

from __future__ import annotations

from frazil.engines import Engine, EngineName
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.version_info import ChunkStorageStats
from frazil.survey.digests import DistinctRanges
from frazil.survey.survey import Bounds, Survey, reachable


def storage_stats(
    context: Context, engine: Engine | EngineName | None = None, bounds: Bounds | None = None
) -> ChunkStorageStats:
    """Return the statistics. Memory: 12 bytes for each distinct range."""
    info = context.catalog.full_repo_info()
    survey = Survey(context, engine, bounds=bounds)
    native, virtual = DistinctRanges(), DistinctRanges()
    inline = 0
    for sums in survey.range_sums(survey.manifests(info.snapshots.ids()[reachable(info)])):
        native.add(sums.native)
        virtual.add(sums.virtual)
        inline += sums.inline
    return ChunkStorageStats(native.length(), virtual.length(), inline)
