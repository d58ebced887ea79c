"""The contract of a storage, which stores bytes under keys. Every implementation keeps all of it.

``frazil.testing.storage_suite.StorageSuite`` tests an implementation against this contract.

**Keys.** A key is a relative path with ``/`` between its segments, such as ``repo`` or
``chunks/1CECHNKREP0F1RSTCMT0``. No segment is empty, ``.`` or ``..``, and no character is NUL. Every method
raises ``InvalidInputError`` (``bad-key-prefix``) for another key.

**Reading.** A read that begins after a write has returned sees this write. A missing object raises
``StorageError`` (``object-not-found``); a read never returns None or empty bytes instead. A range that ends
after the end of the object is shortened. A range that begins at the end or after it raises ``StorageError``.
If fewer bytes arrive than the object has in the range, the read raises an error.

**Writing.** A reader sees the whole object or no object, also after the writing process has died. When
``put`` returns ``Stored``, the object is durable.

A write without a condition (``Always``) is only for keys that no other writer uses. Such keys contain a
random id. The conditions ``IfAbsent`` and ``IfVersion`` are atomic: the comparison and the write exclude
every other writer of the key, in any process.

``Refused`` means that the server answered that the condition does not hold. **It does not prove that this
call wrote nothing.** The client may have lost the answer to its first attempt, retried, and found its own
write. An exception does not prove it either. A caller that writes with a condition must be able to recognise
its own bytes, and must read the object to look for them (as ``repository.catalog.repo_update`` does).

**Versions** are opaque. Two writes of different bytes never have the same version. Two writes of the same
bytes may have the same version. The version of an unconditional write may be empty (without etag and
generation). In this case the caller reads the object before it writes with the condition ``IfVersion``.

**Deleting.** To delete a missing object is not an error.

**Listing** is recursive and shows only whole objects. Their order is not defined.

**Threads and processes.** Many threads may call every method at the same time. A storage can be pickled. (An
in-memory storage can be unpickled only in its own process.) A storage that was used in a process cannot be
used in a child that ``os.fork()`` creates afterwards. The storage detects the child and raises
``StorageError`` (``forked-process``).

**Commits on this machine.** A flush takes milliseconds, and several at the same time take hardly longer than
one. So ``put_many`` and ``open_replacement`` write several objects: a storage of files flushes them together.

The methods are synchronous. ``get_async`` and ``put_async`` exist for zarr's event loop, in which hundreds of
requests for chunks wait at the same time. A caller does not need them if ``is_local`` is true, because the
synchronous methods then return at once.

Specification: *Storage Operations*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Buffer, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final, Self

from frazil.arguments import checked
from frazil.display import PACKAGE, Lines, Record
from frazil.storage.class_methods import StorageClassMethods
from frazil.storage.settings import StorageSettings
from frazil.threads import SIZES, Purpose, in_order, thread_pool


@dataclass(frozen=True, slots=True)
class Version:
    """The version of an object: it identifies one write. Opaque to callers.

    Callers compare versions, pickle them, and pass them to ``IfVersion``.
    """

    etag: str | None = None
    generation: str | None = None


@dataclass(frozen=True, slots=True)
class Always:
    """The condition of a write that always takes effect. It replaces an existing object."""


@dataclass(frozen=True, slots=True)
class IfAbsent:
    """The condition of a write that takes effect only if there is no object under the key."""


@dataclass(frozen=True, slots=True)
class IfVersion:
    """The condition of a write that takes effect only if the object still has the version ``version``."""

    version: Version


#: In the class, the name ``list`` means the method of the storage.
type _List[T] = list[T]
Condition = Always | IfAbsent | IfVersion
ALWAYS: Final = Always()


@dataclass(frozen=True, slots=True)
class Stored:
    """The result of a write that took effect, with the new version of the object."""

    version: Version


@dataclass(frozen=True, slots=True)
class Refused:
    """The result of a write whose condition did not hold, as the server answered.

    The module's docstring says what this proves.
    """


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object of a listing, or the answer of ``Storage.head``.

    ``modified`` is the time of the last write, with a time zone. ``etag`` has no quotes; it is None if the
    storage has none, and may be None in a listing.
    """

    key: str
    size: int
    modified: datetime
    etag: str | None = None


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

        The result and the errors are those of ``Storage.put`` with the condition ``IfVersion``. The new
        version may be empty.
        """
        new = self.replacement
        return self.storage.put(new.key, new.data, IfVersion(new.version))


@dataclass(frozen=True, slots=True, repr=False)
class StorageObjectInfo(Record):
    """One object of a storage: its key, its size, and the time of its last write, with a time zone."""

    key: str
    size_bytes: int
    created_at: datetime

    shown_as: ClassVar[str] = "storage.StorageObjectInfo"


def storage_label(storage: Storage) -> str:
    """Return one line that names a storage, without secrets: its URL, or its kind and path."""
    lines = [line.partition(": ") for line in repr(storage).splitlines() if ": " in line]
    url = next((value for name, _, value in lines if name == "url"), None)
    return url or ", ".join(value if name == "type" else f"{name} {value}" for name, _, value in lines)


class Storage(StorageClassMethods["Storage"], ABC):
    """Bytes under keys: the base class of all storages.

    The docstring of the module ``frazil.storage.base`` is the contract. A class for another storage
    implements the abstract methods. ``frazil.testing.storage_suite.StorageSuite`` tests it.

    Every method raises ``InvalidInputError`` (``bad-key-prefix``) for an invalid key. Every method that
    writes raises ``ReadOnlyError`` (``read-only-storage``) if the storage is read only.

    Attributes:
        is_local: True if reads and writes take microseconds and never wait for a network. Default: False.
        is_read_only: True if every write raises ``ReadOnlyError``. Default: False.
        is_whole_bucket: True if the storage is a bucket without a prefix, so that everything in the bucket
            would belong to the repository. Default: False.

    Examples:
        >>> from frazil.storage import IfAbsent, IfVersion, S3Options, Storage, in_memory_storage
        >>> from frazil.storage import azure_credentials, gcs_credentials
        >>> storage = in_memory_storage()
        >>> storage.label(), storage.encodes_names(), storage.default_settings().retries.max_tries
        ('in-memory', True, 1)
        >>> first = storage.put("repo", b"first", IfAbsent())
        >>> storage.put("repo", b"second", IfAbsent())
        Refused()
        >>> data, version = storage.get_versioned("repo")
        >>> storage.backup("repo", version, data, to="overwritten/repo.1")
        >>> second = storage.put("repo", bytes(data) + b"2", IfVersion(version))
        >>> bytes(storage.get("repo")), bytes(storage.get("repo", 2, 5))
        (b'first2', b'rst')
        >>> stored = storage.put_parts("chunks/A", [b"ice", b"berg"])
        >>> out = bytearray(b"....")
        >>> storage.get_into("chunks/A", 5, memoryview(out)), bytes(out)
        (2, b'rg..')
        >>> storage.list_objects(prefix="chunks"), len(storage.list_objects_metadata())
        ([('A', 7)], 3)
        >>> sorted(info.key for info in storage.list(""))
        ['chunks/A', 'overwritten/repo.1', 'repo']
        >>> storage.delete(["repo"])
        >>> storage.head("repo") is None
        True
        >>> other = storage.with_settings(storage.default_settings()).with_user_agent("forecast/1.2")

        The constructors of the reference take options and credentials as objects:

        >>> other = Storage.new_in_memory(), Storage.new_local_filesystem("/data/ice")
        >>> web = Storage.new_http("https://example.org/ice"), Storage.new_redirect("https://example.org/latest")
        >>> options = S3Options(region="eu-west-1", anonymous=True)
        >>> Storage.new_s3(options, "ice", "a").label()
        's3://ice/a'
        >>> storage = Storage.new_s3_object_store(options, "ice", "a")
        >>> storage = Storage.new_tigris(options, "ice", "a", use_weak_consistency=True)
        >>> storage = Storage.new_r2(options, prefix="ice/a", account_id="abc")
        >>> storage = Storage.new_hf(options, "ice", "a", "me")
        >>> storage = Storage.new_gcs("ice", "a", gcs_credentials(anonymous=True))
        >>> Storage.new_azure_blob("me", "ice", "a", azure_credentials(anonymous=True)).label()
        'az://me/ice/a'
    """

    is_local: bool = False
    is_read_only: bool = False
    is_whole_bucket: bool = False

    def label(self) -> str:
        """Return one line that names the storage in messages. It contains no secrets.

        Returns:
            The URL of the storage, its path, or its kind.
        """
        return storage_label(self)

    def encodes_names(self) -> bool:
        """Return whether object names in this storage contain percent codes for some characters.

        The reference implementation writes such names in all storages except S3. A reader finds these objects
        only under the encoded names.

        Returns:
            True if names are encoded. The base class returns False.
        """
        return False

    @abstractmethod
    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        """Return a range of bytes of an object.

        The default range is the whole object. Only this range may be read from an object without bytes.

        Args:
            key: Key of the object.
            start: First byte of the range. Default: 0.
            stop: End of the range; the byte at this position is not part of the range. It must be greater
                than ``start``. None, the default, means the end of the object. A position after the end of
                the object means its end.

        Returns:
            The bytes ``start <= i < stop``. The type is any buffer, for example ``bytes`` or ``memoryview``.

        Raises:
            StorageError: ``object-not-found`` if there is no such object; ``object-store`` if the range
                begins at the end of the object or after it; another kind if the request fails.
            InvalidInputError: ``bad-key-prefix`` for an invalid key; ``invalid-byte-range`` unless
                ``0 <= start < stop``.
        """

    def get_into(self, key: str, start: int, out: memoryview) -> int:
        """Read a range of bytes of an object into memory.

        The base class copies the result of ``get``. A storage of files reads without a copy.

        Args:
            key: Key of the object.
            start: First byte of the range.
            out: Writable memory for the bytes of the range, of the format ``B``, with at least one byte.

        Returns:
            The number of bytes that were read. It is less than ``len(out)`` only at the end of the object.

        Raises:
            StorageError: As in ``get``. The content of ``out`` is then not defined.
        """
        data = memoryview(self.get(key, start, start + len(out))).cast("B")
        out[: len(data)] = data
        return len(data)

    def is_at_hand(self, key: str, start: int, stop: int) -> bool:
        """Return whether a read of a range takes microseconds, for example from a cache on disk.

        Args:
            key: Key of the object.
            start: First byte of the range.
            stop: End of the range.

        Returns:
            True if no request over a network is likely. The base class returns ``is_local``.

        Examples:
            >>> from frazil.storage import in_memory_storage
            >>> in_memory_storage().is_at_hand("chunks/A", 0, 10)
            True
        """
        return self.is_local

    @abstractmethod
    def get_versioned(self, key: str) -> tuple[Buffer, Version]:
        """Return a whole object and its version.

        Both come from one answer of the storage, so that no write can happen between them.

        Args:
            key: Key of the object.

        Returns:
            The bytes, and the version for ``IfVersion``. This version is never empty in a storage that
            supports conditional updates.

        Raises:
            StorageError: ``object-not-found`` if there is no such object; another kind if the request fails.
        """

    @abstractmethod
    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        """Write a whole object.

        The object is durable when the method returns ``Stored``. After an error, the object may or may
        not be written.

        Args:
            key: Key of the object.
            data: All bytes of the object.
            condition: ``ALWAYS`` (the default), ``IfAbsent()`` or ``IfVersion(version)``. The comparison and
                the write are atomic for all writers of the key. ``ALWAYS`` is only for keys that no other
                writer uses.

        Returns:
            ``Stored`` with the new version. This version may be empty for ``ALWAYS``. ``Refused`` if the
            server answered that the condition does not hold; this does not prove that the call wrote nothing.

        Raises:
            StorageError: The write failed or its outcome is not known.
        """

    def put_parts(self, key: str, parts: Sequence[Buffer], condition: Condition = ALWAYS) -> Stored | Refused:
        """Write a whole object whose bytes are in several buffers, one after the other, as ``put`` does.

        The base class joins the parts and calls ``put``. A storage may override this method to save the copy.

        Args:
            key: Key of the object.
            parts: All bytes of the object. The parts are one-dimensional buffers of bytes.
            condition: See ``put``.

        Returns:
            See ``put``.
        """
        return self.put(key, b"".join(parts), condition)

    def backup(self, key: str, version: Version, data: Buffer, to: str) -> None:
        """Create a copy of an object that the caller has read.

        A storage may copy or link the object on its own side if it ensures that the bytes are those of
        ``version``. It may also write ``data``. An existing object at ``to`` is replaced.

        Args:
            key: Key of the object that was read.
            version: Version of the object, from ``get_versioned``.
            data: Bytes of the object, from ``get_versioned``.
            to: Key of the copy.

        Raises:
            StorageError: The write failed.
        """
        self.put(to, data)

    def put_many(self, objects: Iterable[tuple[str, Buffer]]) -> None:
        """Write many whole objects without conditions.

        All objects are durable when the method returns. The keys must contain random ids, and no reader may
        look for them before. Until then, and after an error, each object may or may not be there. After a
        power failure an object may be incomplete. The base class calls ``put`` for each of them, for several
        at the same time unless ``is_local`` is true.

        Args:
            objects: Pairs of key and bytes.

        Examples:
            >>> from frazil.storage import in_memory_storage
            >>> in_memory_storage().put_many([("chunks/A", b"1"), ("chunks/B", b"2")])
        """
        if self.is_local:
            for key, data in objects:
                self.put(key, data)
            return
        with thread_pool(Purpose.FILE_COPIES) as pool:
            uploads = in_order(lambda pair: pool.submit(self.put, *pair), objects, SIZES[Purpose.FILE_COPIES])
            deque(uploads, 0)

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

        Examples:
            >>> from frazil.storage import in_memory_storage
            >>> storage = in_memory_storage()
            >>> version = storage.put("repo", b"first").version
            >>> new = Replacement("repo", b"second", version, b"first", backup="overwritten/repo.1")
            >>> with storage.open_replacement(new, [("snapshots/A", b"new")]) as ready:
            ...     isinstance(ready.finish(), Stored)
            True
        """
        self.put_many(objects)
        self.backup(replacement.key, replacement.version, replacement.old, replacement.backup)
        return OpenReplacement(self, replacement)

    def flush_folders(self, folders: Iterable[str]) -> None:
        """Make the names of the objects in folders durable, and deletions of such names.

        A writer that finds an object calls this method before it publishes a reference to the object: the
        writer of the object may have been killed before its own flush. The base class does nothing.

        Args:
            folders: Keys without their last segment, such as ``chunks``. ``""`` is that of ``repo``.

        Examples:
            >>> from frazil.storage import in_memory_storage
            >>> in_memory_storage().flush_folders(["chunks"])
        """

    def local_queue(self, key: str) -> AbstractContextManager[None]:
        """Return a context that waits for the other writers of an object on this machine.

        The queue saves work. A writer that reads an object, changes it, and writes it with a condition loses
        if another writer is faster, and begins again. The queue is no condition: a writer that waits too long
        continues without it, and other programs do not know it. The base class does not wait.

        Args:
            key: Key of the object.

        Returns:
            A context manager. Its block reads the object, and writes it with a condition.

        Examples:
            >>> from frazil.storage import in_memory_storage
            >>> with in_memory_storage().local_queue("repo"):
            ...     pass
        """
        return nullcontext()

    @abstractmethod
    def head(self, key: str) -> ObjectInfo | None:
        """Return the size and the modification time of an object, without its bytes.

        Args:
            key: Key of the object.

        Returns:
            The information about the object, or None if there is no such object.

        Raises:
            StorageError: The request failed.
        """

    @abstractmethod
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """List the objects in a directory and in all directories below it.

        Args:
            prefix: Path of the directory, in whole segments, with or without a slash at the end. The prefix
                ``chunks`` does not match the key ``chunks2/A``. The empty string means all objects.

        Returns:
            An iterator over the objects, in no defined order. Objects that are written or deleted during the
            listing may or may not be part of it.

        Raises:
            StorageError: A request failed, or the storage cannot list (``object-store``). The iterator
                may raise, too.
        """

    def folders(self) -> _List[str]:
        """List the folders at the top of the storage. A storage that has a request for them overrides this.

        Returns:
            The names of the folders, sorted, without slashes.

        Raises:
            StorageError: A request failed, or the storage cannot list (``object-store``).

        Examples:
            >>> storage = frazil.in_memory_storage()
            >>> _ = storage.put("ice/repo", b"")
            >>> storage.folders()
            ['ice']
        """
        return sorted(
            {name for each in self.list("") for name, slash, _ in [each.key.partition("/")] if slash}
        )

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects. Missing objects are ignored.

        Args:
            keys: Keys of the objects.

        Raises:
            StorageError: A request failed. Some of the objects may be deleted.
        """

    @abstractmethod
    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        """Do the same as ``get``, for an event loop."""

    @abstractmethod
    async def put_async(self, key: str, data: Buffer) -> Stored:
        """Do the same as ``put`` without a condition, for an event loop."""

    async def put_parts_async(self, key: str, parts: Sequence[Buffer]) -> Stored:
        """Do the same as ``put_parts`` without a condition, for an event loop."""
        return await self.put_async(key, b"".join(parts))

    def origin(self) -> Storage:
        """Return the storage whose objects this storage shows.

        A verification, a repair and a copy read the origin, so that they see its damage.

        Returns:
            The storage below a cache, or this storage itself.

        Examples:
            >>> from frazil.storage import in_memory_storage
            >>> storage = in_memory_storage()
            >>> storage.origin() is storage
            True
        """
        return self

    def default_settings(self) -> StorageSettings:
        """Return the default settings of this kind of storage.

        A repository uses a default where the user's settings and the saved configuration have None.

        Returns:
            The settings. Fields without a special default are None. The base class returns only such fields.
        """
        return StorageSettings()

    @abstractmethod
    def with_settings(self, settings: StorageSettings) -> Storage:
        """Return a storage for the same objects with other settings.

        Args:
            settings: All settings of the new storage: retries, time-outs, concurrency, storage classes and
                conditions. They replace the current settings. A field that is None has its default.

        Returns:
            A new storage. This storage does not change.
        """

    def with_user_agent(self, user_agent: str) -> Storage:
        """Return a storage for the same objects whose requests carry another user agent.

        Args:
            user_agent: Value of the header ``User-Agent``.

        Returns:
            A new storage, or this storage if it does not send requests over a network.
        """
        return self

    @checked
    def list_objects(
        self, settings: StorageSettings | None = None, prefix: str | None = None
    ) -> _List[tuple[str, int]]:
        """Return the key and the size of every object.

        Args:
            settings: As in ``list_objects_metadata``, which also returns the times of the writes.
            prefix: As in ``list_objects_metadata``.

        Returns:
            Pairs of key and size in bytes, in no defined order.
        """
        return [(info.key, info.size_bytes) for info in self.list_objects_metadata(settings, prefix)]

    @checked
    def list_objects_metadata(
        self, settings: StorageSettings | None = None, prefix: str | None = None
    ) -> _List[StorageObjectInfo]:
        """Return the key, the size and the modification time of every object.

        Args:
            settings: Settings for the requests. Default: the settings of the storage.
            prefix: Path of a directory. The result then contains only the objects below it, and the keys are
                relative to it. Default: all objects.

        Returns:
            One ``StorageObjectInfo`` for each object, in no defined order.

        Raises:
            StorageError: A request failed, or the storage cannot list (``object-store``).
        """
        storage = self if settings is None else self.with_settings(settings)
        objects = storage.list(prefix or "")
        inside = len(prefix.rstrip("/")) + 1 if prefix and prefix.rstrip("/") else 0
        return [StorageObjectInfo(info.key[inside:], info.size, info.modified) for info in objects]

    def _repr_html_(self) -> str:
        """Return the storage as HTML, for notebooks."""
        return Lines(f"{PACKAGE}.Storage", repr(self))._repr_html_()
