"""Functions that all pieces of a verification use: foreign references, and errors as values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from frazil.errors import ErrorKind, IcechunkError
from frazil.format.manifest import ChunkTable, VirtualRef
from frazil.storage.foreign.base import is_foreign_outage

#: The checks of foreign objects, by the kinds of errors of their reads.
_VIRTUAL: Final = {
    ErrorKind.VIRTUAL_CHUNK_MODIFIED: "virtual-modified",
    ErrorKind.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER: "virtual-unauthorized",
    ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK: "virtual-unauthorized",
}


def virtual_check(error: IcechunkError) -> str:
    """Return the name of the check that the error of a foreign read belongs to.

    An error of the network or of a permission says nothing about the object: it could not be read.
    """
    other = "virtual-unavailable" if is_foreign_outage(error) else "virtual-unreadable"
    return _VIRTUAL.get(error.kind, other)


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
