"""The public values of an undo: what changed, or what would change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from frazil.display import Record, Shown, literal
from frazil.repository.catalog.ops_values import Update


@dataclass(frozen=True, slots=True, repr=False)
class StateChange(Record):
    """The change of one branch, tag, feature flag, item of metadata, of the configuration or the status.

    Attributes:
        subject: What changed, such as ``branch `main` ``.
        before: The earlier value as text: the id of a snapshot for branches and tags. None if it did not
            exist.
        after: The later value as text. None if it does not exist any more.
    """

    subject: str
    before: str | None
    after: str | None

    shown_as: ClassVar[str] = "ops.StateChange"


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, repr=False)
class UndoPlan(Record):
    """The plan of an undo, a redo or a restoration (``Repository.history``). Only ``apply`` makes changes.

    Attributes:
        updates: The entries of the ops log that are undone or made again, newest first. Empty for
            ``restore_to``.
        changes: The changes of the repository.
        notes: What the user may want to know before the changes: branches and tags that are deleted,
            protections of branches that are removed or replaced, and a newer update that changed nothing.
        is_applied: Whether the changes were made. ``apply`` returns such a plan.
        perform: The function that ``apply`` calls.
    """

    updates: list[Update] = field(default_factory=list, hash=False)
    changes: list[StateChange] = field(default_factory=list, hash=False)
    notes: list[str] = field(default_factory=list, hash=False)
    is_applied: bool = False
    perform: Callable[[], object] = field(default=_nothing, compare=False)

    shown_as: ClassVar[str] = "ops.UndoPlan"

    def apply(self) -> UndoPlan:
        """Make exactly the changes of the plan, in one update.

        Returns:
            The same plan, with ``is_applied``.

        Raises:
            ConflictError: ``repo-info-updated`` if another update changed the same branch, tag or value since
                the plan was made. Nothing was changed.
            SessionStateError: ``cannot-undo`` if a snapshot of the changes was expired or collected since.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.create_branch("dev", "main")
            >>> plan = repo.history.undo()
            >>> plan.notes
            ['the branch `dev` is deleted']
            >>> plan.apply().is_applied
            True
        """
        self.perform()
        return replace(self, is_applied=True)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as values of JSON.

        Returns:
            A dictionary with ``updates``, ``changes``, ``notes`` and ``is_applied``.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.create_branch("dev", "main")
            >>> repo.history.undo().as_dict()["notes"]
            ['the branch `dev` is deleted']
        """
        return {
            "updates": [f"{type(each.kind).__name__} {each.updated_at.isoformat()}" for each in self.updates],
            "changes": list(map(asdict, self.changes)),
            "notes": list(self.notes),
            "is_applied": self.is_applied,
        }

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        for update in self.updates:
            yield "update", repr(update.kind)
        for change in self.changes:
            yield change.subject, f"{change.before} -> {change.after}"
        for note in self.notes:
            yield "note", note
        yield "is_applied", literal(self.is_applied)
