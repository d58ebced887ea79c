"""What garbage collections, sessions and their forks know of each other.

A collection deletes files that were modified before its limit and that no version refers to. What a session
has written and not committed is such a file, unless the limit is older than the session. Three things
keep the two apart, whatever limit is asked for:

*Leases.* A session that makes a fork puts a small object under ``leases/``: how old the oldest chunk can be
that it and its forks rely on, and when they end. A collection brings its limit forward to the oldest lease.
The lease goes with the commit; one that was left behind ends with the session's lifetime. A job that can be
resumed takes one under a name of its own (``staged``).

*Records.* A collection puts an object under ``collections/`` before it lists anything, writes in there its
limit and the time of its entry in the ops log before it deletes anything, and when it is done says so. So:

    no record that is not done     no collection of Frazil's is under way
    a record without entry         it has listed or will list, and has deleted nothing

*The commit looks back.* A collection's entry in the ops log and a commit are made by the same conditional
write, one after the other. Versions committed before the entry are known to the collection. A commit that
comes after it finds the entry, among those that came after the session had begun. Was the limit older than
everything that the session relies on, all is well, which is the usual case: one listing and one small
object are read. If not, the commit waits until the collection is done, and then asks for each chunk file that
it is about to refer to; after that nobody deletes it, since any other collection makes an entry of its own,
and the write is conditional on there being none. A session that lost a chunk is refused, and nothing refers
to what is not there. A session may also refer to chunks of versions that were before it: those that it has
shifted, merged, or brought back. As long as such a version is there they are safe; so these are asked for
after any collection.

Limits and leases are in the storage's time: whoever puts one of these objects reads back when it was
modified. The difference to the clock of a host is only trusted beyond ``_APART``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from frazil.errors import ConflictError, ErrorKind, SessionStateError, StorageError
from frazil.format.columns import U8
from frazil.format.ids import OBJECT_ID_BYTES, id_to_text, ids_to_text
from frazil.format.keys import CHUNKS, backup_key
from frazil.format.repo_info import RepoInfo, UpdateKind, decode_repo_info
from frazil.repository.clock import from_datetime, now_us
from frazil.repository.update import Change, Changed
from frazil.storage.base import Storage

COLLECTIONS: Final = "collections"
LEASES: Final = "leases"

_REQUESTS: Final = 32
_SECOND: Final = 1_000_000
#: Clocks that differ by less are taken for one: storages tell whole seconds, and answers take time.
_APART: Final = 2 * _SECOND
#: Clocks of a host and a storage may differ by so much before a commit asks for chunks that are there.
_TRUSTED: Final = 15 * 60 * _SECOND
#: Longer than any session lives.
_KEPT: Final = 8 * 24 * 3600 * _SECOND


# Leases


@dataclass(frozen=True, slots=True)
class Lease:
    """What a session with forks holds: chunk files that are not older than it may be in use."""

    key: str

    @staticmethod
    def take(storage: Storage, since: int, until: int, key: str | None = None) -> Lease:
        """Files not older than ``since`` are in use until ``until``: microseconds since 1970, by this host's
        clock. One request. ``key`` is for who has to find it again.
        """
        now = now_us()
        lease = Lease(key or _new_key(LEASES))
        storage.put(lease.key, _dump({"age": max(0, now - since), "left": max(0, until - now)}))
        return lease

    def give_back(self, storage: Storage) -> None:
        """Nothing that the session wrote is without a version any more."""
        with suppress(StorageError):  # it ends by itself
            storage.delete([self.key])


def oldest_in_use(storage: Storage, now: int) -> int | None:
    """Since when, by the storage's clock, files may be in use by sessions with forks; None without any.

    ``now`` is that clock's time. Leases that have ended are deleted.
    """
    since, ended = None, []
    for key, modified, said in _read_all(storage, LEASES):
        if modified + int(said.get("left", 0)) + _APART < now:
            ended.append(key)
            continue
        start = modified - int(said.get("age", 0)) - _APART
        since = start if since is None else min(since, start)
    if ended and not storage.is_read_only:
        storage.delete(ended)
    return since


# Records


@dataclass(frozen=True, slots=True)
class Record:
    """A collection. ``older_than`` is its limit by the storage's clock, ``ran_at`` the time of its entry in
    the ops log; microseconds since 1970.
    """

    key: str
    older_than: int
    ran_at: int | None = None
    done: bool = False

    def put(self, storage: Storage, **changed: Any) -> Record:
        """Write it, with changes."""
        record = replace(self, **changed)
        said = asdict(record)
        del said["key"]
        storage.put(record.key, _dump(said))
        return record


def announce(storage: Storage, older_than: int) -> tuple[Record, int]:
    """Say that a collection begins; its record, and by how many microseconds the storage's clock is ahead of
    this host's.
    """
    record = Record(_new_key(COLLECTIONS), older_than)
    before = now_us()
    record.put(storage)
    after = now_us()
    found = storage.head(record.key)
    stored = from_datetime(found.modified) if found is not None else before
    return record, clock_ahead(before, stored, after)


def clock_ahead(before: int, stored: int, after: int) -> int:
    """How far a storage's clock is ahead, which tells ``stored`` of what happened between two moments.

    >>> clock_ahead(10_000_000, 10_500_000, 11_000_000), clock_ahead(10_000_000, 99_000_000, 11_000_000)
    (0, 88000000)
    """
    if stored < before - _APART:
        return stored - before
    return stored - after if stored > after + _APART else 0


def records(storage: Storage) -> list[Record]:
    """All collections that are remembered."""
    return [
        Record(key, int(said.get("older_than", 0)), said.get("ran_at"), bool(said.get("done")))
        for key, _, said in _read_all(storage, COLLECTIONS)
    ]


def forget_old(storage: Storage, now: int) -> None:
    """Delete the records of collections that no living session can have met."""
    old = [info.key for info in storage.list(COLLECTIONS) if from_datetime(info.modified) + _KEPT < now]
    if old:
        storage.delete(old)


def is_collecting(storage: Storage) -> bool:
    """Whether a collection has announced itself and not ended: what is found in the storage now may be gone
    in a moment.
    """
    return any(not record.done for record in records(storage))


# Commits


@dataclass(frozen=True, slots=True)
class Relied:
    """What a session relies on: the repository's update at ``update`` was the last one when it was opened,
    and no chunk file that it refers to is older than ``since``, by this host's clock. Microseconds since
    1970.
    """

    update: int
    since: int


def newest_update(info: RepoInfo) -> int:
    """Time of the last update, in microseconds since 1970."""
    return int(info.ops.updated_at[0]) if len(info.ops) else 0


def collected_since(storage: Storage, info: RepoInfo, update: int) -> list[int]:
    """Times of the collections' entries in the ops log that came after an update."""
    ran: list[int] = []
    while True:
        times = info.ops.updated_at
        ran += times[(info.ops.kinds == UpdateKind.GC_RAN) & (times > update)].tolist()
        if info.repo_before_updates is None or not len(times) or int(times[-1]) <= update:
            return ran
        key = backup_key(info.repo_before_updates)
        info = decode_repo_info(storage.get(key), key)


