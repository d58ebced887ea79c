"""An array whose manifests are in a dict, updated as a commit does it, beside a dict of references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frazil.changes.change_set import Coords, table_of
from frazil.changes.manifests import KeyWindows, ManifestRewrite, distribute
from frazil.format.manifest import ChunkRef, ChunkTable
from frazil.format.snapshot import ArrayData, ManifestRef

type Edits = Mapping[Any, ChunkRef | None]  # by coordinates
type Plan = tuple[ManifestRewrite, Coords | KeyWindows]


class ModelArray:
    """An array of a grid. ``plan`` returns which manifests a commit reads, and how it divides."""

    def __init__(self, grid: Coords) -> None:
        self.files: dict[bytes, ChunkTable] = {}
        self.data = ArrayData(grid, grid, None)
        self.model: dict[Coords, ChunkRef | None] = {}

    def plan(self, table: ChunkTable, before: Coords) -> Plan:
        raise NotImplementedError

    def commit(self, changes: Edits, grid: Coords | None = None) -> Any:
        """Commit, and return the plan, the tables that were read, and the new manifests."""
        grid, before = grid or self.data.num_chunks, self.data
        self.data = ArrayData(grid, grid, None, before.manifests)
        table = table_of(dict(changes), len(grid))
        rewrite, split = self.plan(table, before.num_chunks)
        old = [self.files[ref.id] for ref in rewrite.read]
        new = distribute(self.data, old, table, split)
        refs = [*rewrite.unchanged, *map(self.store, new)]
        self.data = ArrayData(grid, grid, None, tuple(refs))
        self.model.update(changes)
        self.model = {
            at: ref
            for at, ref in self.model.items()
            if ref and all(a < n for a, n in zip(at, grid, strict=True))
        }
        return rewrite, old, new

    def store(self, table: ChunkTable) -> ManifestRef:
        ref = ManifestRef(len(self.files).to_bytes(12, "big"), table.bounds())
        self.files[ref.id] = table
        return ref

    def check(self) -> None:
        out: dict[Coords, ChunkRef | None] = {}
        for ref in self.data.manifests:
            table = self.files[ref.id]
            for row, at in enumerate(map(tuple, table.index.tolist())):
                assert (ref.extents[:, 0] <= at).all()
                assert (at < ref.extents[:, 1]).all()
                assert at not in out
                out[at] = table.ref(row)
        assert out == self.model
        boxes = [ref.extents.astype(int) for ref in self.data.manifests]
        for i, one in enumerate(boxes):
            for other in boxes[:i]:
                meet = (one[:, 0] < other[:, 1]) & (other[:, 0] < one[:, 1])
                assert not meet.all(), "extents of two manifests overlap"
