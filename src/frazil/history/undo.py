"""Undo, redo and restoration: an earlier state of the repository, as a new update.

A state is a table of fields: branches, tags, the configuration, items of the metadata, feature flags, and the
status. An undo compares the states before and after an update, which are backups of ``repo``, and makes the
opposite changes in one conditional write. If a field has another value than the caller saw, the update is
refused. Each changed field gets its own entry in the ops log. No snapshot is deleted, so a redo is possible.

Each undo and redo writes a record under ``frazil.undo`` in the metadata. It has places in the log, because
older records are in the backups at these places:

    at       the time of the undo or redo
    update   the state after the update that it undid or made again
    cursor   of an undo: the newest update of this state is the next one to undo
    redo     of a redo: the state after the undo that the next redo takes back, if there is one
    fields   of an undo: fields that have returned to states before the cursor, with these states
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ConflictError, ErrorKind, SessionStateError
from frazil.format.ids import backup_key, id_to_text
from frazil.format.repo_info import OpsEntry, OpsLog, RepoInfo, UpdateKind, open_repo_info
from frazil.history.reports import StateChange, UndoPlan
from frazil.remedies import call
from frazil.repository.catalog import presentation
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.history_records import with_branch
from frazil.repository.catalog.protection import PROTECTION
from frazil.repository.catalog.repo_changes import (
    require_flag,
    require_online,
    save_config,
    set_flag,
    set_metadata,
    set_status,
    with_ref,
)
from frazil.repository.catalog.repo_update import RepoUpdate, ops_parts
from frazil.repository.clock import utc_text
from frazil.repository.settings.config import DELETE_TAG, FLAGS, Flag
from frazil.storage.base import Storage
from frazil.storage.checks import skip_missing

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


class StateField(StrEnum):
    """The kinds of fields of a repository."""

    BRANCH = "branch"
    TAG = "tag"
    CONFIG = "configuration"
    METADATA = "metadata"
    FLAG = "feature flag"
    STATUS = "status"


type Field = tuple[StateField, str]

#: The fields whose value is a snapshot.
REFS: Final = frozenset({StateField.BRANCH, StateField.TAG})


@dataclass(frozen=True, slots=True)
class FieldChange:
    """The change of one field. A value of None means that the field does not exist.

    The values of branches and tags are ids. The value of an item of the metadata is a tuple with one value.
    """

    part: StateField
    name: str
    before: Any
    after: Any

    @property
    def subject(self) -> str:
        """The field in words, such as "branch `main`"."""
        return f"{self.part} `{self.name}`" if self.name else str(self.part)


def fields_of(info: RepoInfo) -> dict[Field, Any]:
    """Return all fields of a repository that have a value."""
    flags = {flag.id: flag.name for flag in FLAGS}
    fields: dict[Field, Any] = {(StateField.BRANCH, name): id_ for name, id_ in info.branches.items()}
    fields |= {(StateField.TAG, name): id_ for name, id_ in info.tags.items()}
    for name, value in info.metadata.items():  # without items that Frazil writes with other updates
        if name == PROTECTION or not name.startswith(OWN_PREFIX):
            fields[StateField.METADATA, name] = (value,)
    for setting, ids in ((True, info.enabled_flags), (False, info.disabled_flags)):
        fields |= {(StateField.FLAG, flags.get(id_, str(id_))): setting for id_ in ids}
    if info.config is not None:
        fields[StateField.CONFIG, ""] = info.config
    fields[StateField.STATUS, ""] = (info.status.availability, info.status.reason)
    return fields


def changes_between(before: Mapping[Field, Any], after: Mapping[Field, Any]) -> list[FieldChange]:
    """Return the changes from one state to another."""
    fields = dict.fromkeys([*before, *after])
    return [
        FieldChange(*field, before.get(field), after.get(field))
        for field in fields
        if before.get(field) != after.get(field)
    ]


def shown_value(part: StateField, value: Any) -> str | None:
    """Return the value of a field as text. None means that the field does not exist."""
    if value is None:
        return None
    match part:
        case StateField.BRANCH | StateField.TAG:
            return id_to_text(value)
        case StateField.METADATA:
            return repr(value[0])
        case StateField.STATUS:
            availability, reason = value
            name = availability.name.lower().replace("_", "-")
            return name if reason is None else f"{name}: {reason}"
        case _:
            return repr(value)


#: The kinds of updates of a branch, which have its name.
OF_BRANCHES: Final = (
    UpdateKind.BRANCH_CREATED,
    UpdateKind.BRANCH_DELETED,
    UpdateKind.BRANCH_RESET,
    UpdateKind.NEW_COMMIT,
    UpdateKind.COMMIT_AMENDED,
)
#: A function of a log, which returns the rows of some entries.
type Selection = Callable[[OpsLog], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class UpdateStep:
    """The entries of one write of ``repo``, newest first, and the place of the state after it."""

    entries: tuple[OpsEntry, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class UndoState:
    """A state of the repository, and the name of its backup. None means that it is the current state."""

    info: RepoInfo
    backup: str | None = None

    @property
    def time(self) -> int:
        """The time of its newest update. 0 if the log is empty."""
        return int(self.info.ops.updated_at[0]) if len(self.info.ops) else 0

    @property
    def record(self) -> UndoRecord | None:
        """The record of the newest undo or redo. A clone has that of its source, and a log of its own."""
        record = UndoRecord.of(self.info.metadata)
        if record is None or self.info.repo_before_updates is not None:
            return record
        return record if (self.info.ops.updated_at <= np.uint64(record.at)).any() else None

    @property
    def undo(self) -> UndoRecord | None:
        """The record, if the newest update of this state is an undo."""
        record = self.record
        return record if record and record.at == self.time and record.cursor else None


def updates_of(log: OpsLog, branch: str | None) -> NDArray[np.int64]:
    """Return the rows of the entries of a branch, or of all that change more than the list of snapshots."""
    if branch is None:
        return np.flatnonzero(log.kinds != UpdateKind.NEW_DETACHED_SNAPSHOT)
    rows = np.flatnonzero(np.isin(log.kinds, OF_BRANCHES))
    return rows[np.array([name == branch for name in log.names.take(rows).texts()], np.bool_)]


class UndoLog:
    """The states and steps of a repository, from its current state back. States are read when needed."""

    def __init__(self, storage: Storage, info: RepoInfo) -> None:
        self._storage = storage
        self.current: Final = UndoState(info)
        self._backup = lru_cache(maxsize=8)(self._read)

    def steps(
        self, state: UndoState, select: Selection | None = None, *, at: int | None = None
    ) -> Iterator[tuple[UpdateStep, UpdateStep | None]]:
        """Yield the steps up to a state with a selected entry, newest first, each with the step before it.

        With ``at``, the first step is the newest with an entry that is not later. The log ends early if a
        garbage collection has deleted its next part.
        """
        last: UpdateStep | None = None
        with skip_missing():
            for name, part in ops_parts(self._storage, state.info):
                log, starts = part.ops, _starts(part.ops)
                if not len(starts):
                    continue
                ends = np.append(starts[1:], len(log))
                chosen = np.arange(len(log)) if select is None else select(log)
                selected = np.searchsorted(starts, chosen, "right") - 1
                if at is not None:
                    selected = selected[log.updated_at[ends - 1][selected] <= np.uint64(at)]
                rows = list(zip(starts.tolist(), ends.tolist(), strict=True))
                own = name or state.backup
                if last is not None:
                    yield last, _step(log, rows[0], own)
                    last = None
                for number in np.unique(selected).tolist():
                    last = _step(log, rows[number], own)
                    if number + 1 < len(rows):
                        yield last, _step(log, rows[number + 1], own)
                        last = None
        if last is not None:
            yield last, None

    def located(self, state: UndoState, place: Place) -> Place:
        """Return a place with the name of its backup, which the log up to a later state has."""
        if place.backup is not None:
            return place
        step, _ = next(self.steps(state, at=place.time), (None, None))
        if step is None or step.place.time != place.time:
            raise no_update(place.time)
        return step.place

    def at(self, place: Place, within: UndoState | None = None) -> UndoState:
        """Return the state at a place, which the log up to the state ``within`` has. Default: the current."""
        within = within or self.current
        if place.time == within.time:
            return within
        name = self.located(within, place).backup
        state = self.current if name is None else self._backup(name)
        if state is None or state.time != place.time:
            raise _impossible(
                f"the state of the repository after the update at {utc_text(place.time)} is not known any "
                "more, because an update or a garbage collection has deleted its backup"
            ).with_remedy("Make the change by hand, for example with `{}`", call("reset_branch"))
        return state

    def _read(self, name: str) -> UndoState | None:
        key = backup_key(name)
        with skip_missing():
            return UndoState(open_repo_info(self._storage.get(key), key), name)
        return None


def _step(log: OpsLog, rows: tuple[int, int], own: str | None) -> UpdateStep:
    """Return the step with some rows. ``own`` is the backup with the log, for its newest step."""
    entries = tuple(map(log.entry, range(*rows)))
    backup = entries[0].backup_path or own
    place = Place(entries[0].updated_at, backup)
    return UpdateStep(tuple(replace(each, backup_path=backup) for each in entries), place)


def _starts(log: OpsLog) -> NDArray[np.int64]:
    """Return the row of the newest entry of each step: the first row, and the first one with each backup.

    An entry without a backup belongs to the step before it, if it is a microsecond older, as entries of one
    update are. Otherwise its backup was given up.
    """
    if not len(log):
        return np.zeros(0, np.int64)
    rows = np.flatnonzero(log.backups.lengths > 0)
    _, first = np.unique(np.array(log.backups.take(rows).texts(), object), return_index=True)
    is_own = log.backups.lengths == 0
    is_own[1:] &= log.updated_at[:-1] - log.updated_at[1:] != 1
    return np.union1d(np.flatnonzero(is_own), np.append(rows[first], 0))


def _impossible(problem: str) -> SessionStateError:
    """Return the error for an undo that cannot be made."""
    return SessionStateError(f"{problem}. Nothing was changed", ErrorKind.CANNOT_UNDO)


def no_update(time: int) -> SessionStateError:
    """Return the error for a time that is not the time of an update."""
    error = _impossible(f"the ops log has no update at {utc_text(time)}")
    return error.with_remedy("`{}` lists the updates", call("ops_log"))


def _order(change: FieldChange) -> tuple[int, str, str]:
    """Return the place of a change in the ops log: a repository opens first, and closes last."""
    opens = change.part is StateField.STATUS and change.after[0] == 0
    closes = change.part is StateField.STATUS and not opens
    return (-1 if opens else 1 if closes else 0, change.part, change.name)


def require_possible(info: RepoInfo, changes: Iterable[FieldChange]) -> None:
    """Raise the error why a change is not possible in the current repository, if one is not."""
    fields = fields_of(info)
    for change in changes:
        is_ref, is_tag, after = change.part in REFS, change.part is StateField.TAG, change.after
        if (current := fields.get((change.part, change.name))) != change.before:
            expected, actual = (shown_value(change.part, each) for each in (change.before, current))
            raise ConflictError(
                expected if is_ref else None,
                actual if is_ref else None,
                f"the {change.subject} has changed since: expected {expected}, found {actual}. Nothing was "
                "changed. Undo the later updates first, or make the change by hand",
                ErrorKind.REPO_INFO_UPDATED,
            )
        if is_ref and after is not None and info.snapshots.find_snapshot(after) < 0:
            raise _impossible(
                f"the {change.subject} cannot return to {id_to_text(after)}, which was expired or collected"
            )
        if is_tag and after is None:
            require_flag(info, DELETE_TAG)
        elif is_tag and (change.before is not None or change.name in info.deleted_tags):
            raise _impossible(
                f"the tag `{change.name}` was deleted, and the name of a deleted tag cannot be used again. "
                f"Create a tag with another name on {id_to_text(after)}"
            )


def _changed(info: RepoInfo, change: FieldChange, now: int) -> tuple[RepoInfo, OpsEntry]:
    """Return the repo info after one more change, and the entry of the ops log."""
    name, before, after = change.name, change.before, change.after
    match change.part:
        case StateField.BRANCH:
            info = replace(info, branches=with_ref(info.branches, name, after))
            if after is not None:
                info = replace(info, metadata=with_branch(info, after, name))
            if before is None:
                return info, OpsEntry(UpdateKind.BRANCH_CREATED, now, name=name)
            kind = UpdateKind.BRANCH_DELETED if after is None else UpdateKind.BRANCH_RESET
            return info, OpsEntry(kind, now, name=name, previous_snapshot=before)
        case StateField.TAG:
            info = replace(info, tags=with_ref(info.tags, name, after))
            if after is not None:
                return info, OpsEntry(UpdateKind.TAG_CREATED, now, name=name)
            info = replace(info, deleted_tags=info.deleted_tags | {name})
            return info, OpsEntry(UpdateKind.TAG_DELETED, now, name=name, previous_snapshot=before)
        case StateField.CONFIG:
            update = save_config(after)
        case StateField.METADATA:
            metadata = {each: value for each, value in info.metadata.items() if each != name}
            if after is not None:
                metadata[name] = after[0]
            update = set_metadata(lambda _: metadata)
        case StateField.FLAG:
            ids = {flag.name: flag.id for flag in FLAGS}
            update = set_flag(Flag(ids[name] if name in ids else int(name), name), after)
        case StateField.STATUS:
            update = set_status(*after)
    changed = update(info, now)
    return changed.info, changed.entry


_FOR_GOOD: Final = {
    UpdateKind.GC_RAN: "a garbage collection or withdrawal",
    UpdateKind.EXPIRATION_RAN: "an expiration, retention or squash",
    UpdateKind.REPO_MIGRATED: "an upgrade of the format",
    UpdateKind.REPO_INITIALIZED: "the creation of the repository",
}


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An update that an undo may take, with its changes that are not undone.

    ``fields`` has the fields that undos have returned to earlier states, with these states. ``later`` are
    changes of fields that later updates have changed again: an undo does not reach them.
    """

    step: UpdateStep
    before: Place
    changes: list[FieldChange]
    fields: dict[str, Place]
    later: tuple[FieldChange, ...] = ()


