"""Records of garbage collections under ``collections/``: each collection announces what it deletes.

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

#: Ends the key of a record's list: ids, 12 bytes each.
_LIST: Final = ".garbage"
_LONGEST_US: Final = LONGEST.days * 24 * 3600 * 1_000_000


@dataclass(frozen=True, slots=True)
class CollectionRecord:
    """A collection. ``is_listed`` says that its list is complete, ``is_done`` that all in it is deleted."""

    key: str
    is_listed: bool = False
    is_done: bool = False

    @property
    def list_key(self) -> str:
        return self.key + _LIST

    def put(self, storage: Storage) -> None:
        put_marker(storage, self.key, {"listed": self.is_listed, "done": self.is_done})

    def with_list(self, storage: Storage, garbage: U8) -> CollectionRecord:
        """Announce that the chunk files and manifests with these ids, (k, 12), are going to be deleted."""
        storage.put(self.list_key, np.ascontiguousarray(garbage).tobytes())
        record = replace(self, is_listed=True)
        record.put(storage)
        return record

    def garbage(self, storage: Storage) -> U8:
        """Return the ids, (k, 12). Empty if the collection has ended meanwhile."""
        try:
            data = np.frombuffer(storage.get(self.list_key), np.uint8)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            return np.zeros((0, OBJECT_ID_BYTES), np.uint8)
        return data[: len(data) // OBJECT_ID_BYTES * OBJECT_ID_BYTES].reshape(-1, OBJECT_ID_BYTES)

    def is_current(self, storage: Storage) -> bool:
        """Return whether the record still exists: without it the collection may delete nothing."""
        return storage.head(self.key) is not None

    def end(self, storage: Storage, *, leaves_mark: bool) -> None:
        """End the collection: it deletes nothing any more. ``leaves_mark``: one record stays as a mark.

        The record whose key sorts last stays, so that collections that end at the same time do not delete
        each other's marks.
        """
        if not leaves_mark:
            storage.delete([self.key, self.list_key])
            return
        replace(self, is_done=True).put(storage)
        marks = sorted(other.key for other in collection_records(storage) if other.is_done)
        storage.delete([self.list_key, *marks[:-1]])


@dataclass(frozen=True, slots=True)
class Announced:
    """The record of a collection that begins.

    now    time of the storage's clock
    ahead  by how much the storage's clock is ahead of this host's

    Microseconds.
    """

    record: CollectionRecord
    now: int
    ahead: int


def announce(storage: Storage) -> Announced:
    """Put the record of a new collection. Its modification time tells the time of the storage's clock."""
    record = CollectionRecord(new_key(COLLECTIONS))
    before = now_us()
    record.put(storage)
    after = now_us()
    stored_record = storage.head(record.key)
    stored = from_datetime(stored_record.modified) if stored_record is not None else before
    return Announced(record, stored, clock_ahead(before, stored, after))


def clock_ahead(before: int, stored: int, after: int) -> int:
    """How far a storage's clock is ahead of a host's: ``stored`` is the storage's time of something that
    happened between two times of the host. Differences below two seconds count as none.

    >>> clock_ahead(10_000_000, 10_500_000, 11_000_000), clock_ahead(10_000_000, 99_000_000, 11_000_000)
    (0, 88000000)
    """
    if stored < before - ROUNDING:
        return stored - before
    return stored - after if stored > after + ROUNDING else 0


def collection_records(storage: Storage) -> list[CollectionRecord]:
    """Return all collections that run, have been killed, or have left a mark."""
    return [
        CollectionRecord(marker.key, bool(marker.content.get("listed")), bool(marker.content.get("done")))
        for marker in read_markers(storage, COLLECTIONS, ignored=_LIST)
    ]


def delete_killed_records(storage: Storage, now: int) -> None:
    """Delete what collections have left that were killed long before ``now``, a time of the storage's clock:
    no session lives so long.
    """
    marks = {record.key for record in collection_records(storage) if record.is_done}
    old = [info.key for info in storage.list(COLLECTIONS) if from_datetime(info.modified) + _LONGEST_US < now]
    if killed := [key for key in old if key not in marks]:
        storage.delete(killed)


def is_collecting(storage: Storage) -> bool:
    """Whether a collection has announced itself and not ended: what is in the storage now may be deleted in a
    moment.
    """
    return any(not record.is_done for record in collection_records(storage))


def require_none_running(storage: Storage) -> None:
    """``ConflictError`` (``garbage-collection-running``) while a collection has announced itself and not
    ended.
    """
    if running := [record.key for record in collection_records(storage) if not record.is_done]:
        raise ConflictError(
            message="garbage is collected at this moment, and may delete what is to be used again: repeat "
            f"this when the collection is done. If it was killed, delete `{running[0]}` first",
            kind=ErrorKind.GARBAGE_COLLECTION_RUNNING,
        )
