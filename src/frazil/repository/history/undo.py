"""Undo, redo and restoration: an earlier state of the repository, as a new update.

An undo compares the states before and after an update, which are backups of ``repo``. It makes the opposite
changes in the current repository, where later updates of other fields stay. No snapshot is deleted, so a redo
is possible. The function reads the states first. Then one conditional write makes all changes, if the fields
still have the values that they had after the update.

    update                                undone by
    commit, amend, merge, reset           the branch returns to its snapshot
    branch created, deleted               it is deleted, created
    tag created                           it is deleted; its name cannot be used again
    tag deleted                           not possible: the format forbids it
    configuration, metadata, flag, status the earlier value
    snapshot without a branch             passed over: nothing refers to it
    expiration, collection, migration     not possible
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Final

from frazil.errors import ErrorKind, SessionStateError
from frazil.format.repo_info import RepoInfo, UpdateKind
from frazil.remedies import call
from frazil.repository.catalog import presentation
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_update import Changed
from frazil.repository.clock import utc_text
from frazil.repository.history.inversion import require_possible, update_of
from frazil.repository.history.repo_state import FieldChange, Part, changes_between, fields_of, shown_value
from frazil.repository.history.steps import UpdateStep, state_after, step_at, steps
from frazil.repository.history.undo_record import UndoRecord
from frazil.repository.history.undo_report import StateChange, UndoReport

_FOR_GOOD: Final = {
    UpdateKind.GC_RAN: "a garbage collection",
    UpdateKind.EXPIRATION_RAN: "an expiration, retention or squash",
    UpdateKind.REPO_MIGRATED: "an upgrade of the format",
    UpdateKind.REPO_INITIALIZED: "the creation of the repository",
}
_OF_BRANCHES: Final = frozenset(
    {
        UpdateKind.BRANCH_CREATED,
        UpdateKind.BRANCH_DELETED,
        UpdateKind.BRANCH_RESET,
        UpdateKind.NEW_COMMIT,
        UpdateKind.COMMIT_AMENDED,
    }
)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Changes to make, the update that they undo or make again, and the record of that.

    ``record`` returns the next record from the record, the times of updates, and the time of the new update.
    """

    changes: Sequence[FieldChange]
    step: UpdateStep | None = None
    record: Callable[[UndoRecord, tuple[int, ...], int], UndoRecord] = UndoRecord.with_undone
    notes: list[str] = field(default_factory=list)


def undo(
    context: Context, *, branch: str | None = None, at: int | None = None, dry_run: bool = False
) -> UndoReport:
    """Undo one update. See ``Repository.undo``. ``at`` is in microseconds since 1970."""
    info = context.catalog.repo_info()
    step, changes = _step_to_undo(context, info, branch, at)
    notes = [
        f"the name of the tag `{each.name}` cannot be used again, so this undo has no redo"
        for each in changes
        if each.part is Part.TAG and each.before is None
    ]
    inverse = [replace(each, before=each.after, after=each.before) for each in changes]
    record = UndoRecord.with_final if notes else UndoRecord.with_undone
    return _outcome(context, info, _Plan(inverse, step, record, notes), dry_run)


def redo(context: Context, *, dry_run: bool = False) -> UndoReport:
    """Make the last undone update again. See ``Repository.redo``."""
    info = context.catalog.repo_info()
    undone = UndoRecord.of(info.metadata).undone
    if not undone:
        raise SessionStateError(
            "there is no undone update",
            ErrorKind.CANNOT_UNDO,
        ).with_remedy("`{}` undoes an update, and `{}` makes it again", call("undo"), call("redo"))
    step, before = _step_named(context, info, undone[-1])
    changes = _changes_of(context, info, step, before)
    return _outcome(context, info, _Plan(changes, step, UndoRecord.with_redone), dry_run)


def restore_to(context: Context, at: int, *, dry_run: bool = False) -> UndoReport:
    """Return to the state at a time, in microseconds since 1970. See ``Repository.restore_to``."""
    info = context.catalog.repo_info()
    state = state_after(context.storage, info, step_at(context.storage, info, at))
    changes = changes_between(fields_of(info), fields_of(state))
    notes = [
        f"the name of the tag `{each.name}` cannot be used again"
        for each in changes
        if each.part is Part.TAG and each.after is None
    ]
    return _outcome(context, info, _Plan(changes, notes=notes), dry_run)


