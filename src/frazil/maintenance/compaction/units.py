"""The units of a compaction: the manifests of an array that are written again together.

Usually a unit is one manifest, and becomes one manifest for the same chunks. If a branch has too many
manifests, all manifests inside of one box of the splitting are a unit, and a manifest that crosses several
boxes is a unit that becomes several manifests. The boxes are those of ``changes.manifests``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

import numpy as np

from frazil.format.columns import U8
from frazil.format.ids import id_list
from frazil.format.snapshot import ManifestFiles, ManifestRef, Node, Snapshot
from frazil.maintenance.compaction.compaction_info import LiveFiles
from frazil.maintenance.compaction.survey import ArrayUse
from frazil.repository.catalog.context import Context
from frazil.repository.session.manifest_files import num_refs, split_of

#: Manifests are written again if there are this many times more of them than boxes.
_TOO_MANY: Final = 4


@dataclass(frozen=True, slots=True)
class Unit:
    """Manifests of one array that are written again together.

    ``split`` is the size of the boxes of the new manifests, in chunks. ``is_cut`` says whether the old
    manifests are not as the splitting wants them.
    """

    node: Node
    old: tuple[ManifestRef, ...]
    split: tuple[int, ...]
    is_cut: bool = False

    @property
    def key(self) -> tuple[bytes, tuple[bytes, ...]]:
        """The array and the old manifests, which identify the content of the unit."""
        return self.node.id, tuple(ref.id for ref in self.old)


@dataclass(frozen=True, slots=True, eq=False)
class Relocation:
    """The result of a unit: its new manifest, and its new chunk files.

    ``manifests`` is empty if the unit has no references. Units of one task share packs. ``bytes_moved`` of
    the first unit counts the bytes of all of them.
    """

    unit: Unit
    manifests: tuple[ManifestRef, ...]
    files: ManifestFiles
    packs: U8
    bytes_moved: int


@dataclass(frozen=True, slots=True, eq=False)
class UnitWork:
    """The work of a unit: the chunk files to leave, and results of earlier attempts for the same array.

    After an earlier attempt, the new references of chunks that did not change since are taken from there.
    """

    unit: Unit
    leave: LiveFiles
    earlier: tuple[Relocation, ...] = ()


@dataclass(frozen=True, slots=True)
class TipArray:
    """An array of a tip, with its units and whether the compaction may move its chunks."""

    node: Node
    units: tuple[Unit, ...]
    is_chosen: bool
    refs: int
    boxes: int


@dataclass(frozen=True, slots=True, eq=False)
class Tip:
    """The newest version of a branch, with its arrays that have manifests."""

    branch: str
    snapshot: Snapshot
    arrays: tuple[TipArray, ...] = field(default=())

    @property
    def manifests(self) -> int:
        """The number of manifests of all arrays."""
        return sum(len(each.node.array.manifests) for each in self.arrays if each.node.array is not None)

    @property
    def has_too_many_manifests(self) -> bool:
        """Whether the arrays have several times as many manifests as the splitting needs."""
        return self.manifests >= _TOO_MANY * max(1, sum(each.boxes for each in self.arrays))


def tip_of(
    context: Context, branch: str, snapshot: Snapshot, arrays: Sequence[str], merges: bool | None
) -> Tip:
    """Return the newest version of a branch, cut into units."""
    nodes = snapshot.nodes.exact()
    tip_arrays: list[TipArray] = []
    for node in map(nodes.node, np.flatnonzero(nodes.is_array & (nodes.manifests.lengths > 0)).tolist()):
        assert node.array is not None
        refs = num_refs(snapshot.manifests, node.array)
        units = tuple(_boxes(node, split_of(context, node, refs)))
        is_chosen = any(fnmatchcase(node.path, pattern) for pattern in arrays)
        tip_arrays.append(TipArray(node, units, is_chosen, refs, len(units)))
    tip = Tip(branch, snapshot, tuple(tip_arrays))
    if merges or (merges is None and tip.has_too_many_manifests):
        return tip
    return Tip(branch, snapshot, tuple(map(_single, tip_arrays)))


def _single(array: TipArray) -> TipArray:
    """Return the array with one unit for each manifest."""
    node = array.node
    assert node.array is not None
    whole = tuple(max(1, count) for count in node.array.num_chunks)
    units = tuple(Unit(node, (ref,), whole) for ref in node.array.manifests)
    return TipArray(node, units, array.is_chosen, array.refs, array.boxes)


def _boxes(node: Node, split: tuple[int, ...]) -> Iterator[Unit]:
    """Yield the manifests of each box. A manifest that crosses boxes is alone."""
    assert node.array is not None
    refs = node.array.manifests
    if not node.array.shape:
        yield Unit(node, tuple(refs), split, len(refs) > 1)
        return
    extents = np.stack([ref.extents for ref in refs]).astype(np.int64)
    low, high = extents[:, :, 0] // np.array(split), (extents[:, :, 1] - 1) // np.array(split)
    is_inside = (low == high).all(axis=1)
    _, number = np.unique(low, axis=0, return_inverse=True)
    number = np.where(is_inside, number.reshape(-1), len(refs) + np.arange(len(refs)))
    order = np.argsort(number, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
        is_cut = len(rows) > 1 or not is_inside[rows[0]]
        yield Unit(node, tuple(refs[row] for row in rows.tolist()), split, is_cut)


def array_uses(tips: Sequence[Tip]) -> dict[bytes, list[ArrayUse]]:
    """Return the arrays that use each manifest."""
    uses: dict[bytes, dict[bytes, ArrayUse]] = {}
    for tip in tips:
        for each in tip.arrays:
            assert each.node.array is not None
            use = ArrayUse(each.node.id, each.node.array.num_chunks, each.is_chosen)
            for ref in each.node.array.manifests:
                uses.setdefault(ref.id, {})[each.node.id] = use
    return {id_: list(by_node.values()) for id_, by_node in uses.items()}


def manifests_of(tip: Tip) -> list[bytes]:
    """Return the ids of the manifests of a tip, each once."""
    return id_list(tip.snapshot.nodes.manifest_ids())
