"""The tasks of an ingest: they copy values of files into chunks, or set references to their bytes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError, InvalidInputError
from frazil.jobs.task_results import Outcome
from frazil.pipeline.ingest.arrays import TargetArray, open_target
from frazil.pipeline.ingest.axis import Pieces, runs
from frazil.pipeline.ingest.encodings import Conversion, inexact_text
from frazil.pipeline.ingest.items import Box, Item
from frazil.pipeline.ingest.references import set_references
from frazil.pipeline.ingest.sparse import constant_of, write_constant
from frazil.pipeline.ingest.task_context import Readers, TaskContext
from frazil.readers.attribute_values import decoded
from frazil.repository.session.session import ForkSession

#: The bytes of values that a task holds at once, unless a chunk is larger.
HELD: Final = 128 << 20


def copy_values(fork: ForkSession, context: TaskContext, item: Item) -> Outcome:
    """Write the boxes of an item with values from its files, and from old steps of the group."""
    before = fork.fork() if len(item.old) else fork  # reads old values while this task writes
    input_bytes = output_bytes = 0
    with Readers(context.access, item) as readers:
        for blocks in _batches(context, item.boxes):
            buffers = []
            for number, region in blocks:
                constant = constant_of(readers, context, item, number, region)
                if constant is None:
                    buffers.append(_region_buffer(before, context, item, number, region))
                else:
                    write_constant(fork, context.target(number), region, constant)
            # In the order of files, so that each file is opened once for all of its variables.
            reads = sorted(
                itertools.chain.from_iterable(each.reads for each in buffers), key=attrgetter("file")
            )
            for read in reads:
                values = file_values(readers, item, context, read)
                read.into[...] = _stored_values(readers, item, context, read, values)
                input_bytes += values.nbytes
            for each in buffers:
                open_target(fork.store, context.target(each.number).path)[each.region] = each.values
                input_bytes += each.old_bytes
                output_bytes += each.values.nbytes
    return Outcome(
        rows=int(item.pieces.count.sum()),
        chunks=sum(_chunks(box, context.target(box.array)) for box in item.boxes),
        bytes_read=input_bytes,
        bytes_written=output_bytes,
    )


@dataclass(frozen=True, slots=True)
class _FileRead:
    """A region of a variable in a file, and the buffer for its values. ``number`` is that of the array."""

    file: int
    number: int
    region: tuple[slice, ...]
    into: NDArray[Any]


@dataclass(frozen=True, slots=True)
class _RegionBuffer:
    """The values of a region of an array.

    Old values are already in the buffer (``old_bytes``). The ``reads`` fill the rest.
    """

    number: int
    region: tuple[slice, ...]
    values: NDArray[Any]
    reads: list[_FileRead]
    old_bytes: int = 0


def _batches(context: TaskContext, boxes: Sequence[Box]) -> Iterator[list[tuple[int, tuple[slice, ...]]]]:
    """Yield lists of regions of arrays (by number) that are held in memory together."""
    batch: list[tuple[int, tuple[slice, ...]]] = []
    held = 0
    for box in boxes:
        target = context.target(box.array)
        for region in _blocks(box, target):
            size = math.prod(each.stop - each.start for each in region) * target.itemsize
            if batch and held + size > HELD:
                yield batch
                batch, held = [], 0
            batch.append((box.array, region))
            held += size
    if batch:
        yield batch


def _region_buffer(
    before: ForkSession, context: TaskContext, item: Item, number: int, region: tuple[slice, ...]
) -> _RegionBuffer:
    target = context.target(number)
    axis = target.axis
    shape = tuple(each.stop - each.start for each in region)
    values = np.full(shape, target.missing, target.dtype)
    if axis is None:
        return _RegionBuffer(number, region, values, [_FileRead(0, number, region, values)])
    low, high = region[axis].start, region[axis].stop
    pieces = item.pieces.within(low, high)
    covering = pieces if target.window is None else pieces.within(0, 0)
    old_bytes = 0
    for start, stop, at in _uncovered(item.old, covering, low, high, context.arrays[number].shifted):
        in_array = (*region[:axis], slice(start, stop), *region[axis + 1 :])
        in_buffer = (*(slice(None),) * axis, slice(at - low, at - low + stop - start))
        values[in_buffer] = open_target(before.store, target.path)[in_array]
        old_bytes += values[in_buffer].nbytes
    rows = zip(
        pieces.source.tolist(), pieces.start.tolist(), pieces.at.tolist(), pieces.count.tolist(), strict=True
    )
    reads = []
    for file, start, at, count in rows:
        in_file, in_buffer = _inside(region, target)
        in_file = (*in_file[:axis], slice(start, start + count), *in_file[axis + 1 :])
        in_buffer = (*in_buffer[:axis], slice(at - low, at - low + count), *in_buffer[axis + 1 :])
        into = values[in_buffer]
        if context.arrays[number].adds_axis:
            # All steps of a file get its single value.
            in_file, into = in_file[:axis] + in_file[axis + 1 :], np.moveaxis(into, axis, 0)
        reads.append(_FileRead(file, number, in_file, into))
    return _RegionBuffer(number, region, values, reads, old_bytes)


def _inside(region: tuple[slice, ...], target: TargetArray) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return the part of a region that files have, as slices of the file and slices of the region."""
    if target.window is None:
        return region, (slice(None),) * len(region)
    low = [max(each.start, first) for each, (first, _) in zip(region, target.window, strict=True)]
    high = [min(each.stop, last) for each, (_, last) in zip(region, target.window, strict=True)]
    files = [first for first, _ in target.window]
    return (
        tuple(slice(a - f, b - f) for a, b, f in zip(low, high, files, strict=True)),
        tuple(slice(a - each.start, b - each.start) for a, b, each in zip(low, high, region, strict=True)),
    )