def _step_to_undo(
    context: Context, info: RepoInfo, branch: str | None, at: int | None
) -> tuple[UpdateStep, list[FieldChange]]:
    """Return the update to undo, and its changes. Updates without an effect are passed over."""
    record = UndoRecord.of(info.metadata)
    if at is not None:
        step, before = _step_named(context, info, at)
        if record.hides(step.time):
            raise _refusal(step, "it is undone already, or it is an undo; redo makes it again")
        if changes := _changes_of(context, info, step, before):
            return step, changes
        raise _refusal(step, "it changed no branch, tag, configuration, metadata, feature flag or status")
    walk: Iterator[UpdateStep | None] = chain(steps(context.storage, info), [None])
    for candidate, before in pairwise(walk):
        if candidate is None or record.hides(candidate.time) or not _concerns(candidate, branch):
            continue
        if changes := _changes_of(context, info, candidate, before):
            return candidate, changes
    of_branch = "" if branch is None else f" of the branch `{branch}`"
    raise SessionStateError(
        f"the ops log has no update{of_branch} that can be undone",
        ErrorKind.CANNOT_UNDO,
    ).with_remedy("`{}` lists the updates", call("ops_log"))


def _concerns(step: UpdateStep, branch: str | None) -> bool:
    if branch is None:
        return any(each.kind is not UpdateKind.NEW_DETACHED_SNAPSHOT for each in step.entries)
    return any(each.kind in _OF_BRANCHES and each.name == branch for each in step.entries)


def _step_named(context: Context, info: RepoInfo, time: int) -> tuple[UpdateStep, UpdateStep | None]:
    """Return the update at exactly this time, and the update before it."""
    walk = steps(context.storage, info)
    for step in walk:
        if any(each.updated_at == time for each in step.entries):
            return step, next(walk, None)
        if step.time < time:
            break
    raise SessionStateError(
        f"the ops log has no update at {utc_text(time)}",
        ErrorKind.CANNOT_UNDO,
    ).with_remedy("`{}` lists the updates", call("ops_log"))


def _changes_of(
    context: Context, info: RepoInfo, step: UpdateStep, before: UpdateStep | None
) -> list[FieldChange]:
    """Return the changes of an update. Raises ``SessionStateError`` (``cannot-undo``) for some kinds."""
    for entry in step.entries:
        if entry.kind in _FOR_GOOD:
            raise _refusal(step, "its effect is final. Pass `branch` or `update` to undo an earlier update")
    if before is None:
        raise _refusal(step, "a garbage collection has removed the older part of the ops log")
    states = [fields_of(state_after(context.storage, info, each)) for each in (before, step)]
    kinds = {entry.kind for entry in step.entries}
    return [
        each
        for each in changes_between(*states)
        if each.part is not Part.METADATA or UpdateKind.METADATA_CHANGED in kinds
    ]


def _refusal(step: UpdateStep, why: str) -> SessionStateError:
    entry = step.entries[0]
    name = _FOR_GOOD.get(entry.kind) or f"the update `{presentation.update(entry).kind!r}`"
    return SessionStateError(
        f"{name} at {utc_text(step.time)} cannot be undone: {why}. Nothing was changed",
        ErrorKind.CANNOT_UNDO,
    )


def _outcome(context: Context, info: RepoInfo, plan: _Plan, dry_run: bool) -> UndoReport:
    """Make the changes of a plan, or check that they are possible."""
    require_possible(info, plan.changes)
    report = UndoReport(
        list(map(presentation.update, plan.step.entries if plan.step else ())),
        [
            StateChange(each.subject, shown_value(each.part, each.before), shown_value(each.part, each.after))
            for each in plan.changes
        ],
        plan.notes,
        is_applied=not dry_run,
    )
    if dry_run:
        return report

    def change(current: RepoInfo, now: int) -> Changed | None:
        changed = update_of(current, plan.changes, now)
        return None if changed is None else _recorded(changed, plan, now + len(changed.earlier))

    context.catalog.update_full_repo_info(change)
    return report


def _recorded(changed: Changed, plan: _Plan, at: int) -> Changed:
    """Return the update with the record of the undone updates. ``at`` is the time of its newest entry."""
    if plan.step is None:
        return changed
    metadata = changed.info.metadata
    record = plan.record(UndoRecord.of(metadata), (plan.step.time,), at)
    return replace(changed, info=replace(changed.info, metadata=record.added_to(metadata)))
