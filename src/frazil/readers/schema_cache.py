"""A cache of the schemas that this process has read.

An ingest opens each file several times: to find the concat dimension, to inspect the file, and to copy from
it. The metadata of a file with thousands of variables take seconds to read. The key of a schema is the state
of its file: its size, its time or etag, and the bytes at both ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Final

from frazil.readers.reader import FileSchema

#: The limit for all cached schemas, in bytes.
MOST: Final = 64 << 20
#: The estimated bytes of a variable.
VARIABLE: Final = 2 << 10


class Schemas:
    """The last used schemas by the state of their file, with at most ``most`` bytes."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._used = 0
        self._schemas: OrderedDict[Hashable, tuple[FileSchema, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._schemas)

    def get(self, state: Hashable, read: Callable[[], FileSchema]) -> FileSchema:
        """Return the schema of this state of a file. ``read`` reads it if it is not cached."""
        with self._lock:
            if state in self._schemas:
                self._schemas.move_to_end(state)
                return self._schemas[state][0]
        schema = read()
        size = weight(schema)
        with self._lock:
            if state not in self._schemas and size <= self._most:
                self._schemas[state] = schema, size
                self._used += size
            while self._used > self._most:
                self._used -= self._schemas.popitem(last=False)[1][1]
        return schema


def weight(schema: FileSchema) -> int:
    """Return the estimated bytes of a schema."""
    labels = sum(each.nbytes for each in schema.coords.values())
    return VARIABLE * (1 + len(schema.variables) + len(schema.groups) + len(schema.skipped)) + labels


#: The cache of this process.
SCHEMAS: Final = Schemas()
