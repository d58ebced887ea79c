"""The rules for transaction logs.

Specification: *Transaction Log Files*.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from frazil.format.envelope import FileType
from frazil.format.flatbuffer import Tables
from frazil.format.ids import (
    INITIAL_SNAPSHOT_ID,
    NODE_ID_BYTES,
    OBJECT_ID_BYTES,
    id_keys,
    id_list,
    id_to_text,
)
from frazil.format.rules import moves
from frazil.format.rules.headers import violations_of
from frazil.format.rules.manifest import unsorted_rows
from frazil.format.rules.violation import Violation, absent_fields, broken, unsorted_ids

_CHUNKS, _MOVES = 7, 8
_LISTS: Final = {
    1: "new_groups",
    2: "new_arrays",
    3: "deleted_groups",
    4: "deleted_arrays",
    5: "updated_arrays",
    6: "updated_groups",
}
#: The lists of which a node must be in one at most.
_EXCLUSIVE: Final = {"groups": (1, 3, 6), "arrays": (2, 4, 5)}


def transaction_log_violations(data: Any, id_: bytes, spec_version: int) -> list[Violation]:
    """Return the rules that the transaction log of the snapshot ``id_`` breaks.

    >>> from frazil.format.transaction_log import empty_log, encode_transaction_log
    >>> transaction_log_violations(encode_transaction_log(empty_log(bytes(12))), bytes(12), 2)
    []
    """

    def every(root: Tables, version: int) -> Iterator[Violation]:
        yield from broken((_identity, _initial), root, id_)
        yield from broken((*_RULES, *moves.RULES), root)

    return violations_of(data, FileType.TRANSACTION_LOG, spec_version, every)


def _identity(root: Tables, id_: bytes) -> Iterator[Violation]:
    stored = root.structs(0, OBJECT_ID_BYTES).tobytes()
    if stored != id_:
        yield Violation("log-id", f"the id must be {id_to_text(id_)}, got {id_to_text(stored)}")


def _initial(root: Tables, id_: bytes) -> Iterator[Violation]:
    if id_ != INITIAL_SNAPSHOT_ID:
        return
    names = [name for slot, name in _LISTS.items() if len(_ids(root, slot))]
    names += [
        name for slot, name in ((_CHUNKS, "updated_chunks"), (_MOVES, "moved_nodes")) if _some(root, slot)
    ]
    if names:
        detail = f"the log of the initial snapshot must be empty, got {', '.join(names)}"
        yield Violation("log-initial", detail)


def _some(root: Tables, slot: int) -> bool:
    return len(root.children(slot)[0]) > 0


def _ids(root: Tables, slot: int) -> Any:
    return root.vectors(slot, f"V{NODE_ID_BYTES}").row(0).reshape(-1, NODE_ID_BYTES)


def _required(root: Tables) -> Iterator[Violation]:
    names = absent_fields(root, {0: "id", **_LISTS, _CHUNKS: "updated_chunks"})
    arrays = root.children(_CHUNKS)[0]
    names += absent_fields(arrays, {0: "node_id of updated chunks", 1: "chunks of an array"})
    names += absent_fields(arrays.children(1)[0], {0: "coords of a chunk"})
    if names:
        yield Violation("log-required", f"these required fields are absent: {', '.join(names)}")


def _order(root: Tables) -> Iterator[Violation]:
    for slot, name in _LISTS.items():
        yield from unsorted_ids("log-ids-sorted", name, id_keys(_ids(root, slot)))
    arrays = root.children(_CHUNKS)[0]
    ids = arrays.structs(0, NODE_ID_BYTES)
    yield from unsorted_ids("log-chunks-sorted", "updated_chunks", id_keys(ids))
    chunks, counts = arrays.children(1)
    ranks = chunks.numbers(0, "<u4").lengths
    firsts = np.minimum(np.cumsum(counts) - counts, max(len(ranks) - 1, 0))
    if len(ranks) and (ranks != np.repeat(ranks[firsts], counts)).any():
        yield Violation("log-coords-rank", "all coordinates of an array must have one rank")
        return
    nodes = id_list(ids)
    for row in unsorted_rows(chunks, 0, counts):
        yield Violation("log-coords-sorted", "coordinates must be sorted, each once", nodes[row])


def _exclusive(root: Tables) -> Iterator[Violation]:
    for kind, slots in _EXCLUSIVE.items():
        keys = np.concatenate([np.unique(id_keys(_ids(root, slot))) for slot in slots])
        distinct, counts = np.unique(keys, return_counts=True)
        if (counts > 1).any():
            id_ = distinct[counts > 1][:1].view(np.uint8).tobytes()
            detail = f"{int((counts > 1).sum())} {kind} are in several lists, one is {id_to_text(id_)}"
            yield Violation("log-nodes-once", detail, id_)


_RULES: Final = (_required, _order, _exclusive)

__all__ = ["transaction_log_violations"]
