"""How garbage collections and commits keep out of each other's way, with any limit and any clocks.

A collection deletes files that were modified before its limit and that no version refers to. What a session
has written and not committed is such a file, unless the limit is older than the session. Sessions with forks
hold leases, which spare their files (``leases``). Every commit is safe by the following protocol:

*The collection announces what it deletes.* It puts a record under ``collections/`` before it lists files. It
adds the list of all chunk files and manifests that it is going to delete. Then it makes its entry in the ops
log, deletes what is in the list, and deletes the record.

*The commit looks back.* The entry in the ops log and a commit are made by the same conditional write, one
after the other. If the commit is first, the collection sees it, and computes its list again. If the entry is
first, the commit finds it in the ops log, behind the entry that was the newest when its session was opened.
Then the commit reads the lists of all collections that still run, and after that asks for each chunk file
that it is about to refer to, in this order:

    a file is missing               it was collected: the commit is refused for good
    a file is in one of the lists   it is about to be deleted: the commit is refused, to be tried again
    neither                         nobody deletes it: a later collection makes an entry of its own, the
                                    conditional write of the commit fails, and the commit looks back again

No step compares times of different clocks. The times in the ops log serve as sequence numbers: every writer
makes an entry later than the one before.

*Spec version 1* has no ops log. There a collection writes every branch again after it has put its list,
unchanged but for the version that conditional writes compare, so a commit that has read its branch before
must look back again. A flush writes nothing conditional: it looks back once more when its snapshot is there,
and the collection reads all snapshots after it has put its list, so one of them sees the other. The last
record stays as a mark that there was a collection, and while there is one every commit looks back.

Other implementations leave an entry in the ops log, and neither list nor record. After such an entry a
commit asks for its files; it cannot know whether the collection is over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from frazil.errors import ConflictError, ErrorKind, SessionStateError, StorageError
from frazil.format.columns import U8
from frazil.format.ids import OBJECT_ID_BYTES, id_keys, ids_to_text
from frazil.format.keys import CHUNKS, MANIFESTS
from frazil.format.repo_info import RepoInfo, UpdateKind
from frazil.repository.catalog.files import before
from frazil.repository.catalog.leases import LONGEST, ROUNDING
from frazil.repository.catalog.repo_update import Change, Changed
from frazil.repository.clock import from_datetime, now_us
from frazil.repository.markers import new_key, put_marker, read_markers
from frazil.storage.base import Storage
from frazil.threads import Purpose, map_bounded

COLLECTIONS: Final = "collections"

#: Ends the key of a record's list: ids, 12 bytes each.
_LIST: Final = ".garbage"
_LONGEST_US: Final = LONGEST.days * 24 * 3600 * 1_000_000


# Records of collections


@dataclass(frozen=True, slots=True)
class Record:
    """A collection. ``is_listed`` says that its list is complete, ``is_done`` that all in it is deleted."""

    key: str
    is_listed: bool = False
    is_done: bool = False

    @property
    def list_key(self) -> str:
        return self.key + _LIST

    def put(self, storage: Storage) -> None:
        put_marker(storage, self.key, {"listed": self.is_listed, "done": self.is_done})

    def with_list(self, storage: Storage, garbage: U8) -> Record:
        """Announce that the chunk files and manifests with these ids, (k, 12), are going to be deleted."""
        storage.put(self.list_key, np.ascontiguousarray(garbage).tobytes())
        record = replace(self, is_listed=True)
        record.put(storage)
        return record

    def garbage(self, storage: Storage) -> U8:
        """The ids, (k, 12). Empty if the collection has ended meanwhile."""
        try:
            data = np.frombuffer(storage.get(self.list_key), np.uint8)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            return np.zeros((0, OBJECT_ID_BYTES), np.uint8)
        return data[: len(data) // OBJECT_ID_BYTES * OBJECT_ID_BYTES].reshape(-1, OBJECT_ID_BYTES)

    def is_current(self, storage: Storage) -> bool:
        """Whether it is still there: without it nothing may be deleted."""
        return storage.head(self.key) is not None

    def end(self, storage: Storage, *, leaves_mark: bool) -> None:
        """Nothing is deleted any more. ``leaves_mark``: a record stays as a mark.

        It is the one whose key sorts last, so collections that end at the same time do not delete each
        other's.
        """
        if not leaves_mark:
            storage.delete([self.key, self.list_key])
            return
        replace(self, is_done=True).put(storage)
        marks = sorted(other.key for other in records(storage) if other.is_done)
        storage.delete([self.list_key, *marks[:-1]])


@dataclass(frozen=True, slots=True)
class Announced:
    """The record of a collection that begins.

    now    time of the storage's clock
    ahead  by how much the storage's clock is ahead of this host's

    Microseconds.
    """

    record: Record
    now: int
    ahead: int


def announce(storage: Storage) -> Announced:
    """Say that a collection begins. The record's modification time tells the time of the storage."""
    record = Record(new_key(COLLECTIONS))
    before = now_us()
    record.put(storage)
    after = now_us()
    found = storage.head(record.key)
    stored = from_datetime(found.modified) if found is not None else before
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


def records(storage: Storage) -> list[Record]:
    """All collections that run, have been killed, or have left a mark."""
    return [
        Record(marker.key, bool(marker.content.get("listed")), bool(marker.content.get("done")))
        for marker in read_markers(storage, COLLECTIONS, ignored=_LIST)
    ]


