"""Finds the files of a call that the ledger of the group has, unchanged or with other contents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frazil.pipeline.ingest.arrays import read_labels
from frazil.pipeline.ingest.axis import positions
from frazil.pipeline.ingest.dataset import Dataset
from frazil.pipeline.ingest.existing import ExistingGroup
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.ledger import Ledger
from frazil.pipeline.ingest.options import IngestRequest


@dataclass(frozen=True, slots=True)
class LedgerMatch:
    """Masks with an entry for each file.

    ``unchanged`` files were ingested with their present contents, ``changed`` files with other contents.
    ``touched`` files are those of the changed files that differ only in their modification time, as far as
    their size and both ends show: they were copied, or changed in the middle.
    """

    unchanged: NDArray[np.bool_]
    changed: NDArray[np.bool_]
    touched: NDArray[np.bool_]


def match_ledger(
    request: IngestRequest, inspection: Inspection, ledger: Ledger, existing: ExistingGroup
) -> LedgerMatch:
    """Compare the files of a call with the ledger of the group."""
    rows = ledger.rows_of(inspection.urls)
    recorded, opened = rows >= 0, inspection.layout >= 0
    unchanged, changed, touched = (np.zeros_like(recorded) for _ in range(3))
    if recorded.any():
        same = recorded & (ledger.fingerprint[rows] == inspection.fingerprint).all(axis=1)
        changed = recorded & ~same & ~ledger.quarantined[rows] & opened
        touched = changed & (ledger.contents[rows] == inspection.contents).all(axis=1)
        unchanged = same if ledger.covers(request.variables) else unchanged
    candidates = ~recorded & opened
    # References have to follow a moved file, but copies do not.
    if len(ledger) and not request.virtual:
        moved = candidates & ledger.has_any("fingerprint", inspection.fingerprint)
        moved = _with_stored_labels(inspection, moved, existing)
        # Other modes write stored labels again.
        is_append = request.mode == "append"
        copied = candidates & ~moved & is_append & ledger.has_any("contents", inspection.contents)
        copied = _with_stored_labels(inspection, copied, existing)
        unchanged, changed, touched = unchanged | moved, changed | copied, touched | copied
    return LedgerMatch(unchanged, changed, touched)


def _with_stored_labels(
    inspection: Inspection, files: NDArray[np.bool_], existing: ExistingGroup
) -> NDArray[np.bool_]:
    """Return a mask of those of ``files`` (a mask) whose labels the group has; of all without labels."""
    if not files.any() or inspection.dim is None:
        return files
    dataset = Dataset.labelled(inspection, files, existing.stored_variables())
    steps = dataset.steps
    if steps.labels is None:
        return files & dataset.good
    if inspection.dim not in existing.arrays:
        return np.zeros_like(files)
    stored = positions(read_labels(existing.arrays[inspection.dim]), steps.labels) >= 0
    before = np.concatenate(([0], np.cumsum(stored)))
    complete = before[steps.start[1:]] - before[steps.start[:-1]] == steps.counts
    matches: NDArray[np.bool_] = files & complete & dataset.good
    return matches
