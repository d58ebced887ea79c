"""The files that a repair puts aside: below ``quarantine/<time>/``, under their own key.

The format does not know this folder, so all readers, writers and garbage collections ignore it. A file is
put aside before it is replaced or moved. So a repair that is interrupted loses no byte, and the next repair
finds whole files among those that were put aside.
"""

from __future__ import annotations

from collections.abc import Buffer, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, override

from frazil.errors import ConflictError, ErrorKind, StorageError
from frazil.format.keys import CHUNKS, MANIFESTS, OVERWRITTEN, SNAPSHOTS, TRANSACTIONS
from frazil.host import random_bytes
from frazil.repository.clock import now_us, to_datetime
from frazil.storage.base import (
    ALWAYS,
    Condition,
    IfAbsent,
    IfVersion,
    ObjectInfo,
    Refused,
    Storage,
    Stored,
    Version,
)
from frazil.storage.outages import require_whole
from frazil.storage.settings import StorageSettings
from frazil.storage.synchronous import SynchronousStorage
from frazil.threads import Purpose, map_bounded

QUARANTINE: Final = "quarantine"
_FILES: Final = tuple(f"{folder}/" for folder in (SNAPSHOTS, TRANSACTIONS, MANIFESTS, CHUNKS, OVERWRITTEN))


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The folder for the files of one repair."""

    prefix: str

    @classmethod
    def new(cls) -> Quarantine:
        """Return a folder with a name that no other repair has."""
        time: datetime = to_datetime(now_us())
        return cls(f"{QUARANTINE}/{time:%Y%m%dT%H%M%SZ}-{random_bytes(4).hex()}")

    def store(self, storage: Storage, key: str, data: Buffer) -> None:
        """Store a copy of a file."""
        storage.put(f"{self.prefix}/{key}", data)

    def replace_file(self, storage: Storage, key: str, data: Buffer) -> bool:
        """Put the present file aside, and write another content under its key."""
        present = read_present(storage, key)
        if present is None:
            condition: Condition = IfAbsent()
        else:
            if memoryview(present[0]) == memoryview(data):
                return False
            self.store(storage, key, present[0])
            condition = IfVersion(present[1])
        if not isinstance(storage.put(key, data, condition), Refused):
            return True
        # The storage may have refused a retry of its own client, after the first attempt took effect.
        present = read_present(storage, key)
        if present is not None and memoryview(present[0]) == memoryview(data):
            return True
        raise ConflictError(
            message=f"another process changed `{key}` during the repair. Make a new plan",
            kind=ErrorKind.REPO_INFO_UPDATED,
        )


def read_present(storage: Storage, key: str) -> tuple[Buffer, Version] | None:
    """Return a whole file with its version, or None if there is no file."""
    try:
        present = storage.get_versioned(key)
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        return None
    require_whole(storage, key, *present)
    return present


def copies_in_quarantine(storage: Storage) -> dict[str, list[str]]:
    """Return the keys of all files in quarantine, by the key that they had."""
    names: dict[str, list[str]] = {}
    for info in storage.list(QUARANTINE):
        _, _, key = info.key.removeprefix(f"{QUARANTINE}/").partition("/")
        names.setdefault(key, []).append(info.key)
    return names


class QuarantiningStorage(SynchronousStorage):
    """A storage whose ``delete`` first puts files of the format aside. All other calls go to ``inner``."""

    def __init__(self, inner: Storage, quarantine: Quarantine) -> None:
        self._inner = inner
        self._quarantine = quarantine
        self.is_local = inner.is_local

    def __repr__(self) -> str:
        return repr(self._inner)

    @override
    def delete(self, keys: Iterable[str]) -> None:
        every = list(keys)

        def put_aside(key: str) -> None:
            present = read_present(self._inner, key)
            if present is not None:
                self._quarantine.store(self._inner, key, present[0])

        map_bounded(Purpose.FILE_COPIES, put_aside, [key for key in every if key.startswith(_FILES)])
        self._inner.delete(every)

    @override
    def encodes_names(self) -> bool:
        return self._inner.encodes_names()

    @override
    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        return self._inner.get(key, start, stop)

    @override
    def get_versioned(self, key: str) -> tuple[Buffer, Version]:
        return self._inner.get_versioned(key)

    @override
    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        return self._inner.put(key, data, condition)

    @override
    def backup(self, key: str, version: Version, data: Buffer, to: str) -> None:
        self._inner.backup(key, version, data, to)

    @override
    def head(self, key: str) -> ObjectInfo | None:
        return self._inner.head(key)

    @override
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._inner.list(prefix)

    @override
    def default_settings(self) -> StorageSettings:
        return self._inner.default_settings()

    @override
    def with_settings(self, settings: StorageSettings) -> Storage:
        return QuarantiningStorage(self._inner.with_settings(settings), self._quarantine)