def is_uncollected(
    storage: Storage, info: RepoInfo, relied: Relied, files: Callable[[], U8], *, borrowed: bool = False
) -> bool:
    """Make sure that no collection can have taken, or will take, what a session is about to commit. False if
    one may have taken other files than chunks.

    ``files`` makes the chunk files that it refers to durable, and gives their ids, (k, 12). ``borrowed`` says
    that some may be older than the session, and of a version that is gone. Raises ``ConflictError``
    (``garbage-collection-running``) while a collection might take one: the same commit may be tried again
    later. Raises ``SessionStateError`` (``garbage-collected``) when something is gone.
    """
    ran = collected_since(storage, info, relied.update)
    if not ran:
        return True
    known = records(storage)
    by_time = {record.ran_at: record for record in known}
    met = [by_time.get(time) for time in ran]
    harmful = [each for each in met if each is None or each.older_than > relied.since - _TRUSTED]
    if not harmful and not borrowed:
        return True
    if _running(harmful, known):
        raise _under_way("is younger than this session, so it may delete chunks of this session")
    keys = [f"{CHUNKS}/{name}" for name in ids_to_text(files())]
    with ThreadPoolExecutor(_REQUESTS) as pool:
        found = list(pool.map(storage.head, keys))
    lost = [key for key, info_ in zip(keys, found, strict=True) if info_ is None]
    if lost:
        raise SessionStateError(
            f"{len(lost)} chunk files that this session refers to are gone, such as `{lost[0]}`: garbage "
            "collection deleted them, with a limit younger than the session or after their version was "
            "expired. Write them again in a new session",
            ErrorKind.GARBAGE_COLLECTED,
        )
    if borrowed and (running := _running(met, known)):
        oldest = min((from_datetime(each.modified) for each in found if each is not None), default=now_us())
        if any(each.older_than + _APART > oldest for each in running):
            raise _under_way("is younger than chunks of other versions that this session refers to")
    return not harmful


def _running(met: list[Record | None], known: list[Record]) -> list[Record]:
    """Of the collections that a session met, those that are not done."""
    running = [each for each in met if each is not None and not each.done]
    if None in met:  # that of another implementation, or its record comes in a moment
        running += [each for each in known if each.ran_at is None and not each.done]
    return running


def _under_way(limit: str) -> ConflictError:
    return ConflictError(
        message=f"a garbage collection is running, with a limit that {limit}. The session keeps its "
        "changes: commit again when the collection has ended",
        kind=ErrorKind.GARBAGE_COLLECTION_RUNNING,
    )


class CollectedMeanwhile(Exception):
    """Garbage was collected since a commit has begun: begin again."""


def before_collections(change: Change, begun: RepoInfo) -> Change:
    """The change; raises ``CollectedMeanwhile`` where garbage was collected since ``begun`` was read."""
    until = newest_update(begun)

    def guarded(info: RepoInfo, now: int) -> Changed:
        times, kinds = info.ops.updated_at, info.ops.kinds
        forgotten = len(times) and int(times[-1]) > until and info.repo_before_updates is not None
        if forgotten or ((kinds == UpdateKind.GC_RAN) & (times > until)).any():
            raise CollectedMeanwhile
        return change(info, now)

    return guarded


def _new_key(folder: str) -> str:
    return f"{folder}/{id_to_text(os.urandom(OBJECT_ID_BYTES))}"


def _dump(said: dict[str, Any]) -> bytes:
    return json.dumps(said).encode()


def _read_all(storage: Storage, folder: str) -> list[tuple[str, int, dict[str, Any]]]:
    """Key, time of modification and content of the small objects in a folder."""
    out = []
    for info in storage.list(folder):
        try:
            said = json.loads(bytes(storage.get(info.key)))
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            continue  # gone since it was listed
        except ValueError:
            said = {}
        out.append((info.key, from_datetime(info.modified), said if isinstance(said, dict) else {}))
    return out
