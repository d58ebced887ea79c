"""Reductions of a box of an array: from the statistics of its chunks, and from the chunks that have none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np
import zarr

from frazil.answers.kernels import STATISTICS, Kernel, Partial, Tiles, combine_partials, empty_partial
from frazil.answers.plan import ElementBox
from frazil.arguments import checked
from frazil.arrays.array import Array
from frazil.arrays.element_statistics import SUM_ERROR

#: The statistics whose partial results are computed. Those of the mean and the sum are equal, for example.
_PARTIALS: Final = ("sum", "var", "min", "max", "any", "all")
_GROUP: Final = np.zeros(1, np.int64)


@lru_cache
def _kernels(is_exact: bool) -> dict[str, Kernel]:
    """Return the kernels of one group: with integers of Python, or with floating-point numbers."""
    dtype = np.dtype(object if is_exact else np.float64)
    return {name: row.kernel(dtype, False, 0, None) for name, row in STATISTICS.items()}


@dataclass(frozen=True, slots=True)
class Reduction:
    """The statistics of the elements of a box, and how they were computed. See `reduce`.

    Elements that are NaN, NaT or missing are left out, except with ``skipna=False``: then one of them makes
    all values NaN.

    Attributes:
        size: The number of elements of the box.
        count: The number of elements that are neither NaN (or NaT) nor missing.
        nan: The number of elements that are NaN or NaT.
        missing: The number of other elements that mean a missing value (``_FillValue``, ``missing_value``).
        min: The smallest value; NaN if there is none.
        max: The largest value; NaN if there is none.
        sum: The sum: an integer for integers, and exact; otherwise see ``error``.
        mean: The mean; NaN if there is no value.
        var: The variance, divided by ``count``.
        std: The standard deviation.
        any: Whether a value is not zero. NaN and missing values are not, as in numpy.
        all: Whether no value is zero. None if the extremes of a chunk leave this open: then ask `where` for
            ``== 0``.
        error: The largest error of ``sum``, in the unit of the values; 0 for integers.
        chunks: The number of chunks that the box meets. The inner chunks of shards count one by one.
        chunks_read: How many of them were read: they have no statistics, or are only partly in the box.
    """

    size: int
    count: int
    nan: int
    missing: int
    min: Any
    max: Any
    sum: Any
    mean: float
    var: float
    std: float
    any: bool
    all: bool | None
    error: float
    chunks: int
    chunks_read: int


@checked
def reduce(
    array: Array | zarr.Array[Any], index: Any = ..., *, skipna: bool = True, decoded: bool = True
) -> Reduction:
    """Return the mean, the sum, the extremes and the count of the elements of a box.

    Chunks with statistics that are whole in the box are not read. All other chunks that the box meets are:
    those at its edges, those that were written without statistics or by another program, and virtual chunks
    without a checksum. So the result is complete, whoever wrote the chunks.

    Sums of integers are exact. Those of floating-point numbers are computed with 64 bits.

    Args:
        array: The array: a `frazil.Array`, or an array of zarr in a store of Frazil. Its elements are
            numbers, booleans, times or durations. Times are integers here, in their unit.
        index: The box: integers, slices with a step of 1, and ``...``. Default: the whole array.
        skipna: Whether to leave out NaN and missing values. Default: True.
        decoded: Whether to apply ``scale_factor`` and ``add_offset``. Default: True.

    Returns:
        The statistics, and how many chunks were read.

    Raises:
        InvalidInputError: ``invalid-argument`` for an array of other elements, or another index.
        InvalidIndexError: ``invalid-argument`` for an index outside of the array.
        StorageError: A chunk cannot be read.
        FormatError: A chunk is damaged.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> config = frazil.RepositoryConfig(chunks=frazil.ChunksConfig(statistics=True))
        >>> repo = frazil.Repository.create(frazil.in_memory_storage(), config=config)
        >>> with repo.transaction("main", message="an array") as store:
        ...     array = zarr.create_array(store, name="t", data=np.arange(100.0), chunks=(10,))
        >>> t = frazil.Array(repo.readonly_session("main"), "/t")
        >>> summary = frazil.reduce(t)
        >>> summary.mean, summary.max, summary.chunks_read
        (49.5, 99.0, 0)
        >>> frazil.reduce(t, slice(15, 80)).chunks_read
        1
    """
    box = ElementBox.of(array, index, decoded=decoded)
    coding, met = box.coding, box.met_tiles()
    is_exact = box.meaning.kind != "f" and coding.floating is None
    kernels = _kernels(is_exact)
    totals = dict[str, Partial]()
    nan = missing = chunks_read = 0
    has_open = False
    with np.errstate(invalid="ignore", over="ignore"):
        for columns, is_used, reads in box.columns():
            if not decoded and not any(coding.fills):  # elements that mean a missing value are zero
                columns["gaps"] = columns["nan"]
            tiles = settled = Tiles.of(columns, is_used, coding.packing)
            is_open = kernels["all"].is_open(columns) & is_used
            if is_open.any():
                has_open, settled = True, Tiles.of(columns, is_used & ~is_open)
            for name in _PARTIALS:
                part = kernels[name].partial_of_tiles(settled if name == "all" else tiles)
                state = totals.get(name)
                totals[name] = part if state is None else combine_partials(kernels[name], state, part)
            nan += int(columns["nan"].sum(where=is_used))
            missing += int(columns["missing"].sum(where=is_used))
            chunks_read += reads
        totals = totals or {name: empty_partial(kernels[name], _GROUP, ()) for name in _PARTIALS}
        values = {
            name: kernels[name].finish_fields(totals[state].fields).tolist()[0]
            for name, state in (*zip(_PARTIALS, _PARTIALS, strict=True), ("mean", "sum"))
        }
    low, high, total, mean, var = (values[name] for name in ("min", "max", "sum", "mean", "var"))
    count, left_out = int(totals["sum"].fields[0][0]), nan + missing
    error = 0.0
    if count and not is_exact:
        error = SUM_ERROR * count * (max(abs(low), abs(high)) + abs(coding.packing[1]))
    if count and math.isnan(var) and math.isfinite(low) and math.isfinite(high):
        var = math.inf  # of the squares, as in numpy
    if left_out and not skipna:
        low = high = total = mean = var = math.nan
    return Reduction(
        size=count + left_out,
        count=count,
        nan=nan,
        missing=missing,
        min=low,
        max=high,
        sum=total,
        mean=mean,
        var=var,
        std=math.sqrt(var) if var >= 0 else math.nan,
        any=values["any"],
        all=None if has_open and values["all"] else values["all"],
        error=error,
        chunks=0 if met is None else prod(high - low for low, high in met),
        chunks_read=chunks_read,
    )
