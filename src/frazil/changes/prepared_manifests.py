"""Manifests that workers have written for a change set.

A commit with very many references does not send them through one process. Workers write whole manifests of an
array, with the old and the new references. They return a ``PreparedManifests``, a few bytes for each
manifest. The commit puts it into the snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from frazil.format.columns import U32
from frazil.format.snapshot import ManifestFiles, ManifestRef


@dataclass(frozen=True, slots=True, eq=False)
class PreparedManifests:
    """All manifests of an array after a commit.

    Attributes:
        path: The path of the array.
        manifests: All manifests of the array, unchanged manifests included.
        files: The sizes and counts of these files.
        index: The coordinates of all references that were set or deleted, for the transaction log; uint32 of
            shape (k, ndim), sorted. None for an array that the same change set creates.
    """

    path: str
    manifests: Sequence[ManifestRef]
    files: ManifestFiles
    index: U32 | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled copy is in a fork, which writes no log.
        index = None if self.index is None else self.index[:0]
        return (PreparedManifests, (self.path, self.manifests, self.files, index))

    def log(self) -> U32:
        """Return the coordinates for the transaction log."""
        return np.zeros((0, 0), np.uint32) if self.index is None else self.index
