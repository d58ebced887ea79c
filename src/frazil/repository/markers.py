"""Small JSON objects in a repository's storage by which processes inform each other: leases, and records of
garbage collections. The format knows nothing of them, and other implementations ignore them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from frazil.errors import ErrorKind, StorageError
from frazil.format.ids import OBJECT_ID_BYTES, id_to_text
from frazil.repository.clock import from_datetime
from frazil.storage.base import ALWAYS, Condition, ObjectInfo, Storage
from frazil.threads import Purpose, thread_pool


@dataclass(frozen=True, slots=True)
class Marker:
    """One such object. ``modified`` is by the storage's clock, in microseconds since 1970."""

    key: str
    modified: int
    content: Mapping[str, Any]

    def number(self, name: str) -> int:
        """A field; 0 where it is missing or no integer."""
        value = self.content.get(name)
        return value if isinstance(value, int) else 0

    def text(self, name: str) -> str:
        """A field; empty where it is missing or no text."""
        value = self.content.get(name)
        return value if isinstance(value, str) else ""


def new_key(folder: str) -> str:
    """A key that no other object has."""
    return f"{folder}/{id_to_text(os.urandom(OBJECT_ID_BYTES))}"


def put_marker(storage: Storage, key: str, content: Mapping[str, Any], condition: Condition = ALWAYS) -> None:
    """Write one."""
    storage.put(key, json.dumps(content).encode(), condition)


def read_markers(storage: Storage, folder: str, ignored: str = "") -> Iterator[Marker]:
    """All in a folder, but for keys that end in ``ignored``. One that is damaged has no fields; one that is
    deleted meanwhile is left out.
    """
    objects = [info for info in storage.list(folder) if not (ignored and info.key.endswith(ignored))]
    with thread_pool(Purpose.MARKER_READS) as pool:
        yield from filter(None, pool.map(partial(_read, storage), objects))


def _read(storage: Storage, info: ObjectInfo) -> Marker | None:
    try:
        content = json.loads(bytes(storage.get(info.key)))
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        return None
    except (ValueError, RecursionError):
        content = None
    fields = content if isinstance(content, dict) else {}
    return Marker(info.key, from_datetime(info.modified), fields)
