"""The first version of a history that fails a check, by binary search.

With paths, a commit counts only if it can have changed these nodes: it changed the metadata, the children or
the chunks of a node at or below the paths in an end version, or it created, deleted or moved any node.
Commits with expired versions before them, or with a lost log, always count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import batched, chain
from typing import ClassVar, Final

import numpy as np

from frazil.changes.diff import ChangedPaths, compose_named, paths_by_id
from frazil.display import Record, Shown, literal
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import U8
from frazil.format.ids import NODE_ID_BYTES, id_keys, id_matrix, id_to_text
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.format.transaction_log import ID_LISTS, TransactionLog
from frazil.remedies import call
from frazil.repository.catalog.ancestry import ancestry, is_of_compaction
from frazil.repository.catalog.context import Context, files_of
from frazil.repository.catalog.presentation import snapshot_info
from frazil.repository.catalog.repo_changes import require_snapshot
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.paths import absolute
from frazil.repository.session.differences import logs_of

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
class BisectReport(Record):
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

    shown_as: ClassVar[str] = "snapshots.BisectReport"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "first_bad", f"{self.first_bad.id} {self.first_bad.message}"
        yield "last_good", f"{self.last_good.id} {self.last_good.message}"
        yield "checks", ", ".join(f"{id_} {'good' if ok else 'bad'}" for id_, ok in self.checks) or "none"
        yield "versions", literal(self.versions)
        yield "skipped", literal(self.skipped)


def bisect(
    context: Context,
    check: Callable[[str], bool],
    *,
    good: bytes,
    bad: bytes,
    paths: Sequence[str] = (),
) -> BisectReport:
    """See ``Repository.history.bisect``. ``check`` gets the id of a snapshot."""
    info = context.catalog.repo_info()
    start, end = require_snapshot(info, good), require_snapshot(info, bad)
    rows = info.snapshots.chain(end)
    at = np.flatnonzero(rows == start)
    if not len(at) or not at[0]:
        raise InvalidInputError(
            f"the good version must be before the bad version in its history, got {id_to_text(good)} and "
            f"{id_to_text(bad)}",
            ErrorKind.INVALID_ARGUMENT,
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
            "have the same data there. Pass other versions or other paths",
            ErrorKind.INVALID_ARGUMENT,
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
