"""The job of operations that compute new arrays block by block.

An operation says what it builds; this makes the arrays, cuts them into tasks, and runs the job:

    Build    new arrays of one shape, and how the values of a block of them come from the source
    Move     arrays whose chunks are taken over as they are
    Small    arrays whose values the driver knows: coordinates

Blocks are cut along what is written, so that no two tasks write to one chunk or shard; each reads what it
needs. A build of a later *round* may read what earlier rounds have made.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, Protocol

from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import I64, block_shape, groups, sizes, split
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.job import Job, Phase, Tasks, run_job
from frazil.jobs.job_result import JobResult
from frazil.jobs.memory import Budget
from frazil.jobs.progress import Progress
from frazil.jobs.task_results import Outcome
from frazil.jobs.versions import Target, Version
from frazil.pipeline.transform.arrays import (
    ArrayInfo,
    Json,
    Shape,
    create,
    make_groups,
    open_array,
    refuse_overwriting,
    same_repository,
)
from frazil.pipeline.transform.coordinate_guard import Labels, is_label, refuse_relabelling
from frazil.pipeline.transform.transfer import Move, fetch, fetches, move_of, share
from frazil.repository.session.session import ForkSession, Session

type Values = NDArray[Any]

_LEAST_TASK: Final = 8_000_000
_MOST_TASK: Final = 256_000_000
_TASKS: Final = 32


class Compute(Protocol):
    """Values of a block, one array for each array that is built; has to be picklable."""

    def __call__(self, session: Session, start: Shape, stop: Shape) -> Sequence[Values]: ...


@dataclass(frozen=True, slots=True)
class Build:
    """Arrays that are computed from ``old``: ``compute(session, start, stop)`` gives their blocks.

    ``block`` is the shape of those, a multiple of the chunks and shards of all ``new``. In round 0
    ``session`` is the source, later the target with what the rounds before have made. There are at least
    ``tasks`` tasks if there are so many blocks; without it small blocks share a task.
    """

    old: ArrayInfo
    new: tuple[ArrayInfo, ...]
    block: Shape
    compute: Compute
    round: int = 0
    tasks: int | None = None


@dataclass(frozen=True, slots=True)
class Small:
    """An array whose values are known."""

    old: ArrayInfo
    new: ArrayInfo
    values: Values


def as_it_is(array: ArrayInfo, path: str) -> tuple[ArrayInfo, ArrayInfo, Move]:
    """An array that is taken over whole."""
    new = replace(array, path=path)
    return array, new, move_of(array, new)


@dataclass(frozen=True, slots=True)
class Building:
    """All that an operation makes. ``attributes`` are added to groups of the target."""

    builds: Sequence[Build] = ()
    kept: Sequence[tuple[ArrayInfo, ArrayInfo, Move]] = ()
    small: Sequence[Small] = ()
    attributes: Mapping[str, Json] = field(default_factory=dict)

    @property
    def new(self) -> list[ArrayInfo]:
        built = [new for build in self.builds for new in build.new]
        return [*built, *(new for _, new, _ in self.kept), *(each.new for each in self.small)]


@dataclass(frozen=True, slots=True)
class Item:
    """One task: blocks of one build."""

    build: int
    starts: I64
    stops: I64


def run_building(
    name: str,
    version: Version,
    session: Session,
    target: Target,
    read: Sequence[ArrayInfo],
    made: Building,
    parameters: Json,
    *,
    engine: Engine | EngineName | None,
    job_id: str | None,
    message: str | None,
    progress: Progress | None,
) -> JobResult:
    """Run it as one job. Raises ``InvalidInputError`` if it would overwrite what it reads."""
    refuse_overwriting(version, target, read, made.new)
    rounds = max((build.round for build in made.builds), default=0)

    def prepare(writing: Session) -> Tasks:
        refuse_relabelling(writing, session, list(_labels(made)), made.new)
        for build in made.builds:
            for new in build.new:
                create(writing, session, build.old, new)
        for old, new, _ in made.kept:
            create(writing, session, old, new)
        for each in made.small:
            create(writing, session, each.old, each.new)
            if each.values.size:
                open_array(writing, each.new.path, "r+")[...] = each.values
        for path, attributes in made.attributes.items():
            add_attributes(writing, session, path, attributes)
        moves = [move for _, _, move in made.kept]
        items: list[Any] = take_over(writing, session, version, target, moves)
        return Tasks(items + _items(made.builds, 0), (session, tuple(made.builds)))

    def later(number: int) -> Phase:
        def prepare_later(writing: Session, values: list[Any]) -> Tasks:
            return Tasks(_items(made.builds, number), (None, tuple(made.builds)))

        return Phase(prepare_later, build_blocks)

    job = Job(
        name,
        target,
        prepare,
        build_blocks,
        None,
        parameters,
        (version.input(sorted({each.path for each in (*read, *(old for old, _, _ in made.kept))})),),
        tuple(new.path for new in made.new),
        message,
        id=job_id,
        phases=tuple(later(number + 1) for number in range(rounds)),
    )
    return run_job(job, engine, progress=progress)


def _labels(made: Building) -> Iterator[Labels]:
    """The coordinate variables of what is made."""
    for build in made.builds:
        for number, new in enumerate(build.new):
            if is_label(new) and build.round == 0:
                yield Labels(build.old, new, functools.partial(_computed, build, number))
    for old, new, move in made.kept:
        if is_label(new):
            yield Labels(old, new, region=() if move == move_of(old, new) else move.region(old.grid))
    for each in made.small:
        if is_label(each.new):
            yield Labels(each.old, each.new, functools.partial(_known, each))


def _computed(build: Build, number: int, session: Session) -> Values:
    shape = build.new[number].shape
    return build.compute(session, (0,) * len(shape), shape)[number]


def _known(small: Small, session: Session) -> Values:
    return small.values


def take_over(
    writing: Session, session: Session, version: Version, target: Target, moves: Sequence[Move]
) -> list[Any]:
    """Take chunks over as they are: done here, or the tasks that will do it."""
    if not same_repository(version, target):
        return list(fetches(session, moves))
    for move in moves:
        share(writing, session, move)
    return []


def add_attributes(writing: Session, session: Session, path: str, attributes: Json) -> None:
    """To those of a group, which is made if it is not there."""
    workspace = writing.workspace
    make_groups(writing, session, "/", path)
    document = json.loads(workspace.nodes.require_node(path).user_data)
    document["attributes"] = {**(document.get("attributes") or {}), **attributes}
    workspace.nodes.set_node(path, json.dumps(document).encode())


def _items(builds: Sequence[Build], number: int) -> list[Item]:
    items: list[Item] = []
    for index, build in enumerate(builds):
        if build.round != number:
            continue
        shape = build.new[0].shape
        size = sum(new.itemsize for new in build.new)
        starts, stops = split(shape, build.block)
        total = size * math.prod(shape)
        least = max(total // _TASKS, _LEAST_TASK) if build.tasks is None else max(total // build.tasks, 1)
        per_task = min(least, _MOST_TASK)
        offsets = groups(sizes(starts, stops) * size, per_task).tolist()
        items += [Item(index, starts[low:high], stops[low:high]) for low, high in pairwise(offsets)]
    return items


def build_blocks(
    fork: ForkSession, shared: tuple[Session | None, tuple[Build, ...]], item: Item | Move
) -> Outcome:
    """Work: compute blocks and write them, one at a time."""
    source, builds = shared
    if isinstance(item, Move):
        assert source is not None
        return fetch(fork, source, item)
    build = builds[item.build]
    arrays = [open_array(fork, new.path, "r+") for new in build.new]
    written = 0
    for start, stop in zip(item.starts.tolist(), item.stops.tolist(), strict=True):
        region = tuple(map(slice, start, stop))
        blocks = build.compute(source or fork, tuple(start), tuple(stop))
        for array, block in zip(arrays, blocks, strict=True):
            require_shape(array.path, block, tuple(b - a for a, b in zip(start, stop, strict=True)))
            array[region] = block
            written += block.nbytes
    rows = int((item.stops - item.starts)[:, 0].sum()) if item.stops.shape[1] else len(item.stops)
    return Outcome(rows=rows, chunks=len(item.starts) * len(arrays), bytes_written=written)


def require_shape(path: str, block: Values, shape: Shape) -> None:
    """Raises ``InvalidInputError`` for values of another shape, which zarr might broadcast."""
    if block.shape != shape:
        raise InvalidInputError(
            f"expected a block of shape {shape} for `{path}`, found {block.shape}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )


def block_of(
    new: Sequence[ArrayInfo],
    budget: Budget,
    read: Sequence[ArrayInfo],
    *,
    factor: float = 1,
    whole: Sequence[int] = (),
    tasks: int = 1,
) -> Shape:
    """Blocks for arrays of one shape; ``factor`` bytes are needed for each that is written, and to read them
    one chunk of the arrays ``read``.

    Along the axes ``whole`` a block is as long as the array. There are at least ``tasks`` blocks if there are
    so many chunks. Raises ``InvalidInputError`` (``not-allowed``)
    if the smallest block needs more than a ``max_mem`` that was given.
    """
    first = new[0]
    grids = zip(*(each.grid for each in new), strict=True)
    grid = [math.lcm(*axis) for axis in grids]
    for axis in whole:
        grid[axis] = max(first.shape[axis], 1)
    size = sum(each.itemsize for each in new)
    each = max(math.ceil(size * factor), 1)
    decoded = max((chunk_bytes(array) for array in read), default=0)
    room = max(budget.size - decoded, 1) if budget.is_given else budget.size
    room = min(room, each * max(math.prod(first.shape) // tasks, 1))
    block = block_shape(first.shape, grid, each, room)
    if math.prod(first.shape):
        chunks = " and ".join(f"{array.chunks} of `{array.path}`" for array in read)
        budget.require(
            math.prod(block) * each + decoded,
            f"to read chunks of {chunks} and to make a block of {block} of `{first.path}`",
        )
    return block


def chunk_bytes(array: ArrayInfo) -> int:
    """Bytes of one chunk in memory."""
    return array.itemsize * math.prod(map(min, array.chunks, array.shape))
