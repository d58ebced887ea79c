"""The mark in a copy: when all of its objects were compared with the source.

The modification time of the mark is the information, and its content names the part that was copied. The
clock of the storage sets this time, as for all other objects. So an object that is older than the mark was
there when the copy was complete, and did not change since. Other implementations ignore the folder.
"""

from __future__ import annotations

from typing import Final

from frazil.pipeline.replication.part import RepositoryPart
from frazil.repository.clock import from_datetime
from frazil.storage.base import Storage

CHECKED: Final = "copies/checked"
#: Storages report modification times in seconds, in microseconds.
_ROUNDING: Final = 2_000_000


def put_checked_mark(storage: Storage, part: RepositoryPart) -> None:
    """Put the mark."""
    storage.put(CHECKED, _content(part))


def checked_before(storage: Storage, part: RepositoryPart) -> int:
    """Return the time before which all objects of a copy were compared with the source."""
    info = storage.head(CHECKED)
    if info is None or bytes(storage.get(CHECKED)) != _content(part):
        return 0
    return max(0, from_datetime(info.modified) - _ROUNDING)


def _content(part: RepositoryPart) -> bytes:
    return repr(part).encode(errors="replace")
