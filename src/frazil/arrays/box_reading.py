"""The read of a box of an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from frazil.arrays.axes import chunks_of_slice
from frazil.arrays.chunk_source import chunks_of
from frazil.arrays.piece_reading import PieceReading
from frazil.arrays.pieces import pieces_of_axes
from frazil.arrays.selection import AxisSlice
from frazil.arrays.single_chunk import read_in_chunk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from frazil.arrays.encoding import Encoding
    from frazil.arrays.pieces import Pieces
    from frazil.format.columns import I64
    from frazil.repository.session.session import Session


def read_box(session: Session, path: str, encoding: Encoding, slices: tuple[AxisSlice, ...]) -> NDArray[Any]:
    """Return the elements of a box."""
    shape = tuple(each.count for each in slices)
    if 0 in shape:
        return np.empty(shape, encoding.dtype)
    if encoding.shards is None:
        values = read_in_chunk(session.workspace, path, encoding, slices)
        if values is not None:
            return values
    out = np.empty(shape, encoding.dtype)
    pieces, failures = read_box_into(session, path, encoding, slices, out)
    if len(failures):
        _read_with_zarr(zarr_array(session, path), pieces, failures, slices, out)
    return out


def read_box_into(
    session: Session, path: str, encoding: Encoding, slices: tuple[AxisSlice, ...], out: NDArray[Any]
) -> tuple[Pieces, I64]:
    """Read a box that is not empty into ``out``. Return its pieces, and the rows of the failed ones."""
    axes = [
        chunks_of_slice(each.start, each.count, each.step, length)
        for each, length in zip(slices, encoding.lengths, strict=True)
    ]
    pieces = pieces_of_axes(axes)
    chunks = chunks_of(session.workspace, path, encoding)
    return pieces, PieceReading(chunks, encoding, pieces, out).run()


def zarr_array(session: Session, path: str) -> zarr.Array[Any]:
    """Return the array of zarr, for codecs and errors that only zarr has."""
    return zarr.open_array(session.store, path=path.strip("/"), mode="r", zarr_format=3)


def _read_with_zarr(
    array: zarr.Array[Any], pieces: Pieces, rows: I64, slices: tuple[AxisSlice, ...], out: NDArray[Any]
) -> None:
    """Read pieces with the codecs of zarr, which raise the errors of damaged chunks."""
    for row in rows.tolist():
        counts = pieces.regions[int(pieces.region[row])].counts
        target = pieces.target[row].tolist()
        spot = tuple(slice(a, a + n) for a, n in zip(target, counts, strict=True))
        source = tuple(
            AxisSlice(each.start + a * each.step, n, each.step).as_slice()
            for each, a, n in zip(slices, target, counts, strict=True)
        )
        out[spot] = array[source]
