"""Names of zarr that its versions have in other places, or not at all. Other modules import them from here.

Before zarr 3.3, reads that Frazil does not do in bulk take zarr's older pipeline. Before zarr 3.2, no array
has chunks of unequal lengths. Before zarr 3.1.3, an unknown codec is a ``KeyError``, and codecs of HDF5 are
missing.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import zarr.core.chunk_grids
import zarr.core.codec_pipeline
import zarr.core.dtype
import zarr.core.dtype.common
import zarr.core.metadata.v3
import zarr.errors

if TYPE_CHECKING:
    from zarr.codecs import numcodecs

    BaseArray = zarr.Array[Any]
    Fletcher32 = numcodecs.Fletcher32
    Shuffle = numcodecs.Shuffle
    Zlib = numcodecs.Zlib
    FusedCodecPipeline = zarr.core.codec_pipeline.FusedCodecPipeline
    RectilinearChunkGridMetadata = zarr.core.metadata.v3.RectilinearChunkGridMetadata
    RegularChunkGridMetadata = zarr.core.metadata.v3.RegularChunkGridMetadata
    parse_dtype = zarr.core.dtype.parse_dtype
    DataTypeValidationError = zarr.errors.DataTypeValidationError
    UnknownCodecError = zarr.errors.UnknownCodecError
    UnstableSpecificationWarning = zarr.errors.UnstableSpecificationWarning
else:

    class _Absent:
        """The class of a grid or a codec that no array has."""

    def _first(name: str, *places: Any, default: Any = None) -> Any:
        """Return the name of the first module that has it."""
        return next((getattr(each, name) for each in places if hasattr(each, name)), default)

    BaseArray = zarr.Array  # before zarr 3.1.2, it has no parameter
    _metadata, _pipelines = zarr.core.metadata.v3, zarr.core.codec_pipeline
    FusedCodecPipeline = _first("FusedCodecPipeline", _pipelines, default=_pipelines.BatchedCodecPipeline)
    RectilinearChunkGridMetadata = _first("RectilinearChunkGridMetadata", _metadata, default=_Absent)
    RegularChunkGridMetadata = _first(
        "RegularChunkGridMetadata", _metadata, default=_first("RegularChunkGrid", zarr.core.chunk_grids)
    )
    DataTypeValidationError = _first("DataTypeValidationError", zarr.errors, zarr.core.dtype.common)
    UnknownCodecError = _first("UnknownCodecError", zarr.errors, default=KeyError)
    parse_dtype = _first("parse_dtype", zarr.core.dtype, default=_first("parse_data_type", zarr.core.dtype))
    _codecs = importlib.import_module("zarr.codecs.numcodecs") if find_spec("zarr.codecs.numcodecs") else None
    Fletcher32, Shuffle, Zlib = (
        _first(name, _codecs, default=_Absent) for name in ("Fletcher32", "Shuffle", "Zlib")
    )
    UnstableSpecificationWarning = _first("UnstableSpecificationWarning", zarr.errors, default=UserWarning)


def async_array(array: Any) -> Any:
    """Return the asynchronous array of an array. Before zarr 3.1.2, its name is not public."""
    return getattr(array, "async_array", None) or array._async_array
