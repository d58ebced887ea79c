"""Undo, redo and restoration: an earlier state of the repository, as a new update.

An undo compares the states before and after an update, which are backups of ``repo``, and makes the opposite
changes in the current repository. One conditional write makes all changes. If a field has another value than
the caller saw, the update is refused. Each changed field gets its own entry in the ops log. No snapshot is
deleted, so a redo is possible: an ordinary update that returns to the state before an undo. If the newest
update is an undo, the next one to undo is found from the cursor of its record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from frazil.errors import ConflictError, ErrorKind, SessionStateError
from frazil.format.ids import id_to_text
from frazil.format.repo_info import OpsEntry, RepoInfo, Status, UpdateKind
from frazil.remedies import call
from frazil.repository.catalog import presentation
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.history_records import with_branch
from frazil.repository.catalog.protection import PROTECTION
from frazil.repository.catalog.repo_changes import require_flag, require_online, with_ref
from frazil.repository.catalog.repo_update import RepoUpdate
from frazil.repository.clock import utc_text
from frazil.repository.history.repo_state import (
    REFS,
    FieldChange,
    History,
    Part,
    Place,
    State,
    UndoRecord,
    UpdateStep,
    changes_between,
    fields_of,
    no_update,
    shown_value,
    updates_of,
)
from frazil.repository.history.reports import StateChange, UndoPlan
from frazil.repository.settings.resolved import DELETE_TAG, FLAGS


def update_of(info: RepoInfo, changes: Iterable[FieldChange], now: int) -> RepoUpdate | None:
    """Return the update that makes all changes, or None if there are none."""
    ordered = sorted(changes, key=_order)
    require_possible(info, ordered)
    if not any(change.part is Part.STATUS for change in ordered):
        require_online(info)
    entries: list[OpsEntry] = []
    for change in ordered:
        info, entry = _changed(info, change, now + len(entries))
        # All items of the metadata are one update.
        if not (entries and entry.kind is entries[-1].kind is UpdateKind.METADATA_CHANGED):
            entries.append(entry)
    return RepoUpdate(info, entries[-1], tuple(entries[:-1])) if entries else None


def _order(change: FieldChange) -> tuple[int, str, str]:
    """Return the place of a change in the ops log: a repository opens first, and closes last."""
    opens = change.part is Part.STATUS and change.after[0] == 0
    closes = change.part is Part.STATUS and not opens
    return (-1 if opens else 1 if closes else 0, change.part, change.name)


def require_possible(info: RepoInfo, changes: Iterable[FieldChange]) -> None:
    """Raise the error why a change is not possible in the current repository, if one is not."""
    fields = fields_of(info)
    for change in changes:
        is_ref, is_tag, after = change.part in REFS, change.part is Part.TAG, change.after
        if (current := fields.get(change.field)) != change.before:
            expected, actual = (shown_value(change.part, each) for each in (change.before, current))
            raise ConflictError(
                expected if is_ref else None,
                actual if is_ref else None,
                f"the {change.subject} has changed since: expected {expected}, found {actual}. Nothing was "
                "changed. Undo the later updates first, or make the change by hand",
                ErrorKind.REPO_INFO_UPDATED,
            )
        if is_ref and after is not None and info.snapshots.find_snapshot(after) < 0:
            raise SessionStateError(
                f"the {change.subject} cannot return to snapshot {id_to_text(after)}, because the snapshot "
                "was expired or collected. Nothing was changed",
                ErrorKind.CANNOT_UNDO,
            )
        if is_tag and after is None:
            require_flag(info, DELETE_TAG)
        elif is_tag and (change.before is not None or change.name in info.deleted_tags):
            raise SessionStateError(
                f"the tag `{change.name}` was deleted, and the name of a deleted tag cannot be used again. "
                f"Nothing was changed. Create a tag with another name on {id_to_text(after)}",
                ErrorKind.CANNOT_UNDO,
            )


def _changed(info: RepoInfo, change: FieldChange, now: int) -> tuple[RepoInfo, OpsEntry]:
    """Return the repo info after one more change, and the entry of the ops log."""
    name, before, after = change.name, change.before, change.after
    match change.part:
        case Part.BRANCH:
            info = replace(info, branches=with_ref(info.branches, name, after))
            if after is not None:
                info = replace(info, metadata=with_branch(info, after, name))
            if before is None:
                return info, OpsEntry(UpdateKind.BRANCH_CREATED, now, name=name)
            kind = UpdateKind.BRANCH_DELETED if after is None else UpdateKind.BRANCH_RESET
            return info, OpsEntry(kind, now, name=name, previous_snapshot=before)
        case Part.TAG:
            info = replace(info, tags=with_ref(info.tags, name, after))
            if after is not None:
                return info, OpsEntry(UpdateKind.TAG_CREATED, now, name=name)
            info = replace(info, deleted_tags=info.deleted_tags | {name})
            return info, OpsEntry(UpdateKind.TAG_DELETED, now, name=name, previous_snapshot=before)
        case Part.CONFIG:
            return replace(info, config=after), OpsEntry(UpdateKind.CONFIG_CHANGED, now)
        case Part.METADATA:
            metadata = {each: value for each, value in info.metadata.items() if each != name}
            if after is not None:
                metadata[name] = after[0]
            return replace(info, metadata=metadata), OpsEntry(UpdateKind.METADATA_CHANGED, now)
        case Part.FLAG:
            ids = {flag.name: flag.id for flag in FLAGS}
            id_ = ids[name] if name in ids else int(name)
            sets = {True: info.enabled_flags - {id_}, False: info.disabled_flags - {id_}}
            if after is not None:
                sets[after] |= {id_}
            info = replace(info, enabled_flags=sets[True], disabled_flags=sets[False])
            flag = (id_, bool(after), after is not None)
            return info, OpsEntry(UpdateKind.FEATURE_FLAG_CHANGED, now, flag=flag)
        case Part.STATUS:
            status = Status(after[0], now, after[1])
            entry = OpsEntry(UpdateKind.REPO_STATUS_CHANGED, now, status=status)
            return replace(info, status=status), entry


_FOR_GOOD: Final = {
    UpdateKind.GC_RAN: "a garbage collection",
    UpdateKind.EXPIRATION_RAN: "an expiration, retention or squash",
    UpdateKind.REPO_MIGRATED: "an upgrade of the format",
    UpdateKind.REPO_INITIALIZED: "the creation of the repository",
}


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An update that an undo may take, with its changes that are not undone.

    ``fields`` has the fields that undos have returned to earlier states, with these states.
    """

    step: UpdateStep
    before: Place
    changes: list[FieldChange]
    fields: dict[str, Place]


