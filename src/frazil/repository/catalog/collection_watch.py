"""A watch on garbage collections for writers that use stored chunks again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.collection_guard import has_collected, newest_update
from frazil.repository.catalog.collection_records import is_collecting
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
        since, self._until = self._until, newest_update(info)
        # A log that does not reach back tells nothing.
        return not under_way and (since is None or has_collected(info, since) is False)
