"""Plans of merges, cherry-picks and reverts: the two versions to compare, the message, and the metadata.

The base of a merge is the newest version in both histories. Earlier merges count: the metadata of a merge
commit name its second parent, and the search follows that parent too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from frazil.errors import ErrorKind, InvalidInputError, SessionStateError
from frazil.format.ids import NODE_ID_BYTES, id_keys, id_matrix, id_to_text
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.repository.catalog import repo_requirements
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.lineage import PARENTS, all_ancestors
from frazil.repository.catalog.missing_names import no_version
from frazil.repository.catalog.stream_batches import (
    ALONE,
    BATCHES,
    BatchSet,
    batches_between,
    batches_brought,
)
from frazil.repository.catalog.stream_records import BatchRecord, with_records
from frazil.repository.catalog.version_names import find_snapshot
from frazil.repository.session.commit_range import CommitLogs, read_logs
from frazil.repository.session.workspace import Workspace

#: A query, the number of one of its batches, and whether the batch comes without the earlier batches.
type StreamBatch = tuple[str, int, bool]


@dataclass(frozen=True, slots=True)
class IntegrationPlan:
    """A plan to commit the changes from the version ``base`` to the version ``end`` with the given message.

    ``origin`` records in the metadata where the changes come from. ``batches`` are the batches of streaming
    queries that the changes contain.
    """

    base: bytes
    end: bytes
    message: str
    origin: dict[str, Any]
    allow_empty: bool = False
    batches: tuple[StreamBatch, ...] = ()

    @property
    def commit_metadata(self) -> dict[str, Any]:
        """The metadata of the commit under ``__frazil``."""
        return {**self.origin, **_batches_by_key(self.batches)}

    def recorded_metadata(self, branch: str, info: RepoInfo, id_: bytes) -> dict[str, Any]:
        """Return the metadata of the repository, with records of the batches in the commit ``id_``."""
        records: dict[str, list[BatchRecord]] = {}
        for query, batch, alone in self.batches:
            records.setdefault(query, []).append(BatchRecord(batch, id_, branch, alone))
        return with_records(info, records) if records else info.metadata


def plan_merge(
    context: Context, info: RepoInfo, source: str, into: str, *, fast_forward: bool
) -> IntegrationPlan | bytes:
    """Return the plan of ``Repository.merge``, or the new tip of ``into`` if no commit is needed.

    With ``fast_forward``, the new tip is the source if it is a descendant of the branch. The caller moves the
    branch.
    """
    tip = repo_requirements.branch_tip(info, into)
    start = _snapshot_named(info, source)
    base = _merge_base(info, start, tip)
    if base == start:
        return tip
    if base == tip and fast_forward:
        return start
    origin: dict[str, Any] = {PARENTS: [id_to_text(tip), id_to_text(start)]}
    batches, is_declared = batches_brought(info, start, tip, context.storage)
    if is_declared:
        origin[BATCHES] = []
    return IntegrationPlan(base, start, f"Merge {source} into {into}", origin, True, _stream_batches(batches))


def plan_cherry_pick(context: Context, info: RepoInfo, snapshot: str) -> IntegrationPlan:
    """Return the plan of ``Repository.cherry_pick``."""
    entry, parent = _commit_named(context, info, snapshot)
    batches = tuple((*batch, True) for batch in batches_between(info, parent, entry.id))
    origin = {"cherry_picked": id_to_text(entry.id)}
    return IntegrationPlan(parent, entry.id, entry.message, origin, batches=batches)


def plan_revert(context: Context, info: RepoInfo, snapshot: str) -> IntegrationPlan:
    """Return the plan of ``Repository.revert``."""
    entry, parent = _commit_named(context, info, snapshot)
    return IntegrationPlan(entry.id, parent, f'Revert "{entry.message}"', {"reverted": id_to_text(entry.id)})


def _stream_batches(batches: Mapping[str, BatchSet]) -> tuple[StreamBatch, ...]:
    latest = ((query, done.last, False) for query, done in batches.items() if done.last >= 0)
    alone = ((query, batch, True) for query, done in batches.items() for batch in sorted(done.alone))
    return (*latest, *alone)


def _batches_by_key(batches: Iterable[StreamBatch]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for query, batch, alone in batches:
        out.setdefault(ALONE if alone else BATCHES, []).append([query, batch])
    return out


def _snapshot_named(info: RepoInfo, name: str) -> bytes:
    """Return the snapshot of a branch, a tag, or an id."""
    id_ = find_snapshot(name, lambda: info)
    if id_ is None:
        raise no_version(info, name)
    repo_requirements.require_snapshot(info, id_)
    return id_


def _commit_named(context: Context, info: RepoInfo, name: str) -> tuple[SnapshotEntry, bytes]:
    """Return a snapshot and its parent. Raise an error if the changes of this commit alone are not known."""
    entry = info.snapshots.entry(repo_requirements.require_snapshot(info, _snapshot_named(info, name)))
    if entry.parent is None:
        raise InvalidInputError(
            f"{id_to_text(entry.id)} is the first snapshot, which changes nothing. Pass a later commit",
            ErrorKind.INVALID_SNAPSHOT_ID,
        )
    if entry.pruned_ancestor_tx_logs or (context.spec_version == 1 and not _follows(context, entry)):
        raise SessionStateError(
            f"the versions before {id_to_text(entry.id)} were expired, so the changes of this commit alone "
            "are not known. Pass a later commit",
            ErrorKind.REBASE_TX_LOG_PRUNED,
        )
    return entry, entry.parent


def _follows(context: Context, entry: SnapshotEntry) -> bool:
    """Return whether the parent has all nodes that a commit changed or deleted.

    An expiration in spec version 1 gives the oldest remaining version another parent, and leaves no other
    trace.
    """
    assert entry.parent is not None
    (log,) = read_logs(context.assets, [CommitLogs(entry.id, (entry.id,))])
    created = np.concatenate([log.new_groups, log.new_arrays])
    chunks = id_matrix(list(log.updated_chunks), NODE_ID_BYTES)
    lists = (log.updated_groups, log.updated_arrays, log.deleted_groups, log.deleted_arrays, chunks)
    parent_nodes = Workspace(context, entry.parent).snapshot.nodes.ids
    existing = id_keys(np.concatenate([parent_nodes, created]))
    return bool(np.isin(id_keys(np.concatenate(lists)), existing).all())


def _merge_base(info: RepoInfo, one: bytes, other: bytes) -> bytes:
    """Return the newest common ancestor of two snapshots, also through merges."""
    table = info.snapshots
    for id_ in (one, other):
        repo_requirements.require_snapshot(info, id_)
    common = np.intersect1d(all_ancestors(info, one), all_ancestors(info, other))
    if not len(common):
        raise SessionStateError(
            f"{id_to_text(one)} and {id_to_text(other)} have no common ancestor, because older versions were "
            "expired. The changes of either side are not known",
            ErrorKind.REBASE_TX_LOG_PRUNED,
        )
    return table.id_of(int(common[np.argmax(table.flushed_at()[common])]))
