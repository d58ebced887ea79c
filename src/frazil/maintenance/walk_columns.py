"""The results of a walk over metadata, as columns: manifests of snapshots, chunk files of manifests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import U8, U32, U64, Ragged
from frazil.format.ids import OBJECT_ID_BYTES, id_keys, id_matrix, id_order
from frazil.format.snapshot import ManifestFiles


def each_once(parts: Sequence[ManifestFiles]) -> ManifestFiles:
    """Return each manifest of several tables once."""
    return _numbered(parts)[0]


def _numbered(parts: Sequence[ManifestFiles]) -> tuple[ManifestFiles, U32]:
    """Return each manifest of several tables once, sorted, and the number of each row of the tables."""
    ids = np.concatenate([part.ids for part in parts])
    order = id_order(ids)
    keys = id_keys(ids[order])
    new = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    numbers = np.empty(len(keys), np.uint32)
    numbers[order] = np.cumsum(new, dtype=np.uint32) - np.uint32(1)
    first = order[new]
    files = ManifestFiles(
        ids[first],
        np.concatenate([part.size_bytes for part in parts])[first],
        np.concatenate([part.num_chunk_refs for part in parts])[first],
    )
    return files, numbers


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotManifests:
    """The manifests of s snapshots.

    Attributes:
        ids: The ids of the snapshots, uint8 (s, 12).
        files: Each manifest once, sorted by id.
        rows: For each snapshot the rows of its manifests in ``files``, uint32.
    """

    ids: U8
    files: ManifestFiles
    rows: Ragged

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def empty(cls) -> SnapshotManifests:
        """Return a table without snapshots."""
        no_ids = np.zeros((0, OBJECT_ID_BYTES), np.uint8)
        return cls(no_ids, ManifestFiles.empty(), Ragged.empty(0, np.uint32))

    @classmethod
    def of_many(cls, snapshots: list[bytes], files: Sequence[ManifestFiles]) -> SnapshotManifests:
        """Return the table of some snapshots."""
        if not snapshots:
            return cls.empty()
        once, numbers = _numbered(files)
        return cls(id_matrix(snapshots), once, Ragged.from_lengths(numbers, np.array(list(map(len, files)))))

    @staticmethod
    def concat(parts: Sequence[SnapshotManifests]) -> SnapshotManifests:
        """Return one table for several tables."""
        if len(parts) == 1:
            return parts[0]
        whole = SnapshotManifests.empty()
        files, numbers = _numbered([whole.files, *(part.files for part in parts)])
        rows = [whole.rows]
        start = 0
        for part in parts:
            places = numbers[start : start + len(part.files)]
            start += len(part.files)
            rows.append(Ragged.from_lengths(places[part.rows.compact().values], part.rows.lengths))
        return SnapshotManifests(
            np.concatenate([whole.ids, *(part.ids for part in parts)]), files, Ragged.concat(rows)
        )

    def select(self, keep: NDArray[np.bool_]) -> SnapshotManifests:
        """Return some of the snapshots, with only their manifests."""
        if keep.all():
            return self
        rows = self.rows.take(keep).compact()
        used, places = np.unique(rows.values, return_inverse=True)
        files = self.files.select_manifests(used.astype(np.int64))
        return SnapshotManifests(
            self.ids[keep], files, Ragged.from_lengths(places.astype(np.uint32), rows.lengths)
        )


@dataclass(frozen=True, slots=True, eq=False)
class ManifestChunks:
    """The chunk files of m manifests.

    Attributes:
        ids: The ids of the manifests, uint8 (m, 12).
        digests: For each manifest the digests of its chunk files, sorted, uint64.
    """

    ids: U8
    digests: Ragged

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def empty(cls) -> ManifestChunks:
        """Return a table without manifests."""
        return cls(np.zeros((0, OBJECT_ID_BYTES), np.uint8), Ragged.empty(0, np.uint64))

    @classmethod
    def of(cls, manifest: bytes, digests: U64) -> ManifestChunks:
        """Return the table of one manifest."""
        return cls(id_matrix([manifest]), Ragged.from_lengths(digests, np.array([len(digests)])))

    @staticmethod
    def concat(parts: Iterable[ManifestChunks], expected: int = 0) -> ManifestChunks:
        """Return one table for several tables."""
        # Memory that was never written takes no space.
        values, held = np.empty(expected, np.uint64), 0
        ids, lengths = [np.zeros((0, OBJECT_ID_BYTES), np.uint8)], [np.zeros(0, np.int64)]
        for part in parts:
            digests = part.digests.compact()
            stop = held + len(digests.values)
            if stop > len(values):
                values = np.concatenate([values[:held], np.empty(stop, np.uint64)])
            values[held:stop] = digests.values
            held = stop
            ids.append(part.ids)
            lengths.append(digests.lengths)
        return ManifestChunks(
            np.concatenate(ids), Ragged.from_lengths(values[:held], np.concatenate(lengths))
        )

    def select(self, keep: NDArray[np.bool_]) -> ManifestChunks:
        """Return some of the manifests."""
        return self if keep.all() else ManifestChunks(self.ids[keep], self.digests.take(keep).compact())
