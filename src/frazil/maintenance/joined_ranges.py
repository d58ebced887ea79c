"""The ranges of several small manifests as one table.

A repository may have thousands of manifests with few references. Functions of columns take as long for ten
rows as for a thousand, so the statistics join such manifests first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from frazil.format.columns import U32, Ragged
from frazil.format.manifest import ChunkKind, ChunkRanges

#: The number of references of a table.
_REFERENCES: Final = 1 << 15


def joined(manifests: Iterable[ChunkRanges], references: int = _REFERENCES) -> Iterator[ChunkRanges]:
    """Return the same ranges in fewer tables."""
    waiting, count = list[ChunkRanges](), 0
    for manifest in manifests:
        waiting.append(manifest)
        count += len(manifest.kind)
        if count >= references:
            yield _concat(waiting)
            waiting, count = [], 0
    if waiting:
        yield _concat(waiting)


def _concat(parts: Sequence[ChunkRanges]) -> ChunkRanges:
    if len(parts) == 1:
        return parts[0]
    ids, locations = 0, 0
    sources = list[U32]()
    for part in parts:
        shift = np.zeros(len(ChunkKind), np.uint32)
        shift[[ChunkKind.NATIVE, ChunkKind.VIRTUAL]] = ids, locations
        sources.append(part.source + shift[part.kind])
        ids, locations = ids + len(part.chunk_ids), locations + len(part.locations)
    return ChunkRanges(
        parts[0].id,
        np.concatenate([part.kind for part in parts]),
        np.concatenate(sources),
        np.concatenate([part.offset for part in parts]),
        np.concatenate([part.length for part in parts]),
        np.concatenate([part.chunk_ids for part in parts]),
        Ragged.concat([part.locations for part in parts]),
    )
