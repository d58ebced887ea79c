"""What tasks do: copy values of files into chunks, or set references to their bytes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError, InvalidInputError
from frazil.jobs.task_results import Outcome
from frazil.pipeline.ingest.arrays import TargetArray, open_target
from frazil.pipeline.ingest.axis import Pieces, runs
from frazil.pipeline.ingest.items import Box, Item
from frazil.pipeline.ingest.references import refer
from frazil.pipeline.ingest.sparse import constant_of, write_constant
from frazil.pipeline.ingest.task_files import Readers, Written
from frazil.pipeline.ingest.time_conversion import Linear, moved
from frazil.repository.session.session import ForkSession

#: Values that a task holds at once, in bytes, if chunks are not larger.
HELD: Final = 128 << 20


def copy(fork: ForkSession, written: Written, item: Item) -> Outcome:
    """Write the boxes of an item with values from its files, and from what was there."""
    before = fork.fork() if len(item.old) else fork  # what was there, whatever this task writes
    done = _Done()
    with Readers(written.options, item) as readers:
        for blocks in _batches(written, item.boxes):
            begun = []
            for number, region in blocks:
                constant = constant_of(readers, written, item, number, region)
                if constant is None:
                    begun.append(_begun(before, written, item, number, region, done))
                else:
                    write_constant(fork, written.arrays[number], region, constant)
            # File by file: each is opened once for all of its variables.
            reads = sorted(
                itertools.chain.from_iterable(each.reads for each in begun), key=attrgetter("file")
            )
            for read in reads:
                read.into[...] = _read(readers, item, written, read, done)
            for each in begun:
                open_target(fork.store, written.arrays[each.number].path)[each.region] = each.values
                done.written += each.values.nbytes
    return Outcome(
        rows=int(item.pieces.count.sum()),
        chunks=sum(_chunks(box, written.arrays[box.array]) for box in item.boxes),
        bytes_read=done.read,
        bytes_written=done.written,
    )


@dataclass(slots=True)
class _Done:
    read: int = 0
    written: int = 0


@dataclass(frozen=True, slots=True)
class _ReadOf:
    """A region of an array (by number) of a file, and where its values go."""

    file: int
    number: int
    region: tuple[slice, ...]
    into: NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Begun:
    """Values of a region of an array, with what was there; ``reads`` fill the rest."""

    number: int
    region: tuple[slice, ...]
    values: NDArray[Any]
    reads: list[_ReadOf]


def _batches(written: Written, boxes: Sequence[Box]) -> Iterator[list[tuple[int, tuple[slice, ...]]]]:
    """Regions of arrays (by number) that are held in memory together."""
    batch: list[tuple[int, tuple[slice, ...]]] = []
    held = 0
    for box in boxes:
        target = written.arrays[box.array]
        for region in _blocks(box, target):
            size = math.prod(each.stop - each.start for each in region) * target.itemsize
            if batch and held + size > HELD:
                yield batch
                batch, held = [], 0
            batch.append((box.array, region))
            held += size
    if batch:
        yield batch


def _begun(
    before: ForkSession,
    written: Written,
    item: Item,
    number: int,
    region: tuple[slice, ...],
    done: _Done,
) -> _Begun:
    target = written.arrays[number]
    axis = target.axis
    shape = tuple(each.stop - each.start for each in region)
    values = np.full(shape, target.fill_value, target.dtype)
    if axis is None:
        return _Begun(number, region, values, [_ReadOf(0, number, region, values)])
    low, high = region[axis].start, region[axis].stop
    pieces = item.pieces.within(low, high)
    covering = pieces if target.window is None else pieces.within(0, 0)
    for start, stop, at in _uncovered(item.old, covering, low, high, written.shifted[number]):
        there = (*region[:axis], slice(start, stop), *region[axis + 1 :])
        here = (*(slice(None),) * axis, slice(at - low, at - low + stop - start))
        values[here] = open_target(before.store, target.path)[there]
        done.read += values[here].nbytes
    rows = zip(
        pieces.source.tolist(), pieces.start.tolist(), pieces.at.tolist(), pieces.count.tolist(), strict=True
    )
    reads = []
    for file, start, at, count in rows:
        there, here = _inside(region, target)
        there = (*there[:axis], slice(start, start + count), *there[axis + 1 :])
        here = (*here[:axis], slice(at - low, at - low + count), *here[axis + 1 :])
        into = values[here]
        if written.adds_axis[number]:
            # the one value of a file is that of all its steps
            there, into = there[:axis] + there[axis + 1 :], np.moveaxis(into, axis, 0)
        reads.append(_ReadOf(file, number, there, into))
    return _Begun(number, region, values, reads)


def _inside(region: tuple[slice, ...], target: TargetArray) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """The part of a region that files have: where it is in a file, and where in the region."""
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
    """Runs of what was there that is not written over: where it is, and where it goes."""
    old = old.within(low, high)
    if not len(old):
        return
    covered = np.zeros(high - low, np.bool_)
    for at, count in zip((new.at - low).tolist(), new.count.tolist(), strict=True):
        covered[at : at + count] = True
    offsets = np.arange(int(old.count.sum())) - np.repeat(np.cumsum(old.count) - old.count, old.count)
    at = np.repeat(old.at, old.count) + offsets
    start = at if shifted else np.repeat(old.start, old.count) + offsets
    kept = ~covered[at - low]
    left = runs(np.zeros(int(kept.sum()), np.int64), start[kept], at[kept])
    yield from zip(left.start.tolist(), (left.start + left.count).tolist(), left.at.tolist(), strict=True)


def _read(readers: Readers, item: Item, written: Written, wanted: _ReadOf, done: _Done) -> NDArray[Any]:
    """Values of one file as the array wants them."""
    target, file, region = written.arrays[wanted.number], wanted.file, wanted.region
    reader = readers[file]
    values = reader.read(target.name, region)
    expected = tuple(each.stop - each.start for each in region)
    if values.shape != expected:
        raise FormatError(
            f"{item.urls[file]}: expected values of {target.name} of shape {expected}, found {values.shape}: "
            "the file has changed since it was inspected",
            ErrorKind.INVALID_FILE_FORMAT,
        )
    done.read += values.nbytes
    if target.name in written.unpacked:
        return _unpacked(values, reader.schema().variables[target.name].attrs, target)
    line: Linear | None = (item.moves[file] or {}).get(target.name)
    if line is None:
        return values
    there = moved(values, line, target.dtype)
    if there is None:
        raise InvalidInputError(
            f"{item.urls[file]}: expected times of {target.name} that are whole numbers in the "
            "units of the repository, found others",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    return there


def _unpacked(values: NDArray[Any], attrs: Mapping[str, Any], target: TargetArray) -> NDArray[Any]:
    dims = tuple(map(str, range(values.ndim)))
    variable = xr.conventions.decode_cf_variable(
        target.name, xr.Variable(dims, values, dict(attrs)), decode_times=False
    )
    found: NDArray[Any] = np.asarray(variable.values)
    return found.astype(target.dtype, copy=False)


def _blocks(box: Box, target: TargetArray) -> Iterator[tuple[slice, ...]]:
    """A box in parts on chunk borders that are held in memory one by one."""
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


@dataclass(frozen=True, slots=True)
class Either:
    """Items of both kinds in one job."""

    item: Item
    virtual: bool = field(default=False)


def work(fork: ForkSession, written: Written, task: Either) -> Outcome:
    """The work function of ingest."""
    return (refer if task.virtual else copy)(fork, written, task.item)