def undo(context: Context, *, branch: str | None = None, at: int | None = None) -> UndoPlan:
    """Return the plan that undoes one update, of the time ``at`` in microseconds since 1970."""
    history = History(context.storage, context.catalog.repo_info())
    candidate, unchanged = _newest(history, branch) if at is None else (_named(history, at), None)
    newest: _Candidate | None = candidate
    if branch is not None or at is not None:
        with suppress(SessionStateError):
            newest, _ = _newest(history)
    if newest and newest.step != candidate.step:
        newest = None
    original = _original(history, history.at(candidate.step.place), candidate.step)
    notes = []
    if unchanged is not None:
        notes = [f"{_name(unchanged)} changed nothing. The newest update with changes is {_name(original)}"]
    changes = [replace(each, before=each.after, after=each.before) for each in candidate.changes]

    def recorded(current: State, at: int) -> UndoRecord:
        # With ``newest``, all later updates are undone or empty.
        if newest is not None and current.time == history.current.time:
            state, cursor, fields = history.at(candidate.before), candidate.before, newest.fields
        else:
            state, cursor = current, Place(current.time)
            fields = {each.subject: candidate.before for each in candidate.changes}
        if (record := state.undo) and record.cursor:
            cursor = history.located(state, record.cursor)
            fields = _oldest(fields, record.fields)
        fields = {name: place for name, place in fields.items() if place.time < cursor.time}
        return UndoRecord(at, original.place, cursor, fields=fields)

    return _planned(context, history, changes, original.entries, notes, recorded)


