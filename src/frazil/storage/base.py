"""The contract of a storage: bytes under keys. One page; every implementation keeps all of it.

*Keys* are relative paths with ``/``, as the specification lays them out (``repo``,
``chunks/1CECHNKREP0F1RSTCMT0``). No empty, ``.`` or ``..`` segments; anything else is an
``InvalidInputError``.

*Reading.* A read after an acknowledged write sees it. A missing object is a ``StorageError`` of kind
``object-not-found``, never None and never empty bytes. A range past the end is clamped; a range
that starts at or past the end gives a ``StorageError``. A short read is an error, not a result.

*Writing.* An object appears whole or not at all, also when the process dies in between. A write
without a condition (``Always``) is only for keys that nobody else writes (they carry a random id).
``IfAbsent`` and ``IfVersion`` are atomic against every other writer of that key, in any process.
When ``put`` returns ``Stored``, the object is durable. ``Refused`` says that the server answered "the
condition does not hold", which is *no proof that this call wrote nothing*: the client may have retried
after a lost answer and met its own write. An exception proves even less. Whoever writes with a condition
must be able to recognise his own bytes and look for them (``repository.catalog.repo_update`` does).

*Versions* are opaque. Two writes of different bytes never have the same version; two of the same
bytes may. The version of an unconditional write may be empty (no etag, no generation): read the object
before conditioning on it.

*Deleting* a missing object is no error. *Listing* is recursive, in no promised order, and shows
only whole objects.

*Threads.* Every method may be called from many threads. A storage can be pickled (but for memory,
which says so), and must not be used in a child made by ``os.fork()`` after use in the parent: it
notices and raises ``StorageError`` of kind ``forked-process``.

The core is synchronous; the two ``*_async`` methods exist for zarr's event loop, where hundreds of
chunk requests wait at once. For a storage with ``is_local`` they are never needed: its plain reads
return at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Buffer, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from frazil.arguments import checked
from frazil.display import PACKAGE, Lines
from frazil.storage.class_methods import StorageClassMethods
from frazil.storage.listing import StorageObjectInfo

if TYPE_CHECKING:
    from frazil.storage.settings import StorageSettings


@dataclass(frozen=True, slots=True)
class Version:
    """Which write of an object this is. Opaque: compare, pickle, hand back in ``IfVersion``."""

    etag: str | None = None
    generation: str | None = None


@dataclass(frozen=True, slots=True)
class Always:
    """Write whatever is there."""


@dataclass(frozen=True, slots=True)
class IfAbsent:
    """Write only if there is no object under the key."""


@dataclass(frozen=True, slots=True)
class IfVersion:
    """Write only if the object is still the one that was read as ``version``."""

    version: Version


#: ``list`` is a method of the storage.
type _List[T] = list[T]
Condition = Always | IfAbsent | IfVersion
ALWAYS: Final = Always()


@dataclass(frozen=True, slots=True)
class Stored:
    """The write took effect; this is its version."""

    version: Version


@dataclass(frozen=True, slots=True)
class Refused:
    """The condition did not hold, says the server. See the contract for what this proves."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object of a listing; what is known of its version comes with `Storage.head` alone."""

    key: str
    size: int
    modified: datetime
    etag: str | None = None


def storage_label(storage: Storage) -> str:
    """Which storage it is, on one line without secrets: the kind, and what says where."""
    lines = [line.partition(": ") for line in repr(storage).splitlines() if ": " in line]
    return ", ".join(value if name == "type" else f"{name} {value}" for name, _, value in lines)


class Storage(StorageClassMethods["Storage"], ABC):
    """See the module's docstring: the contract."""

    #: Reads and writes cost microseconds and never wait for a network.
    is_local: bool = False
    #: Every write raises ``ReadOnlyError`` of kind ``read-only-storage``.
    is_read_only: bool = False

    #: A bucket without a prefix: everything in it would be the repository.
    is_whole_bucket: bool = False

    def label(self) -> str:
        """Which storage it is, on one line, for messages."""
        return storage_label(self)

    def encodes_names(self) -> bool:
        """Whether the reference percent-encodes some characters in the names of objects here.

        All but S3: what was written there is only found under such names.
        """
        return False

    @abstractmethod
    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        """The bytes ``start <= i < stop`` of an object, to its end if ``stop`` is None."""

    @abstractmethod
    def get_versioned(self, key: str) -> tuple[Buffer, Version]:
        """The whole object and its version, from one answer."""

    @abstractmethod
    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        """Write a whole object; durable on return."""

    def put_many(self, objects: Iterable[tuple[str, Buffer]]) -> None:
        """Write whole objects without condition; all of them durable on return.

        For names that are random, which nobody looks at yet: until it returns, and after an error, any of
        them may be there or not, and after a power cut in part. A storage may do this faster than one by one.
        """
        for key, data in objects:
            self.put(key, data)

    @abstractmethod
    def backup(self, key: str, version: Version, data: Buffer, to: str) -> None:
        """Make ``to`` an object with the bytes ``data``, which were read from ``key`` as ``version``.

        A storage may copy or link on its own side, if it makes sure that the bytes are of that version;
        or simply write ``data``.
        """

    @abstractmethod
    def head(self, key: str) -> ObjectInfo | None:
        """Size and time of an object; None if there is none."""

    @abstractmethod
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Every object whose key starts with the path ``prefix`` (whole segments; '' is everything)."""

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; missing ones are no error."""

    @abstractmethod
    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        """``get`` for an event loop."""

    @abstractmethod
    async def put_async(self, key: str, data: Buffer) -> Stored:
        """``put(key, data, ALWAYS)`` for an event loop."""

    @abstractmethod
    def default_settings(self) -> StorageSettings:
        """What this kind of storage does where the user's settings say nothing."""

    @abstractmethod
    def with_settings(self, settings: StorageSettings) -> Storage:
        """The same storage with other settings (timeouts, retries, storage classes)."""

    def with_user_agent(self, user_agent: str) -> Storage:
        """The same storage, whose requests say who asks. Without requests it is this one."""
        return self

    @checked
    def list_objects(
        self, settings: StorageSettings | None = None, prefix: str | None = None
    ) -> _List[tuple[str, int]]:
        """Key and size in bytes of every object; ``list_objects_metadata`` also knows when it was written."""
        return [(info.key, info.size_bytes) for info in self.list_objects_metadata(settings, prefix)]

    @checked
    def list_objects_metadata(
        self, settings: StorageSettings | None = None, prefix: str | None = None
    ) -> _List[StorageObjectInfo]:
        """Every object, or those in the directory ``prefix``; their keys are then relative to it."""
        storage = self if settings is None else self.with_settings(settings)
        objects = storage.list(prefix or "")
        inside = len(prefix.rstrip("/")) + 1 if prefix and prefix.rstrip("/") else 0
        return [StorageObjectInfo(info.key[inside:], info.size, info.modified) for info in objects]

    def _repr_html_(self) -> str:
        """The storage as HTML, for notebooks."""
        return Lines(f"{PACKAGE}.Storage", repr(self))._repr_html_()
