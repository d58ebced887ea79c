"""The tasks of an ingest: they copy values of files into chunks, or set references to their bytes.

An HDF5 dataset may have billions of elements and a few chunks. A chunk of the repository with only the fill
value of the file is not written if the array has the same fill value. Otherwise one such chunk is written,
and all others refer to its bytes.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from frazil.arrays.box_writing import fill_box
from frazil.errors import ErrorKind, FormatError, InvalidInputError
from frazil.format.chunk_table import ChunkTable
from frazil.jobs.task_results import Outcome
from frazil.pipeline.ingest.array_plan import Box, Item, PlannedArray
from frazil.pipeline.ingest.arrays import TargetArray, cut_references, open_target
from frazil.pipeline.ingest.encodings import Conversion, inexact_text
from frazil.pipeline.ingest.inspection import state_of
from frazil.pipeline.ingest.options import FileAccess
from frazil.pipeline.ingest.steps import Pieces, runs
from frazil.readers.attribute_values import decoded
from frazil.readers.base_reader import Reader
from frazil.readers.file_schema import INLINE, ChunkReferences, NotVirtual
from frazil.readers.files import find_file
from frazil.remedies import argument
from frazil.repository.session.session import ForkSession
from frazil.repository.session.virtual_refs import VirtualRows, set_rows

#: The number of files that a task keeps open.
OPEN: Final = 128


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The value that all tasks share: the arrays of the plan by number, and the access to files."""

    arrays: tuple[PlannedArray, ...]
    access: FileAccess

    def target(self, number: int) -> TargetArray:
        """Return an array by its number."""
        return self.arrays[number].target


class Readers:
    """The readers of the files of a task. The files used last stay open.

    Each file is checked before and after the reads.
    """

    def __init__(self, access: FileAccess, item: Item) -> None:
        self._access = access
        self._item = item
        self._open: OrderedDict[int, Reader] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        while self._open:
            self._close(*self._open.popitem(), check=kind is None)

    def __getitem__(self, file: int) -> Reader:
        reader = self._open.pop(file, None)
        if reader is None:
            reader = self._access.open(self._item.urls[file])
            if state_of(reader.schema()) != self._item.fingerprints[file].tobytes().hex():
                reader.close()
                raise self._changed(file)
        self._open[file] = reader
        if len(self._open) > OPEN:
            self._close(*self._open.popitem(last=False), check=True)
        return reader

    def _close(self, file: int, reader: Reader, *, check: bool) -> None:
        schema = reader.schema()
        reader.close()
        if not check or schema.format == "zarr":  # a Zarr group is many objects
            return
        now = find_file(self._item.urls[file], self._access.storage_options)
        if (now.size, now.modified, now.etag) != (schema.size, schema.modified, schema.etag):
            raise self._changed(file)

    def _changed(self, file: int) -> FormatError:
        return FormatError(
            f"{self._item.urls[file]}: the file was changed or replaced since the inspection. Ingest again",
            ErrorKind.INVALID_FILE_FORMAT,
        )


def set_references(fork: ForkSession, context: TaskContext, item: Item) -> Outcome:
    """Set references of the arrays of an item to the chunks in its files.

    Inline chunks of a reader (see `ChunkReferences`) become chunks of the repository. If the steps were in
    the repository before, chunks that a file does not have are deleted.
    """
    count = read = own = 0
    pieces = item.pieces
    with Readers(context.access, item) as readers:
        rows = zip(
            pieces.source.tolist(),
            pieces.start.tolist(),
            pieces.at.tolist(),
            pieces.count.tolist(),
            strict=True,
        )
        for (file, start, at, steps), box in itertools.product(rows, item.boxes):
            target = context.target(box.array)
            references = _references(readers, item, target, file, context.arrays[box.array].adds_axis)
            low, high = _place(target, box, at, steps)
            index = references.index.astype(np.int64)
            if target.axis is not None:
                index[:, target.axis] += (at - start) // target.chunks[target.axis]
            inside = ((index >= low) & (index < high)).all(axis=1)
            if len(item.old.within(at, at + steps)):
                _remove_missing(fork, target.path, low, high, index[inside])
            _set_virtual(
                fork, target.path, index, references, inside, item.checks[file] if item.checks else None
            )
            own += _set_inline(fork, target.path, index, references, inside)
            count += int(inside.sum())
            read += int(references.length[inside].sum())
    return Outcome(
        rows=int(pieces.count.sum()), chunks=count, bytes_read=0, bytes_written=own, value=read - own
    )


