"""The protocol between garbage collections and commits, which is safe for any cut-off and any clocks.

A collection deletes files that were modified before its cut-off and that no version refers to. An uncommitted
file of a session is such a file, unless the cut-off is earlier than the start of the session. Sessions with
forks take leases, which protect their files (``leases``). The following protocol makes every commit safe:

*The collection announces its deletions.* It puts a record under ``collections/`` before it lists files. Then
it puts a list of all chunk files and manifests that it is going to delete. Then it adds its entry to the ops
log, deletes the listed files, and deletes the record.

*The commit checks for collections.* The collection adds its entry, and the commit moves its branch, with
conditional writes of the same file. So one of them is first. If the commit is first, the collection sees it,
and makes its list again. If the entry is first, the commit finds it in the ops log, after the entry that was
the newest when the session was opened. Then the commit reads the lists of all running collections. After
that, it requests each chunk file that it is going to refer to:

    a file is missing               It was collected. The commit is refused for good.
    a file is in one of the lists   It will be deleted. The commit is refused, and can be retried later.
    otherwise                       The file is safe. A later collection adds another entry. The conditional
                                    write of the commit then fails, and the commit checks again.

No step compares times of different clocks. The times in the ops log are sequence numbers: every writer makes
an entry that is later than the entry before it.

*Spec version 1* has no ops log. There a collection writes every branch again after it has put its list. Only
the version of the file changes, which conditional writes compare. So a commit that has read its branch before
must check again. A flush makes no conditional write. It checks once more after its snapshot is stored, and
the collection reads all snapshots after it has put its list. So one of them sees the other. The last record
stays as a mark that there was a collection. While there is a mark, every commit makes the check.

Other implementations leave an entry in the ops log, but no list and no record. After such an entry, a commit
requests its files. It cannot know whether the collection has ended.

See ``collection_guard`` for the protocol between collections and commits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from frazil.display import counted
from frazil.errors import ConflictError, ErrorKind, SessionStateError, StorageError
from frazil.format.columns import U8
from frazil.format.ids import CHUNKS, MANIFESTS, OBJECT_ID_BYTES, id_keys, ids_to_text
from frazil.format.repo_info import RepoInfo, UpdateKind
from frazil.repository.catalog.leases import LONGEST, ROUNDING, new_key, put_marker, read_markers
from frazil.repository.catalog.repo_update import (
    ConditionalChange,
    RepoChange,
    RepoUpdate,
    newest_update,
    older_ops_backup,
)
from frazil.repository.clock import from_datetime, now_us
from frazil.storage.base import Storage
from frazil.threads import Purpose, map_bounded

COLLECTIONS: Final = "collections"

#: The suffix of the key of a record's list. The list has ids of 12 bytes each.
_LIST: Final = ".garbage"
_LONGEST_US: Final = LONGEST.days * 24 * 3600 * 1_000_000


@dataclass(frozen=True, slots=True)
class CollectionRecord:
    """The record of a collection.

    ``is_listed`` says that its list is complete, ``is_done`` that all files in the list are deleted.
    """

    key: str
    is_listed: bool = False
    is_done: bool = False

    @property
    def list_key(self) -> str:
        """The key of the list of the files to delete."""
        return self.key + _LIST

    def put(self, storage: Storage) -> None:
        """Store the record."""
        put_marker(storage, self.key, {"listed": self.is_listed, "done": self.is_done})

    def with_list(self, storage: Storage, garbage: U8) -> CollectionRecord:
        """Store the list of the chunk files and manifests to delete, ids of shape (k, 12)."""
        storage.put(self.list_key, np.ascontiguousarray(garbage).tobytes())
        record = replace(self, is_listed=True)
        record.put(storage)
        return record

    def garbage(self, storage: Storage) -> U8:
        """Return the ids in the list, shape (k, 12). Empty if the collection has ended in the meantime."""
        try:
            data = np.frombuffer(storage.get(self.list_key), np.uint8)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            return np.zeros((0, OBJECT_ID_BYTES), np.uint8)
        return data[: len(data) // OBJECT_ID_BYTES * OBJECT_ID_BYTES].reshape(-1, OBJECT_ID_BYTES)

    def is_current(self, storage: Storage) -> bool:
        """Return whether the record still exists. Without it, the collection must not delete files."""
        return storage.head(self.key) is not None

    def end(self, storage: Storage, *, leaves_mark: bool) -> None:
        """End the collection, which deletes no more files. With ``leaves_mark``, one record stays as a mark.

        The record whose key sorts last stays. So collections that end at the same time do not delete each
        other's marks.
        """
        if not leaves_mark:
            storage.delete([self.key, self.list_key])
            return
        replace(self, is_done=True).put(storage)
        marks = sorted(other.key for other in collection_records(storage) if other.is_done)
        storage.delete([self.list_key, *marks[:-1]])


@dataclass(frozen=True, slots=True)
class StartedCollection:
    """The record of a collection that begins.

    ``now`` is the time of the storage's clock. ``ahead`` is how far the storage's clock is ahead of this
    host's clock. Both are in microseconds.
    """

    record: CollectionRecord
    now: int
    ahead: int


def announce(storage: Storage) -> StartedCollection:
    """Store the record of a new collection. Its modification time is the time of the storage's clock."""
    record = CollectionRecord(new_key(COLLECTIONS))
    before = now_us()
    record.put(storage)
    after = now_us()
    stored_record = storage.head(record.key)
    stored = from_datetime(stored_record.modified) if stored_record is not None else before
    return StartedCollection(record, stored, clock_ahead(before, stored, after))


