"""Arrays with other chunks, shards or codecs, or with native chunks: `rechunk`, `recompress`, `materialize`.

A *stage* reads blocks of whole cells of the written array; a cell of the read array is read once for each
block that it touches. If a block that is a multiple of both does not fit into memory, there are smaller
blocks that read more, or two stages with an intermediate array. The plan moves the fewest bytes.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, Unpack, cast

import numpy as np
from numpy.typing import NDArray
from zarr.abc.codec import Codec

from frazil.argument_docs import with_argument_docs
from frazil.errors import InvalidInputError
from frazil.jobs.blocks import Budget, block_shape, cells, even_groups, sizes, split_boxes
from frazil.jobs.engine import LEAST_TASKS, slots_for
from frazil.jobs.job import (
    BoundedRunOptions,
    JobResult,
    RunOptions,
    Source,
    Target,
    takes_versions,
    with_options,
)
from frazil.pipeline.derivation.operation import ArrayOperation, BlockPlan, SourceView
from frazil.pipeline.derivation.relations import Read
from frazil.pipeline.transform.arrays import (
    ArrayInfo,
    Json,
    Lengths,
    Shape,
    Values,
    arrays_below,
    chunk_lengths,
    clipped_chunks,
    codec_documents,
    names_of,
    open_array,
    record_of_lengths,
    require_dimensions,
    with_companions,
)
from frazil.pipeline.transform.block_job import ComputedArrays, OutputArrays, TransferredArray, is_in_place
from frazil.remedies import argument
from frazil.repository.session.session import Session

#: The most combinations of block lengths that are compared.
_COMBINATIONS: Final = 20_000
#: The number of these combinations, those with the fewest bytes, whose blocks are given to slots.
_CANDIDATES: Final = 64
#: Plans whose costs differ by less count as equal: that with the largest chunks in between is chosen.
_ALIKE: Final = 1.02
#: With more blocks for each slot, the slots end at about the same time.
_WAVES: Final = 8
#: The most lengths along one axis that are compared.
_LENGTHS: Final = 4096


@dataclass(frozen=True, slots=True)
class Stage:
    """One round of tasks: read an array of cells ``read`` by blocks, write one of cells ``write``."""

    shape: Shape
    itemsize: int
    read: Shape
    write: Shape
    block: Shape

    @property
    def bytes_read(self) -> int:
        """Bytes that all tasks read, before compression."""
        lengths = zip(self.shape, self.block, self.read, strict=True)
        return self.itemsize * math.prod(int(covered(n, np.array([b]), r)[0]) for n, b, r in lengths)

    @property
    def bytes_moved(self) -> int:
        """Bytes that all tasks read and write."""
        return self.bytes_read + self.itemsize * math.prod(self.shape)

    @property
    def unit(self) -> Shape:
        """The lengths of which blocks have multiples: those of both cells, or else of written cells."""
        whole = (math.lcm(*both) for both in zip(self.read, self.write, strict=True))
        axes = zip(self.block, self.write, whole, strict=True)
        return tuple(both if block % both == 0 else write for block, write, both in axes)

    def bytes_at_once(self, slots: int) -> float:
        """Return a bound of the bytes that the slot with the most work moves, of ``slots``.

        A free slot takes the largest block that is left. So a block ends at most by its own length after an
        even share of all blocks that are not smaller, and the slots are at most as long as the waves.
        """
        count, share = math.prod(cells(self.shape, self.block)), 1 - 1 / slots
        if count > _WAVES * slots or slots == 1:
            return self.bytes_moved * (1 / slots + share / max(count, 1))
        ends = np.array([self.shape], np.int64)
        starts, stops = split_boxes(np.zeros_like(ends), ends, self.block, self.unit)
        cell = np.array(self.read, np.int64)
        read = sizes(starts // cell * cell, np.minimum(-(-stops // cell) * cell, ends))
        elements = sizes(starts, stops)
        tasks = even_groups(elements, max(2 * slots, LEAST_TASKS))[:-1]
        work = np.sort(np.add.reduceat((elements + read) * self.itemsize, tasks))[::-1]
        late = np.cumsum(work) / slots + work * share
        return float(min(work[::slots].sum(), max(work[:1].sum(), late[slots:].max(initial=0))))


@dataclass(frozen=True, slots=True)
class RechunkPlan:
    """A plan of one stage, or of two stages with an array of chunks ``intermediate`` in the middle."""

    stages: tuple[Stage, ...]

    @property
    def intermediate(self) -> Shape | None:
        """The chunks of the intermediate array; None with one stage."""
        return self.stages[0].write if len(self.stages) > 1 else None

    @property
    def bytes_read(self) -> int:
        """Bytes that all stages read."""
        return sum(stage.bytes_read for stage in self.stages)

    def bytes_at_once(self, slots: int) -> float:
        """Return the bytes that the slots with the most work move, in all stages."""
        return sum(stage.bytes_at_once(slots) for stage in self.stages)


def rechunk_plan(
    shape: Shape, read: Shape, write: Shape, itemsize: int, max_bytes: int, slots: int = 1
) -> RechunkPlan:
    """Return the plan whose slots move the fewest bytes each, with at most ``max_bytes`` in each task.

    ``read`` is the shape that is decoded as one (chunks, also inside of shards), ``write`` the shape that is
    encoded as one (shards, or chunks). Raises ``InvalidInputError`` (``invalid-argument``) if one of each
    needs more.
    """
    read, write = clipped_chunks(read, shape), clipped_chunks(write, shape)
    least = itemsize * (math.prod(read) + 2 * math.prod(write))
    if least > max_bytes:
        raise InvalidInputError(
            f"max_mem must be at least {least} bytes to read chunks of {read} and to write {write}, "
            f"got {max_bytes}"
        ).with_remedy("Pass {} or more", argument(max_mem=f"{-(-least // 10**6)}MB"))
    direct = RechunkPlan((_stage(shape, read, write, itemsize, max_bytes, slots),))
    if direct.bytes_at_once(slots) <= 3 * itemsize * math.prod(shape) / slots:
        return direct  # two stages read and write twice
    plans = [direct]
    for chunks in _intermediates(shape, read, write, itemsize, max_bytes, slots):
        first = _stage(shape, read, chunks, itemsize, max_bytes, slots)
        plans.append(RechunkPlan((first, _stage(shape, chunks, write, itemsize, max_bytes, slots))))
    costs = [plan.bytes_at_once(slots) for plan in plans]
    most = min(costs) * (_ALIKE if slots > 1 else 1)
    alike = [plan for plan, cost in zip(plans, costs, strict=True) if cost <= most]
    return max(alike, key=lambda plan: (math.prod(plan.intermediate or shape), -plan.bytes_at_once(slots)))


def covered(length: int, block: NDArray[np.int64], cell: int) -> NDArray[np.int64]:
    """Return how many elements are read along one axis, for each length of blocks.

    A block reads all cells that it touches. Borders of blocks and of cells cut the axis into pieces; each
    piece is one touch of one block and one cell.
    """
    if not length:
        return np.zeros_like(block)
    last = (length - 1) // cell * cell  # where the last cell starts
    common = (length - 1) // np.lcm(block, cell)
    pieces = -(-length // block) + last // cell - common
    of_last = -(-length // block) - last // block
    out: NDArray[np.int64] = (pieces - of_last) * cell + of_last * (length - last)
    return out


def _stage(shape: Shape, read: Shape, write: Shape, itemsize: int, max_bytes: int, slots: int) -> Stage:
    """Return the stage whose slots move the fewest bytes each; of several, that of the smallest blocks."""
    budget = max_bytes // itemsize - math.prod(read) - math.prod(write)
    axes = [_lengths(*axis) for axis in zip(shape, read, write, strict=True)]
    limit = max(int(_COMBINATIONS ** (1 / max(len(axes), 1))), 2)
    thin = []
    for axis in axes:  # the first and the last length are among them
        rows = np.linspace(0, len(axis) - 1, min(limit, len(axis))).astype(np.int64)
        thin.append(axis[np.unique(rows)])
    size, cover = (np.ones((1,) * len(axes)) for _ in range(2))
    for number, axis in enumerate(thin):
        column = [1] * len(axes)
        column[number] = -1
        size = size * axis.reshape(column)
        cover = cover * covered(shape[number], axis, read[number]).reshape(column)
    elements = max(math.prod(shape), 1)
    least = (cover + elements) * np.maximum(1 / slots, size / elements)
    least = np.where(size <= budget, least, np.inf)
    best = np.lexsort((size.ravel(), cover.ravel(), least.ravel()))[: _CANDIDATES if slots > 1 else 1]
    places = [np.unravel_index(each, cover.shape) for each in best.tolist() if np.isfinite(least.flat[each])]
    blocks = (tuple(int(axis[i]) for axis, i in zip(thin, place, strict=True)) for place in places)
    stages = (Stage(shape, itemsize, read, write, block) for block in blocks)
    return min(stages, key=lambda stage: stage.bytes_at_once(slots))


def _lengths(length: int, read: int, write: int) -> NDArray[np.int64]:
    """Return lengths of blocks along an axis. Each of them reads less than all shorter ones."""
    count = -(-length // write)
    if count <= _LENGTHS:
        times = np.arange(1, max(count, 1) + 1)
    else:
        whole = math.lcm(read, write) // write
        spread = np.geomspace(1, count, _LENGTHS // 2).astype(np.int64)
        times = np.unique(np.concatenate([spread, spread * whole, [count]]))
        times = times[times <= count]
    options = np.minimum(times * write, max(length, 1))
    cover = covered(length, options, read)
    least = np.minimum.accumulate(cover)
    return options[np.r_[True, cover[1:] < least[:-1]]]


def _intermediates(
    shape: Shape, read: Shape, write: Shape, itemsize: int, max_bytes: int, slots: int
) -> Iterator[Shape]:
    """Yield chunks for an intermediate array, by different ways to fill the memory with cells of both arrays.

    They fill half of it, because a chunk of the intermediate array has to fit as well. On several slots,
    they also fill smaller parts, for more tasks.
    """
    yielded = set()
    axes = range(len(read))
    # First those axes grow whose written cells are longer than the read ones.
    by_ratio = sorted(axes, key=lambda axis: (-write[axis] / max(read[axis], 1), -axis))
    orders = (tuple(by_ratio), tuple(axes), tuple(axes[::-1]))
    limited = tuple(map(max, read, write))
    rooms = [(max_bytes - itemsize * math.prod(cell)) // 2 for cell in (read, write)]
    halvings = range(1 + (2 * slots - 2).bit_length())
    for times, of_read, of_write, limit in product(halvings, orders, orders, (limited, shape)):
        one = _filled(shape, limit, read, itemsize, rooms[0] >> times, of_read)
        two = _filled(shape, limit, write, itemsize, rooms[1] >> times, of_write[::-1])
        chunks = tuple(map(min, one, two))
        first, second = (math.prod(read) + 2 * math.prod(chunks), math.prod(chunks) + 2 * math.prod(write))
        if itemsize * max(first, second) <= max_bytes and chunks not in yielded:
            yielded.add(chunks)
            yield chunks


def _filled(shape: Shape, limit: Shape, cell: Shape, itemsize: int, budget: int, order: Shape) -> Shape:
    """Return the largest block that fits into a budget, up to a limit that is rounded up to whole cells."""
    rounded = (min(-(-most // step) * step, n) for most, step, n in zip(limit, cell, shape, strict=True))
    return block_shape(tuple(rounded), cell, itemsize, max(budget, 1), order)


#: The codecs of an old array that an intermediate array has: only serializers, as it is temporary.
_INTERMEDIATE_CODECS: Final = frozenset({"bytes", "vlen-utf8", "vlen-bytes"})


@with_options(BoundedRunOptions)
@takes_versions
def rechunk(
    source: Source,
    paths: Sequence[str],
    chunks: Lengths,
    *,
    shards: Lengths | None = None,
    to: Target | None = None,
    **options: Unpack[BoundedRunOptions],
) -> JobResult:
    """Store arrays in other chunks, in one commit; in place, or at a target.

    Data types, fill values, attributes and codecs do not change, and missing chunks stay missing. If a block
    of the new chunks needs more than ``max_mem``, the job works in two stages.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        paths: Paths of arrays, or of groups for all arrays below them.
        chunks: The new chunk lengths: one for each axis, or a mapping of dimensions, ``{"time": -1, "lat":
            50}``. -1 is the whole axis. Dimensions that a mapping does not name keep their chunk length.
        shards: The new shard lengths, in the same form. The default, None, makes no shards.
        to: The `Target` of the results. The default, None, replaces the arrays on the branch of the source.

    Returns:
        The `JobResult`, whose ``version`` has the new arrays.

    Raises:
        InvalidInputError: The lengths do not fit an array, or its chunk grid is not regular
            (``invalid-array-metadata``), or ``max_mem`` is too small (``invalid-argument``).
        NodeNotFoundError: A path has no node.

    Examples:
        >>> import frazil, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="slices") as store:
        ...     array = zarr.create_array(store, name="t", shape=(8, 8), chunks=(1, 8), dtype="i4")
        ...     array[:] = 7
        >>> series = frazil.pipeline.rechunk(repo, ["t"], (8, 1), engine="inline")
        >>> zarr.open_array(series.version.session().store, path="t", mode="r").chunks
        (8, 1)
    """
    return Rechunking(names_of(paths), chunks, shards).run(source, to, options)


@dataclass(frozen=True, slots=True)
class Rechunking(ArrayOperation):
    """The operation of `rechunk`."""

    name = "rechunk"
    chunks: Lengths
    shards: Lengths | None = None

    def plan(self, view: SourceView, to: Target, options: BoundedRunOptions) -> BlockPlan:
        """Return the copies into the new chunks."""
        arrays = arrays_below(view.session, self.paths)
        if isinstance(self.chunks, Mapping):
            require_dimensions(list(self.chunks), arrays)

        def layout_of(array: ArrayInfo, path: str) -> ArrayInfo:
            inner = chunk_lengths(self.chunks, array, array.chunks, "chunks")
            outer = chunk_lengths(self.shards, array, None, "shards", inner=inner)
            return array.with_layout(path, chunks=inner, shards=outer)

        parameters = {"chunks": record_of_lengths(self.chunks), "shards": record_of_lengths(self.shards)}
        return _rewrite(view, self.paths, arrays, layout_of, parameters, to, options)


@with_options(BoundedRunOptions)
@takes_versions
@with_argument_docs(rechunk)
def recompress(
    source: Source,
    paths: Sequence[str],
    codecs: Sequence[Codec | Mapping[str, Any]] | None = None,
    *,
    shards: Lengths | None = None,
    to: Target | None = None,
    **options: Unpack[BoundedRunOptions],
) -> JobResult:
    """Store arrays with other codecs, in one commit; in place, or at a target.

    Chunks keep their shape. Otherwise the function works as `rechunk`.

    Args:
        codecs: The codecs of zarr, or their metadata: a whole chain, or, without a serializer, only the
            compressors, such as ``[zarr.codecs.ZstdCodec(level=9)]``. The byte order does not change unless
            the chain has a ``bytes`` codec that names another one (``BytesCodec()`` is little-endian). The
            default, None, keeps the codecs.
        shards: The new shard lengths: one for each axis, or a mapping of dimensions. The default, None, makes
            no shards.

    Returns:
        The `JobResult`, whose ``version`` has the new arrays.

    Raises:
        InvalidInputError: A codec is not a codec of zarr, or the shards do not fit
            (``invalid-array-metadata``), or ``max_mem`` is too small (``invalid-argument``).
        NodeNotFoundError: A path has no node.

    Examples:
        >>> import frazil, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="compressed") as store:
        ...     array = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
        >>> gzip = [zarr.codecs.GzipCodec(level=1)]
        >>> result = frazil.pipeline.recompress(repo, ["t"], gzip, engine="inline")
        >>> zarr.open_array(result.version.session().store, path="t", mode="r").compressors
        (GzipCodec(level=1),)
    """
    return Recompression(names_of(paths), codecs, shards).run(source, to, options)


@dataclass(frozen=True, slots=True)
class Recompression(ArrayOperation):
    """The operation of `recompress`."""

    name = "recompress"
    codecs: Sequence[Codec | Mapping[str, Any]] | None = None
    shards: Lengths | None = None

    def plan(self, view: SourceView, to: Target, options: BoundedRunOptions) -> BlockPlan:
        """Return the copies with the new codecs."""

        def layout_of(array: ArrayInfo, path: str) -> ArrayInfo:
            return array.with_layout(
                path,
                chunks=array.chunks,
                shards=chunk_lengths(self.shards, array, None, "shards", inner=array.chunks),
                codecs=codec_documents(self.codecs, array.codecs),
            )

        parameters = {"codecs": codec_documents(self.codecs, []), "shards": record_of_lengths(self.shards)}
        arrays = arrays_below(view.session, self.paths)
        return _rewrite(view, self.paths, arrays, layout_of, parameters, to, options)


def _rewrite(
    view: SourceView,
    paths: Sequence[str],
    arrays: Sequence[ArrayInfo],
    layout_of: Callable[[ArrayInfo, str], ArrayInfo],
    parameters: Json,
    target: Target,
    options: BoundedRunOptions,
) -> BlockPlan:
    """Store arrays in other layouts. An array whose layout stays the same is transferred."""
    version, session, budget = view.version, view.session, Budget.of(options.get("max_mem")).size
    if not arrays:
        raise InvalidInputError("paths must name at least one array, got none")
    in_place, engine = is_in_place(version, target), options.get("engine")
    computed: list[ComputedArrays] = []
    transferred: list[TransferredArray] = []
    temporary: list[ArrayInfo] = []
    for old in arrays:
        new = layout_of(old, target.path(old.path))
        if all(old.document[member] == new.document[member] for member in ("chunk_grid", "codecs")):
            if not in_place:
                transferred.append(replace(TransferredArray.whole(old, new.path), new=new))
            continue
        slots = slots_for(old.itemsize * math.prod(old.shape), engine)
        if view.is_refresh:  # some chunks: an intermediate array saves nothing
            stage = _stage(old.shape, old.chunks, new.grid, old.itemsize, budget, slots)
            computed.append(_copy(old, new, stage, 0))
            continue
        plan = rechunk_plan(old.shape, old.chunks, new.grid, old.itemsize, budget, slots)
        if plan.intermediate is None:
            computed.append(_copy(old, new, plan.stages[0], 0))
            continue
        seed = f"{version.snapshot_id} {old.path} {new.path}"
        path = target.path(f"frazil-between-{hashlib.sha256(seed.encode()).hexdigest()[:16]}")
        codecs = [each for each in old.codecs if each["name"] in _INTERMEDIATE_CODECS] or old.codecs
        between = old.with_layout(path, chunks=plan.intermediate, codecs=codecs)
        temporary.append(between)
        computed += [_copy(old, between, plan.stages[0], 0), _copy(between, new, plan.stages[1], 1, old.path)]
    if not in_place:
        own = {array.path for array in arrays}
        companions = [each for each in with_companions(session, arrays) if each.path not in own]
        transferred += [TransferredArray.whole(each, target.path(each.path)) for each in companions]
    outputs = OutputArrays(computed, transferred, temporary=temporary)
    parameters = {**parameters, "paths": list(paths), "max_mem": budget}
    return BlockPlan(arrays, outputs, parameters, in_place)


def _copy(
    old: ArrayInfo, new: ArrayInfo, stage: Stage, number: int, origin: str | None = None
) -> ComputedArrays:
    """Return the copy of an array by one stage. ``origin`` is the array whose values it has."""
    read, reads = functools.partial(_read_block, old.path), (Read.same(origin or old.path, old.ndim),)
    return ComputedArrays(old, (new,), stage.block, read, number, reads=reads, unit=stage.unit)


def _read_block(path: str, session: Session, start: Shape, stop: Shape) -> Sequence[Values]:
    return [np.asarray(open_array(session, path)[tuple(map(slice, start, stop))])]


@with_options(RunOptions)
@takes_versions
@with_argument_docs(rechunk)
def materialize(
    source: Source, paths: Sequence[str] = ("/",), *, to: Target | None = None, **options: Unpack[RunOptions]
) -> JobResult:
    """Copy the bytes of all virtual chunks of arrays into the repository, in one commit.

    In place, only the references of virtual chunks change. At a target, the arrays and their coordinates are
    created; native chunks are shared within one repository, and copied to another one. The bytes of a chunk
    do not change. The new version does not need the files of the virtual references any more; older versions
    still need them.

    Args:
        to: The `Target` of the results. The default, None, works in place, on the branch of the source.

    Returns:
        The `JobResult`, whose ``version`` has the native chunks.

    Raises:
        TaskFailedError: A file does not exist, has changed since its references were made
            (``virtual-chunk-modified``), or the repository may not read its location. The kind is the kind of
            the cause.
        NodeNotFoundError: A path has no node.

    Examples:
        >>> import frazil, zarr
        >>> from frazil.pipeline import Target, materialize
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="native chunks") as store:
        ...     zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")[:] = 7
        >>> result = materialize(repo, ["t"], to=Target(repo, group="copy"), engine="inline")
        >>> zarr.open_array(result.version.session().store, path="copy/t", mode="r")[:].tolist()
        [7, 7, 7, 7]
    """
    return Materialization(names_of(paths)).run(source, to, cast("BoundedRunOptions", options))


@dataclass(frozen=True, slots=True)
class Materialization(ArrayOperation):
    """The operation of `materialize`."""

    name = "materialize"

    def plan(self, view: SourceView, to: Target, options: BoundedRunOptions) -> BlockPlan:
        """Return the transfer of all chunks."""
        in_place = is_in_place(view.version, to)
        arrays = arrays_below(view.session, self.paths)
        if not in_place:
            arrays = with_companions(view.session, arrays)
        transferred = [TransferredArray.whole(array, to.path(array.path)) for array in arrays]
        parameters = {"paths": list(self.paths)}
        return BlockPlan(arrays, OutputArrays(transferred=transferred), parameters, in_place, True)
