"""The memory of a task: a check before the work, and slabs, which bound the copies of a block.

A codec decodes a whole chunk. A read needs about twice its size: for the decoded bytes, and for the array
that gets them. The later steps (missing values, packing, windows, groups) make several copies. So they
process a block in *slabs* of a few megabytes, and the size of the copies does not grow with the chunk.

    Limits    the limits of a reduction or a validation
    Budget    the limit of the caller for one task: ``max_mem``
    slabs     the regions of a block
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import block_shape, parse_bytes, split

#: The bytes of a slab, in the dtype of the stored values.
SLAB: Final = 4_000_000
#: The default bytes for the values of one task. A task needs more if one chunk is larger.
DEFAULT: Final = 256_000_000

MB: Final = 1_000_000

type MaxMem = int | str | None


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a reduction or a validation, in bytes.

    Args:
        task: The values that one task reads. Default: 128 MB.
        block: The values that a task reads at once, before decoding. Default: 32 MB.
        state: The partial results that one task holds. Default: 256 MB.
        small: The largest result whose partial results are sent to the driver. Default: 32 MB.
        returned: The partial results that the driver gets in total. Default: 256 MB.
        chunk: The chunks of the result, if several small chunks are combined. Default: 4 MB.
        columns: The number of tasks among which a large reduction with a small result is divided. This is
            not a number of bytes. Default: 16.

    >>> from frazil.pipeline import Limits
    >>> Limits(task=1_000_000).task
    1000000
    """

    task: int = 128 * MB
    block: int = 32 * MB
    state: int = 256 * MB
    small: int = 32 * MB
    returned: int = 256 * MB
    chunk: int = 4 * MB
    columns: int = 16


@dataclass(frozen=True, slots=True)
class Budget:
    """The bytes for the values of one task. ``is_given``: a limit of the caller, which no task may exceed."""

    size: int
    is_given: bool

    @staticmethod
    def of(max_mem: MaxMem) -> Budget:
        """Return the budget for an argument ``max_mem``: a number of bytes, a text such as "1GB", or None.

        >>> Budget.of(None).size, Budget.of("1 kB")
        (256000000, Budget(size=1000, is_given=True))
        """
        return Budget(DEFAULT, False) if max_mem is None else Budget(parse_bytes(max_mem), True)

    def require(self, needed: int, purpose: str) -> None:
        """Raise ``InvalidInputError`` (``invalid-argument``) if the limit is below ``needed`` bytes."""
        if self.is_given and needed > self.size:
            raise InvalidInputError(
                f"max_mem must be at least {needed} bytes, {purpose}, got {self.size}. Increase max_mem, or "
                "rechunk the array to smaller chunks first",
                ErrorKind.INVALID_ARGUMENT,
            )


def slabs(shape: Sequence[int], itemsize: int, grid: Sequence[int] = ()) -> Iterator[tuple[slice, ...]]:
    """Yield the regions of a block in memory, each of at most `SLAB` bytes or one cell of ``grid``.

    >>> [(rows.start, rows.stop) for rows, _ in slabs((3, 1_000_000), 4)]
    [(0, 1), (1, 2), (2, 3)]
    """
    cell = tuple(grid) or (1,) * len(shape)
    starts, stops = split(shape, block_shape(shape, cell, itemsize, SLAB))
    for low, high in zip(starts.tolist(), stops.tolist(), strict=True):
        yield tuple(map(slice, low, high))
