"""The history of a repository: the ancestors of a snapshot.

A merge is an ordinary commit, whose metadata name both parents under ``__frazil``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, IcechunkError, InvalidInputError, SnapshotNotFoundError
from frazil.format.columns import I64, U8
from frazil.format.ids import OBJECT_ID_BYTES, id_from_text, id_keys, id_list, id_matrix, id_texts
from frazil.format.repo_info import RepoInfo, SnapshotEntry, SnapshotTable, UpdateKind
from frazil.repository.catalog.repo_changes import find_snapshot, no_version, require_snapshot
from frazil.repository.catalog.repo_update import older_ops_backup
from frazil.repository.clock import from_datetime, utc_text
from frazil.repository.target import MAIN, parse_version
from frazil.storage.base import Storage


def ancestry(info: RepoInfo, id_: bytes) -> Iterator[list[SnapshotEntry]]:
    """Return the snapshot and all its ancestors, newest first, in parts."""
    parts = info.snapshots.parts(require_snapshot(info, id_))
    return map(list, map(info.snapshots.entries, parts))


def is_in_history(info: RepoInfo, id_: bytes, of: bytes) -> bool:
    """Return whether a snapshot is the snapshot ``of``, or one of its ancestors."""
    row = info.snapshots.find_snapshot(id_)
    return any((rows == row).any() for rows in info.snapshots.parts(require_snapshot(info, of)))


def mentioning(
    info: RepoInfo, tip: bytes, name: str, text: str = "", *, until: bytes | None = None
) -> Iterator[SnapshotEntry]:
    """Yield the versions before ``until`` with an item ``name``, which contains ``text``, newest first."""
    snapshots = info.snapshots
    last = -1 if until is None else snapshots.find_snapshot(until)
    for rows in snapshots.parts(require_snapshot(info, tip)):
        end = np.flatnonzero(rows == last)  # no row is -1
        yield from snapshots.entries(snapshots.mentioning(rows[: end[0]] if len(end) else rows, name, text))
        if len(end):
            return


def at_time(info: RepoInfo, tip: bytes, when_us: int) -> bytes:
    """Return the newest snapshot at or before the time ``when_us`` in the history of ``tip``."""
    oldest = 0
    for rows in info.snapshots.parts(require_snapshot(info, tip)):
        times = info.snapshots.flushed_at()[rows]
        old_enough = rows[times <= when_us]
        if len(old_enough):
            return info.snapshots.id_of(int(old_enough[0]))
        oldest = int(times[-1]) if len(times) else oldest
    raise SnapshotNotFoundError(
        f"there is no snapshot at or before {utc_text(when_us)}. Pass {utc_text(oldest)} or a later time",
        ErrorKind.NO_SNAPSHOT_AT_TIME,
    )


_LAST_US: Final = np.uint64(2**63 - 1)


def ancestry_columns(info: RepoInfo, id_: bytes) -> dict[str, NDArray[Any]]:
    """Return the snapshot and all its ancestors, newest first, as columns. See ``history.log``."""
    snapshots = info.snapshots
    rows = snapshots.chain(require_snapshot(info, id_))
    ids = id_texts(snapshots.ids()[rows])
    times = snapshots.flushed_at()[rows]
    messages = np.empty(len(rows), object)
    messages[:] = snapshots.messages(rows)
    return {
        "id": ids,
        "parent_id": np.append(ids[1:], ""),
        # A time that does not fit in 63 bits becomes the last time.
        "written_at": np.minimum(times, _LAST_US).astype("datetime64[us]"),
        "message": messages,
    }


def pruned_ids(table: SnapshotTable, rows: I64) -> tuple[U8, I64]:
    """Return the ids of the snapshots removed before some rows, oldest first, and the row of each."""
    lists = table.pruned().take(rows).compact()
    ids = np.ascontiguousarray(lists.values).view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
    return ids, np.repeat(rows, lists.lengths)


class BranchHistory:
    """Some rows of the table of snapshots, newest first, and the removed snapshots between them."""

    def __init__(self, info: RepoInfo, rows: I64) -> None:
        self._info = info
        self._own = rows

    @cached_property
    def _pruned(self) -> tuple[U8, I64]:
        """The ids of the removed snapshots, shape (k, 12), and for each the row that names it, (k,)."""
        if self._info.spec_version == 1:
            return np.zeros((0, OBJECT_ID_BYTES), np.uint8), np.zeros(0, np.int64)
        return pruned_ids(self._info.table, self._own)

    @cached_property
    def rows(self) -> I64:
        """All rows of the history. Some removed snapshots are still listed, because of other refs."""
        skipped = self._info.snapshots.find_snapshots(self._pruned[0])
        return np.union1d(self._own, skipped[skipped >= 0])

    def contains(self, ids: list[bytes]) -> NDArray[np.bool_]:
        """Return whether snapshots are in the history, removed snapshots included; bool, shape (k,)."""
        matrix = id_matrix(ids)
        rows = self._info.snapshots.find_snapshots(matrix)
        return np.isin(rows, self.rows) | np.isin(id_keys(matrix), id_keys(self._pruned[0]))

    def holder(self, id_: bytes) -> bytes:
        """Return the oldest listed snapshot that has the changes of a snapshot of the line."""
        if self._info.snapshots.find_snapshot(id_) >= 0:
            return id_
        ids, rows = self._pruned
        place = np.flatnonzero(id_keys(ids) == id_keys(id_matrix([id_])))[-1]
        return self._info.snapshots.id_of(int(rows[place]))


#: The key of a commit's metadata for the values of Frazil.
FRAZIL: Final = "__frazil"
PARENTS: Final = "parents"
#: The key of a commit whose chunks are in other files than before, with the same content.
COMPACTION: Final = "compaction"


def all_ancestors(info: RepoInfo, id_: bytes) -> I64:
    """Return the rows of a snapshot and all its ancestors. Empty if the snapshot is not listed."""
    table = info.snapshots
    ancestors = np.zeros(0, np.int64)
    todo = {id_}
    while todo:
        row = table.find_snapshot(todo.pop())
        if row < 0 or row in ancestors:
            continue
        rows = np.setdiff1d(table.chain(row), ancestors)
        ancestors = np.union1d(ancestors, rows)
        todo |= set(chain.from_iterable(map(second_parents, table.entries(table.mentioning(rows, FRAZIL)))))
    return ancestors


def own_values(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of Frazil in the metadata of a commit. Empty if another program uses the key."""
    values = metadata.get(FRAZIL)
    return values if isinstance(values, dict) else {}


