"""Versions that are gone: expired, or dropped by a garbage collection, while somebody works with them.

The storage then answers "no such object", which alone does not tell why. What tells is the list of snapshots:
a snapshot that is not on it was expired or dropped, and nobody gets it back by another try. A file of a
snapshot that is on the list is lost, and the error of the storage stays as it is.

Two errors say so. ``SnapshotNotFoundError`` comes from methods of a repository. It is a ``KeyError``, and to
zarr a store that raises one has no such node: whatever reads for a store raises
``SessionSnapshotNotFoundError`` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from frazil.errors import (
    ErrorKind,
    IcechunkError,
    SessionSnapshotNotFoundError,
    SnapshotNotFoundError,
    StorageError,
)
from frazil.format.ids import id_to_text
from frazil.format.keys import snapshot_key
from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.collection_guard import newest_update
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_requirements import snapshot_not_found

#: What happens where others expire and collect versions; with the repository as it is then it may succeed.
_PASSING: Final = {ErrorKind.SNAPSHOT_NOT_FOUND, ErrorKind.REBASE_TX_LOG_PRUNED}


def _is_listed(context: Context, id_: bytes) -> bool:
    if context.spec_version == 1:  # no list: a snapshot is there as long as its file is
        return context.storage.head(snapshot_key(id_)) is not None
    return context.catalog.repo_info().snapshots.find_snapshot(id_) >= 0


def _is_why(context: Context, id_: bytes, error: StorageError) -> bool:
    """Whether ``error``, of a file that the snapshot needs, came because the snapshot is gone."""
    if error.kind != ErrorKind.OBJECT_NOT_FOUND:
        return False
    try:
        return not _is_listed(context, id_)
    except IcechunkError:
        return False  # the first error says more


def require_listed(context: Context, id_: bytes, error: StorageError) -> None:
    """Raise ``SessionSnapshotNotFoundError`` if ``error``, of a file that the snapshot needs, came because
    the snapshot was expired or dropped.
    """
    if _is_why(context, id_, error):
        raise SessionSnapshotNotFoundError(
            f"snapshot `{id_to_text(id_)}` was expired or dropped since it was opened, and garbage "
            "collection has deleted files of it: open another version. Tags and branches protect versions, "
            "unless an expiration is told to delete them"
        ) from error


@contextmanager
def files_of(context: Context, id_: bytes) -> Iterator[None]:
    """For reads of files of a snapshot that a user has named: ``SnapshotNotFoundError`` if it is gone."""
    try:
        yield
    except StorageError as error:
        if _is_why(context, id_, error):
            raise snapshot_not_found(id_to_text(id_)) from error
        raise


@contextmanager
def snapshots_wanted() -> Iterator[None]:
    """For methods of a repository: a version that is gone is a ``SnapshotNotFoundError``."""
    try:
        yield
    except SessionSnapshotNotFoundError as error:
        raise SnapshotNotFoundError(error.message) from error


def is_outdated(context: Context, info: RepoInfo, error: IcechunkError) -> bool:
    """Whether ``error`` came of ``info``, which has changed since: the same work may succeed now."""
    return error.kind in _PASSING and newest_update(context.catalog.repo_info()) != newest_update(info)


def with_current[T](context: Context, work: Callable[[RepoInfo], T]) -> T:
    """``work`` on the repo info as it is; again as long as others take away what it needs."""
    while True:
        info = context.catalog.repo_info()
        try:
            return work(info)
        except IcechunkError as error:
            if not is_outdated(context, info, error):
                raise