def undo(context: Context, *, branch: str | None = None, at: int | None = None) -> UndoPlan:
    """Return the plan that undoes one update, of the time ``at`` in microseconds since 1970."""
    history = UndoLog(context.storage, context.catalog.repo_info())
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
    notes += [f"the {each.subject} has changed since, and stays as it is" for each in candidate.later]
    changes = [replace(each, before=each.after, after=each.before) for each in candidate.changes]

    def recorded(current: UndoState, at: int) -> UndoRecord:
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
    history = UndoLog(context.storage, context.catalog.repo_info())
    record = history.current.record
    place = None if record is None else record.last_undo
    if record is None or place is None:
        raise SessionStateError("there is no undone update", ErrorKind.CANNOT_UNDO).with_remedy(
            "`{}` undoes an update, and `{}` makes it again", call("undo"), call("redo")
        )
    undone = history.at(place)
    step, before = next(history.steps(undone))
    changes = _changes_of(history, step, before)
    earlier = history.at(_reversible(step, before).place)
    last = None if earlier.record is None else earlier.record.last_undo
    following = None if last is None else history.located(earlier, last)
    original = _original(history, undone, step)

    def recorded(current: UndoState, at: int) -> UndoRecord:
        if current.record != record:
            raise ConflictError(
                message="another undo or redo came first. Nothing was changed. Call redo again",
                kind=ErrorKind.REPO_INFO_UPDATED,
            )
        return UndoRecord(at, original.place, redo=following)

    changes = [replace(each, before=each.after, after=each.before) for each in changes]
    return _planned(context, history, changes, original.entries, record=recorded)