def second_parents(entry: SnapshotEntry) -> Iterable[bytes]:
    """Return the ids of the snapshots that a commit has merged into its branch."""
    named = own_values(entry.metadata).get(PARENTS)
    try:
        return list(map(id_from_text, named[1:])) if isinstance(named, list) else ()
    except (IcechunkError, AttributeError):
        return ()  # another program uses the key


def of_compaction(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a commit that a compaction makes."""
    return {**metadata, FRAZIL: {**own_values(metadata), COMPACTION: True}}


def is_of_compaction(metadata: Mapping[str, Any]) -> bool:
    """Return whether a compaction made the commit with these metadata."""
    return own_values(metadata).get(COMPACTION) is True


_CREATING: Final = np.array(
    [UpdateKind.NEW_COMMIT, UpdateKind.COMMIT_AMENDED, UpdateKind.NEW_DETACHED_SNAPSHOT], np.uint8
)


@dataclass(frozen=True, slots=True, eq=False)
class Operations:
    """A part of the ops log: the amended commits, and the order in which snapshots were created."""

    amended: Mapping[bytes, Sequence[bytes]]
    age: Mapping[bytes, int]

    @staticmethod
    def back_to(info: RepoInfo, storage: Storage | None, ids: Iterable[bytes]) -> Operations:
        """Return the newest part of the ops log, back to the creation of the snapshots ``ids``."""
        keys = id_keys(id_matrix(sorted(ids)))
        missing = np.ones(len(keys), np.bool_)
        amended: dict[bytes, list[bytes]] = {}
        age: dict[bytes, int] = {}
        page: RepoInfo | None = info
        first = 0
        while page is not None:
            ops = page.ops
            rows = np.flatnonzero(ops.kinds == UpdateKind.COMMIT_AMENDED)
            for old, new in zip(id_list(ops.previous[rows]), id_list(ops.new[rows]), strict=True):
                amended.setdefault(old, []).append(new)
            rows = np.flatnonzero(np.isin(ops.kinds, _CREATING))
            rows = rows[np.isin(id_keys(ops.new[rows]), keys)]
            age |= zip(id_list(ops.new[rows]), (first + rows).tolist(), strict=True)
            missing &= ~np.isin(keys, id_keys(ops.new[rows]))
            first += len(ops)
            page = older_ops_backup(storage, page) if missing.any() and storage is not None else None
        return Operations(amended, age)

    def replacements(self, id_: bytes) -> list[bytes]:
        """Return the snapshots that replaced a snapshot, directly or through other amendments."""
        newer: list[bytes] = []
        todo = [id_]
        while todo:
            later = [each for each in self.amended.get(todo.pop(), ()) if each not in newer]
            newer += later
            todo += later
        return newer


def version_id(info: RepoInfo, text: str) -> bytes:
    """Return the id of the snapshot that the text of a version means."""
    exact = find_snapshot(text, lambda: info)
    if exact is not None:
        require_snapshot(info, exact)
        return exact
    name, time, back = parse_version(text)
    id_ = find_snapshot(name, lambda: info)
    if id_ is None:
        raise no_version(info, name)
    if time is not None:
        id_ = at_time(info, id_, from_datetime(time))
    steps = back
    for rows in info.snapshots.parts(require_snapshot(info, id_)):
        if steps < len(rows):
            return info.snapshots.id_of(int(rows[steps]))
        steps -= len(rows)
    raise InvalidInputError(
        f"the history of `{text.rpartition('~')[0] or MAIN}` must have more than {back} versions, "
        f"got {back - steps}"
    )
