"""The manifests of an array in a snapshot, as columns.

An array with a hundred million references has thousands of manifests. A commit of one chunk changes one of
them, so it must not make an object for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import U8, U32
from frazil.format.ids import OBJECT_ID_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class ManifestRef:
    """A manifest with references of an array, and the box of chunk coordinates that it covers.

    ``extents`` is uint32 of shape (ndim, 2), half-open. For a scalar array it covers everything.
    """

    id: bytes
    extents: NDArray[np.uint32]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ManifestRef):
            return NotImplemented
        return self.id == other.id and np.array_equal(self.extents, other.extents)

    def __hash__(self) -> int:
        return hash((self.id, self.extents.tobytes()))


@dataclass(frozen=True, slots=True, eq=False)
class ManifestRefs(Sequence[ManifestRef]):
    r"""A sequence of ``ManifestRef``, as columns.

    Attributes:
        ids: uint8 (m, 12).
        extents: uint32 (m, ndim, 2).
    """

    ids: U8
    extents: U32

    @classmethod
    def of(cls, refs: Iterable[ManifestRef], ndim: int) -> ManifestRefs:
        """Return the columns of manifests, for an array with ``ndim`` dimensions."""
        if isinstance(refs, ManifestRefs):
            return refs
        refs = tuple(refs)
        ids = np.frombuffer(b"".join([ref.id for ref in refs]), np.uint8).reshape(len(refs), OBJECT_ID_BYTES)
        boxes = [np.asarray(ref.extents, np.uint32).reshape(-1) for ref in refs]
        flat = np.concatenate([np.zeros(0, np.uint32), *boxes])
        return cls(ids, flat.reshape(len(refs), ndim, 2))

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> ManifestRef: ...
    @overload
    def __getitem__(self, at: slice) -> ManifestRefs: ...
    def __getitem__(self, at: int | slice) -> ManifestRef | ManifestRefs:
        if isinstance(at, slice):
            return self.select_refs(at)
        return ManifestRef(self.ids[at].tobytes(), self.extents[at])

    def __iter__(self) -> Iterator[ManifestRef]:
        ids = np.ascontiguousarray(self.ids).view(f"V{OBJECT_ID_BYTES}").reshape(-1).tolist()
        return map(ManifestRef, ids, self.extents)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ManifestRefs):
            return np.array_equal(self.ids, other.ids) and np.array_equal(self.extents, other.extents)
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def select_refs(self, rows: NDArray[Any] | slice) -> ManifestRefs:
        """Return some of the manifests."""
        return ManifestRefs(self.ids[rows], self.extents[rows])

    def join(self, other: Iterable[ManifestRef]) -> ManifestRefs:
        """Return these manifests and others of the same array."""
        more = ManifestRefs.of(other, self.extents.shape[1])
        return ManifestRefs(
            np.concatenate([self.ids, more.ids]), np.concatenate([self.extents, more.extents])
        )
