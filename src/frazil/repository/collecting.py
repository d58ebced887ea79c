"""What writers have to know of garbage collections: whether one may have met their chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from frazil.format.ops_log import UpdateKind
from frazil.format.repo_info import RepoInfo


@dataclass(slots=True)
class CollectionWatch:
    """Whether a garbage collection was under way since the last call; the first call tells of now.

    ``read`` reads the repository as it is now, once for each call.
    """

    read: Callable[[], RepoInfo]
    _until: int | None = None

    def __reduce__(self) -> tuple[type[CollectionWatch], tuple[Callable[[], RepoInfo]]]:
        return (CollectionWatch, (self.read,))

    def __call__(self) -> bool:
        """True if there certainly was none."""
        info = self.read()
        if not len(info.ops):  # spec version 1 keeps no log
            return False
        since, self._until = self._until, int(info.ops.updated_at[0])
        return not is_collecting(info) and (since is None or not has_collected(info, since))


def has_collected(info: RepoInfo, since: int) -> bool:
    """Whether a garbage collection may have ended after the update at ``since``, microseconds since 1970."""
    times, kinds = info.ops.updated_at, info.ops.kinds
    # A log that does not reach back tells nothing.
    is_complete = info.repo_before_updates is None or int(times[-1]) <= since
    return not is_complete or bool(np.any((kinds == UpdateKind.GC_RAN) & (times > since)))


def is_collecting(info: RepoInfo) -> bool:
    """Whether a garbage collection has announced itself and not ended."""
    return False
