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
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from frazil.arguments import misfit
from frazil.arrays.box_writing import fill_box
from frazil.cf import coding_of
from frazil.errors import ErrorKind, FormatError, InvalidInputError
from frazil.format.chunk_table import ChunkTable
from frazil.jobs.job import Tasks
from frazil.jobs.task_results import Outcome
from frazil.pipeline.ingest.arrays import TargetArray, cut_references, narrow_array, open_target
from frazil.pipeline.ingest.families import Conversion, inexact_text
from frazil.pipeline.ingest.inspection import decoding, file_state
from frazil.pipeline.ingest.steps import StepRuns, runs
from frazil.readers.base_reader import INLINE, ChunkReferences, NotVirtual, Reader, decoded
from frazil.readers.files import find_file
from frazil.readers.registry import FileAccess
from frazil.remedies import argument
from frazil.repository.session.session import ForkSession
from frazil.repository.session.virtual_refs import VirtualRows, set_rows


@dataclass(frozen=True, slots=True)
class PlannedArray:
    """An array of the plan. Its number is its index in the list of all arrays.

    ``existed``: the group had it before. ``adds_axis``: its files do not have the dimension in which they
    follow each other. ``virtual``: it gets references to the files instead of copies. ``unpacked``: it gets
    unpacked values. ``shifted``: the driver has already moved the chunks of its old steps. ``stored`` are the
    metadata of its old chunks, None if it has the same dtype as before.
    """

    target: TargetArray
    existed: bool
    adds_axis: bool = False
    virtual: bool = False
    unpacked: bool = False
    shifted: bool = False
    stored: bytes | None = None

    def old_values(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return old values of the array with the missing value of the target, in its dtype."""
        if self.stored is None:
            return values
        missing = coding_of(json.loads(self.stored).get("attributes", {}), values.dtype).missing(values)
        result = values.astype(self.target.dtype)
        if missing is not None:
            result[missing] = self.target.missing
        return result


@dataclass(frozen=True, slots=True)
class ArrayBox:
    """A part of an array, on chunk borders. ``array`` is the number of the array in the plan."""

    array: int
    start: tuple[int, ...]
    stop: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IngestItem:
    """The work of one task: it copies values, or sets references to files (``virtual``).

    The sources of ``pieces`` are indices of ``urls``. ``old`` are steps of the group. For each file there are
    ``conversions`` of its times (None: times stay), ``checks`` (the etag or time that its virtual references
    store), and ``fingerprints`` (uint8, (files, 16)) of the inspection. ``places`` are the positions of the
    labels of each file along dimensions that grow, by dimension; empty if none grows.
    """

    boxes: tuple[ArrayBox, ...]
    pieces: StepRuns
    old: StepRuns
    urls: tuple[str, ...]
    conversions: tuple[Mapping[str, Conversion] | None, ...]
    checks: tuple[Any, ...]
    fingerprints: NDArray[np.uint8]
    virtual: bool = False
    places: tuple[Mapping[str, NDArray[np.int64]], ...] = ()


type Region = tuple[slice, ...]

_REPLACED: Final = "the file was changed or replaced since the inspection"
#: The number of files that a task keeps open, and of files whose changed contents it has in memory.
OPEN: Final = 128
OPEN_IN_MEMORY: Final = 4
#: Regions with fewer bytes are read in any case.
SMALLEST: Final = 1 << 20
#: The bytes of values that a task holds at once, unless a chunk is larger.
HELD: Final = 128 << 20


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The value that all tasks share: the arrays of the plan by number, and the access to files."""

    arrays: tuple[PlannedArray, ...]
    access: FileAccess


def joined_tasks(parts: Sequence[Tasks]) -> Tasks:
    """Join the tasks of several groups: their arrays get other numbers."""
    contexts = [each for each in parts if each.shared is not None]
    if len(contexts) < 2:
        return contexts[0] if contexts else parts[0]
    arrays: list[PlannedArray] = []
    items: list[IngestItem] = []
    for part in contexts:
        start = len(arrays)
        arrays += part.shared.arrays
        for item in part.items:
            boxes = tuple(replace(box, array=box.array + start) for box in item.boxes)
            items.append(replace(item, boxes=boxes))
    shared = TaskContext(tuple(arrays), contexts[0].shared.access)
    return replace(
        contexts[0], items=items, shared=shared, reads=tuple(path for part in parts for path in part.reads)
    )


class Readers:
    """The readers of the files of a task, which checks each file before and after the reads."""

    def __init__(self, access: FileAccess, item: IngestItem) -> None:
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
            schema = reader.schema()
            if file_state(schema, schema.fingerprint) != self._item.fingerprints[file].tobytes().hex():
                reader.close()
                raise self._changed(file)
        self._open[file] = reader
        if len(self._open) > (OPEN if self._access.preprocess is None else OPEN_IN_MEMORY):
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

    def _changed(self, file: int, text: str = _REPLACED) -> FormatError:
        message = f"{self._item.urls[file]}: {text}. Ingest again"
        return FormatError(message, ErrorKind.INVALID_FILE_FORMAT)

    def references(self, file: int, array: PlannedArray) -> ChunkReferences:
        """Return the references of a variable of a file, for the chunks of the array."""
        target, references = array.target, self[file].references(array.target.name)
        what = f"the chunks of {target.name} have changed since the inspection, got"
        if isinstance(references, NotVirtual):
            raise self._changed(file, f"{what} {references.reason}")
        if array.adds_axis:
            references = references.with_axis()
        codecs = tuple(json.dumps(each, sort_keys=True) for each in references.codecs)
        if decoding(codecs) != decoding(target.codecs) or len(references.chunks) != len(target.shape):
            raise self._changed(file, f"{what} other codecs")
        if target.axis is not None and references.is_plain:
            references = cut_references(references, target.chunks, target.axis)
        if references.chunks != target.chunks:
            raise self._changed(file, f"{what} chunks of {references.chunks}")
        return references

    def constant(self, array: PlannedArray, region: Region) -> NDArray[Any] | None:
        """Return the single value of a region of an array, or None if files store chunks of it."""
        target, item = array.target, self._item
        size = math.prod(each.stop - each.start for each in region) * target.itemsize
        if size < SMALLEST or target.window is not None or array.unpacked or item.places:
            return None
        parts = [(0, region)]
        if target.axis is not None:
            axis, low, high = target.axis, region[target.axis].start, region[target.axis].stop
            pieces = item.pieces.within(low, high)
            is_whole = not len(item.old.within(low, high)) and int(pieces.count.sum()) == high - low
            if not is_whole or len(pieces) > OPEN // 2:
                return None
            parts = []
            for file, start, _, count in pieces:
                if target.name in (item.conversions[file] or {}):
                    return None
                along = () if array.adds_axis else (slice(start, start + count),)
                parts.append((file, (*region[:axis], *along, *region[axis + 1 :])))
        value: NDArray[Any] | None = None
        for file, part in parts:
            each = self[file].constant(target.name, part)
            # Characters become text.
            if each is None or target.dtype.kind == "T" != each.dtype.kind:
                return None
            if value is not None and _bytes(value, target) != _bytes(each, target):
                return None
            value = each if value is None else value
        return value

    def values(self, read: _FileRead) -> NDArray[Any]:
        """Return the raw values of one file."""
        target = read.array.target
        values = self[read.file].read(target.name, read.region)
        expected = tuple(each.stop - each.start for each in read.region)
        if values.shape != expected:
            raise self._changed(
                read.file,
                f"values of {target.name} must have the shape {expected}, got {values.shape}. The file has "
                "changed since the inspection",
            )
        return values

    def stored_values(self, read: _FileRead, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values of a file as the array stores them: unpacked, or in its encoding."""
        target = read.array.target
        if read.array.unpacked:
            attrs = self[read.file].schema().variables[target.name].attrs
            packed = xr.Variable(tuple(map(str, range(values.ndim))), values, dict(attrs))
            unpacked = xr.conventions.decode_cf_variable(target.name, packed, decode_times=False).values
            return np.asarray(unpacked).astype(target.dtype, copy=False)
        if target.dtype.kind == "T" and values.dtype.kind == "S":
            return decoded(values)
        conversion: Conversion | None = (self._item.conversions[read.file] or {}).get(target.name)
        if conversion is None:
            return values
        numbers, inexact = conversion.apply(values)
        if inexact.any():
            text = inexact_text(target.name, values[inexact][0], conversion.target)
            raise misfit(f"{self._item.urls[read.file]}: {text}")
        return numbers


def set_references(fork: ForkSession, context: TaskContext, item: IngestItem) -> Outcome:
    """Set references of the arrays of an item to the chunks in its files, also where chunks were before."""
    count = read = own = 0
    workspace = fork.workspace
    with Readers(context.access, item) as readers:
        for (file, start, at, steps), box in itertools.product(item.pieces, item.boxes):
            array, target = context.arrays[box.array], context.arrays[box.array].target
            references = readers.references(file, array)
            first, end = list(box.start), list(box.stop)
            index = references.index.astype(np.int64)
            if target.axis is not None:
                first[target.axis], end[target.axis] = at, at + steps
                index[:, target.axis] += (at - start) // target.chunks[target.axis]
            low = [each // step for each, step in zip(first, target.chunks, strict=True)]
            high = [-(-each // step) for each, step in zip(end, target.chunks, strict=True)]
            inside = ((index >= low) & (index < high)).all(axis=1)
            if len(item.old.within(at, at + steps)):
                before = workspace.ref_table(target.path)
                old = before.index[((before.index >= low) & (before.index < high)).all(axis=1)]
                stays = ChunkTable.from_absent(index[inside]).find_chunks(old) >= 0
                if not stays.all():
                    workspace.delete_refs(target.path, old[~stays])
            rows = inside & (references.location != INLINE)
            columns = VirtualRows.of(
                index[rows].astype(np.uint32),
                references.locations,
                references.location[rows],
                references.offset[rows],
                references.length[rows],
                item.checks[file] if item.checks else None,
            )
            if set_rows(workspace, target.path, columns):
                raise without_container(references.locations[0])
            for row, data in references.inline.items():  # chunks that are not in a file: there are few
                if inside[row]:
                    workspace.write_chunk(target.path, tuple(index[row].tolist()), data)
                    own += len(data)
            count += int(inside.sum())
            read += int(references.length[inside].sum())
    return Outcome(
        rows=int(item.pieces.count.sum()), chunks=count, bytes_read=0, bytes_written=own, value=read - own
    )


def without_container(location: str, url: str | None = None) -> InvalidInputError:
    """Return the error for a file (chunks at ``location``) outside of all virtual chunk containers."""
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


def _bytes(value: Any, target: TargetArray) -> bytes:
    array = np.asarray(value, target.dtype)
    return str(array[()]).encode() if target.dtype.kind == "T" else array.tobytes()


def copy_values(fork: ForkSession, context: TaskContext, item: IngestItem) -> Outcome:
    """Write the boxes of an item with values from its files, and from old steps of the group."""
    before = fork.fork() if len(item.old) else fork  # reads old values while this task writes
    for number in {box.array for box in item.boxes if len(item.old)}:
        if (stored := context.arrays[number].stored) is not None:
            narrow_array(before, context.arrays[number].target.path, stored)
    input_bytes = output_bytes = chunks = 0
    with Readers(context.access, item) as readers:
        for blocks in _batches(context, item.boxes):
            buffers: list[tuple[TargetArray, Region, NDArray[Any]]] = []
            reads: list[_FileRead] = []
            for array, region in blocks:
                target, constant = array.target, readers.constant(array, region)
                if constant is None:
                    values, mine, old_bytes = _region_buffer(before, item, array, region)
                    buffers.append((target, region, values))
                    reads += mine
                    input_bytes += old_bytes
                elif _bytes(constant, target) != _bytes(target.fill_value, target):
                    box = [(each.start, each.stop) for each in region]
                    fill_box(open_target(fork.store, target.path), box, constant)
            # In the order of files, so that each file is opened once for all of its variables.
            for read in sorted(reads, key=attrgetter("file")):
                values = readers.values(read)
                read.into[read.at] = readers.stored_values(read, values)[read.chosen]
                input_bytes += values.nbytes
            for target, region, values in buffers:
                open_target(fork.store, target.path)[region] = values
                output_bytes += values.nbytes
    for each in item.boxes:
        grid = context.arrays[each.array].target.grid
        sizes = zip(each.start, each.stop, grid, strict=True)
        chunks += math.prod(-(-stop // step) - start // step for start, stop, step in sizes)
    rows = int(item.pieces.count.sum())
    return Outcome(rows=rows, chunks=chunks, bytes_read=input_bytes, bytes_written=output_bytes)


@dataclass(frozen=True, slots=True)
class _FileRead:
    """A region of a variable in a file, the array that gets its values, and the buffer for them."""

    file: int
    array: PlannedArray
    region: Region
    into: NDArray[Any]
    chosen: Any = ...
    at: Any = ...

    def placed(self, places: Mapping[str, NDArray[np.int64]], start: Sequence[int]) -> _FileRead | None:
        """Return the read of the values at the positions of a file; None if the buffer has none of them.

        ``start`` is the position of the buffer in the dimensions of the region.
        """
        dims = [
            dim
            for at, dim in enumerate(self.array.target.dims)
            if not (self.array.adds_axis and at == self.array.target.axis)
        ]
        shape = self.into.shape[len(self.into.shape) - len(dims) :]
        region, chosen, at = list(self.region), [], []
        for number, (dim, low, size) in enumerate(zip(dims, start, shape, strict=True)):
            inside = rows = np.arange(size)
            if dim in places:
                mine = places[dim] - low
                rows = np.flatnonzero((mine >= 0) & (mine < size))
                if not len(rows):
                    return None
                inside, first = mine[rows], int(rows[0])
                region[number], rows = slice(first, int(rows[-1]) + 1), rows - first
            chosen.append(rows)
            at.append(inside)
        before = (slice(None),) if self.array.adds_axis else ()
        return replace(self, region=tuple(region), chosen=np.ix_(*chosen), at=(*before, *np.ix_(*at)))


def _batches(context: TaskContext, boxes: Sequence[ArrayBox]) -> Iterator[list[tuple[PlannedArray, Region]]]:
    """Yield lists of regions of arrays that are held in memory together."""
    batch: list[tuple[PlannedArray, Region]] = []
    held = 0
    for box in boxes:
        array, target = context.arrays[box.array], context.arrays[box.array].target
        for region in _blocks(box, target):
            size = math.prod(each.stop - each.start for each in region) * target.itemsize
            if batch and held + size > HELD:
                yield batch
                batch, held = [], 0
            batch.append((array, region))
            held += size
    if batch:
        yield batch


def _region_buffer(
    before: ForkSession, item: IngestItem, array: PlannedArray, region: Region
) -> tuple[NDArray[Any], list[_FileRead], int]:
    """Return a buffer with the old values of a region, the reads that fill the rest, and the old bytes."""
    target, axis, window = array.target, array.target.axis, array.target.window
    values = np.full(tuple(each.stop - each.start for each in region), target.missing, target.dtype)
    if axis is None:
        return values, [_FileRead(0, array, region, values)], 0
    low, high = region[axis].start, region[axis].stop
    pieces = item.pieces.within(low, high)
    grows = bool(item.places) and not {*item.places[0]}.isdisjoint(target.dims)
    covering = pieces if window is None and not grows else pieces.within(0, 0)
    old_bytes = 0
    for _, start, at, count in _uncovered(item.old, covering, low, high, array.shifted):
        in_array = (*region[:axis], slice(start, start + count), *region[axis + 1 :])
        in_buffer = (*(slice(None),) * axis, slice(at - low, at - low + count))
        values[in_buffer] = array.old_values(np.asarray(open_target(before.store, target.path)[in_array]))
        old_bytes += values[in_buffer].nbytes
    in_file, inside = list(region), [slice(None) for _ in region]
    for i, (first, last) in enumerate(window or ()):  # the part of the region that files have
        a, b = max(region[i].start, first), min(region[i].stop, last)
        in_file[i] = slice(a - first, b - first)
        inside[i] = slice(a - region[i].start, b - region[i].start)
    reads = []
    for file, start, at, count in pieces:
        in_file[axis], inside[axis] = slice(start, start + count), slice(at - low, at - low + count)
        part, into = tuple(in_file), values[tuple(inside)]
        if array.adds_axis:
            # All steps of a file get its single value.
            part, into = part[:axis] + part[axis + 1 :], np.moveaxis(into, axis, 0)
        read: _FileRead | None = _FileRead(file, array, part, into)
        if read is not None and grows:
            origin = [each.start for i, each in enumerate(region) if not (array.adds_axis and i == axis)]
            read = read.placed(item.places[file], origin)
        reads += [] if read is None else [read]
    return values, reads, old_bytes


def _uncovered(old: StepRuns, new: StepRuns, low: int, high: int, shifted: bool) -> StepRuns:
    """Return the runs of old steps in a span that no new step replaces, with their present positions."""
    old = old.within(low, high)
    if not len(old):
        return old
    covered = np.zeros(high - low, np.bool_)
    for _, _, place, count in new:
        covered[place - low : place - low + count] = True
    offsets = np.arange(int(old.count.sum())) - np.repeat(np.cumsum(old.count) - old.count, old.count)
    at = np.repeat(old.at, old.count) + offsets
    start = at if shifted else np.repeat(old.start, old.count) + offsets
    stays = ~covered[at - low]
    return runs(np.zeros(int(stays.sum()), np.int64), start[stays], at[stays])


def _blocks(box: ArrayBox, target: TargetArray) -> Iterator[Region]:
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


def run_item(fork: ForkSession, context: TaskContext, item: IngestItem) -> Outcome:
    """Run one item: the work function of the job of an ingest."""
    return (set_references if item.virtual else copy_values)(fork, context, item)
