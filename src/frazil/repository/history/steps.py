"""The states of a repository, and its updates as steps: the entries of the ops log of one write of ``repo``.

The newest entry of a step has the backup with the state after the step. It is also the state before the next
step. The other entries of a step have no backup, or that of another step after a collection joined two parts
of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, SessionStateError, StorageError
from frazil.format.keys import backup_key
from frazil.format.repo_info import OpsEntry, OpsLog, RepoInfo, UpdateKind, open_repo_info
from frazil.remedies import call
from frazil.repository.catalog.ops_history import ops_parts
from frazil.repository.clock import utc_text
from frazil.repository.history.undo_record import Place, UndoRecord
from frazil.storage.base import Storage

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


def all_updates(log: OpsLog) -> NDArray[np.int64]:
    """Return the rows of all entries."""
    return np.arange(len(log))


def updates_of_names(log: OpsLog) -> NDArray[np.int64]:
    """Return the rows of entries that change more than the list of snapshots."""
    return np.flatnonzero(log.kinds != UpdateKind.NEW_DETACHED_SNAPSHOT)


def updates_of(branch: str) -> Selection:
    """Return the selection of the entries of a branch."""

    def select(log: OpsLog) -> NDArray[np.int64]:
        rows = np.flatnonzero(np.isin(log.kinds, OF_BRANCHES))
        return rows[np.array([name == branch for name in log.names.take(rows).texts()], np.bool_)]

    return select


class History:
    """The states and steps of a repository, from its current state back. States are read when needed."""

    def __init__(self, storage: Storage, info: RepoInfo) -> None:
        self._storage = storage
        self.current = State(info)
        self._backup = lru_cache(maxsize=8)(self._read)

    def steps(
        self, state: State, select: Selection = all_updates, *, at: int | None = None
    ) -> Iterator[tuple[UpdateStep, UpdateStep | None]]:
        """Yield the steps up to a state with a selected entry, newest first, each with the step before it.

        With ``at``, the first step is the newest with an entry that is not later. The log ends early if a
        garbage collection has deleted its next part.
        """
        last: UpdateStep | None = None
        try:
            for name, part in ops_parts(self._storage, state.info):
                log, starts = part.ops, _starts(part.ops)
                if not len(starts):
                    continue
                ends = np.append(starts[1:], len(log))
                selected = np.searchsorted(starts, select(log), "right") - 1
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
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
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
            raise _state_deleted(place.time)
        return state

    def _read(self, name: str) -> State | None:
        key = backup_key(name)
        try:
            return State(open_repo_info(self._storage.get(key), key), name)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
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


def _state_deleted(time: int) -> SessionStateError:
    return SessionStateError(
        f"the state of the repository after the update at {utc_text(time)} is not known any more, because a "
        "garbage collection has deleted its backup. Nothing was changed",
        ErrorKind.CANNOT_UNDO,
    ).with_remedy("Make the change by hand, for example with `{}`", call("reset_branch"))
