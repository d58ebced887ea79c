"""The changes of several consecutive commits, as one difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from frazil.changes.log import union_of_chunks
from frazil.changes.moves import in_order, pairs_of
from frazil.format.ids import id_list
from frazil.format.snapshot import NodeTable
from frazil.format.transaction_log import TransactionLog


@dataclass(frozen=True, slots=True)
class ChangedPaths:
    """The changed nodes and chunks by path.

    ``updated_chunks`` has the coordinates of set and deleted references, uint32 of shape (k, ndim), for each
    array. Paths are the paths in the later version. Deleted nodes have their paths in the earlier version.
    """

    new_groups: frozenset[str]
    new_arrays: frozenset[str]
    deleted_groups: frozenset[str]
    deleted_arrays: frozenset[str]
    updated_groups: frozenset[str]
    updated_arrays: frozenset[str]
    updated_chunks: dict[str, NDArray[np.uint32]]
    moved: tuple[tuple[str, str], ...] = ()


def compose_logs(
    logs: Sequence[TransactionLog],
    before: NodeTable,
    after: NodeTable,
    move_logs: Sequence[TransactionLog] | None = None,
) -> ChangedPaths:
    """Return the changes of commits from ``before`` to ``after``. ``logs`` are in order, oldest first.

    As in the reference, the result is the union of all logs. So a node can be both new and updated, and a
    node that two commits moved has two moves. The moves are in the order of ``move_logs`` (by default the
    logs, newest first). Within a log they are sorted by target, segment by segment. A node that was created
    and deleted on the way is in neither version: the result only has its moves.
    """
    return compose_named(logs, paths_by_id(before), paths_by_id(after), move_logs)


def compose_named(
    logs: Sequence[TransactionLog],
    old: Mapping[bytes, str],
    new: Mapping[bytes, str],
    move_logs: Sequence[TransactionLog] | None = None,
) -> ChangedPaths:
    """Return the result of ``compose_logs``, for the paths of both versions by the ids of their nodes."""
    names = new if old is new else {**old, **new}

    def named(names: Mapping[bytes, str], field: str) -> frozenset[str]:
        ids = {*id_list(np.concatenate([getattr(log, field) for log in logs]))}
        return frozenset(map(names.__getitem__, filter(names.__contains__, ids)))

    chunks = union_of_chunks([log.updated_chunks for log in logs])
    named_ids = list(filter(names.__contains__, chunks))
    moves = chain.from_iterable(map(_moves, move_logs or reversed(logs)))
    return ChangedPaths(
        new_groups=named(new, "new_groups"),
        new_arrays=named(new, "new_arrays"),
        deleted_groups=named(old, "deleted_groups"),
        deleted_arrays=named(old, "deleted_arrays"),
        updated_groups=named(names, "updated_groups"),
        updated_arrays=named(names, "updated_arrays"),
        updated_chunks=dict(
            zip(map(names.__getitem__, named_ids), map(chunks.__getitem__, named_ids), strict=True)
        ),
        moved=tuple(moves),
    )


def _moves(log: TransactionLog) -> list[tuple[str, str]]:
    return in_order(pairs_of(log.moves))


def paths_by_id(nodes: NodeTable) -> dict[bytes, str]:
    """Return the paths of all nodes by their ids."""
    ids, _ = nodes.identities(np.arange(len(nodes)))
    return dict(zip(ids, nodes.paths_list(), strict=True))