def restore_to(context: Context, at: int) -> UndoPlan:
    """Return the plan that returns to the state at a time, in microseconds since 1970."""
    history = UndoLog(context.storage, context.catalog.repo_info())
    places = (step.place for step, _ in history.steps(history.current, at=at))
    place = next((each for each in places if each.time <= at), None)
    if place is None:
        error = _impossible(f"the ops log has no update at or before {utc_text(at)}")
        raise error.with_remedy("`{}` lists the updates that a state can be restored to", call("ops_log"))
    changes = changes_between(*(fields_of(state.info) for state in (history.current, history.at(place))))
    return _planned(context, history, changes)


def _newest(history: UndoLog, branch: str | None = None) -> tuple[_Candidate, UpdateStep | None]:
    """Return the newest update with changes that are not undone, and a newer one that changed nothing."""
    unchanged: UpdateStep | None = None
    for candidate in _candidates(history, branch):
        if candidate.changes:
            return candidate, unchanged
        unchanged = unchanged or candidate.step
    of_branch = "" if branch is None else f" of the branch `{branch}`"
    error = _impossible(f"the ops log has no update{of_branch} that can be undone")
    raise error.with_remedy("`{}` lists the updates", call("ops_log"))


def _candidates(history: UndoLog, branch: str | None) -> Iterator[_Candidate]:
    """Yield the updates that are not undone, newest first, and updates that changed nothing."""
    subject = FieldChange(StateField.BRANCH, branch or "", None, None).subject
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
            if now.get((each.part, each.name)) == each.after
            and (each.subject not in fields or step.place.time <= fields[each.subject].time)
        ]
        if left or not changes:
            values = ((each, now.get((each.part, each.name))) for each in changes)
            later = tuple(each for each, value in values if value not in (each.before, each.after))
            yield _Candidate(step, place, left, fields, later)