def clock_ahead(before: int, stored: int, after: int) -> int:
    """Return how far a storage's clock is ahead of the host's clock, in microseconds.

    ``stored`` is the storage's time of a write between the times ``before`` and ``after`` of the host. A
    difference of less than two seconds counts as zero.
    """
    if stored < before - ROUNDING:
        return stored - before
    return stored - after if stored > after + ROUNDING else 0


def collection_records(storage: Storage) -> list[CollectionRecord]:
    """Return the records of collections that run, were killed, or have left a mark."""
    return [
        CollectionRecord(marker.key, bool(marker.content.get("listed")), bool(marker.content.get("done")))
        for marker in read_markers(storage, COLLECTIONS, ignored=_LIST)
    ]


def delete_killed_records(storage: Storage, now: int, *, with_marks: bool = False) -> None:
    """Delete the records of collections that were killed long before ``now``, a time of the storage's clock.

    They are older than any session can be. Marks belong to spec version 1. ``with_marks`` deletes old marks,
    too: an upgrade leaves them behind.
    """
    records = [] if with_marks else collection_records(storage)
    marks = {record.key for record in records if record.is_done}
    old = [info.key for info in storage.list(COLLECTIONS) if from_datetime(info.modified) + _LONGEST_US < now]
    if killed := [key for key in old if key not in marks]:
        storage.delete(killed)


def is_collecting(storage: Storage) -> bool:
    """Return whether a collection has announced itself and has not ended. It may delete files at any time."""
    return any(not record.is_done for record in collection_records(storage))


def require_none_running(storage: Storage) -> None:
    """Raise ``ConflictError`` (``garbage-collection-running``) while a collection runs."""
    if running := [record.key for record in collection_records(storage) if not record.is_done]:
        raise ConflictError(
            message="a garbage collection is running, and may delete files that this operation needs. Repeat "
            f"the operation when the collection has ended. If it was killed, delete `{running[0]}` first",
            kind=ErrorKind.GARBAGE_COLLECTION_RUNNING,
        )


# The ops log


def has_collected(info: RepoInfo, update: int) -> bool | None:
    """Return whether a garbage collection ran after the update at the time ``update``.

    None means that the log in ``info`` does not reach back to this update. The function searches for exactly
    this time. So it never confuses an entry that was dropped or replaced, because the repository was restored
    from a backup, with an older entry.
    """
    at = np.flatnonzero(info.ops.updated_at == update)
    newer = info.ops.kinds[: int(at[-1]) if len(at) else len(info.ops)]
    if (newer == UpdateKind.GC_RAN).any():
        return True
    return False if len(at) else None


