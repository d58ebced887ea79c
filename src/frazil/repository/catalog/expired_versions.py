"""Errors for versions that were expired, or dropped by a garbage collection, while a session uses them.

The storage then answers "no such object". The list of snapshots has the cause. A snapshot that is not listed
was expired or dropped, and a retry does not help. If the snapshot is listed, its file is lost, and the error
of the storage stays as it is.

Two errors report an expired version. Methods of a repository raise ``SnapshotNotFoundError``. It is a
``KeyError``: from a store, it would tell zarr that there is no such node. So all functions that read for a
store raise ``SessionSnapshotNotFoundError`` instead.
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

#: Errors of concurrent expirations and collections. With the current repo info, the work may succeed.
_PASSING: Final = {ErrorKind.SNAPSHOT_NOT_FOUND, ErrorKind.REBASE_TX_LOG_PRUNED}


def _is_listed(context: Context, id_: bytes) -> bool:
    if context.spec_version == 1:  # version 1 has no list: a snapshot exists if its file exists
        return context.storage.head(snapshot_key(id_)) is not None
    return context.catalog.repo_info().snapshots.find_snapshot(id_) >= 0


def _is_why(context: Context, id_: bytes, error: StorageError) -> bool:
    """Return whether the cause of ``error``, about a file of the snapshot, is that it is not listed."""
    if error.kind != ErrorKind.OBJECT_NOT_FOUND:
        return False
    try:
        return not _is_listed(context, id_)
    except IcechunkError:
        return False  # the first error is more useful


def require_listed(context: Context, id_: bytes, error: StorageError) -> None:
    """Raise ``SessionSnapshotNotFoundError`` if the snapshot was expired or dropped.

    ``error`` is the error about a file of the snapshot.
    """
    if _is_why(context, id_, error):
        raise SessionSnapshotNotFoundError(
            f"snapshot `{id_to_text(id_)}` was expired or dropped since it was opened, and garbage "
            "collection has deleted its files. Open another version. Tags and branches protect versions, "
            "unless the options of an expiration allow their deletion"
        ) from error


@contextmanager
def files_of(context: Context, id_: bytes) -> Iterator[None]:
    """Raise ``SnapshotNotFoundError`` if the snapshot whose files the block reads was expired or dropped."""
    try:
        yield
    except StorageError as error:
        if _is_why(context, id_, error):
            raise snapshot_not_found(id_to_text(id_)) from error
        raise


@contextmanager
def snapshots_wanted() -> Iterator[None]:
    """Convert ``SessionSnapshotNotFoundError`` to ``SnapshotNotFoundError``, for methods of a repository."""
    try:
        yield
    except SessionSnapshotNotFoundError as error:
        raise SnapshotNotFoundError(error.problem) from error


def is_outdated(context: Context, info: RepoInfo, error: IcechunkError) -> bool:
    """Return whether the work that raised ``error`` may succeed with the current repo info.

    That is possible if the repository has changed since ``info`` was read.
    """
    return error.kind in _PASSING and newest_update(context.catalog.repo_info()) != newest_update(info)


def with_current[T](context: Context, work: Callable[[RepoInfo], T]) -> T:
    """Call ``work`` with the current repo info. Repeat it while concurrent expirations make it fail."""
    while True:
        info = context.catalog.repo_info()
        try:
            return work(info)
        except IcechunkError as error:
            if not is_outdated(context, info, error):
                raise
