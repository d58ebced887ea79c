"""Compares a variable of the files with the existing array of the same name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import zarr

from frazil.cf_times import is_time
from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.ingest.arrays import NAN_FILL, TargetArray
from frazil.pipeline.ingest.existing import dims_of
from frazil.pipeline.ingest.file_layout import PACKING, VirtualChunks, native
from frazil.pipeline.ingest.plain_chunks import cut_shape
from frazil.pipeline.ingest.problems import OTHER_GROUP, TABLE
from frazil.remedies import Remedy

#: Dimension -> ``(start, stop)``, the part of an existing dimension that files have.
type Windows = Mapping[str, tuple[int, int]]


def matched_array(
    array: zarr.Array[Any], target: TargetArray, virtual: VirtualChunks | None, windows: Windows
) -> TargetArray:
    """Return the target with the dtype, chunks and attributes of the existing array."""
    comparisons = _metadata_comparisons(array, target, windows)
    if virtual is not None:
        comparisons += _storage_comparisons(array, target)
    for comparison in comparisons:
        if comparison.differs:
            raise comparison.refusal(target.path)
    shape = tuple(target.shape[i] if i == target.axis else size for i, size in enumerate(array.shape))
    return replace(
        target,
        shape=shape,
        window=_window(array, target, virtual, windows),
        dtype=array.dtype,
        chunks=array.chunks if virtual is None else target.chunks,
        shards=array.shards,
        fill_value=array.fill_value,
        attrs=dict(array.attrs),
    )


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One property of an array, in the repository and in the files."""

    name: str
    stored: Any
    new: Any
    is_storage: bool = False

    @property
    def differs(self) -> bool:
        """Whether the files differ from the repository."""
        if isinstance(self.stored, np.dtype):
            return bool(self.stored != self.new)
        return repr(self.stored) != repr(self.new)

    def refusal(self, path: str) -> InvalidInputError:
        """Return the error for a property that differs."""
        error = InvalidInputError(
            f"{self.name} of `{path}` must be {self.stored}, as in the repository, got {self.new} in the "
            "files",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
        error.remedy = TABLE["chunks"].remedy if self.is_storage else Remedy(OTHER_GROUP)
        return error


def _metadata_comparisons(array: zarr.Array[Any], target: TargetArray, windows: Windows) -> list[_Comparison]:
    """Compare dimensions, lengths, dtype and the attributes that change the meaning of the numbers."""
    dims, attrs = dims_of(array), dict(array.attrs)
    fixed = [i for i, dim in enumerate(target.dims) if i != target.axis and dim not in windows]
    comparisons = [_Comparison("dimensions", dims, target.dims)]
    if dims == target.dims:
        sizes = [array.shape[i] for i in fixed]
        comparisons.append(_Comparison("shape", sizes, [target.shape[i] for i in fixed]))
    if not (is_time(attrs.get("units")) and is_time(target.attrs.get("units"))):
        comparisons += [
            _Comparison("dtype", native(array.dtype), native(target.dtype)),
            _Comparison("units", attrs.get("units"), target.attrs.get("units")),
        ]
    comparisons += [
        _Comparison(name, attrs.get(name), target.attrs.get(name)) for name in (*PACKING, "calendar")
    ]
    stored_fill, new_fill = (_none_if_nan(each.get("_FillValue")) for each in (attrs, target.attrs))
    return [*comparisons, _Comparison("_FillValue", stored_fill, new_fill)]


def _storage_comparisons(array: zarr.Array[Any], target: TargetArray) -> list[_Comparison]:
    """Compare codecs, chunks and fill value: references need an array that is stored like the files."""
    codecs = tuple(map(_plain, array.metadata.to_dict()["codecs"]))  # type: ignore[arg-type]
    new_codecs = tuple(_plain(json.loads(each)) for each in target.codecs)
    comparisons = [_Comparison("codecs", codecs, new_codecs, is_storage=True)]
    if not _can_recut(array, target):
        comparisons.append(_Comparison("chunks", array.chunks, target.chunks, is_storage=True))
    stored_bytes, new_bytes = (_as_bytes(each.fill_value, each.dtype) for each in (array, target))
    if stored_bytes != new_bytes:  # missing chunks have this value
        fill = _Comparison("fill value", array.fill_value, target.fill_value, is_storage=True)
        comparisons.append(fill)
    return comparisons


def _window(
    array: zarr.Array[Any], target: TargetArray, virtual: VirtualChunks | None, windows: Windows
) -> tuple[tuple[int, int], ...] | None:
    dims = dims_of(array)
    if not windows.keys() & set(dims):
        return None
    if virtual is not None:
        raise InvalidInputError(
            f"a virtual ingest needs files with whole steps of `{target.path}`, but they have parts of "
            "steps. Copy these files",
            ErrorKind.UNIMPLEMENTED,
        )
    return tuple(windows.get(dim, (0, size)) for dim, size in zip(dims, array.shape, strict=True))


def _can_recut(array: zarr.Array[Any], target: TargetArray) -> bool:
    """Return whether the chunks of an array of plain bytes can be cut into the chunks of the target."""
    at = target.axis
    names = [json.loads(each)["name"] for each in target.codecs]
    if (
        at is None
        or names != ["bytes"]
        or array.shards is not None
        or len(array.chunks) != len(target.chunks)
    ):
        return False
    return cut_shape(array.chunks, at, target.chunks[at]) == target.chunks and (
        array.chunks[at] % target.chunks[at] == 0
    )


def _as_bytes(value: Any, dtype: np.dtype[Any]) -> bytes:
    return np.asarray(value).astype(dtype.newbyteorder("=")).tobytes() if dtype.kind != "T" else b""


def _none_if_nan(fill: Any) -> Any:
    return None if fill == NAN_FILL else fill


def _plain(codec: Any) -> str:
    return repr(sorted(dict(codec).items()))
