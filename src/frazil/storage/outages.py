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
    """Return whether an error says only that the storage did not answer a request.

    Args:
        error: An error of a read.

    Returns:
        False for a missing object, for an object without the requested bytes, and for damaged content.

    Examples:
        >>> is_outage(StorageError("slow down", ErrorKind.THROTTLED))
        True
        >>> is_outage(StorageError("there is no object `repo`", ErrorKind.OBJECT_NOT_FOUND))
        False
    """
    return isinstance(error, StorageError) and error.kind not in _ABOUT_OBJECTS


class skip_damage(AbstractContextManager[None, bool]):  # noqa: N801  # like contextlib.suppress
    """Suppress the errors of missing and damaged objects in a block. Errors of ``is_outage`` pass.

    Raises:
        StorageError: The storage did not answer a request of the block.

    Examples:
        >>> from frazil.errors import FormatError
        >>> with skip_damage():
        ...     raise FormatError("the file is cut off")
    """

    @override
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return isinstance(error, IcechunkError) and not is_outage(error)


def require_whole(storage: Storage, key: str, data: Buffer, version: Version | None = None) -> None:
    """Check that an answer has all bytes of an object. Callers do this before they call an object damaged.

    Args:
        storage: The storage.
        key: The key of the object.
        data: The answer to the request for the object.
        version: The version of the answer, for an object that other writers replace. If they have replaced
            it, its size says nothing about the answer.

    Raises:
        StorageError: The object has another size (``invalid-object-size``).

    Examples:
        >>> from frazil.storage import in_memory_storage
        >>> storage = in_memory_storage()
        >>> stored = storage.put("repo", b"state")
        >>> require_whole(storage, "repo", b"state")
        >>> require_whole(storage, "repo", b"sta")
        Traceback (most recent call last):
        ...
        frazil.errors.StorageError: the storage returned 3 bytes of `repo`, which has 5 bytes. Read it again
    """
    info, size = storage.head(key), memoryview(data).nbytes
    if info is None or info.size == size:
        return
    if version is None or storage.get_versioned(key)[1] == version:
        raise StorageError(
            f"the storage returned {size} bytes of `{key}`, which has {info.size} bytes. Read it again",
            ErrorKind.INVALID_OBJECT_SIZE,
        )
