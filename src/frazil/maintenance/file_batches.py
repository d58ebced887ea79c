"""Files as items of work: so many that the work of one item takes a while, and fits into memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from frazil.format.ids import id_list
from frazil.format.snapshot import ManifestFiles

#: References of the manifests of one item, and the most manifests or snapshots in it.
_REFS: Final = 1 << 20
_MANIFESTS: Final = 200
_SNAPSHOTS: Final = 200


def snapshot_batches[T](rows: Sequence[T], size: int = _SNAPSHOTS) -> list[Sequence[T]]:
    """Rows that each cost a request or two."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def manifest_batches(manifests: ManifestFiles, *, with_sizes: bool = False) -> list[list[Any]]:
    """Manifests: their ids, or ids, sizes and counts."""
    rows: list[Any] = id_list(manifests.ids)
    if with_sizes:
        rows = list(zip(rows, manifests.size_bytes.tolist(), manifests.num_chunk_refs.tolist(), strict=True))
    weights = np.maximum(manifests.num_chunk_refs.astype(np.int64), _REFS // _MANIFESTS)
    cuts = (np.flatnonzero(np.diff(np.cumsum(weights) // _REFS)) + 1).tolist()
    pairs = zip([0, *cuts], [*cuts, len(rows)], strict=True)
    return [rows[low:high] for low, high in pairs if high > low]
