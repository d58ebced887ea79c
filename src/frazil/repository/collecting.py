"""What writers have to know of garbage collections: whether one may have met their chunks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from frazil.format.ops_log import UpdateKind
from frazil.format.repo_info import RepoInfo
from frazil.repository.update import LastSeen, read_repo_info
from frazil.storage.base import Storage


@dataclass(slots=True)
class CollectionWatch:
    """Whether a garbage collection was under way since the last call; the first call tells of now.

    One read of the repository's file for each call.
    """

    storage: Storage
    last_seen: LastSeen = field(default_factory=LastSeen, compare=False)
    _until: int | None = None

    def __reduce__(self) -> tuple[type[CollectionWatch], tuple[Storage]]:
        return (CollectionWatch, (self.storage,))

    def __call__(self) -> bool:
        """True if there was none."""
        info = read_repo_info(self.storage, self.last_seen)[0]
        since, self._until = self._until, newest_update(info)
        return not is_collecting(info) and (since is None or not has_collected(info, since))


def newest_update(info: RepoInfo) -> int:
    """Time of the last update, in microseconds since 1970."""
    return int(info.ops.updated_at[0]) if len(info.ops) else 0


def has_collected(info: RepoInfo, since: int) -> bool:
    """Whether a garbage collection may have ended after the update at ``since``."""
    times, kinds = info.ops.updated_at, info.ops.kinds
    # A log that does not reach back tells nothing.
    is_complete = info.repo_before_updates is None or (len(times) > 0 and int(times[-1]) <= since)
    return not is_complete or bool(np.any((kinds == UpdateKind.GC_RAN) & (times > since)))


def is_collecting(info: RepoInfo) -> bool:
    """Whether a garbage collection has announced itself and not ended."""
    return False