def forget_killed(storage: Storage, now: int) -> None:
    """Delete what collections have left that were killed long before ``now``, a time of the storage's clock:
    no session lives so long.
    """
    marks = {record.key for record in records(storage) if record.is_done}
    old = [info.key for info in storage.list(COLLECTIONS) if from_datetime(info.modified) + _LONGEST_US < now]
    if gone := [key for key in old if key not in marks]:
        storage.delete(gone)


def is_collecting(storage: Storage) -> bool:
    """Whether a collection has announced itself and not ended: what is in the storage now may be deleted in a
    moment.
    """
    return any(not record.is_done for record in records(storage))


def require_none_running(storage: Storage) -> None:
    """``ConflictError`` (``garbage-collection-running``) while a collection has announced itself and not
    ended.
    """
    if running := [record.key for record in records(storage) if not record.is_done]:
        raise ConflictError(
            message="garbage is collected at this moment, and may delete what is to be used again: repeat "
            f"this when the collection is done. If it was killed, delete `{running[0]}` first",
            kind=ErrorKind.GARBAGE_COLLECTION_RUNNING,
        )


# The ops log


def newest_update(info: RepoInfo) -> int:
    """Time of the last update, in microseconds since 1970: its number in the sequence."""
    return int(info.ops.updated_at[0]) if len(info.ops) else 0


def has_collected(info: RepoInfo, update: int) -> bool | None:
    """Whether garbage was collected after the update at the time ``update``; None if the log in ``info`` does
    not reach back to that.

    The update is looked for by its very time, so an entry that was dropped or replaced (the repository was
    restored from a backup) is never taken for an older one.
    """
    at = np.flatnonzero(info.ops.updated_at == update)
    newer = info.ops.kinds[: int(at[-1]) if len(at) else len(info.ops)]
    if (newer == UpdateKind.GC_RAN).any():
        return True
    return False if len(at) else None


def _has_collected(storage: Storage, info: RepoInfo, update: int) -> bool:
    """The same, with the older parts of the log. True if nobody can tell."""
    while (collected := has_collected(info, update)) is None:
        try:
            older = before(storage, info)
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
class Relied:
    """What a session relies on: the repository's update at ``update`` was the newest one when it was opened,
    and no chunk file that it has written is older than ``since``, by this host's clock. Microseconds since
    1970.
    """

    update: int
    since: int


@dataclass(frozen=True, slots=True, eq=False)
class Files:
    """What a commit refers to and does not write itself: ids of chunk files and of manifests, (k, 12)."""

    chunks: U8
    manifests: U8

    def and_manifests(self, ids: U8) -> Files:
        """With more manifests."""
        return replace(self, manifests=np.concatenate([self.manifests, ids]))

    def keys(self) -> list[str]:
        return [
            *(f"{CHUNKS}/{name}" for name in ids_to_text(self.chunks)),
            *(f"{MANIFESTS}/{name}" for name in ids_to_text(self.manifests)),
        ]


def is_uncollected(storage: Storage, info: RepoInfo, update: int, files: Callable[[], Files]) -> bool:
    """Make sure that no collection has taken, or is going to take, what a session is about to commit. False
    if there was one: files that earlier attempts have stored may be gone.

    ``update`` was the newest update when the session was opened. ``files`` makes durable what the commit
    refers to, and names it. Raises ``SessionStateError`` (``garbage-collected``) when something is gone.
    Raises ``ConflictError`` (``garbage-collection-running``) while a collection is going to take something:
    the same commit may be tried again later.
    """
    if info.spec_version > 1:
        if not _has_collected(storage, info, update):
            return True
    elif not records(storage):
        return True
    needed = files()
    # The lists come first: a collection that ends in between has deleted its files before they are asked for.
    running = [each.garbage(storage) for each in records(storage) if each.is_listed and not each.is_done]
    keys = needed.keys()
    is_there = map_bounded(Purpose.FILE_CHECKS, lambda key: storage.head(key) is not None, keys)
    if not all(is_there):
        lost = [key for key, exists in zip(keys, is_there, strict=True) if not exists]
        raise SessionStateError(
            f"{len(lost)} files that this session refers to are gone, such as `{lost[0]}`: garbage "
            "collection deleted them, with a limit younger than the session or after their version was "
            "expired or dropped. Write them again in a new session",
            ErrorKind.GARBAGE_COLLECTED,
        )
    ids = id_keys(np.concatenate([needed.chunks, needed.manifests]))
    if any(np.isin(ids, id_keys(garbage)).any() for garbage in running):
        raise ConflictError(
            message="a garbage collection is running, and is about to delete files that this session refers "
            "to. The session keeps its changes: commit again when the collection has ended. If the "
            "collection was killed, write them again in a new session",
            kind=ErrorKind.GARBAGE_COLLECTION_RUNNING,
        )
    return False


class CollectedMeanwhile(Exception):
    """Garbage was collected since a commit has read the repository: it has to look back again."""


def before_collections(change: Change, begun: RepoInfo) -> Change:
    """The change; raises ``CollectedMeanwhile`` where garbage was collected since ``begun`` was read, or may
    have been.
    """
    until = newest_update(begun)

    def guarded(info: RepoInfo, now: int) -> Changed:
        if len(info.ops) and has_collected(info, until) is not False:
            raise CollectedMeanwhile
        return change(info, now)

    return guarded
