"""The updates of a repository as steps: the entries of the ops log that one write of ``repo`` made.

The newest entry of a step has the backup with the state after the step. It is also the state before the next
step. The other entries of a step have no backup.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from frazil.errors import ErrorKind, SessionStateError, StorageError
from frazil.format.keys import backup_key
from frazil.format.repo_info import OpsEntry, RepoInfo, decode_repo_info
from frazil.remedies import call
from frazil.repository.catalog.ops_history import ops_parts
from frazil.repository.clock import utc_text
from frazil.storage.base import Storage


@dataclass(frozen=True, slots=True)
class UpdateStep:
    """The entries of one write of ``repo``, newest first.

    ``backup`` is the file with the state after the step. None means that this is the current state.
    """

    entries: tuple[OpsEntry, ...]
    backup: str | None

    @property
    def time(self) -> int:
        """The time of the newest entry, which identifies the step."""
        return self.entries[0].updated_at


def steps(storage: Storage, info: RepoInfo) -> Iterator[UpdateStep]:
    """Yield the steps of the ops log, newest first. Older parts are read when they are needed.

    The log ends early if a garbage collection has deleted its next part.
    """
    entries: list[OpsEntry] = []
    backup: str | None = None
    try:
        for name, part in ops_parts(storage, info):
            for row in range(len(part.ops)):
                entry = part.ops.entry(row)
                after = entry.backup_path or (name if row == 0 else None)
                if entries and after not in (None, backup):
                    yield UpdateStep(tuple(entries), backup)
                    entries = []
                backup = backup if entries else after
                entries.append(replace(entry, backup_path=after))
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
    if entries:
        yield UpdateStep(tuple(entries), backup)


def state_after(storage: Storage, info: RepoInfo, step: UpdateStep) -> RepoInfo:
    """Return the state of the repository after a step. ``info`` is the current state.

    Raises:
        SessionStateError: ``cannot-undo`` if a garbage collection has deleted the backup with this state.
    """
    if step.backup is None:
        return info
    key = backup_key(step.backup)
    try:
        state = decode_repo_info(storage.get(key), key)
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        raise _state_deleted(step.time) from error
    if not len(state.ops) or int(state.ops.updated_at[0]) != step.time:
        raise _state_deleted(step.time)
    return state


def _state_deleted(time: int) -> SessionStateError:
    return SessionStateError(
        f"the state of the repository after the update at {utc_text(time)} is not known any more, because a "
        "garbage collection has deleted its backup. Nothing was changed",
        ErrorKind.CANNOT_UNDO,
    ).with_remedy("Make the change by hand, for example with `{}`", call("reset_branch"))


def step_at(storage: Storage, info: RepoInfo, time: int) -> UpdateStep:
    """Return the newest step that is not later than ``time``, in microseconds since 1970.

    Raises:
        SessionStateError: ``cannot-undo`` if the ops log does not reach back to this time.
    """
    try:
        for name, part in ops_parts(storage, info):
            ends = part.ops.backups.lengths > 0
            ends[:1] = True
            rows = np.flatnonzero(ends & (part.ops.updated_at <= np.uint64(time)))
            if len(rows):
                entry = part.ops.entry(int(rows[0]))
                return UpdateStep((entry,), entry.backup_path or name)
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
    raise SessionStateError(
        f"the ops log has no update at or before {utc_text(time)}. Nothing was changed",
        ErrorKind.CANNOT_UNDO,
    ).with_remedy("`{}` lists the updates that a state can be restored to", call("ops_log"))
