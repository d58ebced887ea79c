"""A folder of the storage for the staged results of a job."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.errors import ErrorKind, StorageError
from frazil.storage.base import IfAbsent, Storage, Stored


@dataclass(frozen=True, slots=True)
class Folder:
    """Objects below one key, each written once. It can be pickled, with its storage."""

    storage: Storage
    key: str

    def put(self, name: str, data: bytes) -> bool:
        """Write an object. Returns False, and does not change the object, if it exists."""
        return isinstance(self.storage.put(f"{self.key}/{name}", data, IfAbsent()), Stored)

    def get(self, name: str, start: int = 0, stop: int | None = None) -> bytes | None:
        """Return an object, or a range of its bytes; None if the object does not exist."""
        try:
            return bytes(self.storage.get(f"{self.key}/{name}", start, stop))
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            return None

    def names(self) -> list[str]:
        """Return the names of all objects in the folder and its subfolders, relative to the folder."""
        return [info.key[len(self.key) + 1 :] for info in self.storage.list(self.key)]

    def subfolder(self, name: str) -> Folder:
        """Return a folder in this folder."""
        return Folder(self.storage, f"{self.key}/{name}")
