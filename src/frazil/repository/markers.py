"""Markers: small JSON objects in the storage by which processes inform each other.

Leases and records of garbage collections are markers. The format does not define them, and other
implementations ignore them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from frazil.errors import ErrorKind, StorageError
from frazil.format.ids import id_to_text
from frazil.repository.clock import from_datetime
from frazil.repository.ids import new_object_id
from frazil.storage.base import ALWAYS, Condition, ObjectInfo, Storage
from frazil.threads import Purpose, thread_pool

#: The size of the largest marker that is read, in bytes. Frazil writes less than one KiB.
_LARGEST: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker as it is stored. ``modified`` is in microseconds since 1970, by the clock of the storage."""

    key: str
    modified: int
    content: Mapping[str, Any]

    def number(self, name: str) -> int:
        """Return a field as an integer; 0 if it is missing or not an integer."""
        value = self.content.get(name)
        return value if isinstance(value, int) else 0

    def text(self, name: str) -> str:
        """Return a field as text; empty if it is missing or not text."""
        value = self.content.get(name)
        return value if isinstance(value, str) else ""


def new_key(folder: str) -> str:
    """Return a random key in a folder."""
    return f"{folder}/{id_to_text(new_object_id())}"


def put_marker(storage: Storage, key: str, content: Mapping[str, Any], condition: Condition = ALWAYS) -> None:
    """Write a marker."""
    storage.put(key, json.dumps(content).encode(), condition)


def read_markers(storage: Storage, folder: str, ignored: str = "") -> Iterator[Marker]:
    """Read all markers of a folder, except those with keys that end in ``ignored``.

    A marker that is damaged or too large has no fields. A marker that is deleted during the call is left out.
    """
    objects = [info for info in storage.list(folder) if not (ignored and info.key.endswith(ignored))]
    with thread_pool(Purpose.MARKER_READS) as pool:
        yield from filter(None, pool.map(partial(_read, storage), objects))


def _read(storage: Storage, info: ObjectInfo) -> Marker | None:
    try:
        content = json.loads(bytes(storage.get(info.key))) if info.size <= _LARGEST else None
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        return None
    except (ValueError, RecursionError):
        content = None
    fields = content if isinstance(content, dict) else {}
    return Marker(info.key, from_datetime(info.modified), fields)