def redo(context: Context) -> UndoPlan:
    """Return the plan that makes the last undone update again. See ``Repository.history.redo``."""
    history = History(context.storage, context.catalog.repo_info())
    record = history.current.record
    place = None if record is None else record.last_undo
    if record is None or place is None:
        raise SessionStateError(
            "there is no undone update",
            ErrorKind.CANNOT_UNDO,
        ).with_remedy("`{}` undoes an update, and `{}` makes it again", call("undo"), call("redo"))
    undone = history.at(place)
    step, before = next(history.steps(undone))
    changes = _changes_of(history, step, before)
    earlier = history.at(_reversible(step, before).place)
    last = None if earlier.record is None else earlier.record.last_undo
    following = None if last is None else history.located(earlier, last)
    original = _original(history, undone, step)

    def recorded(current: State, at: int) -> UndoRecord:
        if current.record != record:
            raise ConflictError(
                None,
                None,
                "another undo or redo came first. Nothing was changed. Call redo again",
                ErrorKind.REPO_INFO_UPDATED,
            )
        return UndoRecord(at, original.place, redo=following)

    changes = [replace(each, before=each.after, after=each.before) for each in changes]
    return _planned(context, history, changes, original.entries, record=recorded)


def restore_to(context: Context, at: int) -> UndoPlan:
    """Return the plan that returns to the state at a time, in microseconds since 1970."""
    history = History(context.storage, context.catalog.repo_info())
    places = (step.place for step, _ in history.steps(history.current, at=at))
    place = next((each for each in places if each.time <= at), None)
    if place is None:
        raise SessionStateError(
            f"the ops log has no update at or before {utc_text(at)}. Nothing was changed",
            ErrorKind.CANNOT_UNDO,
        ).with_remedy("`{}` lists the updates that a state can be restored to", call("ops_log"))
    changes = changes_between(*(fields_of(state.info) for state in (history.current, history.at(place))))
    return _planned(context, history, changes)


def _newest(history: History, branch: str | None = None) -> tuple[_Candidate, UpdateStep | None]:
    """Return the newest update with changes that are not undone, and a newer one that changed nothing."""
    unchanged: UpdateStep | None = None
    for candidate in _candidates(history, branch):
        if candidate.changes:
            return candidate, unchanged
        unchanged = unchanged or candidate.step
    of_branch = "" if branch is None else f" of the branch `{branch}`"
    raise SessionStateError(
        f"the ops log has no update{of_branch} that can be undone",
        ErrorKind.CANNOT_UNDO,
    ).with_remedy("`{}` lists the updates", call("ops_log"))


def _candidates(history: History, branch: str | None) -> Iterator[_Candidate]:
    """Yield the updates that are not undone, newest first, and updates that changed nothing."""
    subject = FieldChange(Part.BRANCH, branch or "", None, None).subject
    select = partial(updates_of, branch=branch)
    now = fields_of(history.current.info)
    fields: dict[str, Place] = {}
    walk = history.steps(history.current, select)
    while pair := next(walk, None):
        step, before = pair
        place = _reversible(step, before).place
        state = history.at(step.place)
        if (record := state.undo) and record.cursor:
            fields = _oldest(fields, record.fields)
            cursor = record.cursor if branch is None else fields.get(subject, record.cursor)
            walk = history.steps(history.at(cursor, state), select)
            continue
        changes = _changes_of(history, step, before)
        # A field with another value was returned to an earlier one, even if no record says so.
        left = [
            each
            for each in changes
            if now.get(each.field) == each.after
            and (each.subject not in fields or step.time <= fields[each.subject].time)
        ]
        if left or not changes:
            yield _Candidate(step, place, left, fields)


def _oldest(*places: Mapping[str, Place]) -> dict[str, Place]:
    """Return the oldest place of each field."""
    every = sorted((each for one in places for each in one.items()), key=lambda each: -each[1].time)
    return dict(every)


