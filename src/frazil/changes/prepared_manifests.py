"""Manifests that somebody else has written for a change set.

A commit of very many references does not pass them through one process: workers write the manifests of an
array, whole ones, of what was there before and what is new. What comes back is this, a few bytes for each
manifest; the commit puts it into the snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from frazil.format.columns import U32
from frazil.format.snapshot import ManifestFiles, ManifestRef


@dataclass(frozen=True, slots=True, eq=False)
class PreparedManifests:
    """All manifests that an array has then.

    path       the array's
    manifests  what its node refers to, old manifests that stay included
    files      sizes and counts of these files
    index      coordinates, uint32 (k, ndim), sorted, of all references that were set or deleted, for the log;
               None for an array that the same change set creates: nobody can have changed it meanwhile
    """

    path: str
    manifests: tuple[ManifestRef, ...]
    files: ManifestFiles
    index: U32 | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Those who get it in a pickle (forks) write no log.
        index = None if self.index is None else self.index[:0]
        return (PreparedManifests, (self.path, self.manifests, self.files, index))

    def log(self) -> U32:
        """What the log has of it."""
        return np.zeros((0, 0), np.uint32) if self.index is None else self.index
