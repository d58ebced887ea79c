"""Parallel writes of blocks in one session.

The driver checks before the work that blocks are on chunk borders, and that no chunk is in two blocks. So no
task reads a chunk to change a part of it, and a task may run twice. Each task writes in its own fork, and
sends back references. The driver merges them after the last task; the caller commits.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from frazil.arguments import misfit, require_progress
from frazil.display import Shown, counted, some_of
from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import regular_grid
from frazil.jobs.engine import engine_of
from frazil.jobs.job import takes_versions
from frazil.jobs.progress import Summary, with_size
from frazil.jobs.task_failures import dumps, shared_value
from frazil.jobs.task_results import decode_changes, encode_changes
from frazil.zarr_store.arrays import array_at

if TYPE_CHECKING:
    from frazil.jobs.engine import Engine
    from frazil.jobs.progress import Progress
    from frazil.repository.session.session import ForkSession, Session


@dataclass(frozen=True, slots=True)
class Block:
    """A rectangle of an array, in elements.

    Args:
        path: The path of the array.
        start: The first index in each dimension.
        stop: The end in each dimension, exclusive.
        source: A value for the function that reads the values of the block, such as the name of a file. It
            can be pickled. Default: None.

    >>> from frazil.pipeline import Block
    >>> block = Block("air/t", (0, 0), (24, 180))
    >>> block.shape, block.region
    ((24, 180), (slice(0, 24, None), slice(0, 180, None)))
    """

    path: str
    start: tuple[int, ...]
    stop: tuple[int, ...]
    source: Any = None

    @property
    def region(self) -> tuple[slice, ...]:
        """The block as a slice for each dimension."""
        return tuple(map(slice, self.start, self.stop))

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of the block in each dimension."""
        return tuple(stop - start for start, stop in zip(self.start, self.stop, strict=True))

    def __str__(self) -> str:
        return f"{self.path}[{', '.join(map('{}:{}'.format, self.start, self.stop))}]"


#: A function that returns the values of a block, with its shape. Executors must be able to import it.
type Read = Callable[[Block], NDArray[Any]]


@dataclass(frozen=True, slots=True, repr=False)
class Plan(Summary):
    """Blocks that can be written at the same time.

    Attributes:
        blocks: The blocks, array by array.
        chunks: The number of chunks of each block.
        bytes: The bytes of the values of each block, before compression.
    """

    blocks: tuple[Block, ...]
    chunks: tuple[int, ...]
    bytes: tuple[int, ...]

    shown_as: ClassVar[str] = "pipeline.Plan"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        paths = dict.fromkeys(block.path for block in self.blocks)
        yield "blocks", f"{counted(len(self.blocks), 'block')} of {some_of(paths)}"
        yield "chunks", with_size(sum(self.chunks), "chunk", sum(self.bytes))


@dataclass(frozen=True, slots=True, repr=False)
class WriteResult(Summary):
    """The result of `write_blocks`.

    Attributes:
        tasks: The number of tasks.
        chunks: The number of chunks that were written.
        bytes: The bytes of the values, before compression.
        returned: The bytes that tasks sent back to the driver.
    """

    tasks: int
    chunks: int
    bytes: int
    returned: int

    shown_as: ClassVar[str] = "pipeline.WriteResult"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "tasks", f"{self.tasks:,}"
        yield "wrote", with_size(self.chunks, "chunk", self.bytes)
        yield "returned", counted(self.returned, "byte")


@takes_versions
def write_blocks(
    session: Session, read: Read, blocks: Sequence[Block], engine: Engine, *, progress: Progress | None = None
) -> WriteResult:
    """Write ``read(block)`` to each block, in parallel tasks.

    The caller commits the session afterwards. If a task fails, the session stays as it was.

    Args:
        session: A writable session. It has the arrays of all blocks, committed or not.
        read: A function that returns the values of a `Block`, with its shape. Executors must be able to
            import it.
        blocks: The blocks. They are on chunk borders, and have no chunk in common.
        engine: The engine of the tasks: an `Engine`, or "inline", "threads", "processes", "spark", "sail".
        progress: A `Progress` that shows the tasks.

    Returns:
        The `WriteResult` with the numbers of tasks, chunks and bytes.

    Raises:
        InvalidInputError: ``invalid-chunk-index``, before anything is written, if a block is outside of its
            array or not on chunk borders, or if two blocks have a chunk in common.
        TaskFailedError: If a task fails in all its attempts.

    Examples:
        >>> import frazil, numpy, zarr
        >>> from frazil.pipeline import Block, write_blocks
        >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
        >>> t = zarr.create_array(session.store, name="t", shape=(4,), chunks=(2,), dtype="i4")
        >>> blocks = [Block("t", (0,), (2,), source=7), Block("t", (2,), (4,), source=8)]
        >>> def read(block):
        ...     return numpy.full(block.shape, block.source)
        >>> result = write_blocks(session, read, blocks, "inline")
        >>> result.chunks, t[:].tolist()
        (2, [7, 7, 8, 8])
    """
    require_progress(progress, "advance")
    engine = engine_of(engine)
    planned = plan(session, blocks)
    base = session.fork()
    shared = dumps((base, read))
    tasks = list(map(dumps, planned.blocks))
    forks: list[ForkSession] = []
    received = 0
    sizes = zip(planned.blocks, planned.chunks, planned.bytes, strict=True)
    for result, (block, chunks, size) in zip(engine.run(write_block, tasks, shared), sizes, strict=True):
        forks.append(returned(base, result))
        received += len(result)
        if progress is not None:
            progress.advance(rows=(block.shape or (1,))[0], chunks=chunks, bytes=size)
    session.merge(*forks)
    return WriteResult(len(forks), sum(planned.chunks), sum(planned.bytes), received)


