"""Manifests that earlier attempts of the same commit have stored.

A later attempt uses such a manifest again if it would write the same content: the edits of the array are
equal, and the old manifests that the commit merges with the edits are the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from frazil.changes.manifests import ManifestRewrite, Split
from frazil.format.manifest import ChunkTable, Manifest
from frazil.format.snapshot import ArrayData, ManifestRef, Node


@dataclass(frozen=True, slots=True)
class NewManifest:
    """The part of one array in a manifest file that a commit has stored.

    ``ref`` has the box of the array. ``size`` is the size of the whole file in bytes.
    """

    node_id: bytes
    ref: ManifestRef
    manifest: Manifest
    size: int

    @property
    def num_refs(self) -> int:
        """The number of references in the whole file."""
        return sum(map(len, self.manifest.arrays.values()))


@dataclass(frozen=True, slots=True, eq=False)
class ManifestUpdate:
    """An array whose manifests a commit updates, with its edits, its split, and the old manifests to read."""

    node: Node
    array: ArrayData
    edits: ChunkTable
    split: Split
    rewrite: ManifestRewrite

    @property
    def inputs(self) -> tuple[object, ...]:
        """The inputs that determine the content of the new manifests, except for the edits."""
        return (self.array.num_chunks, self.split, tuple(ref.id for ref in self.rewrite.read))


@dataclass(frozen=True, slots=True)
class _AttemptResult:
    """The manifests of one array in one attempt, and the inputs that determine their content."""

    inputs: tuple[object, ...]
    edits: ChunkTable
    manifests: tuple[NewManifest, ...]


class EarlierManifests:
    """The manifests that earlier attempts of one commit have stored, by array."""

    def __init__(self) -> None:
        self._stored: dict[bytes, _AttemptResult] = {}
        self._pending: dict[bytes, _AttemptResult] = {}

    def find_manifests(self, update: ManifestUpdate) -> tuple[NewManifest, ...] | None:
        """Return stored manifests with the content of this update, or None."""
        stored = self._stored.get(update.node.id)
        if stored is None or stored.inputs != update.inputs or not stored.edits.equals(update.edits):
            return None
        return stored.manifests

    def add_manifests(self, update: ManifestUpdate, manifests: Iterable[NewManifest]) -> None:
        """Record manifests whose upload has begun. The caller calls ``confirm_stored`` afterwards."""
        self._pending[update.node.id] = _AttemptResult(update.inputs, update.edits, tuple(manifests))

    def confirm_stored(self) -> None:
        """Record that all added manifests are durable."""
        self._stored |= self._pending
        self._pending = {}

    def forget_manifests(self) -> None:
        """Forget all manifests: a garbage collection may have deleted them."""
        self._stored, self._pending = {}, {}