def _has_collected(storage: Storage, info: RepoInfo, update: int) -> bool:
    """Return ``has_collected`` with the older parts of the log. True if the log does not tell."""
    while (collected := has_collected(info, update)) is None:
        try:
            older = older_ops_backup(storage, info)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            return True
        if older is None:
            return True
        info = older
    return collected


# Commits


@dataclass(frozen=True, slots=True)
class SessionStart:
    """The start of a session, in microseconds since 1970.

    ``update`` is the time of the newest update of the repository when the session was opened. No chunk file
    of the session is older than ``since``, by this host's clock.
    """

    update: int
    since: int


@dataclass(frozen=True, slots=True, eq=False)
class RequiredFiles:
    """The ids of older chunk files and manifests that a commit refers to, shape (k, 12)."""

    chunks: U8
    manifests: U8

    def with_manifests(self, ids: U8) -> RequiredFiles:
        """Return these files and more manifests."""
        return replace(self, manifests=np.concatenate([self.manifests, ids]))

    def keys(self) -> list[str]:
        """Return the keys of all files."""
        return [
            *(f"{CHUNKS}/{name}" for name in ids_to_text(self.chunks)),
            *(f"{MANIFESTS}/{name}" for name in ids_to_text(self.manifests)),
        ]


def is_uncollected(storage: Storage, info: RepoInfo, update: int, files: Callable[[], RequiredFiles]) -> bool:
    """Check that no garbage collection has deleted, or will delete, the files of a commit.

    Return True if there was no collection, and False if there was one: it may have deleted files that earlier
    attempts have stored.

    ``update`` was the newest update when the session was opened. ``files`` makes the files of the commit
    durable and returns them. Raises ``SessionStateError`` (``garbage-collected``) if a file was deleted.
    Raises ``ConflictError`` (``garbage-collection-running``) if a collection will delete a file; the commit
    can be retried later.
    """
    if info.spec_version > 1:
        if not _has_collected(storage, info, update):
            return True
    elif not collection_records(storage):
        return True
    needed = files()
    # The lists come first. A collection that ends in between has deleted its files before the requests below.
    running = [
        each.garbage(storage) for each in collection_records(storage) if each.is_listed and not each.is_done
    ]
    keys = needed.keys()
    exists = map_bounded(Purpose.FILE_CHECKS, lambda key: storage.head(key) is not None, keys)
    if not all(exists):
        lost = [key for key, is_stored in zip(keys, exists, strict=True) if not is_stored]
        raise SessionStateError(
            f"garbage collection deleted {counted(len(lost), 'file')} that this session refers to, such as "
            f"`{lost[0]}`. Its cut-off was later than the start of the session, or the version of the files "
            "was expired or dropped. Write the data again in a new session",
            ErrorKind.GARBAGE_COLLECTED,
        )
    ids = id_keys(np.concatenate([needed.chunks, needed.manifests]))
    if any(np.isin(ids, id_keys(garbage)).any() for garbage in running):
        raise ConflictError(
            message="a garbage collection is running, and is going to delete files that this session refers "
            "to. The session keeps its changes. Commit again when the collection has ended. If the "
            "collection was killed, write the data again in a new session",
            kind=ErrorKind.GARBAGE_COLLECTION_RUNNING,
        )
    return False


def unless_collected(change: RepoChange, before: RepoInfo) -> ConditionalChange:
    """Return a change that gives up after a garbage collection.

    It returns None if a collection has run since ``before`` was read, or may have run.
    """
    until = newest_update(before)

    def conditional(info: RepoInfo, now: int) -> RepoUpdate | None:
        if len(info.ops) and has_collected(info, until) is not False:
            return None
        return change(info, now)

    return conditional


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
