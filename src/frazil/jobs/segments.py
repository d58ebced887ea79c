"""Where a task has staged references that it does not send."""

from __future__ import annotations

from dataclasses import dataclass

type Corner = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """References of one array: bytes of an object in the storage, how many, and a box around their
    coordinates, the high corner inside.
    """

    key: str
    start: int
    stop: int
    count: int
    low: Corner
    high: Corner
    node_id: bytes
