"""What writers have to know of garbage collections: whether one may have met their chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from frazil.format.ops_log import UpdateKind
from frazil.format.repo_info import RepoInfo
from frazil.repository.in_use import is_collecting
from frazil.storage.base import Storage


@dataclass(slots=True)
class CollectionWatch:
    """Whether a garbage collection was under way since the last call; the first call tells of now.

    ``read`` reads the repository as it is now, once for each call; before that it is asked whether a
    collection has announced itself in the storage, and not ended. In this order: one that announces itself
    later lists files later, and one that has ended has left its entry in the log.
    """

    read: Callable[[], RepoInfo]
    storage: Storage
    _until: int | None = None

    def __reduce__(self) -> tuple[type[CollectionWatch], tuple[Callable[[], RepoInfo], Storage]]:
        return (CollectionWatch, (self.read, self.storage))

    def __call__(self) -> bool:
        """True if there certainly was none."""
        under_way = is_collecting(self.storage)
        info = self.read()
        if not len(info.ops):  # spec version 1 keeps no log
            return False
        since, self._until = self._until, int(info.ops.updated_at[0])
        return not under_way and (since is None or not has_collected(info, since))


def has_collected(info: RepoInfo, since: int) -> bool:
    """Whether a garbage collection may have ended after the update at ``since``, microseconds since 1970."""
    times, kinds = info.ops.updated_at, info.ops.kinds
    # A log that does not reach back tells nothing.
    is_complete = info.repo_before_updates is None or int(times[-1]) <= since
    return not is_complete or bool(np.any((kinds == UpdateKind.GC_RAN) & (times > since)))
