"""Copies sparse variables without reading the chunks that a file does not store.

An HDF5 dataset may have billions of elements and a few chunks. A chunk of the repository with only the fill
value of the file is not written if the array has the same fill value. Otherwise one such chunk is written,
and all others refer to its bytes.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.arrays.fill_values import fill_box
from frazil.pipeline.ingest.arrays import TargetArray, open_target
from frazil.pipeline.ingest.items import Item
from frazil.pipeline.ingest.task_context import OPEN, Readers, TaskContext
from frazil.repository.session.session import ForkSession

#: Regions with fewer bytes are read in any case.
SMALLEST: Final = 1 << 20

type Region = tuple[slice, ...]


def constant_of(
    readers: Readers, context: TaskContext, item: Item, number: int, region: Region
) -> NDArray[Any] | None:
    """Return the single value of a region of an array (by number), or None if files store chunks of it."""
    target = context.target(number)
    size = math.prod(each.stop - each.start for each in region) * target.itemsize
    if size < SMALLEST or target.window is not None or context.arrays[number].unpacked:
        return None
    if target.axis is None:
        return _constant(readers, 0, target, region)
    axis, low, high = target.axis, region[target.axis].start, region[target.axis].stop
    pieces = item.pieces.within(low, high)
    if len(item.old.within(low, high)) or int(pieces.count.sum()) != high - low or len(pieces) > OPEN // 2:
        return None
    values: list[NDArray[Any]] = []
    rows = zip(pieces.source.tolist(), pieces.start.tolist(), pieces.count.tolist(), strict=True)
    for file, start, count in rows:
        if target.name in (item.conversions[file] or {}):
            return None
        along = () if context.arrays[number].adds_axis else (slice(start, start + count),)
        value = _constant(readers, file, target, (*region[:axis], *along, *region[axis + 1 :]))
        if value is None or (values and _bytes(value, target) != _bytes(values[0], target)):
            return None
        values.append(value)
    return values[0]


def _constant(readers: Readers, file: int, target: TargetArray, region: Region) -> NDArray[Any] | None:
    """Return the single value of a region of a file; None for characters that become text."""
    value = readers[file].constant(target.name, region)
    return None if value is not None and target.dtype.kind == "T" != value.dtype.kind else value


def write_constant(fork: ForkSession, target: TargetArray, region: Region, value: NDArray[Any]) -> None:
    """Set all elements of a new region of an array to one value. The region is on the borders of chunks."""
    if _bytes(value, target) == _bytes(target.fill_value, target):
        return
    fill_box(open_target(fork.store, target.path), [(each.start, each.stop) for each in region], value)


def _bytes(value: Any, target: TargetArray) -> bytes:
    array = np.asarray(value, target.dtype)
    return str(array[()]).encode() if target.dtype.kind == "T" else array.tobytes()
