"""The check of references: one chunk of each array is decoded from its bytes, and compared with its reader.

A reader derives codecs, dtypes and places of chunks from the metadata of a file. The check finds files whose
chunks have another form than their metadata say, before references to them are committed.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import zarr
import zarr.errors
from numpy.typing import NDArray
from zarr.core.buffer import cpu
from zarr.core.metadata.v3 import ArrayV3Metadata
from zarr.storage import MemoryStore

from frazil.errors import IcechunkError
from frazil.readers.base_reader import INLINE, ChunkReferences, Reader
from frazil.readers.files import find_file
from frazil.zarr_names import UnstableSpecificationWarning, parse_dtype

#: The number of values of a chunk of plain bytes that are compared: chunks without codecs can be large.
_PLAIN: Final = 1 << 16


def why_unreadable(
    reader: Reader, name: str, references: ChunkReferences, storage_options: Mapping[str, Any] | None
) -> str | None:
    """Return the reason why the chunks of a variable are not its values; None if one chunk has them."""
    in_file = np.flatnonzero(references.location != INLINE)
    if not len(in_file):
        return None
    row = int(in_file[np.argsort(references.length[in_file], kind="stable")[len(in_file) // 2]])
    chunks, start = references.chunks, int(references.offset[row])
    length = int(references.length[row])
    if references.is_plain:  # one run of bytes along the last dimension
        chunks = (*(1 for _ in chunks[:-1]), min(chunks[-1], _PLAIN)) if chunks else ()
        length = min(length, math.prod(chunks) * references.dtype.itemsize)
    corner = [at * step for at, step in zip(references.index[row].tolist(), references.chunks, strict=True)]
    shape = reader.variable(name).shape
    region = tuple(
        slice(at, min(at + step, size)) for at, step, size in zip(corner, chunks, shape, strict=True)
    )
    expected = reader.read(name, region)
    location = references.locations[int(references.location[row])]
    file = reader.file if location == reader.file.location else find_file(location, storage_options)
    data = file.read(start, start + length)
    try:
        values = _decoded(references, chunks, data)[tuple(map(slice, expected.shape))]
        is_equal = np.array_equal(values, expected, equal_nan=expected.dtype.kind in "fcmM")
    except IcechunkError:
        raise
    except Exception as error:  # a codec may raise any error
        return f"its chunks cannot be decoded: {type(error).__name__}: {' '.join(str(error).split())}"
    return None if is_equal else "its chunks have other values when their codecs decode them"


def _decoded(references: ChunkReferences, chunks: tuple[int, ...], data: bytes) -> NDArray[Any]:
    """Return the values of the bytes of a chunk, as zarr decodes them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnstableSpecificationWarning)
        metadata = ArrayV3Metadata(
            shape=chunks,
            data_type=parse_dtype(references.dtype, zarr_format=3),
            chunk_grid={"name": "regular", "configuration": {"chunk_shape": chunks}},
            chunk_key_encoding={"name": "default"},
            fill_value=references.fill_value,
            codecs=references.codecs,
            attributes={},
            dimension_names=None,
        )
        documents = {
            "zarr.json": json.dumps(metadata.to_dict()).encode(),
            "/".join(("c", *("0" for _ in chunks))): data,
        }
        store = MemoryStore({key: cpu.Buffer.from_bytes(each) for key, each in documents.items()})
        return np.asarray(zarr.open_array(store, mode="r")[...])
