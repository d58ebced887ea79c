"""The uses of manifests by arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from frazil.format.columns import U8, U32, Ragged
from frazil.format.ids import NODE_ID_BYTES, OBJECT_ID_BYTES, id_keys, id_list


@dataclass(frozen=True, slots=True, eq=False)
class Uses:
    """The uses of manifests by arrays, k rows.

    manifests  uint8 (k, 12)
    nodes      uint8 (k, 8)
    extents    uint32 rows: pairs (from, to)
    snapshots  uint8 (k, 12)  a snapshot with this use
    """

    manifests: U8
    nodes: U8
    extents: Ragged
    snapshots: U8

    @staticmethod
    def union(parts: Sequence[Uses]) -> Uses:
        """Return each use once, with the first extents of a manifest."""
        nothing = np.zeros((0, OBJECT_ID_BYTES), np.uint8), np.zeros((0, NODE_ID_BYTES), np.uint8)
        manifests = np.concatenate([nothing[0], *(part.manifests for part in parts)])
        nodes = np.concatenate([nothing[1], *(part.nodes for part in parts)])
        extents = Ragged.concat([Ragged.empty(0, np.uint32), *(part.extents for part in parts)])
        snapshots = np.concatenate([nothing[0], *(part.snapshots for part in parts)])
        _, first = np.unique(id_keys(np.concatenate([manifests, nodes], axis=1)), return_index=True)
        return Uses(manifests[first], nodes[first], extents.take(first), snapshots[first])

    def _rows(self, manifest: bytes) -> slice:
        """Return the rows of a manifest. Rows are sorted by manifest."""
        keys = id_keys(self.manifests)
        wanted = np.frombuffer(manifest, keys.dtype)
        return slice(*(int(keys.searchsorted(wanted, side)[0]) for side in ("left", "right")))

    def snapshots_of(self, manifest: bytes) -> dict[bytes, bytes]:
        """Return the arrays that refer to a manifest, each with a snapshot that has it."""
        rows = self._rows(manifest)
        return dict(zip(id_list(self.nodes[rows]), id_list(self.snapshots[rows]), strict=True))

    def of(self, manifest: bytes) -> list[tuple[bytes, U32]]:
        """Return the arrays that refer to a manifest, with the box of each."""
        rows = self._rows(manifest)
        nodes = id_list(self.nodes[rows])
        boxes = [self.extents.row(row).reshape(-1, 2) for row in range(rows.start, rows.stop)]
        return list(zip(nodes, boxes, strict=True))
