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
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from frazil.display import counted
from frazil.errors import ConflictError, ErrorKind, SessionStateError, StorageError
from frazil.format.columns import U8
from frazil.format.ids import id_keys, ids_to_text
from frazil.format.keys import CHUNKS, MANIFESTS
from frazil.format.repo_info import RepoInfo, UpdateKind
from frazil.repository.catalog.collection_records import collection_records
from frazil.repository.catalog.ops_history import older_ops_backup
from frazil.repository.catalog.repo_update import ConditionalChange, RepoChange, RepoUpdate
from frazil.storage.base import Storage
from frazil.threads import Purpose, map_bounded

# The ops log


def newest_update(info: RepoInfo) -> int:
    """Return the time of the last update, in microseconds since 1970. It is a sequence number."""
    return int(info.ops.updated_at[0]) if len(info.ops) else 0


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
