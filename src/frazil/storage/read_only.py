"""The base of storages that cannot be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import ErrorKind, ReadOnlyError
from frazil.storage.base import ALWAYS, Storage

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterable

    from frazil.storage.base import Condition, Refused, Stored, Version


class ReadOnlyStorage(Storage):
    """Every write raises ``ReadOnlyError`` (``read-only-storage``)."""

    is_read_only = True

    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        raise _read_only(self)

    async def put_async(self, key: str, data: Buffer) -> Stored:
        raise _read_only(self)

    def backup(self, key: str, version: Version, data: Buffer, to: str) -> None:
        raise _read_only(self)

    def delete(self, keys: Iterable[str]) -> None:
        raise _read_only(self)


def _read_only(storage: Storage) -> ReadOnlyError:
    return ReadOnlyError(
        f"{storage.label()} is read only: use a storage that writes", ErrorKind.READ_ONLY_STORAGE
    )
