"""Plans of Cubed chunk by chunk: what each chunk of a result depends on, and runs of some of its chunks.

The digest of a chunk is a hash of the function that computes it, and of the digests of the chunks that the
function reads. ``BlockwiseSpec.back_key_function`` names these chunks. The leaves are the references to the
chunks of stored arrays, and the values of arrays in memory.

A constant of a function is a part of the digest, so a function that holds the length of an array gives all
chunks other digests when the array grows. The functions of Cubed that select and concatenate chunks hold the
shapes of whole arrays too. Their digests have what they do for one chunk in the place of these shapes.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from typing import Any, Final, override

import numpy as np
import xarray as xr
import zarr
from cubed.primitive.blockwise import BlockwiseSpec, ChunkKey, FunctionArgs, key_to_slices
from cubed.runtime.pipeline import visit_nodes
from cubed.storage.virtual import VirtualInMemoryArray, VirtualOffsetsArray
from cubed.utils import normalize_chunks, to_chunksize
from numpy.typing import NDArray

import cubed
from frazil.cubed import Executor, RegionArray, store_cubed
from frazil.format.chunk_table import within
from frazil.jobs.blocks import cells
from frazil.pipeline.derivation.digest_table import hash_grid
from frazil.pipeline.derivation.relations import U64, StoredChunks
from frazil.pipeline.transform.arrays import Shape
from frazil.pipeline.transform.block_functions import fingerprint
from frazil.xarray.agreement import ArrayWriter, ZarrStore, dump_to_store
from frazil.xarray.agreement import is_cubed as is_cubed

type Key = tuple[str, Shape]

#: The arguments by which functions of Cubed are known that hold the shapes of whole arrays.
_SELECTION: Final = {"selection_function", "in_shape", "in_chunksize"}
_CONCATENATION: Final = {"target_shape", "target_chunks", "axis", "offsets", "in_shapes", "in_chunksizes"}


@dataclass(frozen=True, slots=True, eq=False)
class SourceValues:
    """The decoded values of a stored array, for `cubed.from_array`."""

    path: str
    variable: xr.Variable

    @property
    def shape(self) -> Shape:
        """The shape."""
        return self.variable.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The data type of the decoded values."""
        dtype: np.dtype[Any] = np.dtype(self.variable.dtype)
        return dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.variable.ndim

    def __getitem__(self, key: tuple[slice, ...]) -> NDArray[Any]:
        return np.asarray(self.variable[key].values)


def source_array(path: str, variable: xr.Variable, chunks: Shape) -> Any:
    """Return the Cubed array of a stored array."""
    return cubed.from_array(SourceValues(path, variable), chunks=chunks)


def stored_metadata(dataset: xr.Dataset, encoding: Mapping[Any, Any]) -> zarr.storage.MemoryStore:
    """Return a store with the arrays of a dataset: with values in memory, and without those of Cubed."""
    store = zarr.storage.MemoryStore()
    target = ZarrStore.open_group(
        store, mode="w", zarr_format=3, consolidated=False, consolidate_on_close=False
    )
    # The writer collects the Cubed arrays, and nobody writes them.
    dump_to_store(dataset, target, ArrayWriter(), encoding=encoding)  # type: ignore[no-untyped-call]
    return store


def rechunked(array: Any, grid: Shape) -> Any:
    """Return an array with the chunks of a grid."""
    return array if array.chunksize == grid else array.rechunk(grid)


