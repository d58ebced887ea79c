"""The history of a snapshot as columns."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.ids import id_texts
from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.repo_requirements import require_snapshot

_LAST_US: Final = np.uint64(2**63 - 1)


def ancestry_columns(info: RepoInfo, id_: bytes) -> dict[str, NDArray[Any]]:
    """Return the snapshot and all its ancestors, newest first, as columns. See ``history.log``."""
    snapshots = info.snapshots
    rows = snapshots.chain(require_snapshot(info, id_))
    ids = id_texts(snapshots.ids()[rows])
    times = snapshots.flushed_at()[rows]
    messages = np.empty(len(rows), object)
    messages[:] = snapshots.messages(rows)
    return {
        "id": ids,
        "parent_id": np.append(ids[1:], ""),
        # A time that does not fit in 63 bits becomes the last time.
        "written_at": np.minimum(times, _LAST_US).astype("datetime64[us]"),
        "message": messages,
    }
