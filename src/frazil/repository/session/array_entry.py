"""One array, prepared for lookups of its references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_changes import ChunkChanges, Coords
from frazil.format.snapshot import Node


@dataclass(frozen=True, slots=True, eq=False)
class ArrayEntry:
    """An array with its edits, newest first, and the half-open boxes of its manifests."""

    node: Node
    edits: tuple[ChunkChanges, ...]
    lows: list[list[int]]
    highs: list[list[int]]

    @staticmethod
    def of(node: Node, layers: Sequence[ChangeSet]) -> ArrayEntry | None:
        """Return the entry of a node, with its edits in ``layers``, or None for a group."""
        if node.array is None:
            return None
        edits = [layer.chunks.get(node.id) for layer in layers]
        boxes = [ref.extents for ref in node.array.manifests]
        return ArrayEntry(
            node,
            tuple(each for each in edits if each is not None),
            [box[:, 0].tolist() for box in boxes],
            [box[:, 1].tolist() for box in boxes],
        )

    def manifests_at(self, coords: Coords) -> list[int]:
        """Return the numbers of the manifests whose box contains the coordinates."""
        return [
            number
            for number, (low, high) in enumerate(zip(self.lows, self.highs, strict=True))
            if len(low) == len(coords) and all(a <= c < b for a, c, b in zip(low, coords, high, strict=True))
        ]
