"""Parts of arrays as new arrays: by number, by label, by location on the globe.

Parts of whole chunks are transferred without decoding.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from frazil.argument_docs import with_argument_docs
from frazil.arguments import conflicting, misfit
from frazil.cf import geographic_kind
from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import Budget
from frazil.jobs.engine import Engine, EngineName, task_count
from frazil.jobs.job import BoundedRunOptions, JobResult, Source, Target, takes_versions, with_options
from frazil.pipeline.derivation.operation import ArrayOperation, BlockPlan, SourceView
from frazil.pipeline.derivation.relations import ElementTable, Read, Relation, Window
from frazil.pipeline.transform.arrays import (
    ArrayInfo,
    GridRunOptions,
    Json,
    Lengths,
    Shape,
    Values,
    array_info,
    arrays_below,
    chunk_lengths,
    clipped_chunks,
    coordinate_values,
    names_of,
    open_array,
    record_of,
    require_dimensions,
    with_companions,
)
from frazil.pipeline.transform.block_job import (
    ChunkTransfer,
    ComputedArrays,
    DriverArray,
    OutputArrays,
    TransferredArray,
    block_for,
)
from frazil.pipeline.transform.labels import (
    Positions,
    longitudes_between,
    positions_by_label,
    positions_by_number,
    simplified,
)
from frazil.repository.paths import absolute
from frazil.repository.session.session import Session


def cell(session: Session, path: str, labels: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the index of the cell of an array that labels name.

    Args:
        session: A session that reads the version.
        path: The path of the array.
        labels: A label for each dimension name, such as ``{"time": "2026-11-01", "lat": 10}``, as in ``sel``
            of xarray.

    Returns:
        The index along each dimension, for example for `Repository.history.history_of`.

    Raises:
        InvalidInputError: ``invalid-chunk-index`` if the labels do not name one cell.
            ``invalid-array-metadata`` if a dimension has no coordinate.
        NodeNotFoundError: ``node-not-found`` if there is no such array.

    Examples:
        >>> import frazil, zarr
        >>> from frazil.pipeline import cell
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="an array and its coordinate") as store:
        ...     array = zarr.create_array(store, name="t", shape=(3,), dtype="i4", dimension_names=["x"])
        ...     x = zarr.create_array(store, name="x", shape=(3,), dtype="i4", dimension_names=["x"])
        ...     x[:] = [10, 20, 30]
        >>> cell(repo.readonly_session("main"), "t", {"x": 20})
        (1,)
    """
    array = array_info(session, absolute(path))
    dims = [dim for dim in array.dims if dim is not None]
    if set(labels) != set(array.dims):
        raise InvalidInputError(
            f"labels must have a label for each dimension of `{array.path}`, {tuple(array.dims)}, got "
            f"{tuple(labels)}",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    index = []
    for dim in dims:
        at = positions_by_label(session, array, dim, labels[dim], None)
        if not isinstance(at, int) and len(at) != 1:
            raise InvalidInputError(
                f"labels must name one cell, got {labels[dim]!r} for {dim!r}, which selects another number "
                "of cells",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        index.append(at if isinstance(at, int) else at[0])
    return tuple(index)


@with_options(GridRunOptions)
@takes_versions
def select(
    source: Source,
    paths: Sequence[str],
    *,
    to: Target,
    isel: Mapping[str, Any] | None = None,
    sel: Mapping[str, Any] | None = None,
    method: str | None = None,
    tolerance: float | str | np.timedelta64 | None = None,
    **options: Unpack[GridRunOptions],
) -> JobResult:
    """Copy a part of arrays to a target, in one commit.

    Without ``isel`` and ``sel``, the arrays are copied whole. A selection along a dimension does not affect
    arrays that do not have the dimension.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        paths: Paths of arrays, or of groups for all arrays below them. Their coordinates are included.
        to: The `Target` of the part.
        isel: Positions by dimension, as in xarray: a number (the result does not have the dimension), a list,
            or a slice.
        sel: Labels of the coordinate variables by dimension, as in xarray: a value (the result does not have
            the dimension), a list, or a slice, which includes its end. Times are given as xarray takes them,
            such as ``slice("2001-01", "2001-03")``. Longitudes may be counted in any way: -60 is the label
            300.
        method: How labels are found that do not exist, as in xarray: ``"nearest"``, ... The default, None,
            raises an error for them.
        tolerance: The largest distance to the nearest label: in the units of the labels, and for times a
            duration such as ``"6 h"``. The default, None, is half of the distance between the label and its
            neighbour.

    Returns:
        The `JobResult`, whose ``version`` has the part.

    Raises:
        InvalidInputError: A dimension or a label does not exist, or a dimension is both in ``isel`` and
            ``sel`` (``conflicting-arguments``).
        NodeNotFoundError: A path has no node.

    Examples:
        >>> import frazil, zarr
        >>> from frazil.pipeline import Target, select
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="a row") as store:
        ...     options = {"shape": (9,), "chunks": (3,), "dtype": "i4", "dimension_names": ["x"]}
        ...     zarr.create_array(store, name="data/t", **options)[:] = range(9)
        >>> to = Target(repo, group="part")
        >>> part = select(repo, ["data/t"], isel={"x": slice(3, 6)}, to=to, engine="inline")
        >>> zarr.open_array(part.version.session().store, path="part/data/t", mode="r")[:].tolist()
        [3, 4, 5]
    """
    isel, sel = dict(isel or {}), dict(sel or {})
    both = sorted(set(isel) & set(sel))
    if both:
        raise conflicting(f"A dimension must be in isel or in sel, got {both[0]!r} in both")
    lengths = options.get("chunks"), options.get("shards")
    return SelectionOperation(names_of(paths), isel, sel, method, tolerance, *lengths).run(
        source, to, options
    )


@dataclass(frozen=True, slots=True)
class SelectionOperation(ArrayOperation):
    """The operation of `select`."""

    name = "select"
    isel: Mapping[str, Any]
    sel: Mapping[str, Any]
    method: str | None = None
    tolerance: Any = None
    chunks: Lengths | None = None
    shards: Lengths | None = None

    def plan(self, view: SourceView, to: Target, options: BoundedRunOptions) -> BlockPlan:
        """Return the parts."""
        session = view.session
        arrays = with_companions(session, arrays_below(session, self.paths))
        require_dimensions([*self.isel, *self.sel], arrays)

        def positions_of(array: ArrayInfo, dim: str) -> Positions | None:
            if dim in self.isel:
                return positions_by_number(self.isel[dim], array, dim)
            if dim not in self.sel:
                return None
            return positions_by_label(session, array, dim, self.sel[dim], self.method, self.tolerance)

        parameters = {
            "isel": {dim: record_of(value) for dim, value in self.isel.items()},
            "sel": {dim: record_of(value) for dim, value in self.sel.items()},
            "method": self.method,
            **({} if self.tolerance is None else {"tolerance": record_of(self.tolerance)}),
        }
        budget = Budget.of(options.get("max_mem"))
        parts = _Parts(arrays, to, budget, options.get("engine"), self.chunks, self.shards)
        return parts.plan(positions_of, [], parameters)


@with_options(GridRunOptions)
@takes_versions
@with_argument_docs(select)
def crop(
    source: Source,
    paths: Sequence[str],
    *,
    to: Target,
    latitude: tuple[float, float] | None = None,
    longitude: tuple[float, float] | None = None,
    **options: Unpack[GridRunOptions],
) -> JobResult:
    """Copy the part of arrays between two latitudes and two longitudes, in one commit.

    Coordinate variables are recognised by their standard name, units or name (CF). Their values may rise or
    fall. Longitudes may be counted from -180 or from 0: ``(-10, 20)`` takes 350 to 20 degrees of a global
    grid, in this order, and the result counts them from -10 to 20. Otherwise the function works as `select`.

    Args:
        latitude: The lowest and the highest latitude in degrees, both included. The default, None, takes all.
        longitude: The western and the eastern longitude in degrees, both included. The default, None, takes
            all.

    Returns:
        The `JobResult`, whose ``version`` has the part.

    Raises:
        InvalidInputError: The arrays have no coordinate variable of latitudes or longitudes
            (``invalid-array-metadata``).
        NodeNotFoundError: A path has no node.

    Examples:
        >>> import frazil, zarr, numpy as np
        >>> from frazil.pipeline import Target, crop
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="a meridian") as store:
        ...     for name in ("lat", "t"):
        ...         array = zarr.create_array(
        ...             store, name=f"data/{name}", data=np.arange(-90.0, 91, 30), dimension_names=["lat"]
        ...         )
        >>> tropics = Target(repo, group="tropics")
        >>> result = crop(repo, ["data/t"], latitude=(-30, 30), to=tropics, engine="inline")
        >>> zarr.open_array(result.version.session().store, path="tropics/data/t", mode="r")[:].tolist()
        [-30.0, 0.0, 30.0]
    """
    lengths = options.get("chunks"), options.get("shards")
    return Crop(names_of(paths), latitude, longitude, *lengths).run(source, to, options)


@dataclass(frozen=True, slots=True)
class Crop(ArrayOperation):
    """The operation of `crop`."""

    name = "crop"
    latitude: tuple[float, float] | None = None
    longitude: tuple[float, float] | None = None
    chunks: Lengths | None = None
    shards: Lengths | None = None

    def plan(self, view: SourceView, to: Target, options: BoundedRunOptions) -> BlockPlan:
        """Return the parts, and the coordinates that are counted in another way."""
        session = view.session
        arrays = with_companions(session, arrays_below(session, self.paths))
        limits = {"latitude": self.latitude, "longitude": self.longitude}
        positions: dict[str, Positions] = {}
        relabelled: list[DriverArray] = []
        kinds = set()
        for array in arrays:
            kind = geographic_kind(array.name, array.attributes) if array.dims == (array.name,) else None
            between = limits.get(kind or "")
            if between is None:
                continue
            kinds.add(kind)
            values = coordinate_values(session, array).astype("f8")
            if kind == "longitude":
                selected, labels = longitudes_between(values, between)
            else:
                low, high = min(between), max(between)
                selected = simplified(np.flatnonzero((values >= low) & (values <= high)))
                labels = values[list(selected)] if isinstance(selected, tuple) else values
            positions[array.path] = selected
            if isinstance(selected, tuple):  # the result may count longitudes in another way
                shape = (len(selected),)
                grid = clipped_chunks(array.chunks, shape)
                new = array.with_layout(to.path(array.path), shape=shape, chunks=grid)
                relabelled.append(DriverArray(array, new, labels.astype(array.dtype)))
        missing = [kind for kind, between in limits.items() if between and kind not in kinds]
        if missing:
            raise misfit(
                f"The arrays must have a coordinate variable of {missing[0]} (by standard_name, units or "
                "name), got none"
            )

        def positions_of(array: ArrayInfo, dim: str) -> Positions | None:
            return positions.get(f"{array.group.rstrip('/')}/{dim}")

        budget = Budget.of(options.get("max_mem"))
        parts = _Parts(arrays, to, budget, options.get("engine"), self.chunks, self.shards)
        return parts.plan(positions_of, relabelled, dict(limits))


@dataclass(frozen=True, slots=True)
class _Parts:
    """Makes the parts of ``arrays`` at a target."""

    arrays: Sequence[ArrayInfo]
    to: Target
    budget: Budget
    engine: Engine | EngineName | None
    chunks: Lengths | None
    shards: Lengths | None

    def plan(
        self,
        positions_of: Callable[[ArrayInfo, str], Positions | None],
        relabelled: Sequence[DriverArray],
        parameters: Json,
    ) -> BlockPlan:
        """Return the plan of one call of `select` or `crop`.

        ``positions_of(array, dim)`` are the positions that the result has; None is all of them.
        ``relabelled`` are coordinates whose values the driver has.
        """
        computed: list[ComputedArrays] = []
        transferred: list[TransferredArray] = []
        ready = {each.old.path for each in relabelled}
        for array in self.arrays:
            if array.path in ready:
                continue
            choices = [None if dim is None else positions_of(array, dim) for dim in array.dims]
            positions = tuple(
                range(n) if where is None else where for where, n in zip(choices, array.shape, strict=True)
            )
            new = self._part_of(array, self.to.path(array.path), positions)
            transfer = _aligned_transfer(array, new, positions)
            if transfer is not None:
                transferred.append(TransferredArray(array, new, transfer))
            else:
                size = 3 * new.itemsize * math.prod(new.shape)
                tasks = task_count(size, self.budget.size, self.engine)
                block = block_for([new], self.budget, [array], factor=3, tasks=tasks)
                read = functools.partial(_part_block, array.path, positions)
                reads = (_read_of(array.path, positions),)
                computed.append(ComputedArrays(array, (new,), block, read, reads=reads))
        outputs = OutputArrays(computed, transferred, relabelled)
        grids = [each.new.document["chunk_grid"] for each in transferred] + outputs.chunk_grids
        return BlockPlan(self.arrays, outputs, {**parameters, "chunks": grids})

    def _part_of(self, array: ArrayInfo, path: str, positions: Sequence[Positions]) -> ArrayInfo:
        """Return the metadata of the part."""
        paths = {each.path for each in self.arrays}
        axes = [axis for axis, where in enumerate(positions) if not isinstance(where, int)]
        shape = tuple(len(where) for where in positions if not isinstance(where, int))
        dims = [array.dims[axis] for axis in axes]
        inner = tuple(array.chunks[axis] for axis in axes)
        outer = None if array.shards is None else tuple(array.shards[axis] for axis in axes)
        names = dims if any(dims) else None
        out = array.with_layout(path, shape=shape, chunks=inner, shards=outer, dimension_names=names)
        if len(axes) < array.ndim:
            attributes = array.attributes
            scalar = [str(array.dims[axis]) for axis in range(array.ndim) if axis not in axes]
            scalar = [dim for dim in scalar if f"{array.group.rstrip('/')}/{dim}" in paths - {array.path}]
            if scalar:
                coordinates = str(attributes.get("coordinates", "")).split()
                attributes["coordinates"] = " ".join([*coordinates, *scalar])
                out.document["attributes"] = attributes
            out.document["codecs"] = [each for each in out.document["codecs"] if each["name"] != "transpose"]
        if self.chunks is None and self.shards is None:
            return out
        chunks = chunk_lengths(self.chunks, out, inner, "chunks")
        default = outer if self.chunks is None else None
        shards = chunk_lengths(self.shards, out, default, "shards", inner=chunks)
        return out.with_layout(path, chunks=chunks, shards=shards)


def _read_of(path: str, positions: Sequence[Positions]) -> Read:
    """Return what a block of a part reads."""
    axes: list[tuple[int | None, Relation]] = []
    number = 0
    for where in positions:
        is_region = isinstance(where, range) and where.step == 1
        relation = (
            Window(shift=where.start)
            if isinstance(where, range) and is_region
            else ElementTable.of_positions([where] if isinstance(where, int) else where)
        )
        axes.append((None if isinstance(where, int) else number, relation))
        number += not isinstance(where, int)
    return Read(path, tuple(axes))


def _aligned_transfer(old: ArrayInfo, new: ArrayInfo, positions: Sequence[Positions]) -> ChunkTransfer | None:
    """Return the transfer of whole chunks, if the part consists of whole chunks."""
    if any(old.document[name] != new.document[name] for name in ("codecs", "chunk_grid")):
        return None
    low, high = [], []
    for where, length, step in zip(positions, old.shape, old.grid, strict=True):
        if not isinstance(where, range) or where.step != 1 or where.start % step:
            return None
        if where.stop % step and where.stop != length:
            return None
        low.append(where.start // step)
        high.append(-(-where.stop // step))
    return ChunkTransfer(old.path, new.path, tuple(low), tuple(high))


def _part_block(
    path: str, positions: Sequence[Positions], session: Session, start: Shape, stop: Shape
) -> Sequence[Values]:
    """Return a block of a part: see `frazil.pipeline.transform.block_job.Compute`."""
    spans = iter(zip(start, stop, strict=True))
    index: list[Any] = []
    for where in positions:
        if isinstance(where, int):
            index.append(slice(where, where + 1))
            continue
        block = where[slice(*next(spans))]
        if isinstance(block, range) and block.step == 1:
            index.append(slice(block.start, block.stop))
        else:
            index.append(np.array(block, np.int64))
    array = open_array(session, path)
    is_region = all(isinstance(each, slice) for each in index)
    values = np.asarray(array[tuple(index)] if is_region else array.oindex[tuple(index)])
    return [values.reshape([b - a for a, b in zip(start, stop, strict=True)])]
