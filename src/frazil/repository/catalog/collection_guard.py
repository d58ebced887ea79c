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

import numpy as np

from frazil.errors import ConflictError, ErrorKind, SessionStateError, StorageError
from frazil.format.columns import U8
from frazil.format.ids import id_keys, ids_to_text
from frazil.format.keys import CHUNKS, MANIFESTS
from frazil.format.repo_info import RepoInfo, UpdateKind
from frazil.repository.catalog.collection_records import collection_records
from frazil.repository.catalog.files import older_ops_backup
from frazil.repository.catalog.repo_update import Change, Changed, ConditionalChange
from frazil.storage.base import Storage
from frazil.threads import Purpose, map_bounded

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
    """Return the same, with the older parts of the log. True if nobody can tell."""
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
    """When a session started: ``update`` is the time of the repository's newest update when the session was
    opened, and no chunk file of the session is older than ``since``, by this host's clock. Microseconds since
    1970.
    """

    update: int
    since: int


@dataclass(frozen=True, slots=True, eq=False)
class RequiredFiles:
    """Files that a commit refers to and does not write itself: ids of chunk files and manifests, (k, 12)."""

    chunks: U8
    manifests: U8

    def with_manifests(self, ids: U8) -> RequiredFiles:
        """Return the same files and some more manifests."""
        return replace(self, manifests=np.concatenate([self.manifests, ids]))

    def keys(self) -> list[str]:
        return [
            *(f"{CHUNKS}/{name}" for name in ids_to_text(self.chunks)),
            *(f"{MANIFESTS}/{name}" for name in ids_to_text(self.manifests)),
        ]


def is_uncollected(storage: Storage, info: RepoInfo, update: int, files: Callable[[], RequiredFiles]) -> bool:
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
    elif not collection_records(storage):
        return True
    needed = files()
    # The lists come first: a collection that ends in between has deleted its files before they are asked for.
    running = [
        each.garbage(storage) for each in collection_records(storage) if each.is_listed and not each.is_done
    ]
    keys = needed.keys()
    exists = map_bounded(Purpose.FILE_CHECKS, lambda key: storage.head(key) is not None, keys)
    if not all(exists):
        lost = [key for key, is_stored in zip(keys, exists, strict=True) if not is_stored]
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


def unless_collected(change: Change, before: RepoInfo) -> ConditionalChange:
    """The change; None instead where garbage was collected since ``before`` was read, or may have been."""
    until = newest_update(before)

    def conditional(info: RepoInfo, now: int) -> Changed | None:
        if len(info.ops) and has_collected(info, until) is not False:
            return None
        return change(info, now)

    return conditional
