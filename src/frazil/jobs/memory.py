"""How much memory a task may take: a refusal before the work, and slabs of what is in memory already.

A codec decodes a chunk as a whole. To read it takes about twice its size: the decoded bytes, and the
array that they go to. The steps after that (missing values, packing, windows, groups) make several copies. So
they go through a block in *slabs* of a few megabytes, and the copies do not grow with the chunk.

    Limits    the limits of a reduction or a validation
    Budget    what a caller allows for one task: ``max_mem``
    slabs     a block in parts
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import block_shape, parse_bytes, split

#: Bytes of a slab, as the values are stored.
SLAB: Final = 4_000_000
#: Bytes for the values of one task where the caller says nothing, unless one chunk needs more.
DEFAULT: Final = 256_000_000

MB: Final = 1_000_000

type MaxMem = int | str | None


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes. ``task``: read by one. ``block``: read at once, before decoding. ``state``: of one task.
    ``small``: a result whose partial results may go to the driver, which then gets ``returned`` at most.
    ``chunk``: of the result, where chunks are put together.
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
    """Bytes for the values of one task. ``is_given``: a caller's bound, which no task may exceed."""

    size: int
    is_given: bool

    @staticmethod
    def of(max_mem: MaxMem) -> Budget:
        """The budget of an argument ``max_mem``: a number of bytes, a text such as "1GB", or None.

        >>> Budget.of(None).size, Budget.of("1 kB")
        (256000000, Budget(size=1000, is_given=True))
        """
        return Budget(DEFAULT, False) if max_mem is None else Budget(parse_bytes(max_mem), True)

    def require(self, needed: int, purpose: str) -> None:
        """Raise ``InvalidInputError`` (``invalid-argument``) if a given bound is below ``needed`` bytes."""
        if self.is_given and needed > self.size:
            raise InvalidInputError(
                f"expected a max_mem of at least {needed} bytes, {purpose}, found {self.size}: give as much, "
                "or rechunk the array to smaller chunks first",
                ErrorKind.INVALID_ARGUMENT,
            )


def slabs(shape: Sequence[int], itemsize: int, grid: Sequence[int] = ()) -> Iterator[tuple[slice, ...]]:
    """The regions of a block that is in memory, of at most `SLAB` bytes each, or of one cell of ``grid``.

    >>> [(rows.start, rows.stop) for rows, _ in slabs((3, 1_000_000), 4)]
    [(0, 1), (1, 2), (2, 3)]
    """
    cell = tuple(grid) or (1,) * len(shape)
    starts, stops = split(shape, block_shape(shape, cell, itemsize, SLAB))
    for low, high in zip(starts.tolist(), stops.tolist(), strict=True):
        yield tuple(map(slice, low, high))
