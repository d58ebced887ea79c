"""Finds the files of a call that the ledger of the group has, unchanged or with other contents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frazil.pipeline.ingest.arrays import read_labels
from frazil.pipeline.ingest.axis import positions
from frazil.pipeline.ingest.existing import ExistingGroup
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.ledger import Ledger
from frazil.pipeline.ingest.options import IngestRequest
from frazil.pipeline.ingest.reconcile import labels_of_files


@dataclass(frozen=True, slots=True)
class LedgerMatch:
    """Masks with an entry for each file.

    ``unchanged`` files were ingested with their present contents, ``changed`` files with other contents.
    """

    unchanged: NDArray[np.bool_]
    changed: NDArray[np.bool_]


def match_ledger(
    request: IngestRequest, inspection: Inspection, ledger: Ledger, existing: ExistingGroup
) -> LedgerMatch:
    """Compare the files of a call with the ledger of the group."""
    rows = ledger.rows_of(inspection.urls)
    recorded = rows >= 0
    if not recorded.any():
        unchanged, changed = recorded, recorded.copy()
    else:
        same = recorded & (ledger.fingerprint[rows] == inspection.fingerprint).all(axis=1)
        changed = recorded & ~same & ~ledger.quarantined[rows] & (inspection.layout >= 0)
        unchanged = same if ledger.covers(request.variables) else np.zeros_like(same)
    candidates = ~recorded & (inspection.layout >= 0)
    moved = _moved(request, inspection, candidates, ledger, existing)
    return LedgerMatch(unchanged | moved, changed)


def _moved(
    request: IngestRequest,
    inspection: Inspection,
    candidates: NDArray[np.bool_],
    ledger: Ledger,
    existing: ExistingGroup,
) -> NDArray[np.bool_]:
    """Return a mask of the ``candidates`` (a mask) that were ingested under another name.

    These files were moved, or are named by another path. The group must have all their labels. An ingest of
    references returns none: references have to follow a moved file, but copies do not.
    """
    if request.virtual or not candidates.any() or not len(ledger):
        return np.zeros_like(candidates)
    candidates = candidates & ledger.has_contents(inspection.fingerprint)
    if not candidates.any() or inspection.dim is None:
        return candidates
    steps, unusable = labels_of_files(inspection, candidates, existing.stored_variables())
    if steps is None or steps.labels is None:
        return candidates
    if inspection.dim not in existing.arrays:
        return np.zeros_like(candidates)
    stored = positions(read_labels(existing.arrays[inspection.dim]), steps.labels) >= 0
    before = np.concatenate(([0], np.cumsum(stored)))
    complete = before[steps.start[1:]] - before[steps.start[:-1]] == steps.counts
    moved: NDArray[np.bool_] = candidates & complete & ~unusable
    return moved
