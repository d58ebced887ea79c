"""Many tasks write, one commit.

    driver      plan: each block lies on chunk borders, no chunk is in two blocks
                fork the session, send the fork to all tasks
    executors   read the values of a block, write them through a fork of the fork
                send back what changed: references, not data
    driver      merge the changes into the session; the caller commits

A task may run twice, because it failed or because Spark was impatient. The first attempt then leaves
chunks that nothing refers to, for garbage collection, and never a trace in the repository. When a task
fails for good nothing is merged, and the session is what it was.

Because no chunk is in two blocks, no task reads a chunk to change a part of it, and the result does
not depend on the order of the tasks. This is checked before anything starts; ``Session.merge`` would find
two writers of one chunk as well, after the work was done.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.display import Shown, counted, some_of
from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs import wire
from frazil.jobs.blocks import regular_grid
from frazil.jobs.engines import engine_of
from frazil.jobs.pickles import dumps
from frazil.jobs.summary import Summary, with_size
from frazil.jobs.versions import takes_versions
from frazil.zarr_store.arrays import array_at

if TYPE_CHECKING:
    from frazil.jobs.engine import Engine
    from frazil.jobs.progress import Progress
    from frazil.repository.session.session import ForkSession, Session


@dataclass(frozen=True, slots=True)
class Block:
    """A rectangle of one array, ``start`` up to but not including ``stop``, in elements.

    ``source`` is for the function that reads its values: anything that can be pickled.
    """

    path: str
    start: tuple[int, ...]
    stop: tuple[int, ...]
    source: Any = None

    @property
    def region(self) -> tuple[slice, ...]:
        return tuple(map(slice, self.start, self.stop))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(stop - start for start, stop in zip(self.start, self.stop, strict=True))

    def __str__(self) -> str:
        return f"{self.path}[{', '.join(map('{}:{}'.format, self.start, self.stop))}]"


#: Values of a block, with its shape. A function of a module that executors can import.
type Read = Callable[[Block], NDArray[Any]]


@dataclass(frozen=True, slots=True, repr=False)
class Plan(Summary):
    """Blocks that may be written at the same time, each with its number of chunks and bytes."""

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
    """What a job wrote; ``bytes`` before compression, ``returned`` what the executors sent back."""

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
    """Write ``read(block)`` to every block, in parallel. Commit the session afterwards.

    The arrays must be there, committed or not. ``read`` is a function of a module that executors can
    import. Raises ``InvalidInputError`` before anything is written if blocks overlap or do not lie on chunk
    borders, and ``TaskFailedError`` if a task fails.
    """
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
    """The task: write one block through a fork, and give back what changed in it."""
    base, read = _unpacked(shared)
    block: Block = pickle.loads(task)
    fork = base.fork()  # not `base`: this process keeps it for the next task
    values = np.asarray(read(block))
    if values.shape != block.shape:
        raise InvalidInputError(
            f"expected values of shape {block.shape} for {block}, found {values.shape}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    _array(fork, block.path)[block.region] = values
    workspace = fork.workspace
    workspace.writer.flush()  # nothing may refer to chunks that are not durable
    return wire.encode(workspace.changes)


def returned(base: ForkSession, result: bytes) -> ForkSession:
    """On the driver: the fork of ``base`` in which a task changed what ``result`` says."""
    fork = base.fork()
    fork.workspace.changes = wire.decode(result)
    return fork


@functools.lru_cache(maxsize=2)
def _unpacked(shared: bytes) -> tuple[ForkSession, Read]:
    """Once in each process: snapshot and node table are read once, not for each task."""
    base: tuple[ForkSession, Read] = pickle.loads(shared)
    return base


def _array(session: Session, path: str) -> zarr.Array[Any]:
    return array_at(session, path, "r+")


# Planning


@takes_versions
def plan(session: Session, blocks: Sequence[Block]) -> Plan:
    """Check that the blocks can be written at the same time.

    Raises ``InvalidInputError`` for a block that is outside of its array or not on chunk borders, and
    for two blocks with a chunk in common.
    """
    by_path: dict[str, list[Block]] = {}
    for block in blocks:
        by_path.setdefault(block.path.strip("/"), []).append(block)  # one array, however it is written
    arrays = {path: _array(session, path) for path in by_path}
    ordered: list[Block] = []
    chunks: list[int] = []
    sizes: list[int] = []
    for path, group in by_path.items():
        array = arrays[path]
        starts, stops = _bounds(group, array.ndim)
        grid = regular_grid(array)
        boxes = _on_chunk_borders(group, starts, stops, array.shape, grid)
        _disjoint(group, *boxes)
        ordered += group
        chunks += np.prod(boxes[1] - boxes[0], axis=1).tolist()
        sizes += (np.prod(stops - starts, axis=1) * array.dtype.itemsize).tolist()
    return Plan(tuple(ordered), tuple(chunks), tuple(sizes))


type _Corners = NDArray[np.int64]  # (blocks, dimensions)


def _bounds(blocks: Sequence[Block], ndim: int) -> tuple[_Corners, _Corners]:
    for block in blocks:
        if not len(block.start) == len(block.stop) == ndim:
            raise _refused(block, f"{ndim} dimensions")
    corners = np.array([(block.start, block.stop) for block in blocks], np.int64).reshape(
        len(blocks), 2, ndim
    )
    return corners[:, 0], corners[:, 1]


def _on_chunk_borders(
    blocks: Sequence[Block], starts: _Corners, stops: _Corners, shape: tuple[int, ...], grid: tuple[int, ...]
) -> tuple[_Corners, _Corners]:
    """First chunk, and the one after the last, of each block."""
    extent, step = np.array(shape, np.int64), np.array(grid, np.int64)
    inside = ((starts >= 0) & (starts < stops) & (stops <= extent)).all(axis=1)
    if not inside.all():
        raise _refused(
            blocks[int(np.argmin(inside))], f"a block that is not empty and inside of the shape {shape}"
        )
    aligned = ((starts % step == 0) & ((stops % step == 0) | (stops == extent))).all(axis=1)
    if not aligned.all():
        raise _refused(blocks[int(np.argmin(aligned))], f"a block on the borders of chunks of {grid}")
    return starts // step, -(-stops // step)


def _disjoint(blocks: Sequence[Block], low: _Corners, high: _Corners) -> None:
    """Count the blocks over each cell of the grid that their own borders draw.

    A block adds one from its low corner on and takes it away again past its high corners: the
    running sums along all axes are the counts.
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
        f"expected blocks without a chunk in common, found {blocks[first]} and {blocks[second]}",
        ErrorKind.INVALID_CHUNK_INDEX,
    )


def _refused(block: Block, expected: str) -> InvalidInputError:
    return InvalidInputError(f"expected {expected}, found {block}", ErrorKind.INVALID_CHUNK_INDEX)
