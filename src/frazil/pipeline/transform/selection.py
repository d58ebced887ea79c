"""Parts of arrays as new arrays: by number, by label, by location on the globe.

The chunks of a part are transferred without decoding if the part has no gaps, and starts and ends at borders
of chunks (or at the end of the array). Otherwise tasks read the part and write the chunks of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from frazil.cf import geographic_kind
from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.job_result import JobResult
from frazil.jobs.memory import Budget
from frazil.jobs.run_options import with_options
from frazil.jobs.versions import Source, Target, Version, takes_versions
from frazil.pipeline.transform.array_arguments import (
    GridRunOptions,
    chunk_lengths,
    clipped_chunks,
    record_of,
    require_dimensions,
)
from frazil.pipeline.transform.array_info import (
    ArrayInfo,
    Shape,
    Values,
    arrays_below,
    open_array,
    with_companions,
)
from frazil.pipeline.transform.block_job import (
    BlockJob,
    ComputedArrays,
    DriverArray,
    OutputArrays,
    TransferredArray,
    block_for,
    run_block_job,
)
from frazil.pipeline.transform.cf_metadata import coordinate_values
from frazil.pipeline.transform.chunk_transfer import ChunkTransfer
from frazil.pipeline.transform.positions import (
    Positions,
    latitudes_between,
    longitudes_between,
    positions_by_label,
    positions_by_number,
)
from frazil.repository.session.session import Session


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
            such as ``slice("2001-01", "2001-03")``.
        method: How labels are found that do not exist, as in xarray: ``"nearest"``, ... The default, None,
            raises an error for them.
        **options: The options of `frazil.pipeline.transform.options.GridRunOptions`: ``chunks``, ``shards``,
            ``engine``, ``job_id``, ``message``, ``progress``, ``max_mem``. Without ``chunks`` and ``shards``,
            the arrays keep theirs.

    Returns:
        The `JobResult`, whose ``version`` has the part.

    Raises:
        InvalidInputError: A dimension or a label does not exist, or a dimension is both in ``isel`` and
            ``sel`` (``conflicting-arguments``).
        NodeNotFoundError: A path has no node.
        TypeError: An option is unknown.

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
    version = Version.of(source)
    session = version.session()
    arrays = with_companions(session, arrays_below(session, paths))
    isel, sel = dict(isel or {}), dict(sel or {})
    require_dimensions([*isel, *sel], arrays)
    both = sorted(set(isel) & set(sel))
    if both:
        raise InvalidInputError(
            f"A dimension must be in isel or in sel, got {both[0]!r} in both",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )

    def positions_of(array: ArrayInfo, dim: str) -> Positions:
        if dim in isel:
            return positions_by_number(isel[dim], array, dim)
        return positions_by_label(session, array, dim, sel[dim], method)

    parameters = {
        "isel": {dim: record_of(value) for dim, value in isel.items()},
        "sel": {dim: record_of(value) for dim, value in sel.items()},
        "method": method,
    }
    selection = _Selection([*isel, *sel], positions_of)
    return _run(_PartJob("select", version, session, arrays, selection, parameters), to, options)


@with_options(GridRunOptions)
@takes_versions
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
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        paths: Paths of arrays, or of groups for all arrays below them. Their coordinates are included.
        to: The `Target` of the part.
        latitude: The lowest and the highest latitude in degrees, both included. The default, None, takes all.
        longitude: The western and the eastern longitude in degrees, both included. The default, None, takes
            all.
        **options: The options of `frazil.pipeline.transform.options.GridRunOptions`, as in `select`.

    Returns:
        The `JobResult`, whose ``version`` has the part.

    Raises:
        InvalidInputError: The arrays have no coordinate variable of latitudes or longitudes
            (``invalid-array-metadata``).
        NodeNotFoundError: A path has no node.
        TypeError: An option is unknown.

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
    version = Version.of(source)
    session = version.session()
    arrays = with_companions(session, arrays_below(session, paths))
    limits = {"latitude": latitude, "longitude": longitude}
    crops = {
        array.path: _crop_coordinate(session, array, between, to)
        for array in arrays
        if array.ndim == 1
        and array.dims[0] == array.name
        and (between := limits.get(geographic_kind(array.name, array.attributes) or "")) is not None
    }
    kinds = {geographic_kind(each.array.name, each.array.attributes) for each in crops.values()}
    missing = [kind for kind, between in limits.items() if between and kind not in kinds]
    if missing:
        raise InvalidInputError(
            f"The arrays must have a coordinate variable of {missing[0]} (by standard_name, units or name), "
            "got none",
            ErrorKind.INVALID_ARRAY_METADATA,
        )

    def positions_of(array: ArrayInfo, dim: str) -> Positions | None:
        cropped = crops.get(f"{array.group.rstrip('/')}/{dim}")
        return cropped.positions if cropped else None

    selection = _Selection(sorted({each.array.name for each in crops.values()}), positions_of)
    relabelled = [each.relabelled for each in crops.values() if each.relabelled is not None]
    part = _PartJob("crop", version, session, arrays, selection, dict(limits), relabelled)
    return _run(part, to, options)


@dataclass(frozen=True, slots=True)
class _CroppedCoordinate:
    """A latitude or longitude, and the positions of the result.

    ``relabelled`` has the new values if the result counts longitudes in another way.
    """

    array: ArrayInfo
    positions: Positions
    relabelled: DriverArray | None = None


def _crop_coordinate(
    session: Session, array: ArrayInfo, limits: tuple[float, float], to: Target
) -> _CroppedCoordinate:
    values = coordinate_values(session, array).astype("f8")
    if geographic_kind(array.name, array.attributes) == "longitude":
        positions, labels = longitudes_between(values, limits)
    else:
        positions = latitudes_between(values, limits)
        labels = values[list(positions)] if isinstance(positions, tuple) else values
    if not isinstance(positions, tuple):
        return _CroppedCoordinate(array, positions)
    shape = (len(positions),)
    new = array.with_layout(to.path(array.path), shape=shape, chunks=clipped_chunks(array.chunks, shape))
    return _CroppedCoordinate(array, positions, DriverArray(array, new, labels.astype(array.dtype)))


@dataclass(frozen=True, slots=True)
class _Selection:
    """Which positions the result has along the dimensions ``dims``; None for an array is all of them."""

    dims: Sequence[str]
    positions_of: Callable[[ArrayInfo, str], Positions | None]

    def of_array(self, array: ArrayInfo) -> tuple[Positions, ...]:
        """Return the positions along each axis of an array."""
        out: list[Positions] = [range(n) for n in array.shape]
        for dim in self.dims:
            axis = array.axis(dim)
            positions = None if axis is None else self.positions_of(array, dim)
            if axis is not None and positions is not None:
                out[axis] = positions
        return tuple(out)


@dataclass(frozen=True, slots=True)
class _PartJob:
    """One call of `select` or `crop`. ``relabelled``: coordinates whose values the driver has."""

    name: str
    version: Version
    session: Session
    arrays: Sequence[ArrayInfo]
    selection: _Selection
    parameters: dict[str, Any]
    relabelled: Sequence[DriverArray] = ()


def _run(part: _PartJob, to: Target, options: GridRunOptions) -> JobResult:
    budget = Budget.of(options.get("max_mem"))
    computed: list[ComputedArrays] = []
    transferred: list[TransferredArray] = []
    relabelled = {each.old.path for each in part.relabelled}
    paths = {array.path for array in part.arrays}
    for array in part.arrays:
        if array.path in relabelled:
            continue
        positions = part.selection.of_array(array)
        new = _part_of(array, to.path(array.path), positions, options, paths)
        transfer = _aligned_transfer(array, new, positions)
        if transfer is not None:
            transferred.append(TransferredArray(array, new, transfer))
        else:
            block = block_for([new], budget, [array], factor=3)
            computed.append(ComputedArrays(array, (new,), block, _PartBlocks(array.path, positions)))
    outputs = OutputArrays(computed, transferred, part.relabelled)
    grids = [each.new.document["chunk_grid"] for each in transferred] + outputs.chunk_grids
    parameters = {**part.parameters, "chunks": grids}
    job = BlockJob(part.name, part.version, part.session, to, part.arrays, outputs, parameters)
    return run_block_job(job, options)


def _part_of(
    array: ArrayInfo, path: str, positions: Sequence[Positions], options: GridRunOptions, paths: set[str]
) -> ArrayInfo:
    """Return the metadata of the part.

    Its attributes name the coordinates in ``paths`` of dimensions that it does not have.
    """
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
    given, given_shards = options.get("chunks"), options.get("shards")
    if given is None and given_shards is None:
        return out
    chunks = chunk_lengths(given, out, inner, "chunks")
    default = outer if given is None else None
    shards = chunk_lengths(given_shards, out, default, "shards", inner=chunks)
    return out.with_layout(path, chunks=chunks, shards=shards)


def _aligned_transfer(old: ArrayInfo, new: ArrayInfo, positions: Sequence[Positions]) -> ChunkTransfer | None:
    """Return the transfer of whole chunks, if the part consists of whole chunks."""
    if old.document["codecs"] != new.document["codecs"]:
        return None
    if old.document["chunk_grid"] != new.document["chunk_grid"]:
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


@dataclass(frozen=True, slots=True)
class _PartBlocks:
    """Read blocks of a part: see `frazil.pipeline.transform.block_job.Compute`."""

    path: str
    positions: tuple[Positions, ...]

    def __call__(self, session: Session, start: Shape, stop: Shape) -> Sequence[Values]:
        spans = iter(zip(start, stop, strict=True))
        index: list[Any] = []
        for where in self.positions:
            if isinstance(where, int):
                index.append(slice(where, where + 1))
                continue
            block = where[slice(*next(spans))]
            if isinstance(block, range) and block.step == 1:
                index.append(slice(block.start, block.stop))
            else:
                index.append(np.array(block, np.int64))
        array = open_array(session, self.path)
        is_region = all(isinstance(each, slice) for each in index)
        values = np.asarray(array[tuple(index)] if is_region else array.oindex[tuple(index)])
        return [values.reshape([b - a for a, b in zip(start, stop, strict=True)])]
