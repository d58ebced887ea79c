"""The records of garbage collections under ``collections/``, which announce their deletions.

See ``collection_guard`` for the protocol between collections and commits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from frazil.errors import ConflictError, ErrorKind, StorageError
from frazil.format.columns import U8
from frazil.format.ids import OBJECT_ID_BYTES
from frazil.repository.catalog.leases import LONGEST, ROUNDING
from frazil.repository.clock import from_datetime, now_us
from frazil.repository.markers import new_key, put_marker, read_markers
from frazil.storage.base import Storage

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
