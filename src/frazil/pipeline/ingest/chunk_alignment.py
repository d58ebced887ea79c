"""Checks that files and moved steps are on the borders of chunks: references need whole chunks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.ingest.arrays import TargetArray
from frazil.pipeline.ingest.axis import Axis, Pieces, old_pieces


def require_aligned(array: TargetArray, pieces: Pieces, axis: Axis, urls: Sequence[str]) -> None:
    """Check that referenced files begin and end on chunk borders of the array."""
    step = array.grid[array.axis or 0]
    ends = pieces.at + pieces.count
    bad = (
        (pieces.at % step != 0)
        | (pieces.start % step != 0)
        | ((pieces.count % step != 0) & (ends != axis.length))
    )
    if bad.any():
        row = int(np.argmax(bad))
        raise InvalidInputError(
            f"a virtual ingest needs files on the borders of chunks of {step} steps of `{array.path}`, got "
            f"{urls[int(pieces.source[row])]} at {pieces.at[row]}:{ends[row]} (from its step "
            f"{pieces.start[row]}). Copy this variable",
            ErrorKind.INVALID_CHUNK_INDEX,
        )


def can_shift(array: TargetArray, axis: Axis) -> bool:
    """Return whether all steps that move are whole chunks."""
    step = array.grid[array.axis or 0]
    old = old_pieces(axis, 0, axis.length)
    partial = (old.count % step != 0) & ~(
        (old.at + old.count == axis.length) & (old.start + old.count == len(axis.old))
    )
    return not ((old.at % step != 0) | (old.start % step != 0) | partial).any()
