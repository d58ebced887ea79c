"""Transaction logs: which nodes and chunks one commit touched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import U8


@dataclass(frozen=True, slots=True)
class Move:
    """A node that changed its path; ``is_array`` tells arrays from groups."""

    source: str
    target: str
    node_id: bytes
    is_array: bool


@dataclass(frozen=True, slots=True, eq=False)
class TransactionLog:
    """What changed. The id columns are uint8 (k, 8), sorted, without repetition.

    ``updated_chunks`` maps a node id to the coordinates (uint32, (k, ndim), sorted) of all references of that
    array that were set or deleted. ``moves`` are sorted by target, segment by segment.
    """

    id: bytes
    new_groups: U8
    new_arrays: U8
    deleted_groups: U8
    deleted_arrays: U8
    updated_arrays: U8
    updated_groups: U8
    updated_chunks: dict[bytes, NDArray[np.uint32]] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()


def empty_log(id_: bytes) -> TransactionLog: ...


def encode_transaction_log(log: TransactionLog, *, level: int = 3) -> bytes: ...


def decode_transaction_log(data: Any, name: str) -> TransactionLog:
    """A log of spec version 1 or 2; ``FormatError`` naming ``name`` if the bytes are not one."""