def _place(target: TargetArray, box: Box, at: int, steps: int) -> tuple[list[int], list[int]]:
    """Return the first and the end chunk of the part of a box that a piece of a file fills."""
    start, stop = list(box.start), list(box.stop)
    if target.axis is not None:
        start[target.axis], stop[target.axis] = at, at + steps
    low = [each // step for each, step in zip(start, target.chunks, strict=True)]
    high = [-(-each // step) for each, step in zip(stop, target.chunks, strict=True)]
    return low, high


def _remove_missing(
    fork: ForkSession, path: str, low: list[int], high: list[int], index: NDArray[np.int64]
) -> None:
    """Delete old chunks that the file does not have: their new value is the fill value."""
    before = fork.workspace.ref_table(path)
    old = before.index[((before.index >= low) & (before.index < high)).all(axis=1)]
    stays = ChunkTable.from_absent(index).find_chunks(old) >= 0
    if not stays.all():
        fork.workspace.delete_refs(path, old[~stays])


def _set_virtual(
    fork: ForkSession,
    path: str,
    index: NDArray[np.int64],
    references: ChunkReferences,
    inside: NDArray[np.bool_],
    checksum: str | datetime | None,
) -> None:
    rows = inside & (references.location != INLINE)
    columns = VirtualRows.of(
        index[rows].astype(np.uint32),
        references.locations,
        references.location[rows],
        references.offset[rows],
        references.length[rows],
        checksum,
    )
    failed = set_rows(fork.workspace, path, columns)
    if failed:
        raise without_container(references.locations[0])


def _set_inline(
    fork: ForkSession,
    path: str,
    index: NDArray[np.int64],
    references: ChunkReferences,
    inside: NDArray[np.bool_],
) -> int:
    """Write the chunks that are not in a file, and return their number of bytes. There are few of them."""
    size = 0
    for row, data in references.inline.items():
        if inside[row]:
            fork.workspace.write_chunk(path, tuple(index[row].tolist()), data)
            size += len(data)
    return size


def _references(
    readers: Readers, item: Item, target: TargetArray, file: int, adds_axis: bool
) -> ChunkReferences:
    """Return the references of a variable of a file, for the chunks of the array."""
    references = readers[file].references(target.name)
    if isinstance(references, NotVirtual):
        raise _not_as_inspected(item.urls[file], target.name, references.reason)
    if adds_axis:
        references = references.with_axis()
    codecs = tuple(json.dumps(each, sort_keys=True) for each in references.codecs)
    if codecs != target.codecs or len(references.chunks) != len(target.shape):
        raise _not_as_inspected(item.urls[file], target.name, "other codecs")
    if target.axis is not None and references.is_plain:
        references = cut_references(references, target.chunks, target.axis)
    if references.chunks != target.chunks:
        raise _not_as_inspected(item.urls[file], target.name, f"chunks of {references.chunks}")
    return references


def _not_as_inspected(url: str, name: str, actual: str) -> FormatError:
    return FormatError(
        f"{url}: the chunks of {name} have changed since the inspection, got {actual}. Ingest again",
        ErrorKind.INVALID_FILE_FORMAT,
    )


def without_container(location: str, url: str | None = None) -> InvalidInputError:
    """Return the error for a file outside of all virtual chunk containers of the repository.

    ``location`` is the location of its chunks, ``url`` the URL of the file if it differs.
    """
    prefix = location.rpartition("/")[0] + "/"
    option = prefix if url is None or "://" not in url else url.rpartition("/")[0] + "/"
    return InvalidInputError(
        f"the repository has no virtual chunk container for {location}",
        ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK,
    ).with_remedy(
        "Give containers=[VirtualChunkContainer({!r}, ...)], and open the repository with "
        "authorize_virtual_chunk_access for {!r}",
        prefix,
        prefix,
        shell=f"Give {argument(containers=[option]).command()}",
    )


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
