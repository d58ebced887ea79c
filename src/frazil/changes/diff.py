"""What several commits in a row changed, as one set of ids and coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import U8, row_keys
from frazil.format.snapshot import NodeTable
from frazil.format.transaction_log import TransactionLog


@dataclass(frozen=True, slots=True)
class Changes:
    """By path: sets of nodes, and for each array the coordinates (uint32, (k, ndim)) of references set or
    deleted.

    Nodes are named as in the later version, deleted ones as in the earlier.
    """

    new_groups: frozenset[str]
    new_arrays: frozenset[str]
    deleted_groups: frozenset[str]
    deleted_arrays: frozenset[str]
    updated_groups: frozenset[str]
    updated_arrays: frozenset[str]
    updated_chunks: dict[str, NDArray[np.uint32]]
    moved: tuple[tuple[str, str], ...] = ()


def compose(logs: Sequence[TransactionLog], before: NodeTable, after: NodeTable) -> Changes:
    """The logs, oldest first, that lead from ``before`` to ``after``.

    A node that was created and deleted in between does not appear.
    """
    old, new = _names(before), _names(after)

    def named(names: dict[bytes, str], *columns: U8) -> frozenset[str]:
        ids = {id_.tobytes() for column in columns for id_ in column}
        return frozenset(names[id_] for id_ in ids if id_ in names)

    def of(field: str) -> list[U8]:
        return [getattr(log, field) for log in logs]

    chunks: dict[bytes, list[NDArray[np.uint32]]] = {}
    for log in logs:
        for id_, coords in log.updated_chunks.items():
            chunks.setdefault(id_, []).append(coords)
    moved = {move.node_id for log in logs for move in log.moves}
    return Changes(
        new_groups=named(new, *of("new_groups")),
        new_arrays=named(new, *of("new_arrays")),
        deleted_groups=named(old, *of("deleted_groups")),
        deleted_arrays=named(old, *of("deleted_arrays")),
        updated_groups=named(new, *of("updated_groups")) - named(new, *of("new_groups")),
        updated_arrays=named(new, *of("updated_arrays")) - named(new, *of("new_arrays")),
        updated_chunks={new[id_]: _union(coords) for id_, coords in chunks.items() if id_ in new},
        moved=tuple(
            sorted(
                (old[id_], new[id_]) for id_ in moved if id_ in old and id_ in new and old[id_] != new[id_]
            )
        ),
    )


def _names(nodes: NodeTable) -> dict[bytes, str]:
    ids, _ = nodes.identities(np.arange(len(nodes)))
    return dict(zip(ids, nodes.paths_list(), strict=True))


def _union(columns: list[NDArray[np.uint32]]) -> NDArray[np.uint32]:
    if len(columns) == 1:
        return columns[0]
    every = np.concatenate(columns)
    _, first = np.unique(row_keys(every), return_index=True)
    return every[first]
