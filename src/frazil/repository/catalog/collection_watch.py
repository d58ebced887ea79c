"""A watch for garbage collections, for writers that use stored chunks again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.collection_guard import has_collected, newest_update
from frazil.repository.catalog.collection_records import is_collecting
from frazil.storage.base import Storage


@dataclass(slots=True)
class CollectionWatch:
    """A function that tells whether a garbage collection was running since its last call.

    The first call only looks for a running collection. Each call first looks for collections that have
    announced themselves in the storage and have not ended. Then it calls ``read``, which reads the current
    repo info. The order matters: a collection that announces itself later also lists files later, and a
    collection that has ended before has an entry in the ops log.
    """

    read: Callable[[], RepoInfo]
    storage: Storage
    _until: int | None = None

    def __reduce__(self) -> tuple[type[CollectionWatch], tuple[Callable[[], RepoInfo], Storage]]:
        return (CollectionWatch, (self.read, self.storage))

    def __call__(self) -> bool:
        """Return True if there certainly was no collection."""
        under_way = is_collecting(self.storage)
        info = self.read()
        if not len(info.ops):  # spec version 1 has no ops log
            return False
        since, self._until = self._until, newest_update(info)
        # A log that does not reach back to the last call does not count.
        return not under_way and (since is None or has_collected(info, since) is False)
