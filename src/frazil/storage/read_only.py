"""The base of storages that are read only."""

from __future__ import annotations

from typing import TYPE_CHECKING, override

from frazil.errors import ErrorKind, ReadOnlyError
from frazil.storage.base import ALWAYS, Storage

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterable

    from frazil.storage.base import Condition, Refused, Stored


class ReadOnlyStorage(Storage):
    """A storage in which every write raises ``ReadOnlyError`` (``read-only-storage``)."""

    is_read_only = True

    @override
    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        raise _read_only(self)

    @override
    async def put_async(self, key: str, data: Buffer) -> Stored:
        raise _read_only(self)

    @override
    def delete(self, keys: Iterable[str]) -> None:
        raise _read_only(self)


def _read_only(storage: Storage) -> ReadOnlyError:
    return ReadOnlyError(
        f"{storage.label()} is read only. Use a storage that can be written", ErrorKind.READ_ONLY_STORAGE
    )
