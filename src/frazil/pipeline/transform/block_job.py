"""The job of operations that compute new arrays block by block, and the targets of their results.

Blocks are cut along chunks and shards of the results, so that no two tasks write to one chunk. Arrays of a
later *round* may read the results of earlier rounds. Within one repository both arrays of a transfer refer to
the same chunks. Tasks fetch chunks of another repository, and virtual chunks that become native.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.arguments import misfit
from frazil.changes.change_set import table_of
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.jobs.blocks import (
    I64,
    Budget,
    block_shape,
    cells,
    even_groups,
    groups,
    mask_boxes,
    sizes,
    split_boxes,
)
from frazil.jobs.engine import Engine, EngineName, task_bytes
from frazil.jobs.job import Target, Version
from frazil.jobs.task_results import Outcome
from frazil.pipeline.derivation.relations import U64, Read, StoredChunks
from frazil.pipeline.transform.arrays import (
    ArrayInfo,
    Json,
    Shape,
    Values,
    array_info,
    bounds_path,
    open_array,
)
from frazil.repository.session.chunk_refs import chunk_error
from frazil.repository.session.session import ForkSession, Session
from frazil.threads import Purpose, thread_pool


def target_or_source(source: Version, to: Target | None) -> Target:
    """Return the target ``to``; without one, the branch and the paths of the source."""
    return to or Target(source.repo, source.branch or "main")


def same_repository(source: Version, target: Target) -> bool:
    """Return whether a reference to a chunk of the source is valid in the target too."""
    return target.repo is source.repo or target.repo.storage is source.repo.storage


def is_in_place(source: Version, target: Target) -> bool:
    """Return whether a job writes to the branch that it reads, at the same paths."""
    same_branch = source.branch in (None, target.branch)
    return same_repository(source, target) and same_branch and target.group.strip("/") == ""


def create_array(session: Session, source: Session, old: ArrayInfo, new: ArrayInfo) -> None:
    """Create the node of ``new``, in place of an existing array, and the groups above it.

    Groups that do not exist get the attributes of the source's groups. Raises ``InvalidInputError``:
    ``not-an-array`` where the target has a group, ``invalid-array-metadata`` for metadata that zarr refuses.
    """
    if new.document != old.document:
        try:
            new.array  # noqa: B018  # zarr refuses wrong metadata
        except (TypeError, ValueError, zarr.errors.BaseZarrError) as error:
            raise misfit(f"zarr cannot read the new metadata of `{new.path}`: {error}") from error
    workspace = session.workspace
    create_groups(session, source, old.group, new.group)
    if workspace.node(new.path) is not None:
        workspace.require_array(new.path)
        workspace.delete_node(new.path)
    workspace.set_node(new.path, new.encoded())


def create_groups(session: Session, source: Session, old: str, new: str) -> None:
    """Create the group ``new`` and those above it, with the attributes of ``old`` and those above it."""
    workspace = session.workspace
    old_names, names = ([name for name in path.split("/") if name] for path in (old, new))
    for depth in range(len(names) + 1):
        path = "/" + "/".join(names[:depth])
        existing = workspace.node(path)
        if existing is not None and existing.array is not None:
            raise InvalidInputError(
                f"`{path}` must be a group to hold the results, got an array", ErrorKind.NOT_A_GROUP
            )
        if existing is not None:
            continue
        attributes: Json = {}
        above = len(old_names) - len(names) + depth  # the group of the source as far above ``old``
        if above >= 0:
            node = source.workspace.node("/" + "/".join(old_names[:above]))
            if node is not None and node.array is None:
                attributes = json.loads(node.user_data).get("attributes") or {}
        document: Json = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
        workspace.set_node(path, json.dumps(document).encode())


#: Bytes that one task fetches, and that it holds at any time.
PER_TASK: Final = 256_000_000
_AT_ONCE: Final = 32_000_000


@dataclass(frozen=True, slots=True)
class ChunkTransfer:
    """Chunks of the array ``source`` for the array ``path``: those with ``low <= coordinates < high``.

    The new coordinates are the old ones minus ``low``. ``virtual`` True selects only virtual chunks, False
    only others, None all. ``start`` and ``stop`` are rows of the selected part of the chunk table.
    """

    source: str
    path: str
    low: Shape
    high: Shape
    virtual: bool | None = None
    start: int = 0
    stop: int | None = None


def transfer_table(session: Session, transfer: ChunkTransfer) -> ChunkTable:
    """Return the references of a transfer, with their new coordinates."""
    table = session.chunk_table(transfer.source)
    low, high = np.array(transfer.low, np.int64), np.array(transfer.high, np.int64)
    selected = ((table.index >= low) & (table.index < high)).all(axis=1)
    if transfer.virtual is not None:
        selected &= (table.kind == ChunkKind.VIRTUAL) == transfer.virtual
    table = table.select_chunks(np.flatnonzero(selected)[transfer.start : transfer.stop])
    return replace(table, index=(table.index - low).astype(np.uint32))


def share_chunks(session: Session, source: Session, transfers: Sequence[ChunkTransfer]) -> None:
    """Set references to the same chunks, in one repository."""
    for transfer in transfers:
        session.workspace.set_refs(transfer.path, transfer_table(source, transfer))


def fetch_items(
    source: Session, transfers: Sequence[ChunkTransfer], engine: Engine | EngineName | None
) -> list[ChunkTransfer]:
    """Return the transfers, cut into items of at most about ``PER_TASK`` bytes."""
    items: list[ChunkTransfer] = []
    lengths = [transfer_table(source, each).length.astype(np.int64) for each in transfers]
    task = task_bytes(sum(int(each.sum()) for each in lengths), PER_TASK, engine)
    for transfer, length in zip(transfers, lengths, strict=True):
        offsets = groups(length, task).tolist()
        items += [replace(transfer, start=start, stop=stop) for start, stop in pairwise(offsets)]
    return items


def fetch_chunks(fork: ForkSession, source: Session, transfer: ChunkTransfer) -> Outcome:
    """Read the bytes of chunks from any place, and store them in this repository: the task."""
    table = transfer_table(source, transfer)
    coords = list(map(tuple, table.index.tolist()))
    workspace = fork.workspace
    size = int(table.length.sum())
    with thread_pool(Purpose.CHUNK_COPIES) as threads:
        for start, stop in pairwise(groups(table.length.astype(np.int64), _AT_ONCE).tolist()):
            requests: list[Any] = [(table.ref(row), 0, None) for row in range(start, stop)]
            try:
                data = source.workspace.reader.read_many(requests)
            except IcechunkError:
                for (ref, *_), at in zip(requests, coords[start:stop], strict=True):
                    try:
                        source.workspace.reader.read(ref)
                    except IcechunkError as error:
                        chunk = tuple(np.add(transfer.low, at).tolist())
                        snapshot_id = source.workspace.snapshot_id
                        raise chunk_error(
                            snapshot_id, transfer.source, chunk, ref, error
                        ) from error.__cause__
                raise
            stored = list(threads.map(workspace.store_bytes, data))
            refs: dict[Any, Any] = dict(zip(coords[start:stop], stored, strict=True))
            workspace.set_refs(transfer.path, table_of(refs, table.ndim))
    return Outcome(chunks=len(table), bytes_read=size, bytes_written=size)


MOST_TASK: Final = 256_000_000


#: ``(session, start, stop)``: a function, which can be pickled, that returns the values of a block: one array
#: for each result.
type Compute = Callable[[Session, Shape, Shape], Sequence[Values]]


@dataclass(frozen=True, slots=True)
class ComputedArrays:
    """Arrays ``new`` of one shape that tasks compute from ``old``.

    ``compute(session, start, stop)`` returns the values of a block. ``block`` is the shape of the blocks, a
    multiple of the chunks and shards of all results. In round 0 ``session`` is the source, in later rounds
    the target with the results of earlier rounds. ``tasks`` is the least number of tasks, but no
    task has less than one block. Without it, small blocks share a task. ``reads`` are what a block reads;
    empty: all of the inputs. ``key`` is JSON for all else that has an influence on the values, such as the
    values of coordinates. Blocks have multiples of ``unit``; empty: of the chunks and shards of the results.
    """

    old: ArrayInfo
    new: tuple[ArrayInfo, ...]
    block: Shape
    compute: Compute
    round: int = 0
    tasks: int | None = None
    reads: tuple[Read, ...] = ()
    key: Any = None
    unit: Shape = ()


@dataclass(frozen=True, slots=True)
class TransferredArray:
    """An array ``new`` whose chunks are those of ``old``, or a part of them."""

    old: ArrayInfo
    new: ArrayInfo
    transfer: ChunkTransfer

    @staticmethod
    def whole(array: ArrayInfo, path: str) -> TransferredArray:
        """Return the transfer of all of an array, to another path."""
        ends = (0,) * array.ndim, (1 << 32,) * array.ndim
        return TransferredArray(array, replace(array, path=path), ChunkTransfer(array.path, path, *ends))


@dataclass(frozen=True, slots=True)
class DriverArray:
    """An array whose values the driver has and writes itself."""

    old: ArrayInfo
    new: ArrayInfo
    values: Values


class ChunkDependence(Protocol):
    """What each chunk of a result depends on, where it is no box of an input."""

    def digests(self, key: U64, chunks: Mapping[str, StoredChunks], metadata: Mapping[str, Any]) -> U64:
        """Return the digests of all chunks, shape (*chunks, 2), from those of the inputs, by path."""

    def bytes_read(self, mask: NDArray[np.bool_], chunks: Mapping[str, StoredChunks]) -> int:
        """Return the stored bytes of the chunks of inputs that the chunks of a mask read."""


class ArrayProgram(Protocol):
    """A program that computes the arrays of an operation as a whole, in the place of blocks."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the inputs."""

    def chunk_plan(self, session: Session, result: ArrayInfo) -> ChunkDependence:
        """Return what the chunks of a result depend on."""

    def run(self, session: Session, source: Session, masks: Mapping[str, NDArray[np.bool_]]) -> None:
        """Compute the chunks of the masks, by the path of the result, in the arrays of a session."""


