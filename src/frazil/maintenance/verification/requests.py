"""What the pieces of a verification share: foreign references, and errors as values."""

from __future__ import annotations

from collections.abc import Callable

from frazil.errors import IcechunkError
from frazil.format.manifest import ChunkTable, VirtualRef


def virtual(table: ChunkTable, row: int, offset: int, length: int) -> VirtualRef:
    """A reference to a range of the foreign object ``row`` of a table, in the state that the table
    remembers.
    """
    foreign = table.foreign
    etag, modified = foreign.etags.text(row) or None, int(foreign.modified[row]) or None
    return VirtualRef(foreign.locations.text(row), offset, length, etag, modified)


def problem(action: Callable[[], object]) -> IcechunkError | None:
    """The error that an action ends with; None without one."""
    try:
        action()
    except IcechunkError as error:
        return error
    return None