def _oldest(*places: Mapping[str, Place]) -> dict[str, Place]:
    """Return the oldest place of each field."""
    every = sorted((each for one in places for each in one.items()), key=lambda each: -each[1].time)
    return dict(every)


def _named(history: UndoLog, time: int) -> _Candidate:
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
    if all(now.get((each.part, each.name)) == each.before for each in changes):
        raise _refusal(step, "it is undone already; redo makes it again")
    return _Candidate(step, place, changes, {})


def _original(history: UndoLog, state: UndoState, step: UpdateStep) -> UpdateStep:
    """Return the update that the newest update of a state has undone or made again, else this update."""
    record = state.record
    if record is not None and record.at == state.time:
        with suppress(SessionStateError):
            return next(history.steps(history.at(record.update, state)))[0]
    return step


def _reversible(step: UpdateStep, before: UpdateStep | None) -> UpdateStep:
    """Return the step before a step. Raises ``SessionStateError`` (``cannot-undo``) for some kinds."""
    if any(entry.kind in _FOR_GOOD for entry in step.entries):
        raise _refusal(step, "its effect is final").with_remedy(
            "Pass `branch` or `update` to undo an earlier update",
            shell="--branch undoes the last update of a branch",
        )
    if before is None:
        raise _refusal(step, "a garbage collection has removed the older part of the ops log")
    return before


