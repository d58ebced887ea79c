"""The layout of the shards of an array."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

#: The bytes of an entry of the index: an offset and a length.
_ENTRY_BYTES: Final = 16
#: The bytes of the checksum after the entries.
CRC_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """The layout of the shards of an array.

    Attributes:
        counts: The number of inner chunks of a shard along each dimension.
        is_index_first: Whether the index is at the begin of a shard. Otherwise it is at the end.
    """

    counts: tuple[int, ...]
    is_index_first: bool

    @property
    def index_bytes(self) -> int:
        """The number of bytes of the index of a shard, with its checksum."""
        return prod(self.counts) * _ENTRY_BYTES + CRC_BYTES
