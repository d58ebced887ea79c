"""The record of undone updates, in the metadata of the repository.

The ops log has no field for "this update undoes that one". So each undo writes two lists under
``frazil.undo``, in the same write as its entries of the ops log:

    undone   the times of the updates that are undone now, the last undone update at the end
    steps    the times of the updates that undo or redo made, and of updates whose undoing is final

Times of updates are unique in a repository, so they identify updates. An undo takes the newest update that is
in neither list, so repeated calls go back step by step. A redo takes the last item of ``undone``.

Other implementations store the record unchanged, as they do with all metadata. Without the record, the effect
of an undo is an ordinary update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

#: A key of the metadata of a repository.
UNDO: Final = "frazil.undo"
#: Keys of the metadata with this prefix belong to Frazil. Undo does not change them.
OWN_PREFIX: Final = "frazil."
#: The largest number of items of each list. The oldest are dropped.
_MOST: Final = 500


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """The times of undone updates, and of updates that undo passes over, in microseconds since 1970.

    Examples:
        >>> record = UndoRecord().with_undone((7,), at=9)
        >>> record.hides(7), record.hides(9), record.hides(5)
        (True, True, False)
        >>> record.with_redone((7,), at=11).undone
        ()
    """

    undone: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()

    @staticmethod
    def of(metadata: Mapping[str, Any]) -> UndoRecord:
        """Return the record in the metadata of a repository. Values of other programs count as no record."""
        document = metadata.get(UNDO)
        if not isinstance(document, Mapping):
            return UndoRecord()
        lists = (document.get(name) for name in ("undone", "steps"))
        return UndoRecord(*map(_times, lists))

    def hides(self, time: int) -> bool:
        """Return whether an undo passes over the update at this time."""
        return time in self.undone or time in self.steps

    def with_undone(self, times: tuple[int, ...], at: int) -> UndoRecord:
        """Return the record after the updates ``times`` were undone by the update ``at``."""
        return UndoRecord((*self.undone, *times)[-_MOST:], (*self.steps, at)[-_MOST:])

    def with_final(self, times: tuple[int, ...], at: int) -> UndoRecord:
        """Return the record after the updates ``times`` were undone by the update ``at``, without a redo."""
        return replace(self, steps=(*self.steps, *times, at)[-_MOST:])

    def with_redone(self, times: tuple[int, ...], at: int) -> UndoRecord:
        """Return the record after the updates ``times`` were made again by the update ``at``."""
        left = tuple(each for each in self.undone if each not in times)
        return replace(self.with_undone((), at), undone=left)

    def added_to(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata of a repository with this record."""
        return {**metadata, UNDO: {"undone": list(self.undone), "steps": list(self.steps)}}


def _times(value: Any) -> tuple[int, ...]:
    is_list = isinstance(value, list) and all(isinstance(each, int) for each in value)
    return tuple(value) if is_list else ()