def _changes_of(history: UndoLog, step: UpdateStep, before: UpdateStep | None) -> list[FieldChange]:
    """Return the changes of an update."""
    places = (_reversible(step, before).place, step.place)
    kinds = {entry.kind for entry in step.entries}
    return [
        each
        for each in changes_between(*(fields_of(history.at(place).info) for place in places))
        if each.part is not StateField.METADATA or UpdateKind.METADATA_CHANGED in kinds
    ]


def _name(step: UpdateStep) -> str:
    entry = step.entries[0]
    name = _FOR_GOOD.get(entry.kind) or f"the update `{type(presentation.update(entry).kind).__name__}`"
    return f"{name} at {utc_text(step.place.time)}"


def _refusal(step: UpdateStep, why: str) -> SessionStateError:
    return _impossible(f"{_name(step)} cannot be undone: {why}")


def _losses(changes: Sequence[FieldChange]) -> Iterator[str]:
    """Yield what changes delete, and which protections of branches they take away or replace."""
    for each in changes:
        if each.part is StateField.TAG and each.after is None:
            yield f"the tag `{each.name}` is deleted, and its name cannot be used again"
        if each.part is StateField.BRANCH and each.after is None:
            yield f"the branch `{each.name}` is deleted"
        if each.part is StateField.METADATA and each.name == PROTECTION and each.before is not None:
            rules, later = each.before[0], each.after[0] if each.after else {}
            for pattern in rules:
                if not isinstance(rules, dict) or rules[pattern] != later.get(pattern):
                    yield f"the protection of `{pattern}` {'changes' if pattern in later else 'is removed'}"


def _planned(
    context: Context,
    history: UndoLog,
    changes: Sequence[FieldChange],
    entries: Sequence[OpsEntry] = (),
    notes: Sequence[str] = (),
    record: Callable[[UndoState, int], UndoRecord] | None = None,
) -> UndoPlan:
    """Check that changes are possible, and return the plan for users."""
    require_possible(history.current.info, changes)

    def change(current: RepoInfo, now: int) -> RepoUpdate | None:
        ordered = sorted(changes, key=_order)
        require_possible(current, ordered)
        if not any(change.part is StateField.STATUS for change in ordered):
            require_online(current)
        info, log = current, list[OpsEntry]()
        for each in ordered:
            info, entry = _changed(info, each, now + len(log))
            # All items of the metadata are one update.
            if not (log and entry.kind is log[-1].kind is UpdateKind.METADATA_CHANGED):
                log.append(entry)
        if log and record is not None:
            new = record(UndoState(current), now + len(log) - 1)
            info = replace(info, metadata=new.added_to(info.metadata))
        return RepoUpdate(info, log[-1], tuple(log[:-1])) if log else None

    return UndoPlan(
        list(map(presentation.update, entries)),
        [
            StateChange(each.subject, shown_value(each.part, each.before), shown_value(each.part, each.after))
            for each in changes
        ],
        [*notes, *_losses(changes)],
        perform=partial(context.catalog.update_full_repo_info, change),
    )
