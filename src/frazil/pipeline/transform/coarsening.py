"""Arrays on coarser grids: statistics over windows of neighbours, and pyramids of several levels.

Results are those of ``xarray.DataArray.coarsen``. The windows of real numbers are groups of cells for the
kernels of reductions; xarray computes medians, and statistics of times and complex numbers. For a statistic
that a data type does not have the result is the first element of each window. A round of a job computes each
level of a pyramid from the level below it.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Unpack, get_args

import numpy as np
import xarray as xr

from frazil import cf
from frazil.answers.kernels import STATISTICS, cells
from frazil.argument_docs import with_argument_docs
from frazil.arguments import require_choice
from frazil.errors import ErrorKind, InvalidInputError
from frazil.geozarr import MULTISCALES, attributes_of_windows
from frazil.jobs.blocks import Budget, halved, slabs
from frazil.jobs.engine import Engine, EngineName, least_blocks, task_count
from frazil.jobs.job import BoundedRunOptions, JobResult, Source, Target, takes_versions, with_options
from frazil.pipeline.derivation.operation import ArrayOperation, BlockPlan, SourceView
from frazil.pipeline.derivation.relations import Read, Window
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
    coordinate_paths,
    coordinate_values,
    is_coordinate,
    names_of,
    open_array,
    require_dimensions,
    unpacked,
    unpacked_attributes,
    unpacked_dtype,
    with_companions,
)
from frazil.pipeline.transform.block_job import (
    ComputedArrays,
    DriverArray,
    OutputArrays,
    TransferredArray,
    block_for,
)
from frazil.repository.session.session import Session

type Edge = Literal["trim", "pad", "exact"]

_NUMBERS: Final = "iufb"
#: The kinds of other data types than real numbers that have a statistic.
_KINDS: Final = {"median": "cm", **{name: row.kinds for name, row in STATISTICS.items()}}
#: Statistics that are elements of the windows, of any data type.
_ELEMENTS: Final = ("first", "last")


@dataclass(frozen=True, slots=True)
class CoarseWindows:
    """The windows of one array: ``lengths`` along each axis, the statistic, and the rule for the edge."""

    lengths: Shape
    how: str
    boundary: Edge

    def is_ragged(self, shape: Sequence[int]) -> bool:
        """Return whether the last window of an array of this shape is shorter than the others."""
        return any(n % length for n, length in zip(shape, self.lengths, strict=True))

    def coarse_shape(self, shape: Shape) -> Shape:
        """Return the number of windows along each axis."""
        rounding = 1 if self.boundary == "pad" else 0  # a part of a window counts
        return tuple((n + rounding * (w - 1)) // w for n, w in zip(shape, self.lengths, strict=True))


def window_lengths(array: ArrayInfo, factors: Mapping[str, int]) -> Shape:
    """Return the length of a window along each axis; 1 for dimensions without a factor."""
    lengths = [1] * array.ndim
    for name, factor in factors.items():
        axis = array.axis(name)
        if axis is not None:
            lengths[axis] = int(factor)
    return tuple(lengths)


def require_windows(factors: Mapping[str, int], how: str, boundary: str, arrays: Sequence[ArrayInfo]) -> None:
    """Raise ``InvalidInputError`` for factors, a statistic or a boundary that the arrays do not allow."""
    require_dimensions(list(factors), arrays)
    for name, factor in factors.items():
        if not isinstance(factor, int | np.integer) or factor < 1:
            raise InvalidInputError(f"factors[{name!r}] must be at least 1, got {factor!r}")
    if not factors:
        raise InvalidInputError("factors must name at least one dimension, got none")
    require_choice("how", how, _KINDS)
    require_choice("boundary", boundary, get_args(Edge.__value__))
    for array in arrays:
        lengths = window_lengths(array, factors)
        if boundary == "exact" and any(n % w for n, w in zip(array.shape, lengths, strict=True)):
            raise InvalidInputError(
                f"The lengths of `{array.path}` must be multiples of {lengths}, got {array.shape}. "
                "Pass boundary='trim' to ignore the rest, or boundary='pad' for a smaller last window"
            )


def statistic_of(array: ArrayInfo, how: str, coordinates: set[str]) -> str:
    """Return the statistic for an array."""
    statistic = "mean" if array.path in coordinates else how
    has_statistic = statistic in _ELEMENTS or array.dtype.kind in _NUMBERS + _KINDS[statistic]
    return statistic if has_statistic else "first"


def coarse_array(
    array: ArrayInfo, path: str, windows: CoarseWindows, chunks: Lengths | None = None
) -> ArrayInfo:
    """Return the metadata of the statistics of an array. ``chunks`` None are those of the array."""
    shape = windows.coarse_shape(array.shape)
    grid = clipped_chunks(array.chunks, shape)
    if windows.how in _ELEMENTS:
        out = array.with_layout(path, shape=shape, chunks=grid)
    else:
        padded = windows.boundary == "pad" and windows.is_ragged(array.shape)
        probe_shape = [w + 1 if padded and w > 1 else w for w in windows.lengths]
        dtype = window_statistics(np.zeros(probe_shape, unpacked_dtype(array)), windows).dtype
        attributes = unpacked_attributes(array)
        dims = [str(d) for d, w in zip(array.dims, windows.lengths, strict=True) if w > 1 and d]
        if windows.how in STATISTICS and not STATISTICS[windows.how].has_units:
            attributes.pop("units", None)
        elif dims:
            cell_method = f"{': '.join(dims)}: {cf.cell_method(windows.how)}"
            attributes["cell_methods"] = " ".join(filter(None, [attributes.get("cell_methods"), cell_method]))
        out = array.with_dtype(path, dtype, shape=shape, dims=array.dims, chunks=grid, attributes=attributes)
    attributes = attributes_of_windows(out.attributes, array.dims, windows.lengths)
    return out.with_layout(path, chunks=chunk_lengths(chunks, out, grid, "chunks"), attributes=attributes)


def _window_block(
    array: ArrayInfo, windows: CoarseWindows, dtype: str, session: Session, start: Shape, stop: Shape
) -> Sequence[Values]:
    """Return statistics of windows: see `frazil.pipeline.transform.block_job.Compute`."""
    lengths = windows.lengths
    old = open_array(session, array.path)
    axes = zip(start, stop, lengths, old.shape, strict=True)
    region = tuple(slice(a * w, min(b * w, n)) for a, b, w, n in axes)
    values = np.asarray(old[region])
    if windows.how in _ELEMENTS:
        return [window_statistics(values, windows)]
    out = np.empty(tuple(np.subtract(stop, start).tolist()), dtype)
    size = old.dtype.itemsize * math.prod(lengths)
    for part in slabs(out.shape, size):
        source = tuple(slice(s.start * w, s.stop * w) for s, w in zip(part, lengths, strict=True))
        out[part] = window_statistics(unpacked(array, values[source]), windows)
    return [out]


def window_statistics(values: Values, windows: CoarseWindows) -> Values:
    """Return one value for each window, in the type that xarray has for it."""
    how, lengths, shape, ndim = windows.how, windows.lengths, windows.coarse_shape(values.shape), values.ndim
    whole = _padded(values, windows)[tuple(slice(0, n * w) for n, w in zip(shape, lengths, strict=True))]
    if how in _ELEMENTS:
        return whole[tuple(slice(0 if how == "first" else w - 1, None, w) for w in lengths)]
    parts = whole.reshape([size for pair in zip(shape, lengths, strict=True) for size in pair])
    turned = parts.transpose(*range(1, 2 * ndim, 2), *range(0, 2 * ndim, 2))
    window = turned.reshape(math.prod(lengths), *shape)
    if window.dtype.kind in _NUMBERS and how in STATISTICS:
        statistic = STATISTICS[how]
        kernel = statistic.kernel(window.dtype, False, 0, None)
        out = kernel.finish_fields(kernel.partial_of(cells(window)).fields)[0]
        with np.errstate(over="ignore"):  # the result is infinite, as in xarray
            return np.asarray(out.astype(statistic.dtype(window.dtype, False).newbyteorder("="), copy=False))
    with warnings.catch_warnings():
        # numpy warns of windows without a value, which are NaN
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(getattr(xr.DataArray(window), how)("dim_0").values)


def _padded(values: Values, windows: CoarseWindows) -> Values:
    """Return values with more elements at the end of ragged axes: missing values, in the type of xarray."""
    if windows.boundary != "pad" or not windows.is_ragged(values.shape):
        return values
    counts = zip(windows.coarse_shape(values.shape), values.shape, windows.lengths, strict=True)
    widths, kind = [(0, count * length - n) for count, n, length in counts], values.dtype.kind
    if windows.how in ("any", "all", *_ELEMENTS):  # the last element again changes none of them
        return np.pad(values, widths, mode="edge")
    if kind in "iub":
        is_small = kind != "b" and values.dtype.itemsize <= 2
        values = values.astype(np.float32 if is_small else np.float64)
    nothing = np.array("NaT", values.dtype) if kind in "mM" else np.nan
    return np.pad(values, widths, constant_values=nothing)


def coarse_coordinate(
    array: ArrayInfo, values: Values, path: str, windows: CoarseWindows, *, are_bounds: bool
) -> DriverArray:
    """Return a coordinate of one dimension, or its bounds, on the coarser grid.

    ``values`` are the unpacked values of the coordinate. Coordinates get the mean of each window; those
    without a mean get the first element. Bounds get the lower bound of the first element and the upper bound
    of the last.
    """
    shape = windows.coarse_shape(array.shape)
    first, last = (window_statistics(values, replace(windows, how=how)) for how in _ELEMENTS)
    if are_bounds and array.ndim == 2 and array.shape[1] == 2 and windows.lengths[1] == 1:
        out = np.stack([first[:, 0], last[:, 1]], axis=1)
    elif values.dtype.kind in "iufcmM" and min(shape):
        out = window_statistics(values, replace(windows, how="mean"))
    else:
        out = first
    grid = clipped_chunks(array.chunks, shape)
    if out.dtype == array.dtype:
        new = array.with_layout(path, shape=shape, chunks=grid)
    else:
        attributes = unpacked_attributes(array)
        new = array.with_dtype(
            path, out.dtype, shape=shape, dims=array.dims, chunks=grid, attributes=attributes
        )
    return DriverArray(array, new, out)


@dataclass(slots=True, eq=False)
class CoarseArrays:
    """Collects the results of one call on coarser grids, one array of the source after the other."""

    session: Session
    arrays: Sequence[ArrayInfo]
    factors: Mapping[str, int]
    how: str
    boundary: Edge
    budget: Budget
    engine: Engine | EngineName | None
    coordinates: set[str] = field(init=False)
    bounds: set[str | None] = field(init=False)
    outputs: OutputArrays = field(init=False)
    computed: list[ComputedArrays] = field(default_factory=list)
    transferred: list[TransferredArray] = field(default_factory=list)
    coarse_coordinates: list[DriverArray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.coordinates, self.bounds = coordinate_paths(self.arrays), set(map(bounds_path, self.arrays))
        self.outputs = OutputArrays(self.computed, self.transferred, self.coarse_coordinates)

    def transfer_array(self, array: ArrayInfo, paths: Sequence[str]) -> None:
        """Add an array that is its own result at ``paths``."""
        self.transferred += [TransferredArray.whole(array, path) for path in paths]

    def add_array(self, array: ArrayInfo, paths: Sequence[str], chunks: Lengths | None) -> None:
        """Add the results of an array at ``paths``, each computed from the one before."""
        statistic = statistic_of(array, self.how, self.coordinates)
        windows = CoarseWindows(window_lengths(array, self.factors), statistic, self.boundary)
        below = array
        # Tasks compute a coordinate that shrinks along more than one axis.
        is_small = array.ndim <= 2 and sum(length > 1 for length in windows.lengths) <= 1
        if is_small and is_coordinate(array, self.coordinates):
            values = coordinate_values(self.session, array)
            for path in paths:
                coarse = coarse_coordinate(below, values, path, windows, are_bounds=array.path in self.bounds)
                self.coarse_coordinates.append(coarse)
                below, values = coarse.new, coarse.values
            return
        for number, path in enumerate(paths):
            new = coarse_array(below, path, windows, chunks)
            elements = float(np.prod(windows.lengths, dtype=float))
            factor = 1 + elements * below.itemsize / new.itemsize  # the block, and its source
            size = math.ceil(factor * new.itemsize * math.prod(new.shape))
            tasks = task_count(size, self.budget.size, self.engine)
            block = block_for([new], self.budget, [below], factor=factor, tasks=tasks)
            block = halved(block, new.grid, new.shape, least_blocks(size, self.engine))
            blocks = functools.partial(_window_block, below, windows, str(new.dtype))
            axes = tuple((axis, Window(length)) for axis, length in enumerate(windows.lengths))
            reads = (Read(below.path, axes),)
            self.computed.append(ComputedArrays(below, (new,), block, blocks, number, reads=reads))
            below = new


@with_options(ChunkRunOptions)
@takes_versions
def coarsen(
    source: Source,
    paths: Sequence[str],
    factors: Mapping[str, int],
    how: str = "mean",
    *,
    to: Target,
    boundary: Edge = "exact",
    **options: Unpack[ChunkRunOptions],
) -> JobResult:
    """Make arrays coarser by whole factors, in one commit.

    Each value of a result is a statistic over a window of neighbours. The coordinates of the arrays become
    coarser too. Packed values are unpacked (`frazil.pipeline.transform.arrays`). Arrays without any of
    the dimensions are copied unchanged.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        paths: Paths of arrays, or of groups for all arrays below them. Their coordinates are included.
        factors: The length of the windows by dimension, such as ``{"lat": 4, "lon": 4}``.
        how: The statistic: ``"mean"``, ``"sum"``, ``"min"``, ``"max"``, ``"median"``, ``"std"``, ``"var"``,
            ``"count"`` (of values that are not missing), ``"any"``, ``"all"`` (whether values are not zero),
            ``"first"`` or ``"last"`` (an element of each window, for classes and strings).
        to: The `Target` of the results.
        boundary: What happens to elements at the end of a dimension that do not fill a window: ``"exact"``
            refuses them, ``"trim"`` ignores them, ``"pad"`` makes a smaller last window of them; statistics
            of integers then have floating-point numbers, as in xarray.

    Returns:
        The `JobResult`, whose ``version`` has the results.

    Raises:
        InvalidInputError: No array has a dimension of ``factors``, a factor is below 1, or with
            ``boundary="exact"`` a length is not a multiple of its factor.
        NodeNotFoundError: A path has no node.

    Examples:
        >>> import frazil, zarr, numpy as np
        >>> from frazil.pipeline import Target, coarsen
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="a row") as store:
        ...     array = zarr.create_array(
        ...         store, name="data/t", data=np.array([1.0, 3, 5, 9]), chunks=(2,), dimension_names=["x"]
        ...     )
        >>> result = coarsen(repo, ["data/t"], {"x": 2}, to=Target(repo, group="half"), engine="inline")
        >>> zarr.open_array(result.version.session().store, path="half/data/t", mode="r")[:].tolist()
        [2.0, 7.0]
    """
    return Coarsening(names_of(paths), factors, how, boundary, options.get("chunks")).run(source, to, options)


@dataclass(frozen=True, slots=True)
class Coarsening(ArrayOperation):
    """The operation of `coarsen`."""

    name = "coarsen"
    factors: Mapping[str, int]
    how: str
    boundary: Edge
    chunks: Lengths | None = None

    def plan(self, view: SourceView, to: Target, options: BoundedRunOptions) -> BlockPlan:
        """Return the statistics of the windows."""
        session, factors, how = view.session, self.factors, self.how
        arrays = with_companions(session, arrays_below(session, self.paths))
        require_windows(factors, how, self.boundary, arrays)
        budget = Budget.of(options.get("max_mem"))
        coarse = CoarseArrays(session, arrays, factors, how, self.boundary, budget, options.get("engine"))
        for array in arrays:
            path = [to.path(array.path)]
            is_own_result = all(array.axis(name) is None for name in factors)
            if not is_own_result and all(length == 1 for length in window_lengths(array, factors)):
                # Windows of one element: the stored values, for these arrays.
                statistic = statistic_of(array, how, coarse.coordinates)
                is_own_result = statistic in _ELEMENTS or is_coordinate(array, coarse.coordinates)
            if is_own_result:
                coarse.transfer_array(array, path)
            else:
                coarse.add_array(array, path, self.chunks)
        parameters = {
            "factors": {str(dim): int(factor) for dim, factor in factors.items()},
            "how": how,
            "boundary": self.boundary,
            "chunks": coarse.outputs.chunk_grids,
        }
        return BlockPlan(arrays, coarse.outputs, parameters)


#: The name of a statistic in the multiscales convention.
_RESAMPLING: Final = {"mean": "average", "first": "nearest", "median": "med"}
_OME_TYPES: Final = {"x": "space", "y": "space", "z": "space", "t": "time", "c": "channel"}
_OME_UNITS: Final = {
    "um": "micrometer",
    "µm": "micrometer",
    "nm": "nanometer",
    "mm": "millimeter",
    "s": "second",
}


def _convention_attributes(
    convention: str, arrays: Sequence[ArrayInfo], factors: Mapping[str, int], levels: int, how: str
) -> Json:
    """Return the attributes of the group of a pyramid. Scales are along the axes of the first array."""
    array, layout, datasets = arrays[0], list[Json](), list[Json]()
    for level in range(levels):
        # The size of a cell and the centre of the first cell, in cells of level 0. OME-NGFF expects the size
        # of a pixel, which is unknown: the attributes say 1.
        scale = [float(length**level) for length in window_lengths(array, factors)]
        translation = [(each - 1) / 2 for each in scale]
        derived = {"derived_from": str(level - 1)} if level else {}
        transform = {"scale": scale, "translation": translation}
        layout.append({"asset": str(level), "transform": transform, **derived})
        transforms = [{"type": "scale", "scale": scale}, {"type": "translation", "translation": translation}]
        datasets.append({"path": str(level), "coordinateTransformations": transforms})
    if convention == "multiscales":
        method = _RESAMPLING.get(how, how)
        return {
            "zarr_conventions": [MULTISCALES],
            "multiscales": {"layout": layout, "resampling_method": method},
        }
    axes = []
    for dim in map(str, array.dims):
        kind, unit = _OME_TYPES.get(dim.lower()), array.attributes.get(f"{dim}_unit")
        unit = _OME_UNITS.get(unit, unit) if isinstance(unit, str) else None
        members = (("name", dim), ("type", kind), ("unit", unit))
        axes.append({name: value for name, value in members if value is not None})
    multiscale = {"name": array.name, "axes": axes, "datasets": datasets, "type": how}
    return {"ome": {"version": "0.5", "multiscales": [multiscale]}}


type Convention = Literal["multiscales", "ome"]

#: Statistics of levels. The count of counts, for example, is not the count of the elements of level 0.
_COMPOSABLE: Final = ("median", *(name for name, row in STATISTICS.items() if row.is_composable))


@with_options(ChunkRunOptions)
@takes_versions
@with_argument_docs(coarsen)
def pyramid(
    source: Source,
    paths: Sequence[str],
    *,
    to: Target,
    levels: int | None = None,
    factors: Mapping[str, int],
    how: str = "mean",
    convention: Convention = "multiscales",
    **options: Unpack[ChunkRunOptions],
) -> JobResult:
    """Store arrays at several levels of resolution below a target, in one commit.

    Level ``0`` holds the arrays unchanged. Levels ``1``, ``2``, ... are each coarser than the level before by
    ``factors``, see `coarsen`. Elements at the end of a dimension that do not fill a window are ignored.

    Args:
        paths: Paths of arrays, or of groups for all arrays below them. ``convention="ome"`` takes one path,
            of an array with named dimensions.
        to: The `Target` of the levels.
        levels: The number of levels, level 0 included. The default, None, makes levels until the arrays fit
            into one chunk.
        factors: The factor from level to level by dimension, such as ``{"y": 2, "x": 2}``.
        how: The statistic: ``"mean"``, ``"sum"``, ``"min"``, ``"max"``, ``"median"``, ``"any"``, ``"all"``,
            ``"first"`` or ``"last"``.
        convention: The metadata of the levels. With ``"multiscales"`` a level is a group of all arrays and
            their coordinates; with ``"ome"`` (OME-NGFF 0.5) it is one array.

    Returns:
        The `JobResult`, whose ``version`` has the levels.

    Raises:
        InvalidInputError: As in `coarsen`; ``how`` is ``"count"``, ``"std"`` or ``"var"``, which cannot be
            computed from the level below (``unknown-choice``); or ``levels`` is below 1 or so large that a
            level would be empty (``invalid-argument``).
        NodeNotFoundError: A path has no node.

    Examples:
        >>> import frazil, zarr, numpy as np
        >>> from frazil.pipeline import Target, pyramid
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="a picture") as store:
        ...     array = zarr.create_array(
        ...         store, name="data/p", data=np.ones((64, 64)), chunks=(16, 16), dimension_names=["y", "x"]
        ...     )
        >>> half = {"y": 2, "x": 2}
        >>> result = pyramid(repo, ["data/p"], factors=half, to=Target(repo, group="levels"), engine="inline")
        >>> root = zarr.open_group(result.version.session().store, path="levels", mode="r")
        >>> levels = [level["asset"] for level in root.attrs["multiscales"]["layout"]]
        >>> [(level, root[f"{level}/data/p"].shape) for level in levels]
        [('0', (64, 64)), ('1', (32, 32)), ('2', (16, 16))]
    """
    operation = Pyramid(names_of(paths), factors, levels, how, convention, options.get("chunks"))
    return operation.run(source, to, options)


@dataclass(frozen=True, slots=True)
class Pyramid(ArrayOperation):
    """The operation of `pyramid`."""

    name = "pyramid"
    factors: Mapping[str, int]
    levels: int | None
    how: str
    convention: Convention
    chunks: Lengths | None = None

    def plan(self, view: SourceView, to: Target, options: BoundedRunOptions) -> BlockPlan:
        """Return the levels."""
        session, factors, how = view.session, self.factors, self.how
        levels, convention = self.levels, self.convention
        arrays = arrays_below(session, self.paths)
        if convention != "ome":
            arrays = with_companions(session, arrays)
        require_windows(factors, how, "trim", arrays)
        if how not in _COMPOSABLE:
            raise InvalidInputError(
                f"how must be one of {', '.join(_COMPOSABLE)}, got {how!r}, which cannot be computed "
                "from the level below",
                ErrorKind.UNKNOWN_CHOICE,
            )
        require_choice("convention", convention, get_args(Convention.__value__))
        if convention == "ome" and (len(arrays) != 1 or None in arrays[0].dims):
            raise InvalidInputError(
                "paths must be one array with names for all dimensions for convention='ome', got "
                f"{[each.path for each in arrays]}",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
        coarse = CoarseArrays(
            session, arrays, factors, how, "trim", Budget.of(options.get("max_mem")), options.get("engine")
        )
        fields = [each for each in arrays if not is_coordinate(each, coarse.coordinates)]
        count = levels or 0
        if levels is None:
            count = 1  # until all dimensions that shrink fit into one chunk
            for each in fields:
                for n, chunk, length in zip(
                    each.shape, each.chunks, window_lengths(each, factors), strict=True
                ):
                    while length > 1 and n // length ** (count - 1) > chunk:
                        count += 1
        is_empty = any(
            n < length ** (count - 1)
            for each in fields
            for n, length in zip(each.shape, window_lengths(each, factors), strict=True)
        )
        if count < 1 or is_empty:
            raise InvalidInputError(
                f"levels must be at least 1 and leave at least one element of each array, got {levels}"
            )
        for array in arrays:
            name = "" if convention == "ome" else f"/{array.path.strip('/')}"
            level_0, *levels_above = (to.path(f"{level}{name}") for level in range(count))
            coarse.transfer_array(array, [level_0])
            if max(window_lengths(array, factors), default=1) > 1:
                chunks = chunk_lengths(self.chunks, array, array.chunks, "chunks")
                coarse.add_array(array, levels_above, chunks)
            else:
                coarse.transfer_array(array, levels_above)
        attributes = _convention_attributes(convention, fields, factors, count, how)
        outputs = replace(coarse.outputs, group_attributes={to.path(""): attributes})
        parameters = {
            "factors": {str(dim): int(factor) for dim, factor in factors.items()},
            "levels": count,
            "how": how,
            "convention": convention,
            "chunks": outputs.chunk_grids,
        }
        return BlockPlan(arrays, outputs, parameters)
