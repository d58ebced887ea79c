"""The state of a repository that its updates change, as a table of fields, and the differences of two states.

Each undo and redo writes a record under ``frazil.undo`` in the metadata, in the same write as its entries of
the ops log. It has places in the log, because older records are in the backups at these places:

    at       the time of the undo or redo
    update   the state after the update that it undid or made again
    cursor   of an undo: the newest update of this state is the next one to undo
    redo     of a redo: the state after the undo that the next redo takes back, if there is one
    fields   of an undo: fields that have returned to states before the cursor, with these states

The newest entry of a step has the backup with the state after the step. The other entries have no backup, or
that of another step after a collection joined two parts of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, SessionStateError
from frazil.format.ids import backup_key, id_to_text
from frazil.format.repo_info import OpsEntry, OpsLog, RepoInfo, UpdateKind, open_repo_info
from frazil.remedies import call
from frazil.repository.catalog.protection import PROTECTION
from frazil.repository.catalog.repo_update import ops_parts
from frazil.repository.clock import utc_text
from frazil.repository.settings.resolved import FLAGS
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


class Part(StrEnum):
    """The kinds of fields of a repository."""

    BRANCH = "branch"
    TAG = "tag"
    CONFIG = "configuration"
    METADATA = "metadata"
    FLAG = "feature flag"
    STATUS = "status"


type Field = tuple[Part, str]

#: The fields whose value is a snapshot.
REFS: Final = frozenset({Part.BRANCH, Part.TAG})


@dataclass(frozen=True, slots=True)
class FieldChange:
    """The change of one field. A value of None means that the field does not exist.

    The values of branches and tags are ids. The value of an item of the metadata is a tuple with one value.
    """

    part: Part
    name: str
    before: Any
    after: Any

    @property
    def field(self) -> Field:
        """The kind and the name of the field."""
        return (self.part, self.name)

    @property
    def subject(self) -> str:
        """The field in words, such as "branch `main`"."""
        return f"{self.part} `{self.name}`" if self.name else str(self.part)


def fields_of(info: RepoInfo) -> dict[Field, Any]:
    """Return all fields of a repository that have a value."""
    flags = {flag.id: flag.name for flag in FLAGS}
    fields: dict[Field, Any] = {(Part.BRANCH, name): id_ for name, id_ in info.branches.items()}
    fields |= {(Part.TAG, name): id_ for name, id_ in info.tags.items()}
    for name, value in info.metadata.items():  # without items that Frazil writes with other updates
        if name == PROTECTION or not name.startswith(OWN_PREFIX):
            fields[Part.METADATA, name] = (value,)
    for setting, ids in ((True, info.enabled_flags), (False, info.disabled_flags)):
        fields |= {(Part.FLAG, flags.get(id_, str(id_))): setting for id_ in ids}
    if info.config is not None:
        fields[Part.CONFIG, ""] = info.config
    fields[Part.STATUS, ""] = (info.status.availability, info.status.reason)
    return fields


def changes_between(before: Mapping[Field, Any], after: Mapping[Field, Any]) -> list[FieldChange]:
    """Return the changes from one state to another."""
    fields = dict.fromkeys([*before, *after])
    return [
        FieldChange(*field, before.get(field), after.get(field))
        for field in fields
        if before.get(field) != after.get(field)
    ]


def shown_value(part: Part, value: Any) -> str | None:
    """Return the value of a field as text. None means that the field does not exist."""
    if value is None:
        return None
    match part:
        case Part.BRANCH | Part.TAG:
            return id_to_text(value)
        case Part.METADATA:
            return repr(value[0])
        case Part.STATUS:
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

    @property
    def time(self) -> int:
        """The time of the newest entry, which identifies the step."""
        return self.place.time


@dataclass(frozen=True, slots=True)
class State:
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


class History:
    """The states and steps of a repository, from its current state back. States are read when needed."""

    def __init__(self, storage: Storage, info: RepoInfo) -> None:
        self._storage = storage
        self.current = State(info)
        self._backup = lru_cache(maxsize=8)(self._read)

    def steps(
        self, state: State, select: Selection | None = None, *, at: int | None = None
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

    def located(self, state: State, place: Place) -> Place:
        """Return a place with the name of its backup, which the log up to a later state has."""
        if place.backup is not None:
            return place
        step, _ = next(self.steps(state, at=place.time), (None, None))
        if step is None or step.time != place.time:
            raise no_update(place.time)
        return step.place

    def at(self, place: Place, within: State | None = None) -> State:
        """Return the state at a place, which the log up to the state ``within`` has. Default: the current."""
        within = within or self.current
        if place.time == within.time:
            return within
        name = self.located(within, place).backup
        state = self.current if name is None else self._backup(name)
        if state is None or state.time != place.time:
            raise SessionStateError(
                f"the state of the repository after the update at {utc_text(place.time)} is not known any "
                "more, because a garbage collection has deleted its backup. Nothing was changed",
                ErrorKind.CANNOT_UNDO,
            ).with_remedy("Make the change by hand, for example with `{}`", call("reset_branch"))
        return state

    def _read(self, name: str) -> State | None:
        key = backup_key(name)
        with skip_missing():
            return State(open_repo_info(self._storage.get(key), key), name)
        return None


def _step(log: OpsLog, rows: tuple[int, int], own: str | None) -> UpdateStep:
    """Return the step with some rows. ``own`` is the backup with the log, for its newest step."""
    entries = tuple(map(log.entry, range(*rows)))
    backup = entries[0].backup_path or own
    place = Place(entries[0].updated_at, backup)
    return UpdateStep(tuple(replace(each, backup_path=backup) for each in entries), place)


def _starts(log: OpsLog) -> NDArray[np.int64]:
    """Return the row of the newest entry of each step: the first row, and the first one with each backup."""
    if not len(log):
        return np.zeros(0, np.int64)
    rows = np.flatnonzero(log.backups.lengths > 0)
    _, first = np.unique(np.array(log.backups.take(rows).texts(), object), return_index=True)
    return np.union1d(np.zeros(1, np.int64), rows[first])


def no_update(time: int) -> SessionStateError:
    """Return the error for a time without an update in the ops log."""
    return SessionStateError(
        f"the ops log has no update at {utc_text(time)}. Nothing was changed. Repository.ops_log lists the "
        "updates",
        ErrorKind.CANNOT_UNDO,
    )
