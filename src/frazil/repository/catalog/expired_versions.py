"""Expired versions: a version may be expired, or dropped by a garbage collection, while a session uses it.

The storage then answers "no such object", which does not tell why. The list of snapshots tells: a snapshot
that is not listed was expired or dropped, and another try does not help. A file of a listed snapshot is lost,
and the error of the storage stays as it is.

Two errors report an expired version. Methods of a repository raise ``SnapshotNotFoundError``. It is a
``KeyError``, and for zarr a store that raises one has no such node. So all functions that read for a store
raise ``SessionSnapshotNotFoundError`` instead.
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

#: Errors of concurrent expirations and collections; with the current repo info the work may succeed.
_PASSING: Final = {ErrorKind.SNAPSHOT_NOT_FOUND, ErrorKind.REBASE_TX_LOG_PRUNED}


def _is_listed(context: Context, id_: bytes) -> bool:
    if context.spec_version == 1:  # no list: a snapshot is there as long as its file is
        return context.storage.head(snapshot_key(id_)) is not None
    return context.catalog.repo_info().snapshots.find_snapshot(id_) >= 0


def _is_why(context: Context, id_: bytes, error: StorageError) -> bool:
    """Whether ``error``, of a file that the snapshot needs, was raised because the snapshot is not listed."""
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
    """Whether ``error`` was raised for ``info`` and the repository has changed since: the same work may
    succeed now.
    """
    return error.kind in _PASSING and newest_update(context.catalog.repo_info()) != newest_update(info)


def with_current[T](context: Context, work: Callable[[RepoInfo], T]) -> T:
    """``work`` on the current repo info; again while concurrent expirations remove what it needs."""
    while True:
        info = context.catalog.repo_info()
        try:
            return work(info)
        except IcechunkError as error:
            if not is_outdated(context, info, error):
                raise
