"""The versions of a branch: what each has changed, the first that fails a check, and those that are new.

`bisect` is a binary search. With paths, a commit counts only if it can have changed these nodes: it changed
the metadata, the children or the chunks of a node at or below the paths in an end version, or it created,
deleted or moved any node. Commits with expired versions before them, or with a lost log, always count.

`Watch` reads the new versions from the ops log, each exactly once. A cursor is the time of an update in the
ops log. Times are unique and ascending.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import batched, chain
from typing import Final

import numpy as np

from frazil import host
from frazil.changes.diff import ChangedPaths, compose_named, paths_by_id
from frazil.display import Record, Shown, literal, utc
from frazil.errors import ErrorKind, InvalidInputError, SessionStateError
from frazil.format.columns import U8
from frazil.format.ids import NODE_ID_BYTES, REPO, id_keys, id_matrix, id_to_text
from frazil.format.repo_info import OpsEntry, RepoInfo, SnapshotEntry, UpdateKind
from frazil.format.transaction_log import ID_LISTS, TransactionLog
from frazil.remedies import call
from frazil.repository.catalog.ancestry import ancestry, is_of_compaction
from frazil.repository.catalog.context import Context, files_of
from frazil.repository.catalog.presentation import snapshot_info
from frazil.repository.catalog.repo_changes import require_snapshot
from frazil.repository.catalog.repo_update import newest_update, ops_parts
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.clock import to_datetime, utc_text
from frazil.repository.paths import absolute
from frazil.repository.session.differences import logs_of
from frazil.storage.checks import skip_missing

#: The most logs that are in memory at the same time.
_BATCH: Final = 256

type Names = Mapping[bytes, str]


def version_changes(
    context: Context, info: RepoInfo, tip: bytes
) -> Iterator[tuple[SnapshotEntry, ChangedPaths | None]]:
    """Yield a version and its ancestors, newest first, each with its changes since its parent."""
    names: Names | None = None
    parts = chain.from_iterable(batched(part, _BATCH) for part in ancestry(info, tip))
    for part in parts:
        changed = [entry for entry in part if entry.parent is not None]
        logs = dict(zip((entry.id for entry in changed), logs_of(context, changed), strict=True))
        for entry in part:
            if entry.parent is None:
                yield entry, None
                continue
            new = _names(context, entry.id) if names is None else names
            own = logs[entry.id]
            # Nodes that are not moved or deleted have the same paths in the earlier version.
            is_same = not any(
                each.moves or len(each.deleted_groups) or len(each.deleted_arrays) for each in own
            )
            names = new if is_same else _names(context, entry.parent)
            yield entry, compose_named(own, names, new, own)


def _names(context: Context, id_: bytes) -> Names:
    with files_of(context, id_):
        return paths_by_id(context.assets.snapshot(id_).nodes)


@dataclass(frozen=True, slots=True, repr=False)
class BisectReport(Record, shown_as="snapshots.BisectReport"):
    """The result of ``Repository.history.bisect``.

    Attributes:
        first_bad: The first version that fails the check.
        last_good: The version before it.
        checks: The snapshot ids of the checked versions, in the order of the checks, and whether they passed.
        versions: The number of versions after the good one, up to the bad one.
        skipped: The number of these versions that cannot differ in the paths from the version before them.
    """

    first_bad: SnapshotInfo
    last_good: SnapshotInfo
    checks: list[tuple[str, bool]] = field(default_factory=list, hash=False)
    versions: int = 0
    skipped: int = 0

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "first_bad", f"{self.first_bad.id} {self.first_bad.message}"
        yield "last_good", f"{self.last_good.id} {self.last_good.message}"
        yield "checks", ", ".join(f"{id_} {'good' if ok else 'bad'}" for id_, ok in self.checks) or "none"
        yield "versions", literal(self.versions)
        yield "skipped", literal(self.skipped)


def bisect(
    context: Context, check: Callable[[str], bool], *, good: bytes, bad: bytes, paths: Sequence[str] = ()
) -> BisectReport:
    """See ``Repository.history.bisect``. ``check`` gets the id of a snapshot."""
    info = context.catalog.repo_info()
    start, end = require_snapshot(info, good), require_snapshot(info, bad)
    rows = info.snapshots.chain(end)
    at = np.flatnonzero(rows == start)
    if not len(at) or not at[0]:
        raise InvalidInputError(
            f"the good version must be before the bad version in its history, got {id_to_text(good)} and "
            f"{id_to_text(bad)}"
        ).with_remedy("`{}` lists the history of a version", call("ancestry"))
    # The versions after the good one, oldest first.
    line = list(info.snapshots.entries(rows[: int(at[0])][::-1]))
    candidates = _candidates(context, good, line, paths)
    low, high = -1, len(candidates) - 1
    checks: list[tuple[str, bool]] = []
    while high - low > 1:
        middle = (low + high) // 2
        name = id_to_text(line[candidates[middle]].id)
        passed = bool(check(name))
        checks.append((name, passed))
        low, high = (middle, high) if passed else (low, middle)
    first = candidates[high]
    before = line[first - 1] if first else info.snapshots.entry(start)
    skipped = len(line) - len(candidates)
    return BisectReport(snapshot_info(line[first]), snapshot_info(before), checks, len(line), skipped)


def _candidates(
    context: Context, good: bytes, line: Sequence[SnapshotEntry], paths: Sequence[str]
) -> list[int]:
    """Return the numbers of the versions that can differ from the version before them."""
    if not paths:
        return list(range(len(line)))
    prefixes = [absolute(path) for path in paths]
    read = context.assets.transaction_logs([entry.id for entry in line])
    logs = [  # None for those that do not tell everything
        None if entry.pruned_ancestor_tx_logs and not is_of_compaction(entry.metadata) else log
        for entry, log in zip(line, read, strict=True)
    ]
    ids = _relevant_ids(context, [good, line[-1].id], prefixes, [log for log in logs if log is not None])
    numbers = [number for number, log in enumerate(logs) if log is None or _touches(log, ids)]
    if not numbers:
        raise InvalidInputError(
            f"no commit between the good and the bad version changed {', '.join(prefixes)}, so that both "
            "have the same data there. Pass other versions or other paths"
        )
    return numbers


def _relevant_ids(
    context: Context, ends: Sequence[bytes], prefixes: Sequence[str], logs: Sequence[TransactionLog]
) -> U8:
    """Return the ids of nodes that can be at or below the paths, uint8 of shape (k, 8)."""
    parts = [np.zeros((0, NODE_ID_BYTES), np.uint8)]
    for end in ends:
        nodes = context.assets.snapshot(end).nodes
        names = nodes.paths_list()
        rows = [nodes.find_node(prefix) for prefix in prefixes]
        parts.append(nodes.ids[[row for row in rows if row >= 0]])
        below = [slice_ for slice_ in map(nodes.below, prefixes) if names[slice_]]
        parts += [nodes.ids[slice_] for slice_ in below]
    parts += [each for log in logs for each in (log.new_groups, log.new_arrays)]
    parts.append(id_matrix([move.node_id for log in logs for move in log.moves], NODE_ID_BYTES))
    return np.concatenate(parts)


def _touches(log: TransactionLog, ids: U8) -> bool:
    """Return whether a commit can have changed nodes with these ids, or which nodes are at the paths."""
    if log.moves or any(len(getattr(log, name)) for name in ID_LISTS if not name.startswith("updated")):
        return True
    chunks = id_matrix(list(log.updated_chunks), NODE_ID_BYTES)
    changed = np.concatenate([log.updated_groups, log.updated_arrays, chunks])
    return bool(np.isin(id_keys(changed), id_keys(ids)).any())


_KINDS: Final = {
    UpdateKind.NEW_COMMIT: "commit",
    UpdateKind.COMMIT_AMENDED: "amend",
    UpdateKind.BRANCH_RESET: "reset",
    UpdateKind.BRANCH_CREATED: "created",
    UpdateKind.BRANCH_DELETED: "deleted",
}


@dataclass(frozen=True, slots=True, repr=False)
class BranchVersion(Record, shown_as="snapshots.BranchVersion"):
    """A version that a branch has had.

    Attributes:
        snapshot_id: The id of the snapshot. None if the branch was deleted, or if the snapshot was expired
            since, so that it is not known.
        kind: ``commit``, ``amend``, ``reset`` (also a merge without a commit, and an undo), ``created`` or
            ``deleted``.
        updated_at: The time of the update.
        cursor: The cursor after this version, for ``Repository.history.watch``.
    """

    snapshot_id: str | None
    kind: str
    updated_at: datetime
    cursor: str

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "snapshot_id", str(self.snapshot_id)
        yield "kind", self.kind
        yield "updated_at", utc(self.updated_at)
        yield "cursor", literal(self.cursor)


class Watch(Iterator[BranchVersion]):
    """The new versions of a branch, oldest first. ``Repository.history.watch`` creates it.

    ``next`` waits for a version. ``poll`` does not wait.

    Attributes:
        cursor: The cursor after the last version that ``next`` or ``poll`` has returned.
    """

    def __init__(
        self,
        context: Context,
        branch: str,
        cursor: str | None,
        interval: timedelta,
        timeout: timedelta | None,
    ) -> None:
        self._context = context
        self._branch = branch
        self._interval = interval.total_seconds()
        self._timeout = None if timeout is None else timeout.total_seconds()
        self._etag: str | None = None
        self._has_etags = True
        self._ready: deque[BranchVersion] = deque()
        if cursor is None:
            cursor = str(newest_update(context.catalog.repo_info()))
        if not cursor.isdecimal():
            raise InvalidInputError(
                f"cursor must be the cursor of a version that an earlier watch returned, got {cursor!r:.80}"
            )
        self._read_until = int(cursor)
        self.cursor: str = cursor

    def __next__(self) -> BranchVersion:
        start = host.monotonic_seconds()
        while not self._ready:
            self._request()
            if self._ready:
                break
            if self._timeout is not None and host.monotonic_seconds() - start >= self._timeout:
                raise StopIteration
            host.pause(self._interval)
        version = self._ready.popleft()
        self.cursor = version.cursor
        return version

    def poll(self) -> list[BranchVersion]:
        """Return the versions since the last call, without waiting.

        Returns:
            The versions, oldest first. Empty if there are none.

        Raises:
            SessionStateError: ``cursor-lost`` if the ops log does not reach back to the cursor.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.history.watch("main").poll()
            []
        """
        self._request()
        versions = list(self._ready)
        self._ready.clear()
        if versions:
            self.cursor = versions[-1].cursor
        return versions

    def _request(self) -> None:
        """Make one request for the headers of ``repo``, and read the file if it has changed."""
        etag = None
        if self._has_etags:
            headers = self._context.storage.head(REPO)
            self._has_etags = headers is None or headers.etag is not None
            etag = None if headers is None else headers.etag
        if etag is not None and etag == self._etag:
            return
        info = self._context.catalog.repo_info()
        self._ready.extend(versions_since(self._context, info, self._branch, self._read_until))
        # The file may have changed between the two requests. Then the next poll reads it again.
        self._read_until = max(self._read_until, newest_update(info))
        self._etag = etag


def versions_since(context: Context, info: RepoInfo, branch: str, cursor: int) -> list[BranchVersion]:
    """Return the versions that a branch got by updates after ``cursor``, oldest first."""
    versions: list[BranchVersion] = []
    after = info.branches.get(branch)
    for entry in _entries_since(context, info, branch, cursor):
        tip = entry.new_snapshot or after
        is_deleted = entry.kind is UpdateKind.BRANCH_DELETED
        text = None if tip is None or is_deleted else id_to_text(tip)
        time = entry.updated_at
        versions.append(BranchVersion(text, _KINDS[entry.kind], to_datetime(time), str(time)))
        # The snapshot before the update: None if it is not known, or did not exist.
        after = entry.previous_snapshot
        row = -1 if after or not entry.new_snapshot else info.snapshots.find_snapshot(entry.new_snapshot)
        if row >= 0 and not (commit := info.snapshots.entry(row)).pruned_ancestor_tx_logs:
            after = commit.parent
    return versions[::-1]


def _entries_since(context: Context, info: RepoInfo, branch: str, cursor: int) -> Iterator[OpsEntry]:
    """Yield the updates of a branch after the cursor, newest first."""
    with skip_missing():
        for _, part in ops_parts(context.storage, info):
            times = part.ops.updated_at
            count = int(np.count_nonzero(times > np.uint64(cursor)))
            rows = np.flatnonzero(np.isin(part.ops.kinds[:count], list(_KINDS)))
            names = part.ops.names.take(rows).texts()
            yield from (
                part.ops.entry(row) for row, name in zip(rows.tolist(), names, strict=True) if name == branch
            )
            if count < len(times):
                if int(times[count]) != cursor:
                    break
                return
    raise SessionStateError(
        f"the ops log does not have the update at {utc_text(cursor)}, so versions of `{branch}` may be "
        "missing: a garbage collection has cut the log, or the repository was restored from a backup",
        ErrorKind.CURSOR_LOST,
    ).with_remedy("Compare the branch with `{}`, and watch it without a cursor", call("ancestry"))
