"""Describes chunks in a file: the codec of plain values, references to one file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.readers.reader import ChunkReferences


def bytes_codec(dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the Zarr codec for values of this dtype that are stored without compression."""
    if dtype.itemsize == 1 or dtype.kind in "SVT":
        return {"name": "bytes"}
    endian = "big" if dtype.str[0] == ">" else "little"
    return {"name": "bytes", "configuration": {"endian": endian}}


def references_to_file(
    url: str,
    chunks: Sequence[int],
    codecs: list[dict[str, Any]],
    dtype: np.dtype[Any],
    fill_value: Any,
    index: NDArray[Any],
    offset: NDArray[Any],
    length: NDArray[Any],
) -> ChunkReferences:
    """Return references to chunks that are all in the file ``url``: columns as in `ChunkReferences`.

    ``chunks`` is the shape of a chunk.
    """
    return ChunkReferences(
        chunks=tuple(map(int, chunks)),
        codecs=codecs,
        dtype=dtype,
        fill_value=fill_value,
        locations=(url,),
        index=np.ascontiguousarray(index, np.uint32),
        offset=np.ascontiguousarray(offset, np.uint64),
        length=np.ascontiguousarray(length, np.uint64),
        location=np.zeros(len(offset), np.uint32),
    )
