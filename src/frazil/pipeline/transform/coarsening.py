"""Arrays on a coarser grid: statistics over windows of neighbours.

Elements at the end of a dimension that do not fill a window are an error (``boundary="exact"``, as in
xarray), are ignored (``"trim"``), or make a smaller window (``"pad"``).

Coordinates get the mean of each window. Bounds get the lower bound of the first element and the upper bound
of the last one. Dates and durations have the statistics that xarray has for them. For a statistic that a data
type does not have (the sum of dates, the mean of strings) the result is the first element of each window.

A window is ``factors[dim]`` elements long along each dimension of ``factors``. Windows do not overlap, so a
block of the result is computed from one block of the source. Results are those of
``xarray.DataArray.coarsen``: missing values are ignored, and a window without values is missing.

A window of one element is a window: its count is 1 or 0, its deviation 0, the sum of a missing value 0.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Unpack, get_args

import numpy as np
import xarray as xr

from frazil import cf
from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import Budget, slabs
from frazil.jobs.job import JobResult, Source, Target, Version, takes_versions, with_options
from frazil.pipeline.transform.arrays import (
    ArrayInfo,
    ChunkRunOptions,
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
    open_array,
    require_dimensions,
    unpacked,
    unpacked_attributes,
    unpacked_dtype,
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
from frazil.repository.session.session import Session

type How = Literal["mean", "sum", "min", "max", "median", "std", "var", "count", "first"]
type Edge = Literal["trim", "pad", "exact"]

_NUMBERS: Final = "iufcb"
#: Statistics of ``datetime64`` and ``timedelta64``, by the kind of the dtype.
_OF_TIMES: Final = {
    "M": frozenset({"mean", "min", "max", "count"}),
    "m": frozenset({"mean", "sum", "min", "max", "median", "count"}),
}


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of one array: ``lengths`` along each axis, the statistic, and the rule for the edge."""

    lengths: Shape
    how: How
    boundary: Edge

    @staticmethod
    def of(array: ArrayInfo, factors: Mapping[str, int], how: How, boundary: Edge) -> Windows:
        """Return the windows that ``factors`` make of an array."""
        return Windows(window_lengths(array, factors), how, boundary)

    @property
    def is_multidimensional(self) -> bool:
        """Whether the array shrinks along more than one axis. Tasks compute such a coordinate."""
        return sum(length > 1 for length in self.lengths) > 1

    def is_ragged(self, shape: Sequence[int]) -> bool:
        """Return whether the last window of an array of this shape is shorter than the others."""
        return any(n % length for n, length in zip(shape, self.lengths, strict=True))

    def coarse_shape(self, shape: Shape) -> Shape:
        """Return the number of windows along each axis.

        >>> [Windows((2, 2), "mean", edge).coarse_shape((5, 4)) for edge in ("trim", "pad")]
        [(2, 2), (3, 2)]
        """
        if self.boundary == "pad":
            return tuple(-(-n // length) for n, length in zip(shape, self.lengths, strict=True))
        return tuple(n // length for n, length in zip(shape, self.lengths, strict=True))


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
            raise InvalidInputError(
                f"factors[{name!r}] must be at least 1, got {factor!r}", ErrorKind.INVALID_ARGUMENT
            )
    if not factors:
        raise InvalidInputError(
            "factors must name at least one dimension, got none", ErrorKind.INVALID_ARGUMENT
        )
    for argument, value, choices in (
        ("how", how, get_args(How.__value__)),
        ("boundary", boundary, get_args(Edge.__value__)),
    ):
        if value not in choices:
            raise InvalidInputError(
                f"{argument} must be one of {', '.join(choices)}, got {value!r}",
                ErrorKind.UNKNOWN_CHOICE,
            )
    for array in arrays:
        lengths = window_lengths(array, factors)
        if boundary == "exact" and any(n % w for n, w in zip(array.shape, lengths, strict=True)):
            raise InvalidInputError(
                f"The lengths of `{array.path}` must be multiples of {lengths}, got {array.shape}. "
                "Pass boundary='trim' to ignore the rest, or boundary='pad' for a smaller last window",
                ErrorKind.INVALID_ARGUMENT,
            )


def statistic_of(array: ArrayInfo, how: How, coordinates: set[str]) -> How:
    """Return the statistic for an array.

    It is the mean for coordinates of several dimensions, which ``coordinates`` name, and the first element of
    a window if the data type does not have the statistic.
    """
    statistic: How = "mean" if array.path in coordinates else how
    if array.dtype.kind in _NUMBERS or statistic in _OF_TIMES.get(array.dtype.kind, ()):
        return statistic
    return "first"


def is_on_coarse_grid(array: ArrayInfo, factors: Mapping[str, int], how: How, coordinates: set[str]) -> bool:
    """Return whether an array is its own result.

    It has none of the dimensions, or all of its windows are of one element and the result would be the stored
    values.
    """
    if all(array.axis(name) is None for name in factors):
        return True
    if any(length > 1 for length in window_lengths(array, factors)):
        return False
    return is_coordinate(array, coordinates) or statistic_of(array, how, coordinates) == "first"


def coarse_array(array: ArrayInfo, path: str, windows: Windows, chunks: Lengths | None = None) -> ArrayInfo:
    """Return the metadata of the statistics of an array. ``chunks`` None are those of the array."""
    shape = windows.coarse_shape(array.shape)
    grid = clipped_chunks(array.chunks, shape)
    if windows.how == "first":
        out = array.with_layout(path, shape=shape, chunks=grid)
    else:
        padded = windows.boundary == "pad" and windows.is_ragged(array.shape)
        probe_shape = [w + 1 if padded and w > 1 else w for w in windows.lengths]
        dtype = window_statistics(np.zeros(probe_shape, unpacked_dtype(array)), windows).dtype
        attributes = _coarse_attributes(array, windows)
        out = array.with_dtype(path, dtype, shape=shape, dims=array.dims, chunks=grid, attributes=attributes)
    return out.with_layout(path, chunks=chunk_lengths(chunks, out, grid, "chunks"))


def _coarse_attributes(array: ArrayInfo, windows: Windows) -> dict[str, object]:
    attributes = unpacked_attributes(array)
    dims = [str(d) for d, w in zip(array.dims, windows.lengths, strict=True) if w > 1 and d]
    if dims and windows.how != "count":
        cell_method = f"{': '.join(dims)}: {cf.cell_method(windows.how)}"
        attributes["cell_methods"] = " ".join(filter(None, [attributes.get("cell_methods"), cell_method]))
    if windows.how == "count":
        attributes = {key: value for key, value in attributes.items() if key != "units"}
    return attributes


def computed_statistics(
    array: ArrayInfo, new: ArrayInfo, windows: Windows, budget: Budget, round_number: int = 0
) -> ComputedArrays:
    """Return the result ``new``, computed from ``array`` by tasks."""
    elements = float(np.prod(windows.lengths, dtype=float))
    factor = 1 + elements * array.itemsize / new.itemsize  # the block, and its source
    block = block_for([new], budget, [array], factor=factor)
    return ComputedArrays(array, (new,), block, _WindowBlocks(array, windows, str(new.dtype)), round_number)


@dataclass(frozen=True)
class _WindowBlocks:
    """Compute statistics of windows: see `frazil.pipeline.transform.block_job.Compute`."""

    array: ArrayInfo
    windows: Windows
    dtype: str

    def __call__(self, session: Session, start: Shape, stop: Shape) -> Sequence[Values]:
        lengths = self.windows.lengths
        old = open_array(session, self.array.path)
        axes = zip(start, stop, lengths, old.shape, strict=True)
        region = tuple(slice(a * w, min(b * w, n)) for a, b, w, n in axes)
        values = np.asarray(old[region])
        if self.windows.how == "first":
            return [_first_elements(values, self.windows)]
        out = np.empty(tuple(np.subtract(stop, start).tolist()), self.dtype)
        size = old.dtype.itemsize * math.prod(lengths)
        for part in slabs(out.shape, size):
            source = tuple(slice(s.start * w, s.stop * w) for s, w in zip(part, lengths, strict=True))
            out[part] = window_statistics(unpacked(self.array, values[source]), self.windows)
        return [out]


def _first_elements(values: Values, windows: Windows) -> Values:
    return values[tuple(slice(None, None, length) for length in windows.lengths)]


def window_statistics(values: Values, windows: Windows) -> Values:
    """Return one value for each window, by xarray.

    >>> window_statistics(np.array([[1.0, 3], [5, 7]]), Windows((1, 2), "mean", "exact")).tolist()
    [[2.0], [6.0]]
    """
    if windows.how == "first":
        return _first_elements(values, windows)
    padded = windows.boundary == "pad"
    if padded and windows.is_ragged(values.shape) and values.dtype.kind == "b":
        values = values.astype("f8")  # xarray pads with NaN
    dims = [f"d{axis}" for axis in range(values.ndim)]
    lengths = {dim: length for dim, length in zip(dims, windows.lengths, strict=True) if length > 1}
    array = xr.DataArray(values, dims=dims)
    coarsened = array.coarsen(lengths or {dims[0]: 1}, boundary="pad" if padded else "trim")
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", RuntimeWarning
        )  # numpy warns of windows without a value, which are NaN
        out: Values = np.asarray(getattr(coarsened, windows.how)().values)
    return out


def coarse_coordinate(
    array: ArrayInfo, values: Values, path: str, windows: Windows, *, are_bounds: bool
) -> DriverArray:
    """Return a coordinate of one dimension, or its bounds, on the coarser grid.

    ``values`` are the unpacked values of the coordinate. Coordinates get the mean of each window; those
    without a mean get the first element. Bounds get the lower bound of the first element and the upper bound
    of the last.
    """
    shape = windows.coarse_shape(array.shape)
    means = Windows(windows.lengths, "mean", windows.boundary)
    axis = int(np.argmax(windows.lengths))
    length, count = windows.lengths[axis], shape[axis]
    if are_bounds and array.ndim == 2 and array.shape[1] == 2 and axis == 0:
        last = np.minimum(np.arange(1, count + 1) * length, array.shape[0]) - 1
        out = np.stack([values[::length, 0][:count], values[last, 1]], axis=1)
    elif values.dtype.kind in "mM":
        out = window_statistics(values, means) if values.size else values[:count]
    elif values.dtype.kind in "iufc":
        out = window_statistics(values, means) if min(shape) else np.zeros(shape, values.dtype)
    else:
        out = _first_elements(values, windows)[tuple(map(slice, shape))]
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
    how: How
    boundary: Edge
    budget: Budget
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
        windows = Windows.of(array, self.factors, statistic, self.boundary)
        below = array
        if is_coordinate(array, self.coordinates) and array.ndim <= 2 and not windows.is_multidimensional:
            values = coordinate_values(self.session, array)
            for path in paths:
                coarse = coarse_coordinate(below, values, path, windows, are_bounds=array.path in self.bounds)
                self.coarse_coordinates.append(coarse)
                below, values = coarse.new, coarse.values
            return
        for number, path in enumerate(paths):
            new = coarse_array(below, path, windows, chunks)
            self.computed.append(computed_statistics(below, new, windows, self.budget, number))
            below = new


@with_options(ChunkRunOptions)
@takes_versions
def coarsen(
    source: Source,
    paths: Sequence[str],
    factors: Mapping[str, int],
    how: How = "mean",
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
            ``"count"`` (of values that are not missing) or ``"first"`` (the first element of each window, for
            classes and strings).
        to: The `Target` of the results.
        boundary: What happens to elements at the end of a dimension that do not fill a window: ``"exact"``
            refuses them, ``"trim"`` ignores them, ``"pad"`` makes a smaller last window of them.
        **options: The options of `frazil.pipeline.transform.options.ChunkRunOptions`: ``chunks``, ``engine``,
            ``job_id``, ``message``, ``progress``, ``max_mem``.

    Returns:
        The `JobResult`, whose ``version`` has the results.

    Raises:
        InvalidInputError: No array has a dimension of ``factors``, a factor is below 1, or with
            ``boundary="exact"`` a length is not a multiple of its factor.
        NodeNotFoundError: A path has no node.
        TypeError: An option is unknown.

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
    version = Version.of(source)
    session = version.session()
    arrays = with_companions(session, arrays_below(session, paths))
    require_windows(factors, how, boundary, arrays)
    coarse = CoarseArrays(session, arrays, factors, how, boundary, Budget.of(options.get("max_mem")))
    for array in arrays:
        path = [to.path(array.path)]
        if is_on_coarse_grid(array, factors, how, coarse.coordinates):
            coarse.transfer_array(array, path)
        else:
            coarse.add_array(array, path, options.get("chunks"))
    parameters = {
        "factors": {str(dim): int(factor) for dim, factor in factors.items()},
        "how": how,
        "boundary": boundary,
        "chunks": coarse.outputs.chunk_grids,
    }
    job = BlockJob("coarsen", version, session, to, arrays, coarse.outputs, parameters)
    return run_block_job(job, options)
