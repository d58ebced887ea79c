"""The rebuild of a transaction log, from the snapshots before and after its commit.

The log has the nodes and chunks in which the two versions differ. This is the log of a new commit with the
same differences. A commit may also write the same metadata or the same reference again, or delete a chunk
that is missing. The original log lists such a write, but no version shows it. So the rebuilt log does not
list it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from frazil.changes.compare import compare_versions
from frazil.format.ids import NODE_ID_BYTES, id_list, id_matrix, id_to_text
from frazil.format.keys import transaction_key
from frazil.format.nodes import NodeTable
from frazil.format.transaction_log import Move, TransactionLog, empty_log, encode_transaction_log
from frazil.maintenance.repair.repair_plan import RepairStep
from frazil.maintenance.repair.steps import Site
from frazil.repository.catalog.context import Context
from frazil.repository.session.workspace import Workspace


@dataclass(frozen=True, slots=True)
class RebuildLog:
    """Writes the transaction log of a snapshot. ``parent`` is None for the first snapshot."""

    id: bytes
    parent: bytes | None
    why: str

    def describe(self) -> RepairStep:
        """Return the step as a value for users."""
        source = "the first snapshot" if self.parent is None else f"the parent {id_to_text(self.parent)}"
        why = f"{self.why}; the log lists all differences from the parent"
        return RepairStep("rebuild", (transaction_key(self.id),), source, why, "consistent")

    def perform(self, site: Site) -> None:
        """Write the log, and put the damaged log aside."""
        site.quarantine.replace_file(
            site.storage, transaction_key(self.id), rebuilt_log(site.context, self.id, self.parent)
        )


def rebuilt_log(context: Context, id_: bytes, parent: bytes | None) -> bytes:
    """Return the file of the log with the differences between a snapshot and its parent."""
    log = empty_log(id_) if parent is None else _log_of_differences(context, id_, parent)
    level = context.settings.compression_level
    return encode_transaction_log(log, level=level, spec_version=context.spec_version)


def _log_of_differences(context: Context, id_: bytes, parent: bytes) -> TransactionLog:
    old, new = Workspace(context, parent), Workspace(context, id_)
    before, after = old.base, new.base
    changed = compare_versions(before, after, old.chunks.ref_table, new.chunks.ref_table)
    targets = [target for _, target in changed.moved]
    rows = after.find_nodes(targets)
    nodes = zip(id_list(after.ids[rows]), after.is_array[rows].tolist(), strict=True)
    return TransactionLog(
        id_,
        new_groups=_ids(after, changed.new_groups),
        new_arrays=_ids(after, changed.new_arrays),
        deleted_groups=_ids(before, changed.deleted_groups),
        deleted_arrays=_ids(before, changed.deleted_arrays),
        updated_arrays=_ids(after, changed.updated_arrays),
        updated_groups=_ids(after, changed.updated_groups),
        updated_chunks={
            after.ids[after.find_node(path)].tobytes(): index
            for path, index in changed.updated_chunks.items()
        },
        moves=tuple(
            Move(source, target, node, bool(is_array))
            for (source, target), (node, is_array) in zip(changed.moved, nodes, strict=True)
        ),
    )


def _ids(table: NodeTable, paths: Iterable[str]) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    return id_matrix(sorted(id_list(table.ids[table.find_nodes(list(paths))])), NODE_ID_BYTES)