def _named(history: History, time: int) -> _Candidate:
    """Return the update with an entry at exactly this time."""
    step, before = next(history.steps(history.current, at=time), (None, None))
    if step is None or all(each.updated_at != time for each in step.entries):
        raise no_update(time)
    place = _reversible(step, before).place
    if history.at(step.place).undo is not None:
        raise _refusal(step, "it is an undo; redo makes it again")
    changes = _changes_of(history, step, before)
    if not changes:
        raise _refusal(step, "it changed no branch, tag, configuration, metadata, feature flag or status")
    now = fields_of(history.current.info)
    if all(now.get(each.field) == each.before for each in changes):
        raise _refusal(step, "it is undone already; redo makes it again")
    return _Candidate(step, place, changes, {})


def _original(history: History, state: State, step: UpdateStep) -> UpdateStep:
    """Return the update that the newest update of a state has undone or made again, else this update."""
    record = state.record
    if record is not None and record.at == state.time:
        with suppress(SessionStateError):
            return next(history.steps(history.at(record.update, state)))[0]
    return step


def _reversible(step: UpdateStep, before: UpdateStep | None) -> UpdateStep:
    """Return the step before a step. Raises ``SessionStateError`` (``cannot-undo``) for some kinds."""
    if any(entry.kind in _FOR_GOOD for entry in step.entries):
        raise _refusal(step, "its effect is final. Pass `branch` or `update` to undo an earlier update")
    if before is None:
        raise _refusal(step, "a garbage collection has removed the older part of the ops log")
    return before


def _changes_of(history: History, step: UpdateStep, before: UpdateStep | None) -> list[FieldChange]:
    """Return the changes of an update."""
    places = (_reversible(step, before).place, step.place)
    kinds = {entry.kind for entry in step.entries}
    return [
        each
        for each in changes_between(*(fields_of(history.at(place).info) for place in places))
        if each.part is not Part.METADATA or UpdateKind.METADATA_CHANGED in kinds
    ]


def _name(step: UpdateStep) -> str:
    entry = step.entries[0]
    name = _FOR_GOOD.get(entry.kind) or f"the update `{type(presentation.update(entry).kind).__name__}`"
    return f"{name} at {utc_text(step.time)}"


def _refusal(step: UpdateStep, why: str) -> SessionStateError:
    return SessionStateError(
        f"{_name(step)} cannot be undone: {why}. Nothing was changed", ErrorKind.CANNOT_UNDO
    )


def _losses(changes: Sequence[FieldChange]) -> Iterator[str]:
    """Yield what changes delete, and which protections of branches they take away or replace."""
    for each in changes:
        if each.part is Part.TAG and each.after is None:
            yield f"the tag `{each.name}` is deleted, and its name cannot be used again"
        if each.part is Part.BRANCH and each.after is None:
            yield f"the branch `{each.name}` is deleted"
        if each.part is Part.METADATA and each.name == PROTECTION and each.before is not None:
            rules, later = each.before[0], each.after[0] if each.after else {}
            for pattern in rules:
                if not isinstance(rules, dict) or rules[pattern] != later.get(pattern):
                    yield f"the protection of `{pattern}` {'changes' if pattern in later else 'is removed'}"


def _planned(
    context: Context,
    history: History,
    changes: Sequence[FieldChange],
    entries: Sequence[OpsEntry] = (),
    notes: Sequence[str] = (),
    record: Callable[[State, int], UndoRecord] | None = None,
) -> UndoPlan:
    """Check that changes are possible, and return the plan for users."""
    require_possible(history.current.info, changes)

    def change(current: RepoInfo, now: int) -> RepoUpdate | None:
        changed = update_of(current, changes, now)
        if changed is None or record is None:
            return changed
        new = record(State(current), now + len(changed.earlier))
        return replace(changed, info=replace(changed.info, metadata=new.added_to(changed.info.metadata)))

    return UndoPlan(
        list(map(presentation.update, entries)),
        [
            StateChange(each.subject, shown_value(each.part, each.before), shown_value(each.part, each.after))
            for each in changes
        ],
        [*notes, *_losses(changes)],
        perform=partial(context.catalog.update_full_repo_info, change),
    )