def _uncovered(
    old: Pieces, new: Pieces, low: int, high: int, shifted: bool
) -> Iterator[tuple[int, int, int]]:
    """Yield runs of old steps that no new step replaces: start and stop in the array, new first position."""
    old = old.within(low, high)
    if not len(old):
        return
    covered = np.zeros(high - low, np.bool_)
    for at, count in zip((new.at - low).tolist(), new.count.tolist(), strict=True):
        covered[at : at + count] = True
    offsets = np.arange(int(old.count.sum())) - np.repeat(np.cumsum(old.count) - old.count, old.count)
    at = np.repeat(old.at, old.count) + offsets
    start = at if shifted else np.repeat(old.start, old.count) + offsets
    stays = ~covered[at - low]
    remaining = runs(np.zeros(int(stays.sum()), np.int64), start[stays], at[stays])
    stop = remaining.start + remaining.count
    yield from zip(remaining.start.tolist(), stop.tolist(), remaining.at.tolist(), strict=True)


def file_values(readers: Readers, item: Item, context: TaskContext, read: _FileRead) -> NDArray[Any]:
    """Return the raw values of one file."""
    target = context.target(read.number)
    values = readers[read.file].read(target.name, read.region)
    expected = tuple(each.stop - each.start for each in read.region)
    if values.shape != expected:
        raise FormatError(
            f"{item.urls[read.file]}: values of {target.name} must have the shape {expected}, got "
            f"{values.shape}. The file has changed since the inspection. Ingest again",
            ErrorKind.INVALID_FILE_FORMAT,
        )
    return values


def _stored_values(
    readers: Readers, item: Item, context: TaskContext, read: _FileRead, values: NDArray[Any]
) -> NDArray[Any]:
    """Return the values of a file as the array stores them: unpacked, or in its encoding."""
    target = context.target(read.number)
    if context.arrays[read.number].unpacked:
        return _unpacked(values, readers[read.file].schema().variables[target.name].attrs, target)
    if target.dtype.kind == "T" and values.dtype.kind == "S":
        return decoded(values)
    conversion: Conversion | None = (item.conversions[read.file] or {}).get(target.name)
    if conversion is None:
        return values
    numbers, inexact = conversion.apply(values)
    if inexact.any():
        text = inexact_text(target.name, values[inexact][0], conversion.target)
        raise InvalidInputError(f"{item.urls[read.file]}: {text}", ErrorKind.INVALID_ARRAY_METADATA)
    return numbers


def _unpacked(values: NDArray[Any], attrs: Mapping[str, Any], target: TargetArray) -> NDArray[Any]:
    dims = tuple(map(str, range(values.ndim)))
    variable = xr.conventions.decode_cf_variable(
        target.name, xr.Variable(dims, values, dict(attrs)), decode_times=False
    )
    unpacked: NDArray[Any] = np.asarray(variable.values)
    return unpacked.astype(target.dtype, copy=False)


def _blocks(box: Box, target: TargetArray) -> Iterator[tuple[slice, ...]]:
    """Yield a box in parts on chunk borders, which are held in memory one by one."""
    grid = target.grid
    size = [min(step, stop - start) for step, start, stop in zip(grid, box.start, box.stop, strict=True)]
    held = max(int(np.prod(size, dtype=object)) * target.itemsize, 1)
    for at in reversed(range(len(size))):
        chunks = -(-(box.stop[at] - box.start[at]) // grid[at])
        many = max(1, min(chunks, HELD // held))
        size[at] = many * grid[at]
        held *= many
        if many < chunks:
            break
    ranges = [range(start, stop, step) for start, stop, step in zip(box.start, box.stop, size, strict=True)]
    for corner in itertools.product(*ranges):
        yield tuple(
            slice(start, min(start + step, stop))
            for start, step, stop in zip(corner, size, box.stop, strict=True)
        )


def _chunks(box: Box, target: TargetArray) -> int:
    counts = [
        -(-stop // step) - start // step
        for start, stop, step in zip(box.start, box.stop, target.grid, strict=True)
    ]
    return int(np.prod(counts, dtype=np.int64))


def run_item(fork: ForkSession, context: TaskContext, item: Item) -> Outcome:
    """Run one item: the work function of the job of an ingest."""
    return (set_references if item.virtual else copy_values)(fork, context, item)
