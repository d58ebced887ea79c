"""The arrays that tasks write, and the items of work.

Missing arrays are created here. Existing arrays of plain bytes get smaller chunks if the borders of the files
need them.

A task writes only whole chunks, and no two tasks write the same chunk. If a chunk needs several files, its
task reads all of them. If a chunk has steps that the repository already has, its task reads those too. Arrays
whose chunks are multiples of each other along the axis share tasks, so a file is opened once for all its
variables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.ingest.arrays import (
    LARGEST,
    SMALLEST,
    TargetArray,
    array_chunks,
    choose_steps,
    common_steps,
    create,
    recut_array,
    target_array,
)
from frazil.pipeline.ingest.dataset import Dataset
from frazil.pipeline.ingest.encodings import Conversion, with_encoding
from frazil.pipeline.ingest.existing import (
    GroupChange,
    Windows,
    matched_array,
    require_same_values,
    windows_of,
)
from frazil.pipeline.ingest.families import Family
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.layouts import ANY, PACKING, VirtualChunks
from frazil.pipeline.ingest.steps import Axis, Pieces, old_pieces, runs
from frazil.readers.file_schema import VariableSchema
from frazil.remedies import argument


@dataclass(frozen=True, slots=True)
class PlannedArray:
    """An array of the plan. Its number is its index in the list of all arrays.

    ``existed``: the group had it before. ``adds_axis``: its files do not have the dimension in which they
    follow each other. ``virtual``: it gets references to the files instead of copies. ``unpacked``: it gets
    unpacked values. ``shifted``: the driver has already moved the chunks of its old steps.
    """

    target: TargetArray
    existed: bool
    adds_axis: bool = False
    virtual: bool = False
    unpacked: bool = False
    shifted: bool = False


@dataclass(frozen=True, slots=True)
class ArrayGroup:
    """Arrays (by number) that are written together from the same files."""

    arrays: tuple[int, ...]
    pieces: Pieces
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class FixedArrays:
    """Arrays (by number) without the axis, all from one file."""

    arrays: tuple[int, ...]
    file: int
    virtual: bool = False


def require_aligned(array: TargetArray, pieces: Pieces, axis: Axis, urls: Sequence[str]) -> None:
    """Check that referenced files begin and end on chunk borders of the array."""
    step = array.grid[array.axis or 0]
    ends = pieces.at + pieces.count
    bad = (
        (pieces.at % step != 0)
        | (pieces.start % step != 0)
        | ((pieces.count % step != 0) & (ends != axis.length))
    )
    if bad.any():
        row = int(np.argmax(bad))
        raise InvalidInputError(
            f"a virtual ingest needs files on the borders of chunks of {step} steps of `{array.path}`, got "
            f"{urls[int(pieces.source[row])]} at {pieces.at[row]}:{ends[row]} (from its step "
            f"{pieces.start[row]}). Copy this variable",
            ErrorKind.INVALID_CHUNK_INDEX,
        )


def can_shift(array: TargetArray, axis: Axis) -> bool:
    """Return whether all steps that move are whole chunks."""
    step = array.grid[array.axis or 0]
    old = old_pieces(axis, 0, axis.length)
    partial = (old.count % step != 0) & ~(
        (old.at + old.count == axis.length) & (old.start + old.count == len(axis.old))
    )
    return not ((old.at % step != 0) | (old.start % step != 0) | partial).any()


#: The bytes that a task writes, unless it would read fewer files than `FILES`.
TASK: Final = 128 << 20
FILES: Final = 50
FILES_OF_A_CHUNK: Final = 500
#: An array with chunks this large along the axis gets tasks of its own, for parts of its other dimensions.
LARGE: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class Box:
    """A part of an array, on chunk borders. ``array`` is the number of the array in the plan."""

    array: int
    start: tuple[int, ...]
    stop: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """The work of one task: it copies values, or sets references to files (``virtual``).

    The sources of ``pieces`` are indices of ``urls``. ``old`` are steps of the group. For each file there are
    ``conversions`` of its times (None: times stay), ``checks`` (the etag or time that its virtual references
    store), and ``fingerprints`` (uint8, (files, 16)) of the inspection.
    """

    boxes: tuple[Box, ...]
    pieces: Pieces
    old: Pieces
    urls: tuple[str, ...]
    conversions: tuple[Mapping[str, Conversion] | None, ...]
    checks: tuple[Any, ...]
    fingerprints: NDArray[np.uint8]
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class FileTable:
    """The columns of all files, by number. An item gets the rows of its files."""

    urls: Sequence[str]
    encodings: NDArray[np.int64]
    conversions: Mapping[int, Mapping[str, Conversion]]
    checks: Sequence[Any]
    fingerprints: NDArray[np.uint8]

    def item(self, boxes: Sequence[Box], pieces: Pieces, old: Pieces, *, virtual: bool) -> Item:
        """Return an item with the rows of the files of its pieces."""
        numbers, codes = np.unique(pieces.source, return_inverse=True)
        chosen = numbers.tolist()
        return Item(
            tuple(boxes),
            Pieces(codes.astype(np.int64), pieces.start, pieces.at, pieces.count),
            old,
            tuple(map(self.urls.__getitem__, chosen)),
            tuple(map(self.conversions.get, self.encodings[numbers].tolist())),
            tuple(map(self.checks.__getitem__, chosen)),
            self.fingerprints[numbers],
            virtual,
        )


def longest_chunk(lengths: NDArray[np.int64]) -> int:
    """Return the largest number of steps of a chunk: one task has to open all files of a chunk."""
    return max(int(FILES_OF_A_CHUNK * lengths.mean()), 1)


def small_chunk(row: int, data_row: int, chunk: int, length: int, most: int) -> int:
    """Return the number of steps in a chunk of a small array beside data, such as bounds.

    The chunk has as many steps as one task writes. A chunk of the usual size in bytes would be so long that
    one task would have to open all files.
    """
    span = max(min(TASK // max(data_row * chunk, 1), most // chunk), 1)
    return chunk * max(1, min(span, -(-max(length, (1 << 20) // max(row, 1)) // chunk)))


def items(arrays: Sequence[PlannedArray], group: ArrayGroup, axis: Axis, table: FileTable) -> Iterator[Item]:
    """Yield the items of arrays along the axis."""
    for numbers in _task_groups([(number, arrays[number].target) for number in group.arrays]):
        chosen = [arrays[number].target for number in numbers]
        steps = [array.grid[array.axis or 0] for array in chosen]
        row = sum(array.row for array in chosen)
        unit = math.lcm(*steps)
        files = len(np.unique(group.pieces.source)) / max(int(group.pieces.count.sum()), 1)
        by_size = TASK // max(unit * row, 1)
        by_files = math.ceil(FILES / max(unit * files, 1e-9))
        span = unit * max(1, min(by_size, by_files))
        boxes: dict[tuple[int, int], list[Box]] = {}
        for number, array, step in zip(numbers, chosen, steps, strict=True):
            stays = arrays[number].shifted or not arrays[number].existed
            moved = len(axis.old) if stays else axis.first_moved
            for start, stop in _changed_spans(group.pieces, axis, step, moved, span):
                for part, box in enumerate(_boxes(number, array, start, stop)):
                    boxes.setdefault((start // span, part), []).append(box)
        for (where, _), mine in sorted(boxes.items()):
            low, high = where * span, min((where + 1) * span, axis.length)
            existed = any(arrays[box.array].existed for box in mine)
            old = old_pieces(axis, low, high) if existed else NO_PIECES
            yield table.item(mine, group.pieces.within(low, high), old, virtual=group.virtual)


_NO_STEPS: Final = np.zeros(0, np.int64)
NO_PIECES: Final = Pieces(_NO_STEPS, _NO_STEPS, _NO_STEPS, _NO_STEPS)


def _changed_spans(pieces: Pieces, axis: Axis, step: int, moved: int, span: int) -> Iterator[tuple[int, int]]:
    """Yield spans of chunks with new or moved steps, cut on the borders of tasks."""
    low, high = pieces.at // step, -(-(pieces.at + pieces.count) // step)
    counts = high - low
    chunks = np.repeat(low - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    if moved < len(axis.old):
        chunks = np.concatenate([chunks, np.arange(moved // step, -(-axis.length // step))])
    chunks = np.unique(chunks)
    if not len(chunks):
        return
    breaks = (np.diff(chunks) != 1) | (np.diff(chunks * step // span) != 0)
    first = np.concatenate([[0], np.flatnonzero(breaks) + 1])
    last = np.append(first[1:], len(chunks)) - 1
    for start, stop in zip(
        (chunks[first] * step).tolist(), ((chunks[last] + 1) * step).tolist(), strict=True
    ):
        yield start, min(stop, axis.length)


def _task_groups(chosen: list[tuple[int, TargetArray]]) -> list[list[int]]:
    """Return the groups of arrays that share tasks: small arrays whose chunks are multiples of each other."""
    groups: list[tuple[int, list[int]]] = []
    alone = [number for number, array in chosen if _is_large(array)]
    rest = [(array.grid[array.axis or 0], number) for number, array in chosen if not _is_large(array)]
    for step, number in sorted(rest, reverse=True):
        for at, (unit, numbers) in enumerate(groups):
            both = math.lcm(unit, step)
            if both <= 4 * max(unit, step):
                groups[at] = (both, [*numbers, number])
                break
        else:
            groups.append((step, [number]))
    return [*([number] for number in alone), *(sorted(numbers) for _, numbers in groups)]


def _is_large(array: TargetArray) -> bool:
    return array.grid[array.axis or 0] * array.row > LARGE and len(array.shape) > 1


def _boxes(number: int, array: TargetArray, start: int, stop: int) -> Iterator[Box]:
    """Yield a span of the axis as one box, or as several along another dimension of a large array."""
    low, high = [first for first, _ in array.bounds], [last for _, last in array.bounds]
    axis = array.axis or 0
    low[axis], high[axis] = start, stop
    cut = next((i for i, step in enumerate(array.grid) if i != axis and high[i] - low[i] > step), None)
    if not _is_large(array) or cut is None:
        yield Box(number, tuple(low), tuple(high))
        return
    chunks = -(-array.shape[cut] // array.grid[cut])
    per_chunk = max(array.grid[axis] * array.row // chunks, 1)
    step = array.grid[cut] * max(TASK // per_chunk, 1)
    last = high[cut]
    for at in range(low[cut], last, step):
        low[cut], high[cut] = at, min(at + step, last)
        yield Box(number, tuple(low), tuple(high))


def fixed_items(arrays: Sequence[PlannedArray], fixed: FixedArrays, table: FileTable) -> Iterator[Item]:
    """Yield the items of arrays without the axis."""
    one = np.zeros(1, np.int64)
    piece = Pieces(np.array([fixed.file], np.int64), one, one, one)
    small: list[Box] = []
    for number in fixed.arrays:
        array = arrays[number].target
        whole = Box(number, (0,) * len(array.shape), array.shape)
        if not array.shape or int(np.prod(array.shape, dtype=object)) * array.itemsize <= LARGE:
            small.append(whole)
            continue
        per_chunk = max(int(np.prod(array.shape[1:], dtype=object)) * array.itemsize * array.grid[0], 1)
        step = array.grid[0] * max(TASK // per_chunk, 1)
        for at in range(0, array.shape[0], step):
            stop = (min(at + step, array.shape[0]), *array.shape[1:])
            box = Box(number, (at, *whole.start[1:]), stop)
            yield table.item([box], piece, NO_PIECES, virtual=fixed.virtual)
    if small:
        yield table.item(small, piece, NO_PIECES, virtual=fixed.virtual)


@dataclass(frozen=True, slots=True)
class FamilyArrays:
    """The arrays that get values from the files of one family.

    ``pieces`` are the runs of steps of these files on the axis, None if they have no steps.
    """

    family: Family
    pieces: Pieces | None
    arrays: tuple[PlannedArray, ...]


def plan_arrays(change: GroupChange) -> list[FamilyArrays]:
    """Return the arrays of all families, and create the arrays that the group does not have."""
    return [
        _family_arrays(_FamilyPlan(change, family), names)
        for family, names in zip(change.dataset.families, _own_variables(change.dataset), strict=True)
    ]


def _own_variables(dataset: Dataset) -> list[list[str]]:
    """Return for each family the variables that its files write. The first family writes shared variables."""
    owner: dict[str, int] = {}
    for number, family in enumerate(dataset.families):
        for name in family.layout.variables:
            owner.setdefault(name, number)
    if dataset.dim is not None and dataset.labels is not None:
        owner.pop(dataset.dim, None)  # the driver writes the labels
    return [
        [name for name in family.layout.variables if owner.get(name) == number]
        for number, family in enumerate(dataset.families)
    ]


@dataclass(frozen=True, slots=True)
class _FamilyPlan:
    """The values that decide the arrays of one family."""

    change: GroupChange
    family: Family

    @property
    def longest_chunk(self) -> int:
        """The largest number of steps of a new chunk."""
        return longest_chunk(self.change.inspection.length[self.family.files])

    @property
    def length(self) -> int:
        """The number of steps of the axis; 0 without an axis."""
        return 0 if self.change.axis is None else self.change.axis.length

    def pieces(self) -> Pieces | None:
        """Return the runs of steps of the files on the axis; None if they have no steps."""
        steps = self.change.dataset.steps
        if self.change.axis is None or len(steps.start) <= 1:
            return None
        source, inside, at = steps.placed(self.family.files)
        return runs(source, inside, self.change.axis.new[at])

    def virtual_chunks(self, name: str) -> VirtualChunks | None:
        """Return the chunks of a variable for references; None if the variable is copied."""
        chunks = (self.family.layout.virtual or {}).get(name)
        return chunks if isinstance(chunks, VirtualChunks) else None

    def unpacks(self, name: str) -> bool:
        """Return whether tasks unpack the values of a variable."""
        variable = self.family.variable(name)
        packed = not variable.coordinate and any(each in variable.attrs for each in PACKING)
        return self.change.request.unpack and packed

    def schema(self, name: str) -> VariableSchema:
        """Return a variable with the encoding of its array."""
        variable = self.family.variable(name)
        if name in self.change.dataset.variables:
            variable = with_encoding(variable, self.change.dataset.variables[name])
        return _unpacked(variable) if self.unpacks(name) else variable


def _family_arrays(plan: _FamilyPlan, names: Sequence[str]) -> FamilyArrays:
    pieces = plan.pieces()
    windows = windows_of(plan.change, plan.family)
    arrays = []
    for target, virtual in _targets(plan, [plan.schema(name) for name in names], pieces, windows):
        array = plan.change.existing.arrays.get(target.name)
        if array is None:
            create(plan.change.session.store, target)
        elif target.axis is None and not _is_replaced(plan, target):
            if "values" not in plan.change.request.allow:
                require_same_values(array, plan.family, target, windows)
            continue
        elif target.axis is not None and array.chunks != target.chunks:
            recut_array(plan.change.session, target.path, target.chunks, target.axis, target.dtype.itemsize)
            plan.change.existing.reopen_array(target.name)
        arrays.append(
            PlannedArray(
                target,
                existed=array is not None,
                adds_axis=target.name in plan.family.along,
                virtual=virtual,
                unpacked=plan.unpacks(target.name),
            )
        )
    return FamilyArrays(plan.family, pieces, tuple(arrays))


def _is_replaced(plan: _FamilyPlan, target: TargetArray) -> bool:
    """Return whether an existing array is replaced: data of one file without a concat dimension."""
    if plan.change.dataset.dim is not None or plan.change.request.mode in ("create", "append"):
        return False
    if plan.family.layout.variables[target.name].coordinate:
        return False
    if target.window is not None:
        raise InvalidInputError(
            f"mode {plan.change.request.mode!r} needs a file with all of `{target.path}`, but the file has a "
            "part of it",
            ErrorKind.INVALID_ARRAY_METADATA,
        ).with_remedy("Name the dimension in which files follow each other with {}", argument(concat_dim=...))
    return True


def _targets(
    plan: _FamilyPlan, variables: Sequence[VariableSchema], pieces: Pieces | None, windows: Windows
) -> list[tuple[TargetArray, bool]]:
    """Return the arrays of variables, and whether they get references.

    Arrays of data come first, so that the chunks of coordinates can follow theirs.
    """
    targets: list[tuple[TargetArray, bool]] = []
    for variable in sorted(variables, key=lambda each: each.coordinate):
        array = plan.change.existing.arrays.get(variable.name)
        virtual = _common_chunks(plan, variable.name, pieces, array)
        target = target_array(
            variable,
            plan.change.existing.path_of(variable.name),
            plan.change.dataset.dim,
            plan.length,
            plan.change.request.chunks,
            plan.change.request.encoding.get(variable.name),
            virtual,
        )
        if array is not None:
            target = matched_array(array, target, virtual, windows)
        elif windows.keys() & set(target.dims):
            raise InvalidInputError(
                f"`{target.path}` must exist in the repository, because the files have only a part of it. "
                "Ingest files with all of it first",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
        elif virtual is None:
            data = [each for each, _ in targets if each.axis is not None]
            target = _with_chosen_chunks(plan, target, variable, data if variable.coordinate else ())
        targets.append((target, virtual is not None))
    return targets


def _with_chosen_chunks(
    plan: _FamilyPlan, target: TargetArray, variable: VariableSchema, data: Sequence[TargetArray]
) -> TargetArray:
    """Return a new array with its chunks along the axis, unless the caller chose them.

    ``data``: the arrays of data whose chunks a coordinate follows.
    """
    request = plan.change.request
    given = "chunks" in request.encoding.get(target.name, {}) or plan.change.dataset.dim in request.chunks
    if given or target.axis is None:
        given = given or not request.chunks.keys().isdisjoint(target.dims)
        reason = "as the caller chose" if given else "at most 64 MiB"
        return replace(target, chunk_reason="" if variable.coordinate else reason)
    axis = target.axis
    if data:
        widest = max(data, key=lambda each: each.row)
        data_row = sum(each.row for each in data)
        step = widest.grid[widest.axis or 0]
        steps = small_chunk(target.row, data_row, step, plan.length, plan.longest_chunk)
        reason = ""
    elif variable.coordinate:
        steps, reason = min(target.chunks[axis], plan.longest_chunk), ""
    else:
        lengths = plan.change.inspection.length[plan.family.files]
        native = _native_chunks(target, variable, lengths)
        if native is not None and not request.chunks:
            return replace(target, chunks=native, chunk_reason="as in the files")
        steps, reason = choose_steps(lengths, target.chunk_bytes // target.chunks[axis])
    chunks = (*target.chunks[:axis], steps, *target.chunks[axis + 1 :])
    return replace(target, chunks=chunks, chunk_reason=reason)


def _native_chunks(
    target: TargetArray, variable: VariableSchema, lengths: NDArray[np.int64]
) -> tuple[int, ...] | None:
    """Return the chunks of the files, if they fit in size, and if each file has whole chunks."""
    native = variable.chunks
    if native is None or len(native) != len(target.chunks) or target.axis is None:
        return None
    chunks = tuple(
        each if at == target.axis else min(each, max(size, 1))
        for at, (each, size) in enumerate(zip(native, target.shape, strict=True))
    )
    fits = SMALLEST <= replace(target, chunks=chunks).chunk_bytes <= LARGEST
    return chunks if fits and not (lengths % max(chunks[target.axis], 1)).any() else None


def _common_chunks(
    plan: _FamilyPlan, name: str, pieces: Pieces | None, array: zarr.Array[Any] | None
) -> VirtualChunks | None:
    """Return the virtual chunks of a variable. Plain chunks are as long as the borders of files allow."""
    virtual = plan.virtual_chunks(name)
    if virtual is None or ANY not in virtual.chunks or plan.change.axis is None or pieces is None:
        return virtual
    at = virtual.chunks.index(ANY)
    units = _units(plan.change.inspection, name)[plan.change.inspection.layout[pieces.source]]
    lengths = plan.change.inspection.length[pieces.source]
    existing = None if array is None or len(array.chunks) <= at else array.chunks
    steps = common_steps(pieces, plan.change.axis, units, lengths, None if existing is None else existing[at])
    return array_chunks(virtual, at, steps, whole=bool((units == steps).all()), existing=existing)


def _units(inspection: Inspection, name: str) -> NDArray[np.int64]:
    """Return for each layout the unit of steps in which the chunks of a variable can be cut."""
    chunks = [(layout.virtual or {}).get(name) for layout in inspection.layouts]
    return np.array([each.unit if isinstance(each, VirtualChunks) else 0 for each in chunks], np.int64)


def _unpacked(variable: VariableSchema) -> VariableSchema:
    empty = xr.Variable(
        variable.dims, np.empty([0] * len(variable.dims), variable.dtype), dict(variable.attrs)
    )
    decoded = xr.conventions.decode_cf_variable(variable.name, empty, decode_times=False)
    attrs = {**decoded.attrs, "_FillValue": float("nan")}
    return replace(variable, attrs=attrs, dtype=decoded.dtype, fill_value=None)
