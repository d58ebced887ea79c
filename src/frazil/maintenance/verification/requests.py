"""Functions that all pieces of a verification use: foreign references, and errors as values."""

from __future__ import annotations

from collections.abc import Callable

from frazil.errors import IcechunkError
from frazil.format.manifest import ChunkTable, VirtualRef


def virtual(table: ChunkTable, row: int, offset: int, length: int) -> VirtualRef:
    """Return a reference to a range of the foreign object ``row`` of a table, with its checksum."""
    foreign = table.foreign
    etag, modified = foreign.etags.text(row) or None, int(foreign.modified[row]) or None
    return VirtualRef(foreign.locations.text(row), offset, length, etag, modified)


def problem(action: Callable[[], object]) -> IcechunkError | None:
    """Return the error that an action raises, or None."""
    try:
        action()
    except IcechunkError as error:
        return error
    return None