def write_block(shared: bytes, task: bytes) -> bytes:
    """Run one task: write a block in a fork, and return the changes of the fork."""
    base, read = shared_value(shared)
    block: Block = pickle.loads(task)
    fork = base.fork()  # not `base`, which this process uses for the next task
    values = np.asarray(read(block))
    if values.shape != block.shape:
        raise misfit(f"values of {block} must have the shape {block.shape}, got {values.shape}")
    array_at(fork, block.path, "r+")[block.region] = values
    workspace = fork.workspace
    workspace.writer.flush()  # the result must refer only to durable chunks
    return encode_changes(workspace.changes)


def returned(base: ForkSession, result: bytes) -> ForkSession:
    """Return a fork of ``base`` with the changes in the result of a task."""
    fork = base.fork()
    fork.workspace.changes = decode_changes(result)
    return fork


# Planning


@takes_versions
def plan(session: Session, blocks: Sequence[Block]) -> Plan:
    """Check that blocks can be written at the same time.

    Args:
        session: The session with the arrays of the blocks.
        blocks: The blocks.

    Returns:
        The `Plan`: the blocks, array by array, with their numbers of chunks and bytes.

    Raises:
        InvalidInputError: ``invalid-chunk-index`` if a block is outside of its array or not on chunk borders,
            or if two blocks have a chunk in common.

    Examples:
        >>> import frazil, zarr
        >>> from frazil.pipeline import Block, plan
        >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
        >>> t = zarr.create_array(session.store, name="t", shape=(4,), chunks=(2,), dtype="i4")
        >>> plan(session, [Block("t", (0,), (4,))]).chunks
        (2,)
        >>> plan(session, [Block("t", (0,), (3,))])
        Traceback (most recent call last):
        frazil.errors.InvalidInputError: a block must be on the borders of chunks of (2,), got t[0:3]
    """
    by_path: dict[str, list[Block]] = {}
    for block in blocks:
        by_path.setdefault(block.path.strip("/"), []).append(block)  # one array, with or without slashes
    arrays = {path: array_at(session, path, "r+") for path in by_path}
    ordered: list[Block] = []
    chunks: list[int] = []
    sizes: list[int] = []
    for path, group in by_path.items():
        array = arrays[path]
        for block in group:
            if not len(block.start) == len(block.stop) == array.ndim:
                raise _refused(block, f"have {array.ndim} dimensions")
        corners = np.array([(block.start, block.stop) for block in group], np.int64)
        corners = corners.reshape(len(group), 2, array.ndim)
        starts, stops = corners[:, 0], corners[:, 1]
        grid = regular_grid(array)
        extent, step = np.array(array.shape, np.int64), np.array(grid, np.int64)
        inside = ((starts >= 0) & (starts < stops) & (stops <= extent)).all(axis=1)
        if not inside.all():
            shape = f"not be empty, and be inside of the shape {array.shape}"
            raise _refused(group[int(np.argmin(inside))], shape)
        aligned = ((starts % step == 0) & ((stops % step == 0) | (stops == extent))).all(axis=1)
        if not aligned.all():
            raise _refused(group[int(np.argmin(aligned))], f"be on the borders of chunks of {grid}")
        low, high = starts // step, -(-stops // step)
        _require_disjoint(group, low, high)
        ordered += group
        chunks += np.prod(high - low, axis=1).tolist()
        sizes += (np.prod(stops - starts, axis=1) * array.dtype.itemsize).tolist()
    return Plan(tuple(ordered), tuple(chunks), tuple(sizes))


def _require_disjoint(blocks: Sequence[Block], low: NDArray[np.int64], high: NDArray[np.int64]) -> None:
    """Raise an error if two blocks have a chunk in common.

    The borders of all blocks form a grid of cells. A block adds one at its low corner, and subtracts one at
    its high corners. The cumulative sums along all axes are then the numbers of blocks over each cell.
    """
    ndim = low.shape[1]
    lines = [np.unique(np.concatenate([low[:, axis], high[:, axis]])) for axis in range(ndim)]
    ends = [
        (np.searchsorted(lines[axis], low[:, axis]), np.searchsorted(lines[axis], high[:, axis]))
        for axis in range(ndim)
    ]
    counts = np.zeros([len(line) for line in lines], np.int32)
    for corner in range(2**ndim):
        high_ends = [corner >> axis & 1 for axis in range(ndim)]
        where = tuple(ends[axis][high_ends[axis]] for axis in range(ndim))
        np.add.at(counts, where, -1 if sum(high_ends) % 2 else 1)
    for axis in range(ndim):
        np.cumsum(counts, axis=axis, out=counts)
    if counts.max(initial=0) <= 1:
        return
    cell = np.unravel_index(int(np.argmax(counts)), counts.shape)
    at = np.array([line[i] for line, i in zip(lines, cell, strict=True)], np.int64)
    first, second = np.flatnonzero(((low <= at) & (at < high)).all(axis=1))[:2].tolist()
    raise InvalidInputError(
        f"blocks must not have a chunk in common, got {blocks[first]} and {blocks[second]}",
        ErrorKind.INVALID_CHUNK_INDEX,
    )


def _refused(block: Block, expected: str) -> InvalidInputError:
    return InvalidInputError(f"a block must {expected}, got {block}", ErrorKind.INVALID_CHUNK_INDEX)
