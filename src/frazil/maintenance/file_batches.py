"""Files in batches, as items of work. The work of an item takes some time and fits into memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from frazil.format.ids import id_list
from frazil.format.snapshot import ManifestFiles

#: Limits of one item: references, manifests, and snapshots.
_REFS: Final = 1 << 20
_MANIFESTS: Final = 200
_SNAPSHOTS: Final = 200


def snapshot_batches[T](rows: Sequence[T], size: int = _SNAPSHOTS) -> list[Sequence[T]]:
    """Return rows in batches. Each row costs one or two requests."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def manifest_batches(manifests: ManifestFiles, *, with_sizes: bool = False) -> list[list[Any]]:
    """Return the ids of manifests in batches with a limited number of references."""
    rows: list[Any] = id_list(manifests.ids)
    if with_sizes:
        rows = list(zip(rows, manifests.size_bytes.tolist(), manifests.num_chunk_refs.tolist(), strict=True))
    weights = np.maximum(manifests.num_chunk_refs.astype(np.int64), _REFS // _MANIFESTS)
    cuts = (np.flatnonzero(np.diff(np.cumsum(weights) // _REFS)) + 1).tolist()
    pairs = zip([0, *cuts], [*cuts, len(rows)], strict=True)
    return [rows[low:high] for low, high in pairs if high > low]
