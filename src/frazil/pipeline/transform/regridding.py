"""Fields on other latitudes and longitudes: `regrid`, by the library xarray-regrid.

A value may need values from all around the globe. So a task reads whole planes of the source, for some
positions of the other dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, Unpack, get_args

import numpy as np
import xarray as xr

from frazil.arguments import misfit, require_choice
from frazil.cf import geographic_kind
from frazil.errors import InvalidInputError
from frazil.extras import needs
from frazil.geozarr import without_places
from frazil.jobs.blocks import Budget
from frazil.jobs.engine import LEAST_TASK, least_blocks, task_count
from frazil.jobs.job import BoundedRunOptions, JobResult, Source, Target, takes_versions, with_options
from frazil.pipeline.derivation.operation import ArrayOperation, BlockPlan, SourceView
from frazil.pipeline.derivation.relations import Read, Whole, Window
from frazil.pipeline.transform.arrays import (
    ArrayInfo,
    ChunkRunOptions,
    Json,
    Lengths,
    Shape,
    Values,
    arrays_below,
    bounds_path,
    chunk_lengths,
    clipped_chunks,
    coordinate_of,
    coordinate_paths,
    coordinate_values,
    is_coordinate,
    names_of,
    open_array,
    record_of,
    unpacked,
    unpacked_attributes,
    unpacked_dtype,
    with_companions,
)
from frazil.pipeline.transform.block_job import (
    MOST_TASK,
    ComputedArrays,
    DriverArray,
    OutputArrays,
    TransferredArray,
    block_for,
)
from frazil.repository.session.session import Session

type Method = Literal["nearest", "bilinear", "conservative"]

#: The names of the coordinates of a globe in xarray-regrid.
_NAMES: Final = ("latitude", "longitude")
_ALIASES: Final = {"lat": "latitude", "lon": "longitude"}


@with_options(ChunkRunOptions)
@takes_versions
def regrid(
    source: Source,
    paths: Sequence[str],
    target_grid: xr.Dataset | Mapping[str, Any],
    method: Method = "bilinear",
    *,
    to: Target,
    skipna: bool | None = None,
    nan_threshold: float = 1.0,
    **options: Unpack[ChunkRunOptions],
) -> JobResult:
    """Interpolate arrays to other latitudes and longitudes, in one commit.

    Latitudes and longitudes of the source are recognised by standard name, units or name (CF). The dimensions
    keep their names. Packed values are unpacked. Arrays that have neither dimension are copied unchanged;
    arrays that have only one of them are not in the result.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        paths: Paths of arrays, or of groups for all arrays below them. Their coordinates are included, those
            of the grid with the new values.
        target_grid: The new latitudes and longitudes, as centres of cells in degrees: a mapping
            ``{"lat": [...], "lon": [...]}`` or a dataset with such coordinates.
        method: ``"nearest"``, ``"bilinear"`` or ``"conservative"``.
        to: The `Target` of the results.
        skipna: Whether missing values are ignored in the mean of a cell. The default, None, is True for
            ``"conservative"`` and False for other methods.
        nan_threshold: With ``skipna``, the largest share of a cell that may be missing, from 0 to 1. With
            1.0, one valid value is enough; with 0.0, no value may be missing.

    Returns:
        The `JobResult`, whose ``version`` has the results.

    Raises:
        InvalidInputError: No array has a latitude and a longitude, or a grid neither rises nor falls
            (``invalid-array-metadata``); the method is unknown (``unknown-choice``); ``nan_threshold`` is not
            between 0 and 1, or ``max_mem`` is too small (``invalid-argument``).
        NodeNotFoundError: A path has no node.

    Examples:
        >>> import frazil, xarray as xr
        >>> from frazil.pipeline import Target, regrid
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> session = repo.writable_session("main")
        >>> coords = {"lat": [0, 10], "lon": [0, 10]}
        >>> field = xr.Dataset({"t": (("lat", "lon"), [[0.0, 1.0], [2.0, 3.0]])}, coords)
        >>> _ = field.to_zarr(session.store, group="data", zarr_format=3, consolidated=False)
        >>> snapshot_id = session.commit("a field")
        >>> finer = {"lat": [0, 5, 10], "lon": [0, 5]}
        >>> result = regrid(repo, ["data/t"], finer, to=Target(repo, group="fine"), engine="inline")
        >>> store = result.version.session().store
        >>> xr.open_zarr(store, group="fine/data", consolidated=False)["t"].values.tolist()
        [[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]]
    """
    skip = method == "conservative" if skipna is None else skipna
    require_choice("method", method, get_args(Method.__value__))
    if not 0 <= nan_threshold <= 1:
        raise InvalidInputError(f"nan_threshold must be between 0 and 1, got {nan_threshold}")
    grid = _TargetGrid.of(target_grid)
    chunks = options.get("chunks")
    operation = Regridding(names_of(paths), grid.values, grid.attributes, method, skip, nan_threshold, chunks)
    return operation.run(source, to, options)


@dataclass(frozen=True, slots=True)
class Regridding(ArrayOperation):
    """The operation of `regrid`. ``grid`` are the new latitudes and longitudes, by kind."""

    name = "regrid"
    grid: Mapping[str, Values]
    attributes: Mapping[str, Json]
    method: Method
    skipna: bool
    nan_threshold: float
    chunks: Lengths | None = None

    def plan(self, view: SourceView, to: Target, options: BoundedRunOptions) -> BlockPlan:
        """Return the interpolated fields, and the coordinates of the new grid."""
        session, grid = view.session, _TargetGrid(self.grid, self.attributes)
        method, skip, nan_threshold = self.method, self.skipna, self.nan_threshold
        arrays = with_companions(session, arrays_below(session, self.paths))
        coordinates = coordinate_paths(arrays)
        axes: dict[str, _Axes] = {}
        for array in arrays:
            of_dims = [coordinate_of(session, array, dim) for dim in array.dims]
            kinds = [each and geographic_kind(each.name, each.attributes) for each in of_dims]
            axes[array.path] = [(str(kind), axis) for axis, kind in enumerate(kinds) if kind in _NAMES]
        fields = {array.path for array in arrays if len(axes[array.path]) == 2}
        if not fields:
            raise misfit(
                "At least one array must have a latitude and a longitude (by standard_name, units or name), "
                f"got {[array.path for array in arrays]}"
            )
        computed: list[ComputedArrays] = []
        transferred: list[TransferredArray] = []
        new_coordinates: list[DriverArray] = []
        for array in arrays:
            array_axes, path = axes[array.path], to.path(array.path)
            if not array_axes:
                transferred.append(TransferredArray.whole(array, path))
            elif array.path in fields and array.dtype.kind in "iufb":
                old = {}
                for kind, axis in array_axes:
                    coordinate = coordinate_of(session, array, array.dims[axis])
                    assert coordinate is not None
                    old[kind] = coordinate_values(session, coordinate).astype("f8")
                    _require_monotonic(old[kind], coordinate.path)
                blocks = _RegriddedBlocks(
                    array, tuple(array_axes), old, grid.values, method, skip, nan_threshold
                )
                new = _result(array, path, blocks, self.chunks)
                blocks = replace(blocks, dtype=str(new.dtype))
                # A block has whole planes of the result, for some positions of the other dimensions.
                whole = [axis for _, axis in array_axes]
                old_cells, new_cells = (
                    math.prod(float(each.shape[axis]) for axis in whole) for each in (array, new)
                )
                factor = 2 + 3 * old_cells * 8 / max(new_cells * new.itemsize, 1)
                budget = Budget.of(options.get("max_mem"))
                size = math.prod(array.shape) * array.itemsize
                # The sums of a product of matrices have other last bits for blocks of another length.
                tasks = max(size // LEAST_TASK, 1)
                if method != "conservative":
                    engine = options.get("engine")
                    tasks = min(task_count(size, MOST_TASK, engine), least_blocks(size, engine))
                block = block_for([new], budget, [array], factor=factor, whole=whole, tasks=tasks)
                at = tuple(
                    (axis, Whole(moves=False) if axis in whole else Window()) for axis in range(array.ndim)
                )
                key = [np.asarray(each).tolist() for each in old.values()]
                reads = (Read(array.path, at),)
                computed.append(ComputedArrays(array, (new,), block, blocks, reads=reads, key=key))
            elif array.ndim == 1 and is_coordinate(array, coordinates) and array.name == array.dims[0]:
                new_coordinates.append(_coordinate(array, path, grid, array_axes[0][0]))
        outputs = OutputArrays(computed, transferred, new_coordinates)
        parameters = {
            "grid": {kind: record_of(values) for kind, values in grid.values.items()},
            "method": method,
            "skipna": skip,
            "nan_threshold": nan_threshold,
            "chunks": outputs.chunk_grids,
        }
        return BlockPlan(arrays, outputs, parameters)


#: The kind (latitude, longitude) and the number of an axis.
type _Axes = list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class _TargetGrid:
    """The new latitudes and longitudes, in degrees, and their attributes, by kind."""

    values: Mapping[str, Values]
    attributes: Mapping[str, Json]

    @staticmethod
    def of(grid: xr.Dataset | Mapping[str, Any]) -> _TargetGrid:
        """Return the grid of the argument ``target_grid``."""
        values: dict[str, Values] = {}
        attributes: dict[str, Json] = {}
        coordinates = grid.coords if isinstance(grid, xr.Dataset) else grid
        for name, coordinate in coordinates.items():
            attrs = dict(getattr(coordinate, "attrs", {}))
            kind = str(attrs.get("standard_name", _ALIASES.get(str(name).lower(), str(name).lower())))
            if kind in _NAMES:
                values[kind] = np.asarray(coordinate, "f8")
                attributes[kind] = attrs
                _require_monotonic(values[kind], str(name))
        if any(kind not in values for kind in _NAMES):
            raise misfit(
                "target_grid must have `lat` and `lon`, got "
                f"{', '.join(map(str, coordinates)) or 'no coordinates'}"
            )
        return _TargetGrid(values, attributes)


@dataclass(frozen=True, eq=False)
class _RegriddedBlocks:
    """Interpolate blocks: see `frazil.pipeline.transform.block_job.Compute`.

    ``old`` and ``new`` are the latitudes and longitudes, by kind; ``dtype`` is that of the result.
    """

    array: ArrayInfo
    axes: tuple[tuple[str, int], ...]
    old: Mapping[str, Values]
    new: Mapping[str, Values]
    method: Method
    skipna: bool
    nan_threshold: float
    dtype: str = ""

    def __call__(self, session: Session, start: Shape, stop: Shape) -> Sequence[Values]:
        region = list(map(slice, start, stop))
        for _, axis in self.axes:
            region[axis] = slice(None)
        values = np.asarray(open_array(session, self.array.path)[tuple(region)])
        out = self.interpolated(unpacked(self.array, values)).astype(self.dtype, copy=False)
        cut = [slice(None)] * out.ndim
        for _, axis in self.axes:
            cut[axis] = slice(start[axis], stop[axis])
        return [out[tuple(cut)]]

    def interpolated(self, values: Values) -> Values:
        """Return values on the new grid. The library recognises the coordinates of a globe by their names."""
        dims = [f"d{axis}" for axis in range(values.ndim)]
        for kind, axis in self.axes:
            dims[axis] = kind
        field = xr.DataArray(values, dims=dims, coords={kind: self.old[kind] for kind, _ in self.axes})
        target = xr.Dataset(coords={kind: self.new[kind] for kind, _ in self.axes})
        regridder, options = _regridder()(field), dict[str, Any](time_dim=None)
        if self.method == "nearest":
            out = regridder.nearest(target, **options)
        elif self.method == "conservative":
            options |= {"latitude_coord": "latitude", "skipna": self.skipna}
            out = regridder.conservative(target, nan_threshold=self.nan_threshold, **options)
        elif not self.skipna:
            out = regridder.linear(target, **options)
        else:
            valid = field.notnull()
            share = _regridder()(valid.astype("f8")).linear(target, **options)
            filled = _regridder()(field.where(valid, 0)).linear(target, **options)
            least = 1 - min(max(self.nan_threshold, 1e-6), 1 - 1e-6)
            out = (filled / share.where(share > 0)).where(share >= least)
        return np.asarray(out.transpose(*dims).values)


@lru_cache(maxsize=1)
def _regridder() -> Any:
    with needs("regrid"):
        from xarray_regrid import Regridder  # it takes a second, and most processes never regrid

    return Regridder


def _require_monotonic(values: Values, name: str) -> None:
    steps = np.diff(values) if values.ndim == 1 else np.zeros(1)
    if values.ndim != 1 or len(values) < 2 or not ((steps > 0).all() or (steps < 0).all()):
        raise misfit(f"`{name}` must be at least two values that rise or fall, got {values.tolist()[:5]}")


def _result(array: ArrayInfo, path: str, blocks: _RegriddedBlocks, chunks: Lengths | None) -> ArrayInfo:
    shape = list(array.shape)
    for kind, axis in blocks.axes:
        shape[axis] = len(blocks.new[kind])
    default = clipped_chunks(array.chunks, shape)
    planes = [array.shape[axis] if axis in dict(blocks.axes).values() else 1 for axis in range(array.ndim)]
    dtype = blocks.interpolated(np.zeros(planes, unpacked_dtype(array))).dtype
    out = array.with_dtype(
        path,
        dtype,
        shape=tuple(shape),
        dims=array.dims,
        chunks=default,
        attributes=without_places(unpacked_attributes(array)),
    )
    return out.with_layout(path, chunks=chunk_lengths(chunks, out, default, "chunks"))


def _coordinate(array: ArrayInfo, path: str, grid: _TargetGrid, kind: str) -> DriverArray:
    """Return a new coordinate variable, without the bounds of the old grid."""
    values, added = grid.values[kind], grid.attributes[kind]
    attributes = {**unpacked_attributes(array), **{key: str(value) for key, value in added.items()}}
    if bounds_path(array):
        attributes.pop("bounds")
    dtype = array.dtype if array.dtype.kind == "f" else np.dtype("f8")
    chunks = clipped_chunks(array.chunks, values.shape)
    new = array.with_dtype(
        path, dtype, shape=values.shape, dims=array.dims, chunks=chunks, attributes=attributes
    )
    return DriverArray(array, new, values.astype(dtype))
