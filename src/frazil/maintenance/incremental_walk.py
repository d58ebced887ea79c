"""A walk that reads only files that no earlier collection has read. See ``stored_walk``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

import numpy as np

from frazil.format.columns import U8
from frazil.format.snapshot import ManifestFiles
from frazil.maintenance.digests import Marks
from frazil.maintenance.listing import among
from frazil.maintenance.progress import Progress
from frazil.maintenance.stored_walk import MOST_DIGESTS, MOST_USES, Walked, read_walked, store_walked
from frazil.maintenance.walk import Walk
from frazil.maintenance.walk_columns import ManifestChunks, SnapshotManifests, each_once
from frazil.storage.base import Storage

#: The number of manifests that are gathered before duplicates are removed.
_GATHERED: Final = 1 << 15
#: The number of digests that are marked at a time.
_BLOCK: Final = 1 << 20


class IncrementalWalk:
    """The metadata of a repository, read once by all collections together."""

    def __init__(self, storage: Storage, walk: Walk, progress: Progress, *, uses_stored: bool = True) -> None:
        self._storage = storage
        self._walk = walk
        self._progress = progress
        self._walked, self._keys = read_walked(storage) if uses_stored else (Walked(), list[str]())
        self._is_new = len(self._keys) > 1
        self._digests_held = 0
        self._uses_held = 0

    def manifests(self, ids: U8, optional: U8) -> ManifestFiles:
        """Return each manifest of snapshots once."""
        stored = self._walked.snapshots
        wanted = np.concatenate([ids, optional])
        new, new_optional = (each[~among(each, stored.ids)] for each in (ids, optional))
        self._progress.expect(len(new) + len(new_optional))
        tables = list[SnapshotManifests]()
        files, parts, waiting = ManifestFiles.empty(), list[ManifestFiles](), 0
        for snapshots in self._counted(self._walk.snapshots(self._storage, new, new_optional)):
            if self._uses_held + snapshots.rows.total() <= MOST_USES:
                self._uses_held += snapshots.rows.total()
                tables.append(snapshots)
                self._is_new = True
            else:
                parts.append(snapshots.files)
            waiting += len(snapshots.files)
            if waiting > max(len(files), _GATHERED):
                tables = [SnapshotManifests.concat(tables)]
                files, parts, waiting = each_once([files, tables[0].files, *parts]), [], 0
        fresh = SnapshotManifests.concat(tables)
        self._walked = Walked(
            SnapshotManifests.concat([stored, fresh]) if len(stored) else fresh, self._walked.manifests
        )
        return each_once([stored.select(among(stored.ids, wanted)).files, files, fresh.files, *parts])

    def mark_chunks(self, manifests: ManifestFiles, marks: Marks) -> None:
        """Mark the chunk files of manifests."""
        stored = self._walked.manifests
        rows = among(stored.ids, manifests.ids)
        for part in _blocks(stored.select(rows)):
            marks.mark(part)
        new = manifests.select_manifests(np.flatnonzero(~among(manifests.ids, stored.ids)))
        self._progress.expect(len(new))
        expected = int(new.num_chunk_refs.sum(dtype=np.uint64))
        expected = min(expected, MOST_DIGESTS - self._digests_held) + stored.digests.total()
        fresh = self._marked(self._walk.chunks(self._storage, new), marks)
        self._walked = Walked(self._walked.snapshots, ManifestChunks.concat(chain([stored], fresh), expected))

    def _marked(self, parts: Iterator[ManifestChunks], marks: Marks) -> Iterator[ManifestChunks]:
        """Mark the chunk files of manifests. Yield those that are held for the next collection."""
        for chunks in self._counted(parts):
            values = chunks.digests.compact().values
            marks.mark(values)
            if self._digests_held + len(values) <= MOST_DIGESTS:
                self._digests_held += len(values)
                self._is_new = True
                yield chunks

    def store(self, snapshots: U8, manifests: U8) -> None:
        """Store the result for the next collection, if it differs from the stored result."""
        walked = self._walked
        alive = Walked(
            walked.snapshots.select(among(walked.snapshots.ids, snapshots)),
            walked.manifests.select(among(walked.manifests.ids, manifests)),
        )
        if self._is_new or len(alive) < len(walked):
            store_walked(self._storage, alive, self._keys)

    def _counted[P: (SnapshotManifests, ManifestChunks)](self, parts: Iterator[P]) -> Iterator[P]:
        """Report each file of the parts as a finished step."""
        for part in parts:
            for _ in range(len(part)):
                self._progress.advance()
            yield part


def _blocks(manifests: ManifestChunks) -> Iterator[np.ndarray[tuple[int], np.dtype[np.uint64]]]:
    """Yield the digests of manifests in blocks. Those of one manifest are sorted, so they are found fast."""
    values = manifests.digests.compact().values
    for start in range(0, len(values), _BLOCK):
        yield values[start : start + _BLOCK]
