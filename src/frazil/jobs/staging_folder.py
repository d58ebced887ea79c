"""A folder of the storage for the staged results of a job."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.errors import ErrorKind, StorageError
from frazil.storage.base import IfAbsent, Storage, Stored


@dataclass(frozen=True, slots=True)
class Folder:
    """Objects below one key, each written once. Can be pickled, with its storage."""

    storage: Storage
    key: str

    def put(self, name: str, data: bytes) -> bool:
        """Write an object whole. False if the object exists: it stays as it is."""
        return isinstance(self.storage.put(f"{self.key}/{name}", data, IfAbsent()), Stored)

    def get(self, name: str, start: int = 0, stop: int | None = None) -> bytes | None:
        """An object, or a range of it. None if the object does not exist."""
        try:
            return bytes(self.storage.get(f"{self.key}/{name}", start, stop))
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            return None

    def names(self) -> list[str]:
        """The names of all objects below the folder, those of its subfolders included."""
        return [info.key[len(self.key) + 1 :] for info in self.storage.list(self.key)]

    def subfolder(self, name: str) -> Folder:
        return Folder(self.storage, f"{self.key}/{name}")
