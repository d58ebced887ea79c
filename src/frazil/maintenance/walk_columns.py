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
    """Return each manifest of several tables once.

    Args:
        parts: Tables of manifests.

    Returns:
        One table, sorted by id.

    Examples:
        >>> len(each_once([ManifestFiles.empty()]))
        0
    """
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
        """Return a table without snapshots.

        Returns:
            A table of 0 rows.

        Examples:
            >>> len(SnapshotManifests.empty())
            0
        """
        no_ids = np.zeros((0, OBJECT_ID_BYTES), np.uint8)
        return cls(no_ids, ManifestFiles.empty(), Ragged.empty(0, np.uint32))

    @classmethod
    def of_many(cls, snapshots: list[bytes], files: Sequence[ManifestFiles]) -> SnapshotManifests:
        """Return the table of some snapshots.

        Args:
            snapshots: The ids of the snapshots.
            files: The manifests of each snapshot, each once, sorted by id.

        Returns:
            A table with a row for each snapshot.

        Examples:
            >>> len(SnapshotManifests.of_many([bytes(12)], [ManifestFiles.empty()]))
            1
        """
        if not snapshots:
            return cls.empty()
        once, numbers = _numbered(files)
        return cls(id_matrix(snapshots), once, Ragged.from_lengths(numbers, np.array(list(map(len, files)))))

    @staticmethod
    def concat(parts: Sequence[SnapshotManifests]) -> SnapshotManifests:
        """Return one table for several tables.

        Args:
            parts: Tables.

        Returns:
            The rows of all tables.

        Examples:
            >>> one = SnapshotManifests.of_many([bytes(12)], [ManifestFiles.empty()])
            >>> len(SnapshotManifests.concat([one, one]))
            2
        """
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
        """Return some of the snapshots, with only their manifests.

        Args:
            keep: One bool for each snapshot.

        Returns:
            The snapshots whose value is True.

        Examples:
            >>> len(SnapshotManifests.empty().select(np.zeros(0, bool)))
            0
        """
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
        """Return a table without manifests.

        Returns:
            A table of 0 rows.

        Examples:
            >>> len(ManifestChunks.empty())
            0
        """
        return cls(np.zeros((0, OBJECT_ID_BYTES), np.uint8), Ragged.empty(0, np.uint64))

    @classmethod
    def of(cls, manifest: bytes, digests: U64) -> ManifestChunks:
        """Return the table of one manifest.

        Args:
            manifest: The id of the manifest.
            digests: The digests of its chunk files, sorted.

        Returns:
            A table of one row.

        Examples:
            >>> len(ManifestChunks.of(bytes(12), np.zeros(0, np.uint64)))
            1
        """
        return cls(id_matrix([manifest]), Ragged.from_lengths(digests, np.array([len(digests)])))

    @staticmethod
    def concat(parts: Iterable[ManifestChunks], expected: int = 0) -> ManifestChunks:
        """Return one table for several tables.

        Args:
            parts: Tables. A generator needs memory for one table at a time.
            expected: The expected number of digests. The result is faster to build if there are not more.

        Returns:
            The rows of all tables.

        Examples:
            >>> len(ManifestChunks.concat([]))
            0
        """
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
        """Return some of the manifests.

        Args:
            keep: One bool for each manifest.

        Returns:
            The manifests whose value is True.

        Examples:
            >>> len(ManifestChunks.empty().select(np.zeros(0, bool)))
            0
        """
        return self if keep.all() else ManifestChunks(self.ids[keep], self.digests.take(keep).compact())
