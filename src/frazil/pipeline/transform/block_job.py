"""The job of operations that compute new arrays block by block.

An operation lists the arrays that it makes (`OutputArrays`), in three groups. `run_block_job` creates the
arrays, cuts the work into tasks, and runs the job:

    ComputedArrays      arrays of one shape, whose blocks tasks compute from the source
    TransferredArray    an array whose chunks are copied without decoding
    DriverArray         an array whose values the driver has: a coordinate

Blocks are cut along chunks and shards of the results, so that no two tasks write to one chunk. Each task
reads the part of the source that it needs. Computed arrays of a later *round* may read the results of earlier
rounds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import I64, Budget, block_shape, cells, groups, sizes, split
from frazil.jobs.job import Job, JobResult, Phase, RunOptions, Target, Tasks, Version
from frazil.jobs.job_run import run_with_options
from frazil.jobs.task_results import Outcome
from frazil.pipeline.transform.arrays import ArrayInfo, Json, Shape, Values, open_array
from frazil.pipeline.transform.targets import (
    ChunkTransfer,
    Labels,
    add_group_attributes,
    create_array,
    fetch_chunks,
    fetch_items,
    is_label,
    refuse_overwriting,
    refuse_relabelling,
    require_distinct_paths,
    require_newest,
    same_repository,
    share_chunks,
    whole_transfer,
)
from frazil.repository.session.session import ForkSession, Session

_LEAST_TASK: Final = 8_000_000
_MOST_TASK: Final = 256_000_000
_TASKS: Final = 32


class Compute(Protocol):
    """Compute the values of a block, one array for each result; can be pickled."""

    def __call__(self, session: Session, start: Shape, stop: Shape) -> Sequence[Values]:
        """Return the values of a block, one array for each result."""


@dataclass(frozen=True, slots=True)
class ComputedArrays:
    """Arrays ``new`` of one shape that tasks compute from ``old``.

    ``compute(session, start, stop)`` returns the values of a block. ``block`` is the shape of the blocks, a
    multiple of the chunks and shards of all results. In round 0 ``session`` is the source, in later rounds
    the target with the results of earlier rounds. ``tasks`` is the least number of tasks, if there are so
    many blocks; without it small blocks share a task. ``cell`` is the shape in which ``old`` is read: the
    metrics count the bytes that are read in these cells.
    """

    old: ArrayInfo
    new: tuple[ArrayInfo, ...]
    block: Shape
    compute: Compute
    round: int = 0
    tasks: int | None = None
    cell: Shape | None = None


@dataclass(frozen=True, slots=True)
class TransferredArray:
    """An array ``new`` whose chunks are those of ``old``, or a part of them."""

    old: ArrayInfo
    new: ArrayInfo
    transfer: ChunkTransfer

    @staticmethod
    def whole(array: ArrayInfo, path: str) -> TransferredArray:
        """Return the transfer of all of an array, to another path."""
        new = replace(array, path=path)
        return TransferredArray(array, new, whole_transfer(array, new))


@dataclass(frozen=True, slots=True)
class DriverArray:
    """An array whose values the driver has and writes itself."""

    old: ArrayInfo
    new: ArrayInfo
    values: Values


@dataclass(frozen=True, slots=True)
class OutputArrays:
    """All arrays that an operation makes. ``group_attributes`` are added to groups of the target, by path.

    The ``temporary`` arrays are among the computed ones, and are deleted at the end.
    """

    computed: Sequence[ComputedArrays] = ()
    transferred: Sequence[TransferredArray] = ()
    coordinates: Sequence[DriverArray] = ()
    group_attributes: Mapping[str, Json] = field(default_factory=dict)
    temporary: Sequence[ArrayInfo] = ()

    @property
    def arrays(self) -> list[ArrayInfo]:
        """The metadata of all results."""
        temporary = {each.path for each in self.temporary}
        computed = [new for each in self.computed for new in each.new if new.path not in temporary]
        return [*computed, *(each.new for each in self.transferred), *(each.new for each in self.coordinates)]

    @property
    def chunk_grids(self) -> list[Json]:
        """The chunk grids of the computed arrays, the first of each, for the parameters of the job."""
        return [each.new[0].document["chunk_grid"] for each in self.computed]


@dataclass(frozen=True, slots=True)
class BlockJob:
    """One call of an operation: it reads ``inputs`` of ``version`` by ``session``, and makes ``outputs``.

    ``in_place``: it replaces its inputs. With ``fetches_virtual``, virtual chunks that are transferred become
    native ones.
    """

    name: str
    version: Version
    session: Session
    target: Target
    inputs: Sequence[ArrayInfo]
    outputs: OutputArrays
    parameters: Json
    in_place: bool = False
    fetches_virtual: bool = False


@dataclass(frozen=True, slots=True)
class BlockItem:
    """The item of one task: some blocks of the computed arrays number ``computed``."""

    computed: int
    starts: I64
    stops: I64


def run_block_job(work: BlockJob, options: RunOptions) -> JobResult:
    """Run the operation as one job."""
    outputs = work.outputs
    if work.in_place:
        require_distinct_paths(outputs.arrays)
    else:
        refuse_overwriting(work.version, work.target, work.inputs, outputs.arrays)
    rounds = max((each.round for each in outputs.computed), default=0)
    inputs = sorted({each.path for each in (*work.inputs, *(each.old for each in outputs.transferred))})
    job = Job(
        work.name,
        work.target,
        functools.partial(_prepare_round, work, 0),
        compute_blocks,
        functools.partial(_delete_temporary, work) if outputs.temporary else None,
        work.parameters,
        (work.version.input(inputs),),
        tuple(new.path for new in outputs.arrays) or tuple(inputs),
        phases=tuple(
            Phase(functools.partial(_prepare_later_round, work, number + 1), compute_blocks)
            for number in range(rounds)
        ),
    )
    return run_with_options(job, options)


def _prepare_round(work: BlockJob, number: int, session: Session) -> Tasks:
    outputs, source = work.outputs, work.session
    if work.in_place:
        require_newest(source, session, work.inputs)
    else:
        refuse_relabelling(session, source, list(_labels(outputs)), outputs.arrays)
    for computed in outputs.computed:
        for new in computed.new:
            create_array(session, source, computed.old, new)
    for transferred in () if work.in_place else outputs.transferred:
        create_array(session, source, transferred.old, transferred.new)
    for coordinate in outputs.coordinates:
        create_array(session, source, coordinate.old, coordinate.new)
        if coordinate.values.size:
            open_array(session, coordinate.new.path, "r+")[...] = coordinate.values
    for path, attributes in outputs.group_attributes.items():
        add_group_attributes(session, source, path, attributes)
    transfers = [each.transfer for each in outputs.transferred]
    if not same_repository(work.version, work.target):
        items: list[Any] = fetch_items(source, transfers)
    elif work.fetches_virtual:
        items = fetch_items(source, [replace(each, virtual=True) for each in transfers])
        transfers = [] if work.in_place else [replace(each, virtual=False) for each in transfers]
        share_chunks(session, source, transfers)
    else:
        items = []
        share_chunks(session, source, transfers)
    return Tasks(items + _block_items(outputs.computed, number), (source, tuple(outputs.computed)))


def _prepare_later_round(work: BlockJob, number: int, session: Session, values: list[Any]) -> Tasks:
    computed = work.outputs.computed
    return Tasks(_block_items(computed, number), (None, tuple(computed)))


def _delete_temporary(work: BlockJob, session: Session, values: list[Any]) -> None:
    for each in work.outputs.temporary:
        session.workspace.delete_node(each.path)


def _labels(outputs: OutputArrays) -> Iterator[Labels]:
    """Yield the coordinate variables among the results."""
    for computed in outputs.computed:
        for number, new in enumerate(computed.new):
            if is_label(new) and computed.round == 0:
                yield Labels(computed.old, new, functools.partial(_computed_values, computed, number))
    for transferred in outputs.transferred:
        if is_label(transferred.new):
            old, new, transfer = transferred.old, transferred.new, transferred.transfer
            region = () if transfer == whole_transfer(old, new) else transfer.region(old.grid)
            yield Labels(old, new, region=region)
    for coordinate in outputs.coordinates:
        if is_label(coordinate.new):
            yield Labels(coordinate.old, coordinate.new, functools.partial(_driver_values, coordinate))


def _computed_values(computed: ComputedArrays, number: int, session: Session) -> Values:
    shape = computed.new[number].shape
    return computed.compute(session, (0,) * len(shape), shape)[number]


def _driver_values(coordinate: DriverArray, session: Session) -> Values:
    return coordinate.values


def _block_items(computed: Sequence[ComputedArrays], round_number: int) -> list[BlockItem]:
    """Return the items of one round."""
    items: list[BlockItem] = []
    for index, each in enumerate(computed):
        if each.round != round_number:
            continue
        shape = each.new[0].shape
        size = sum(new.itemsize for new in each.new)
        starts, stops = split(shape, each.block)
        total = size * math.prod(shape)
        least = max(total // _TASKS, _LEAST_TASK) if each.tasks is None else max(total // each.tasks, 1)
        per_task = min(least, _MOST_TASK)
        offsets = groups(sizes(starts, stops) * size, per_task).tolist()
        items += [BlockItem(index, starts[low:high], stops[low:high]) for low, high in pairwise(offsets)]
    return items


def compute_blocks(
    fork: ForkSession,
    shared: tuple[Session | None, tuple[ComputedArrays, ...]],
    item: BlockItem | ChunkTransfer,
) -> Outcome:
    """Compute blocks and write them, one at a time, or fetch chunks: the task."""
    source, computed_arrays = shared
    if isinstance(item, ChunkTransfer):
        assert source is not None
        return fetch_chunks(fork, source, item)
    computed = computed_arrays[item.computed]
    arrays = [open_array(fork, new.path, "r+") for new in computed.new]
    size = 0
    for start, stop in zip(item.starts.tolist(), item.stops.tolist(), strict=True):
        region = tuple(map(slice, start, stop))
        blocks = computed.compute(source or fork, tuple(start), tuple(stop))
        for array, new, block in zip(arrays, computed.new, blocks, strict=True):
            _require_shape(array.path, block, tuple(b - a for a, b in zip(start, stop, strict=True)))
            array[region] = block
            size += block.size * new.itemsize
        del blocks, block  # before the next block is read
    lengths = item.stops - item.starts
    read = 0
    if computed.cell is not None:
        cell, shape = np.array(computed.cell, np.int64), np.array(computed.old.shape, np.int64)
        covered = np.minimum(-(-item.stops // cell) * cell, shape) - item.starts // cell * cell
        read = int(np.prod(covered, axis=1).sum()) * computed.old.itemsize
    return Outcome(
        rows=int(lengths[:, 0].sum()) if lengths.shape[1] else len(lengths),
        chunks=sum(math.prod(cells(each, array.chunks)) for each in lengths.tolist() for array in arrays),
        bytes_read=read,
        bytes_written=size,
    )


def _require_shape(path: str, block: Values, shape: Shape) -> None:
    """Raise ``InvalidInputError`` for values of another shape, which zarr might broadcast."""
    if block.shape != shape:
        raise InvalidInputError(
            f"The block of `{path}` must have the shape {shape}, got {block.shape}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )


def block_for(
    new: Sequence[ArrayInfo],
    budget: Budget,
    inputs: Sequence[ArrayInfo],
    *,
    factor: float = 1,
    whole: Sequence[int] = (),
    tasks: int = 1,
) -> Shape:
    """Return the shape of the blocks of arrays ``new``, which have one shape, within a memory budget.

    ``factor`` is the number of bytes that a task needs for each byte that it writes; it also holds one
    decoded chunk of ``inputs``. Along the axes ``whole`` a block is as long as the array. ``tasks`` is the
    least number of blocks, if there are this many chunks. Raises ``InvalidInputError`` if the smallest block
    needs more than a ``max_mem`` that the caller gave.
    """
    first = new[0]
    grids = zip(*(each.grid for each in new), strict=True)
    grid = [math.lcm(*axis) for axis in grids]
    for axis in whole:
        grid[axis] = max(first.shape[axis], 1)
    size = sum(each.itemsize for each in new)
    each = max(math.ceil(size * factor), 1)
    decoded = max((_chunk_bytes(array) for array in inputs), default=0)
    room = max(budget.size - decoded, 1) if budget.is_given else budget.size
    room = min(room, each * max(math.prod(first.shape) // tasks, 1))
    block = block_shape(first.shape, grid, each, room)
    if math.prod(first.shape):
        chunks = " and ".join(f"{array.chunks} of `{array.path}`" for array in inputs)
        budget.require(
            math.prod(block) * each + decoded,
            f"to read chunks of {chunks} and to make a block of {block} of `{first.path}`",
        )
    return block


def _chunk_bytes(array: ArrayInfo) -> int:
    """Return the number of bytes of one chunk in memory."""
    return array.itemsize * math.prod(map(min, array.chunks, array.shape))