@dataclass(frozen=True, slots=True)
class OutputArrays:
    """All arrays that an operation makes. ``group_attributes`` are added to groups of the target, by path.

    The ``temporary`` arrays are among the computed ones, and are deleted at the end. With a ``program``, no
    task computes the arrays.
    """

    computed: Sequence[ComputedArrays] = ()
    transferred: Sequence[TransferredArray] = ()
    coordinates: Sequence[DriverArray] = ()
    group_attributes: Mapping[str, Json] = field(default_factory=dict)
    temporary: Sequence[ArrayInfo] = ()
    program: ArrayProgram | None = None

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
class BlockItem:
    """The item of one task: some blocks of the computed arrays number ``computed``; ``work`` is in bytes."""

    computed: int
    starts: I64
    stops: I64
    work: int


def block_items(
    index: int, each: ComputedArrays, mask: NDArray[np.bool_], engine: Engine | EngineName | None
) -> list[BlockItem]:
    """Return the items of the tasks that compute the chunks of a mask."""
    shape = each.new[0].shape
    grid = [math.lcm(*axis) for axis in zip(*(one.grid for one in each.new), strict=True)]
    ends = np.array([shape], np.int64)
    low, high = np.zeros_like(ends), ends
    if not mask.all():
        low, high = (corners * np.array(grid, np.int64) for corners in mask_boxes(mask))
    starts, stops = split_boxes(low, np.minimum(high, ends), each.block, each.unit or grid)
    if not len(starts):
        return []
    total = sum(
        math.prod(one.shape) * one.itemsize for one in (*each.new, *([] if each.tasks else [each.old]))
    )
    elements = sizes(starts, stops)
    share = elements.sum() / math.prod(shape)
    per_task = min(-(-total // each.tasks), MOST_TASK) if each.tasks else task_bytes(total, MOST_TASK, engine)
    offsets = even_groups(elements, math.ceil(share * total / max(per_task, 1)))
    work = np.add.reduceat(elements, offsets[:-1]) * (total / math.prod(shape))
    return [
        BlockItem(index, starts[low:high], stops[low:high], int(size))
        for (low, high), size in zip(pairwise(offsets.tolist()), work.tolist(), strict=True)
    ]


def compute_blocks(
    fork: ForkSession,
    shared: tuple[Session | None, tuple[ComputedArrays | None, ...]],
    item: BlockItem | ChunkTransfer,
) -> Outcome:
    """Compute blocks and write them, one at a time, or fetch chunks: the task."""
    source, computed_arrays = shared
    if isinstance(item, ChunkTransfer):
        assert source is not None
        return fetch_chunks(fork, source, item)
    computed = computed_arrays[item.computed]
    assert computed is not None
    arrays = [open_array(fork, new.path) for new in computed.new]
    for start, stop in zip(item.starts.tolist(), item.stops.tolist(), strict=True):
        region = tuple(map(slice, start, stop))
        blocks = computed.compute(source or fork, tuple(start), tuple(stop))
        for array, block in zip(arrays, blocks, strict=True):
            shape = tuple(np.subtract(stop, start).tolist())
            if block.shape != shape:  # zarr might broadcast it
                raise misfit(f"The block of `{array.path}` must have the shape {shape}, got {block.shape}")
            array[region] = block
        del blocks, block  # before the next block is read
    lengths = item.stops - item.starts
    return Outcome(
        rows=int(lengths[:, 0].sum()) if lengths.shape[1] else len(lengths),
        chunks=sum(math.prod(cells(each, new.chunks)) for each in lengths.tolist() for new in computed.new),
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
    chunks = (array.itemsize * math.prod(map(min, array.chunks, array.shape)) for array in inputs)
    decoded = max(chunks, default=0)
    room = max(budget.size - decoded, 1) if budget.is_given else budget.size
    room = min(room, each * max(math.prod(first.shape) // tasks, 1))
    block = block_shape(first.shape, grid, each, room)
    if math.prod(first.shape):
        read = " and ".join(f"{array.chunks} of `{array.path}`" for array in inputs)
        budget.require(
            math.prod(block) * each + decoded,
            f"to read chunks of {read} and to make a block of {block} of `{first.path}`",
        )
    return block


def refuse_relabelling(session: Session, source: Session, outputs: OutputArrays) -> None:
    """Raise ``InvalidInputError`` if a coordinate would change that other arrays of its group have."""
    first = [each for each in outputs.computed if each.round == 0]
    results: list[tuple[ArrayInfo, ComputedArrays | TransferredArray | DriverArray]] = [
        *((new, each) for each in first for new in each.new),
        *((each.new, each) for each in outputs.transferred),
        *((each.new, each) for each in outputs.coordinates),
    ]
    paths, nodes = {each.path for each in outputs.arrays}, session.workspace.node_table()
    neighbours: dict[str, list[ArrayInfo]] = {}  # each group is listed once
    for new, origin in results:
        row = nodes.find_node(new.path)
        if new.dims != (new.name,) or row < 0 or not nodes.is_array[row]:
            continue
        if new.group not in neighbours:
            below, all_paths = nodes.below(new.group), nodes.paths_list()
            rows = np.arange(len(nodes))[below][nodes.is_array[below]].tolist()
            of_group = [path for row in rows if (path := all_paths[row]) not in paths]
            neighbours[new.group] = [
                array_info(session, path)
                for path in of_group
                if (path.rpartition("/")[0] or "/") == new.group
            ]
        existing = array_info(session, new.path)
        bounds = next((each for each in neighbours[new.group] if each.path == bounds_path(existing)), None)
        if bounds is not None and bounds.dims[:-1] == new.dims:  # they go with their coordinate
            neighbours[new.group].remove(bounds)
            if bounds_path(new) != bounds.path:
                session.workspace.delete_node(bounds.path)
        labelled = next((other.path for other in neighbours[new.group] if new.name in other.dims), None)
        if labelled is None:
            continue
        kinds = [(each.shape, each.dims, each.dtype, each.attributes) for each in (existing, new)]
        if kinds[0] == kinds[1]:
            match origin:
                case ComputedArrays():
                    number = [each.path for each in origin.new].index(new.path)
                    values = origin.compute(source, (0,), new.shape)[number]
                case DriverArray():
                    values = origin.values
                case TransferredArray(old, _, transfer):
                    ends = zip(transfer.low, transfer.high, old.grid, strict=True)
                    region = tuple(slice(low * step, high * step) for low, high, step in ends)
                    values = np.asarray(open_array(source, old.path)[region])
            stored = np.asarray(open_array(session, existing.path)[...])
            if np.array_equal(stored, values, equal_nan=values.dtype.kind in "fcmM"):
                continue
        raise InvalidInputError(
            f"to must be a group whose `{new.name}` is equal to that of the result, got a group where "
            f"`{labelled}` is labelled with another `{new.name}`. Pass another group",
            ErrorKind.NOT_ALLOWED,
        )
