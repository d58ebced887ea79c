"""The mark in a copy: when all of its objects were compared with the source.

The mark is an empty object, and its modification time is the information. The clock of the storage sets this
time, as for all other objects. So an object that is older than the mark was there when the copy was complete,
and did not change since. Other implementations ignore the folder of the mark.
"""

from __future__ import annotations

from typing import Final

from frazil.repository.clock import from_datetime
from frazil.storage.base import Storage

CHECKED: Final = "copies/checked"
#: Storages report modification times in seconds, in microseconds.
_ROUNDING: Final = 2_000_000


def put_checked_mark(storage: Storage) -> None:
    """Put the mark.

    Args:
        storage: The storage of a complete copy.

    Examples:
        >>> from frazil.storage import in_memory_storage
        >>> storage = in_memory_storage()
        >>> put_checked_mark(storage)
        >>> checked_before(storage) > 0
        True
    """
    storage.put(CHECKED, b"checked")


def checked_before(storage: Storage) -> int:
    """Return the time before which all objects of a copy were compared with the source.

    Args:
        storage: The storage of the copy.

    Returns:
        Microseconds since 1970, by the clock of the storage. 0 without a mark.

    Examples:
        >>> from frazil.storage import in_memory_storage
        >>> checked_before(in_memory_storage())
        0
    """
    info = storage.head(CHECKED)
    return 0 if info is None else max(0, from_datetime(info.modified) - _ROUNDING)
