"""The record of the newest undo or redo, in the metadata of the repository.

The ops log has no field for "this update undoes that one". So each undo and redo writes its own record under
``frazil.undo``, in the same write as its entries of the ops log. A record only has places in the log, because
older records are in the backups at these places. So its size does not depend on the number of undone updates.

    at       the time of the undo or redo
    update   the state after the update that it undid or made again
    cursor   of an undo: the newest update of this state is the next one to undo
    redo     of a redo: the state after the undo that the next redo takes back, if there is one
    fields   of an undo: fields that have returned to states before the cursor, with these states

Other implementations store the record unchanged, as they do with all metadata. If one of them removes it, the
records of earlier undos are in the backups. So an undo continues there, and only a redo is not possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

#: A key of the metadata of a repository.
UNDO: Final = "frazil.undo"
#: Items of the metadata with this prefix belong to Frazil. Undo does not change them.
OWN_PREFIX: Final = "frazil."
#: The record has no more fields after this number of characters. A field without a place counts as undone if
#: its value is not that of the update.
_MOST: Final = 600


@dataclass(frozen=True, slots=True)
class Place:
    """A state of the repository: the time of its newest update, and its backup.

    Without ``backup``, the ops log has the name: it was not known when the place was written.
    """

    time: int
    backup: str | None = None


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """What an undo or a redo did, as places in the ops log. Only an undo has a ``cursor``."""

    at: int
    update: Place
    cursor: Place | None = None
    redo: Place | None = None
    fields: Mapping[str, Place] = field(default_factory=dict)

    @property
    def last_undo(self) -> Place | None:
        """The state after the undo that the next redo takes back. None if there is none."""
        return Place(self.at) if self.cursor else self.redo

    @staticmethod
    def of(metadata: Mapping[str, Any]) -> UndoRecord | None:
        """Return the record in the metadata of a repository. Values of other programs count as no record."""
        try:
            document = metadata[UNDO]
            places = {
                name: _place(document[name]) for name in ("update", "cursor", "redo") if name in document
            }
            fields = {name: _place(each) for name, each in document.get("fields", {}).items()}
            return UndoRecord(int(document["at"]), **places, fields=fields)
        except (AttributeError, KeyError, TypeError, ValueError):
            return None

    def added_to(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata of a repository with this record."""
        document: dict[str, Any] = {"at": self.at}
        for name in ("update", "cursor", "redo"):
            if (place := getattr(self, name)) is not None:
                document[name] = _document(place)
        fields: dict[str, list[Any]] = {}
        for name, place in sorted(self.fields.items(), key=lambda each: each[1].time):
            if len(str(fields)) + len(name) <= _MOST:
                fields[name] = _document(place)
        return {**metadata, UNDO: {**document, "fields": fields} if fields else document}


def _place(document: Any) -> Place:
    time, *backup = document
    if not isinstance(time, int) or not 0 <= time < 1 << 63 or not all(isinstance(e, str) for e in backup):
        raise ValueError(document)
    return Place(time, *backup)


def _document(place: Place) -> list[Any]:
    return [place.time, place.backup] if place.backup else [place.time]
