"""One object in a listing of a storage, as users see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from frazil.display import Record, Shown, utc


@dataclass(frozen=True, slots=True, repr=False)
class StorageObjectInfo(Record):
    """One object of a storage.

    Attributes:
        key: Key of the object.
        size_bytes: Size in bytes.
        created_at: Time of the last write, with a time zone.
    """

    key: str
    size_bytes: int
    created_at: datetime

    shown_as: ClassVar[str] = "storage.StorageObjectInfo"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        return (
            ("key", self.key),
            ("size_bytes", str(self.size_bytes)),
            ("created_at", utc(self.created_at)),
        )
