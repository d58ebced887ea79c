"""Commits on this machine: the optional part of a storage that saves flushes of the disk.

A flush takes milliseconds, and several at the same time take hardly longer than one. The functions of this
module use the methods of ``LocalCommit`` where a storage has them, and otherwise those of ``Storage``.
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

    ``old`` and ``version`` come from ``get_versioned``. The object is replaced by ``data`` only if it still
    has this version. ``backup`` is the key of the backup: it must contain a random id.
    """

    key: str
    data: Buffer
    version: Version
    old: Buffer
    backup: str


@dataclass(frozen=True, slots=True)
class OpenReplacement:
    """A replacement whose backup and new objects are durable. Only ``finish`` is missing.

    It is a context manager. Its end removes temporary files.
    """

    storage: Storage
    replacement: Replacement

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def finish(self) -> Stored | Refused:
        """Replace the object if it has the version of the replacement. Call it once.

        The result and the errors are those of ``Storage.put`` with the condition ``IfVersion``.
        """
        new = self.replacement
        return self.storage.put(new.key, new.data, IfVersion(new.version))


@runtime_checkable
class LocalCommit(Protocol):
    """The optional methods of a storage on this machine."""

    def put_many(self, objects: Iterable[tuple[str, Buffer]]) -> None:
        """Write many whole objects without conditions.

        All objects are durable when the method returns. The keys must contain random ids, and no reader may
        look for them before. Until then, and after an error, each object may or may not be there. After a
        power failure an object may be incomplete.

        Args:
            objects: Pairs of key and bytes.
        """

    def open_replacement(
        self, replacement: Replacement, objects: Iterable[tuple[str, Buffer]] = ()
    ) -> OpenReplacement:
        """Prepare the conditional replacement of an object: store its backup, and new objects.

        The new objects, as in ``put_many``, and the backup are durable when the method returns, and
        ``OpenReplacement.finish`` replaces the object. The new bytes of the object may be written before
        ``finish``, to a place where no reader finds them.

        Args:
            replacement: The key, the new and the old bytes, the version, and the key of the backup.
            objects: Pairs of key and bytes of new objects. Default: none.

        Returns:
            A context manager with the method ``finish``. If its block ends without ``finish``, the object
            does not change.
        """
        ...

    def flush_folders(self, folders: Iterable[str]) -> None:
        """Make the names of the objects in folders durable, and deletions of such names.

        A writer that finds an object calls this method before it publishes a reference to the object: the
        writer of the object may have been killed before its own flush. Other storages need nothing like it.

        Args:
            folders: Keys without their last segment, such as ``chunks``. ``""`` is that of ``repo``.
        """

    def local_queue(self, key: str) -> AbstractContextManager[None]:
        """Return a context that waits for the other writers of an object on this machine.

        The queue saves work. A writer that reads an object, changes it, and writes it with a condition loses
        if another writer is faster, and begins again. The queue is no condition: a writer that waits too long
        continues without it, and other programs do not know it.

        Args:
            key: Key of the object.

        Returns:
            A context manager. Its block reads the object, and writes it with a condition.
        """
        ...


def put_many(storage: Storage, objects: Iterable[tuple[str, Buffer]]) -> None:
    """Do the same as ``LocalCommit.put_many``, in any storage."""
    if isinstance(storage, LocalCommit):
        storage.put_many(objects)
    else:
        for key, data in objects:
            storage.put(key, data)


def open_replacement(
    storage: Storage, replacement: Replacement, objects: Iterable[tuple[str, Buffer]] = ()
) -> OpenReplacement:
    """Do the same as ``LocalCommit.open_replacement``, in any storage."""
    if isinstance(storage, LocalCommit):
        return storage.open_replacement(replacement, objects)
    put_many(storage, objects)
    storage.backup(replacement.key, replacement.version, replacement.old, replacement.backup)
    return OpenReplacement(storage, replacement)


def flush_folders(storage: Storage, folders: Iterable[str]) -> None:
    """Do the same as ``LocalCommit.flush_folders``, in any storage."""
    if isinstance(storage, LocalCommit):
        storage.flush_folders(folders)


def local_queue(storage: Storage, key: str) -> AbstractContextManager[None]:
    """Do the same as ``LocalCommit.local_queue``. Other storages do not wait."""
    return storage.local_queue(key) if isinstance(storage, LocalCommit) else nullcontext()
