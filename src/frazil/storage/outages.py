"""Failures of a storage that say nothing about an object, in contrast to missing and damaged objects.

A request may fail for a moment: the network, a permission, a storage that has too many requests. The object
may be good. Only an object that is missing, or whose whole content is wrong, is a reason to repair it.
"""

from __future__ import annotations

from collections.abc import Buffer
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final, override

from frazil.errors import ErrorKind, IcechunkError, StorageError
from frazil.storage.base import Storage, Version

#: The kinds of errors of a storage that say something about the object.
_ABOUT_OBJECTS: Final = frozenset({ErrorKind.OBJECT_NOT_FOUND, ErrorKind.INVALID_BYTE_RANGE})


def is_outage(error: BaseException) -> bool:
    """Return whether an error says only that the storage did not answer a request."""
    return isinstance(error, StorageError) and error.kind not in _ABOUT_OBJECTS


class skip_damage(AbstractContextManager[None, bool]):  # noqa: N801  # like contextlib.suppress
    """Suppress the errors of missing and damaged objects in a block. Errors of ``is_outage`` pass."""

    @override
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return isinstance(error, IcechunkError) and not is_outage(error)


def require_whole(storage: Storage, key: str, data: Buffer, version: Version | None = None) -> None:
    """Check that an answer has all bytes of an object. Callers do this before they call an object damaged."""
    info, size = storage.head(key), memoryview(data).nbytes
    if info is None or info.size == size:
        return
    if version is None or storage.get_versioned(key)[1] == version:
        raise StorageError(
            f"the storage returned {size} bytes of `{key}`, which has {info.size} bytes. Read it again",
            ErrorKind.INVALID_OBJECT_SIZE,
        )