@dataclass(slots=True, eq=False)
class _Operation:
    """One operation of a plan. A chunk of it may be several chunks of its outputs.

    ``outputs`` are the names of the arrays that it writes, and how many of their chunks are one chunk of the
    operation, along each axis.
    """

    config: BlockwiseSpec
    outputs: dict[str, Shape]
    chunks: list[Shape]
    identity: str = ""

    @property
    def keywords(self) -> Mapping[str, Any]:
        """The arguments that the function of the operation has for all chunks."""
        return getattr(self.config.function, "keywords", {})

    def inputs(self, at: Shape) -> list[Key]:
        """Return the chunks that a chunk is computed from, in the order of the function."""
        return list(_flat(self.config.back_key_function(ChunkKey("out", at))))

    def source(self, at: Shape) -> tuple[SourceValues, tuple[slice, ...]] | None:
        """Return the stored array that a chunk is read from, and the box; None for other operations."""
        values = self.keywords.get("input_array")
        if not isinstance(values, SourceValues):
            return None
        steps = [along[0] for along in self.keywords["outchunks"]]
        return values, tuple(
            slice(number * step, min((number + 1) * step, length))
            for number, step, length in zip(at, steps, values.shape, strict=True)
        )

    def parts(self, at: Shape) -> Iterator[tuple[Shape, Any, list[Key]]]:
        """Yield the chunks of the outputs that a chunk has: the place, the function, and what it reads."""
        names, ratio = self.keywords.keys(), next(iter(self.outputs.values()))
        if names >= _SELECTION and self.keywords.get("func") is None:
            selection = self.keywords["selection_function"](ChunkKey("out", at))
            given = selection if isinstance(selection, tuple) else (selection,)
            if max(ratio, default=1) == 1:
                yield at, self._selection(given), self._read(at)
            else:
                yield from self._rechunked(at, given, ratio)
        elif names >= _CONCATENATION:
            yield at, _concatenation(self.keywords, at), self._read(at)
        else:
            self.identity = self.identity or repr(fingerprint(self.config.function))
            inputs = self.inputs(at)
            for part in np.ndindex(ratio):
                place = tuple(n * of + number for n, of, number in zip(at, ratio, part, strict=True))
                yield place, (self.identity, part), inputs

    def _read(self, at: Shape) -> list[Key]:
        """Return the inputs without the array that tells the function the number of its chunk."""
        arrays = self.config.reads_map
        return [
            each for each in self.inputs(at) if not isinstance(arrays[each[0]].array, VirtualOffsetsArray)
        ]

    def _selection(self, given: Sequence[Any]) -> Any:
        """Return a selection relative to the chunks that it reads."""
        parts: list[Any] = []
        for each, step in zip(given, self.keywords["in_chunksize"], strict=True):
            if not isinstance(step, int):  # chunks of several lengths
                return "selection", repr(given), self.keywords["in_shape"], self.keywords["in_chunksize"]
            match each:
                case slice():
                    base = each.start - each.start % step
                    parts.append((step, each.start - base, each.stop - base, each.step))
                case np.ndarray():
                    chunk = np.unique(each // step, return_inverse=True)[1]
                    parts.append((step, chunk.tolist(), (each % step).tolist()))
                case _:
                    parts.append((step, int(each) % step))
        return "selection", tuple(parts)

    def _rechunked(
        self, at: Shape, given: Sequence[slice], ratio: Shape
    ) -> Iterator[tuple[Shape, Any, list[Key]]]:
        """Yield the chunks that a copy of a larger box writes."""
        (array,) = (each.array for each in self.config.writes_map.values())
        (name,) = {each for each, _ in self._read(at)}
        steps = self.keywords["in_chunksize"]
        for part in np.ndindex(ratio):
            starts = [
                each.start + number * n for each, number, n in zip(given, part, array.chunks, strict=True)
            ]
            stops = [
                min(start + n, each.stop) for start, n, each in zip(starts, array.chunks, given, strict=True)
            ]
            if all(map(operator.lt, starts, stops)):
                place = tuple(n * of + number for n, of, number in zip(at, ratio, part, strict=True))
                box = tuple(map(slice, starts, stops))
                inputs = product(*(range(each.start, each.stop) for each in _box(box, steps)))
                yield place, self._selection(box), [(name, coords) for coords in inputs]


def _flat(each: Any) -> Iterator[Key]:
    match each:
        case ChunkKey():
            yield each.name, tuple(each.coords)
        case FunctionArgs():
            for one in each.args:
                yield from _flat(one)
        case _:
            for one in each:
                yield from _flat(one)


def _concatenation(keywords: Mapping[str, Any], at: Shape) -> Any:
    """Return which parts of its inputs a chunk of a concatenation has along the axis."""
    axis, offsets = keywords["axis"], keywords["offsets"]
    lengths = keywords["target_chunks"][axis]
    start = lengths[0] * at[axis]
    stop, parts = start + lengths[at[axis]], []
    for number, (low, high) in enumerate(pairwise(offsets)):
        if max(low, start) < min(high, stop):
            step = keywords["in_chunksizes"][number][axis]
            first = max(low, start) - low
            parts.append((step, first % step, min(high, stop) - low - first))
    return "concatenation", axis, tuple(parts), str(keywords.get("dtype"))


def _operations(dag: Any) -> list[_Operation]:
    """Return the operations of a plan that map a function over chunks, in the order of a run."""
    operations = []
    for name, node in visit_nodes(dag):
        pipeline = node["pipeline"]
        if isinstance(pipeline.config, BlockwiseSpec):
            proxies = zip(dag.successors(name), pipeline.config.writes_map.values(), strict=True)
            outputs = {output: _ratio(proxy) for output, proxy in proxies}
            operations.append(
                _Operation(pipeline.config, outputs, [tuple(each) for each in pipeline.mappable])
            )
    return operations


def _ratio(proxy: Any) -> Shape:
    """Return how many chunks of an array a chunk of the operation has that writes it, along each axis."""
    array = proxy.array
    written = to_chunksize(normalize_chunks(proxy.chunks, shape=array.shape, dtype=array.dtype))
    return tuple(-(-whole // step) for whole, step in zip(written, array.chunks, strict=True))


def _hash(*parts: Any) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()[:16]


@dataclass(slots=True, eq=False)
class ChunkPlan:
    """The plan of one result, whose chunks are those of the stored result."""

    array: Any
    operations: list[_Operation] = field(init=False)

    def __post_init__(self) -> None:
        self.operations = _operations(cubed.plan(self.array, optimize_graph=False).dag)

    def digests(self, key: U64, chunks: Mapping[str, StoredChunks], metadata: Mapping[str, Any]) -> U64:
        """Return the digests of all chunks of the result, shape (*chunks, 2).

        ``metadata`` are those of the stored arrays that have an influence on values, by path.
        """
        start, by_key = _hash(key.tobytes()), dict[Key, bytes]()

        def digest_of(array: Any, name: str, at: Shape) -> bytes:
            return by_key.get((name, at)) or _hash(start, _of_virtual(array, at))

        grids = {
            path: hash_grid(each.index, each.hashes, cells(each.shape, each.grid))
            for path, each in chunks.items()
        }
        for operation, at in ((each, at) for each in self.operations for at in each.chunks):
            source = operation.source(at)
            if source is not None:
                values, box = source
                (name,) = operation.outputs
                read = _read(box, chunks, grids, values.path)
                by_key[name, at] = _hash(start, metadata[values.path], read)
                continue
            for place, what, inputs in operation.parts(at):
                arrays = operation.config.reads_map
                digest = _hash(start, what, [digest_of(arrays[key[0]].array, *key) for key in inputs])
                for number, name in enumerate(operation.outputs):
                    by_key[name, place] = digest if number == 0 else _hash(digest, number)
        counts = cells(self.array.shape, self.array.chunksize)
        data = b"".join(digest_of(self.array, self.array.name, at) for at in np.ndindex(counts))
        return np.frombuffer(data, np.uint64).reshape(*counts, 2)

    def bytes_read(self, mask: NDArray[np.bool_], chunks: Mapping[str, StoredChunks]) -> int:
        """Return the stored bytes of the chunks that the chunks of a mask read."""
        wanted = {self.array.name: _places(mask)}
        read = {path: np.zeros(cells(each.shape, each.grid), np.bool_) for path, each in chunks.items()}
        for operation, at in _needed(self.operations, wanted):
            source = operation.source(at)
            if source is not None:
                values, box = source
                read[values.path][_box(box, chunks[values.path].grid)] = True
        total = 0
        for path, each in chunks.items():
            inside = within(each.index, read[path].shape)
            is_read = read[path][tuple(each.index[inside].T)]
            total += int(each.lengths[inside][is_read].sum())
        return total


def _places(mask: NDArray[np.bool_]) -> set[Shape]:
    return set(map(tuple, np.argwhere(mask).tolist()))


def _box(box: Sequence[slice], grid: Shape) -> tuple[slice, ...]:
    """Return the chunks of a grid that a box has."""
    return tuple(
        slice(each.start // step, -(-each.stop // step)) for each, step in zip(box, grid, strict=True)
    )


def _read(
    box: Sequence[slice], chunks: Mapping[str, StoredChunks], grids: Mapping[str, U64], path: str
) -> Any:
    """Return the hashes of the references in a box, and the place of the box in their chunks."""
    grid = chunks[path].grid
    place = [(each.start % step, each.stop - each.start) for each, step in zip(box, grid, strict=True)]
    return place, grids[path][_box(box, grid)].tobytes()


def _of_virtual(array: Any, at: Shape) -> bytes:
    """Return the digest of a chunk that no operation computes: of its values, or of what makes them."""
    opened = array.open() if hasattr(array, "open") else array
    box = key_to_slices(at, opened)
    shape = tuple(each.stop - each.start for each in box)
    if isinstance(opened, VirtualInMemoryArray | VirtualOffsetsArray):
        values = np.asarray(opened[box])
        return _hash(str(values.dtype), shape, values.tobytes())
    return _hash(type(opened).__name__, str(opened.dtype), shape, repr(getattr(opened, "fill_value", None)))


def _needed(
    operations: Sequence[_Operation], wanted: dict[str, set[Shape]]
) -> Iterator[tuple[_Operation, Shape]]:
    """Yield the chunks that chunks of arrays are computed from, the last operation first.

    ``wanted`` gets the chunks of all arrays.
    """
    for operation in reversed(operations):
        of_operation = {
            tuple(map(operator.floordiv, at, ratio))
            for name, ratio in operation.outputs.items()
            for at in wanted.get(name, ())
        }
        for at in of_operation:
            yield operation, at
            for name, coords in operation.inputs(at):
                wanted.setdefault(name, set()).add(coords)


class PartExecutor(Executor):
    """An executor that computes some chunks of the results, by the path of the result, and what they need."""

    def __init__(self, masks: Mapping[str, NDArray[np.bool_]], engine: Any) -> None:
        super().__init__(engine)
        self._masks = masks

    @override
    def execute_dag(self, dag: Any, callbacks: Any = None, **options: Any) -> None:
        """Run the operations of a plan. Cubed calls this method."""
        operations, wanted = _operations(dag), dict[str, set[Shape]]()
        for operation in operations:
            proxies = operation.config.writes_map.values()
            for name, proxy in zip(operation.outputs, proxies, strict=True):
                if isinstance(proxy.array, RegionArray):
                    wanted[name] = _places(self._masks[proxy.array.path])
        chunks: dict[int, list[Shape]] = {}
        for operation, at in _needed(operations, wanted):
            chunks.setdefault(id(operation.config), []).append(at)
        dag = dag.copy()
        for _, node in visit_nodes(dag):
            pipeline = node["pipeline"]
            if isinstance(pipeline.config, BlockwiseSpec):
                node["pipeline"] = replace(pipeline, mappable=chunks.get(id(pipeline.config), []))
        super().execute_dag(dag, callbacks, **options)


def run_part(arrays: Iterable[Any], targets: Sequence[Any], masks: Mapping[str, Any], engine: Any) -> None:
    """Write chunks of Cubed arrays to stored arrays: those of the masks, by the paths of the arrays."""
    executor = PartExecutor(masks, engine)
    store_cubed(sources=list(arrays), targets=targets, executor=executor)


def allowed_memory(size: int | None) -> Any:
    """Return a context in which the plans of Cubed have a bound of memory, in bytes; None: that of Cubed."""
    return cubed.config.set({} if size is None else {"spec.allowed_mem": size})
