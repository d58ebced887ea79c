"""Commits on this machine: the optional part of a storage that saves flushes of the disk.

A flush takes milliseconds, and several at the same time take hardly longer than one. A storage with the
methods of ``LocalCommit`` flushes the files of a commit together, and lets writers on one machine wait for
each other. The functions of this module use these methods where the storage has them, and otherwise do the
same with the methods of ``Storage``.
"""

from __future__ import annotations

from collections.abc import Buffer, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from frazil.storage.base import IfVersion, Refused, Storage, Stored, Version


@dataclass(frozen=True, slots=True)
class Replacement:
    """The replacement of an object that the caller has read, with a backup of its old bytes.

    Attributes:
        key: Key of the object.
        data: All new bytes of the object.
        version: Version of the object, from ``get_versioned``. The object is replaced only if it still has
            this version.
        old: Bytes of the object, from ``get_versioned``.
        backup: Key of the backup. It must contain a random id.
    """

    key: str
    data: Buffer
    version: Version
    old: Buffer
    backup: str


class OpenReplacement:
    """A replacement whose backup and new objects are durable. Only ``finish`` is missing.

    It is a context manager. Its end removes temporary files.
    """

    __slots__ = ("_replacement", "_storage")

    def __init__(self, storage: Storage, replacement: Replacement) -> None:
        self._storage = storage
        self._replacement = replacement

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def finish(self) -> Stored | Refused:
        """Replace the object if it has the version of the replacement. Call it once.

        The result and the errors are those of ``Storage.put`` with the condition ``IfVersion``.
        """
        replacement = self._replacement
        return self._storage.put(replacement.key, replacement.data, IfVersion(replacement.version))


@runtime_checkable
class LocalCommit(Protocol):
    """The optional methods of a storage on this machine. The functions of this module describe them."""

    def put_many(self, objects: Iterable[tuple[str, Buffer]]) -> None:
        """Write many whole objects without conditions, as the function ``put_many``."""

    def open_replacement(
        self, replacement: Replacement, objects: Iterable[tuple[str, Buffer]] = ()
    ) -> OpenReplacement:
        """Prepare the conditional replacement of an object, as the function ``open_replacement``."""

    def local_queue(self, key: str) -> AbstractContextManager[None]:
        """Wait for the other writers of an object, as the function ``local_queue``."""


def put_many(storage: Storage, objects: Iterable[tuple[str, Buffer]]) -> None:
    """Write many whole objects without conditions, given as pairs of key and bytes.

    All objects are durable when the function returns. The keys must contain random ids, and no reader may
    look for them before. Until then, and after an error, each object may or may not be there. After a power
    failure an object may be incomplete.
    """
    if isinstance(storage, LocalCommit):
        storage.put_many(objects)
    else:
        for key, data in objects:
            storage.put(key, data)


def open_replacement(
    storage: Storage, replacement: Replacement, objects: Iterable[tuple[str, Buffer]] = ()
) -> OpenReplacement:
    """Prepare the conditional replacement of an object: store its backup, and new objects.

    The new objects, as in ``put_many``, and the backup are durable when the function returns, and
    ``OpenReplacement.finish`` replaces the object. A local storage also writes the new bytes of the object
    before ``finish``, to a place where no reader finds them. If the block ends without ``finish``, the object
    does not change.
    """
    if isinstance(storage, LocalCommit):
        return storage.open_replacement(replacement, objects)
    put_many(storage, objects)
    storage.backup(replacement.key, replacement.version, replacement.old, replacement.backup)
    return OpenReplacement(storage, replacement)


def local_queue(storage: Storage, key: str) -> AbstractContextManager[None]:
    """Return a context that waits for the other writers of an object on this machine, a second at most.

    The queue saves work. A writer that reads an object, changes it, and writes it with a condition loses if
    another writer is faster, and begins again. The queue is no condition: a writer may continue without it,
    and other programs do not know it.
    """
    return storage.local_queue(key) if isinstance(storage, LocalCommit) else nullcontext()
