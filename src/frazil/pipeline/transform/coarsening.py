"""Means, sums, ... over windows of neighbours: arrays on a coarser grid, and pyramids of them.

A window is ``factors[dim]`` elements long along each dimension that is named. Windows do not overlap, so a
block of the result is made of one block of the source, and the results are those of
``xarray.DataArray.coarsen``: missing values are left out, what is all missing is missing.

What does not fill a window at the end of a dimension is an error (``boundary="exact"``, as in xarray), is
left out (``"trim"``), or makes a window of fewer elements (``"pad"``).

A window of one element is a window: its count is 1 or 0, its deviation 0, the sum of a missing value 0.

Coordinates get the mean of each window, bounds the lower of the first and the upper of the last element.
Dates and durations have the statistics that xarray has for them. Where there is none (the sum of dates),
and of strings, records and other data that are no numbers, the first of each window is taken.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import xarray as xr

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.job_result import JobResult
from frazil.jobs.memory import Budget, MaxMem, slabs
from frazil.jobs.progress import Progress
from frazil.jobs.versions import Source, Target, Version, takes_versions
from frazil.pipeline.transform.arrays import (
    ArrayInfo,
    Shape,
    companions,
    lengths,
    open_array,
    require_dimensions,
    selected,
)
from frazil.pipeline.transform.block_job import (
    Build,
    Building,
    Small,
    Values,
    as_it_is,
    block_of,
    run_building,
)
from frazil.pipeline.transform.cf_metadata import (
    bounds_of,
    coordinates,
    is_coordinate,
    unpacked,
    unpacked_attributes,
    unpacked_dtype,
    values_of,
)
from frazil.pipeline.transform.transfer import Move
from frazil.repository.session.session import Session

type How = Literal["mean", "sum", "min", "max", "median", "std", "var", "count", "first"]
type Edge = Literal["trim", "pad", "exact"]

#: What each is called in ``cell_methods``.
HOW: Final = {
    "mean": "mean",
    "sum": "sum",
    "min": "minimum",
    "max": "maximum",
    "median": "median",
    "std": "standard_deviation",
    "var": "variance",
    "count": None,
    "first": "point",
}
_EDGES: Final = ("trim", "pad", "exact")
_NUMBERS: Final = "iufcb"
#: Statistics of ``datetime64`` and ``timedelta64``, by the kind of the dtype.
_OF_TIMES: Final = {
    "M": frozenset({"mean", "min", "max", "count"}),
    "m": frozenset({"mean", "sum", "min", "max", "median", "count"}),
}


@takes_versions
def coarsen(
    source: Source,
    paths: Sequence[str],
    factors: Mapping[str, int],
    how: How = "mean",
    *,
    to: Target,
    boundary: Edge = "exact",
    chunks: Sequence[int] | Mapping[str, int] | None = None,
    max_mem: MaxMem = None,
    engine: Engine | EngineName | None = None,
    job_id: str | None = None,
    message: str | None = None,
    progress: Progress | None = None,
) -> JobResult:
    """Make arrays coarser by whole factors, ``{"lat": 4, "lon": 4}``, in one commit.

    ``paths`` are arrays, or groups for all that is below; their coordinates come along. ``how`` is ``mean``,
    ``sum``, ``min``, ``max``, ``median``, ``std``, ``var``, ``count`` (of what is not missing) or ``first``
    (one of each window as it is, for classes and strings). Packed values are unpacked, see
    `frazil.pipeline.transform.cf_metadata`. Arrays without any of the dimensions are taken over as they are.
    ``chunks`` are those of the results; without it they are as long as before.

    ``max_mem`` bounds the values that one task holds; without it that is 256 MB, or what one chunk needs.
    ``boundary`` says what becomes of elements at the end of a dimension that do not fill a window:
    ``"exact"`` refuses them, ``"trim"`` leaves them out, ``"pad"`` makes a smaller last window of them.

    Raises ``InvalidInputError`` for a dimension that no array has, a factor below 1, and with
    ``boundary="exact"`` for a length that is no multiple of its factor.

    >>> import frazil, zarr, numpy as np
    >>> from frazil.spark import Inline, Target, coarsen
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> with repo.transaction("main", message="a row") as store:
    ...     array = zarr.create_array(
    ...         store, name="data/t", data=np.array([1.0, 3, 5, 9]), chunks=(2,), dimension_names=["x"]
    ...     )
    >>> half = Target(repo, group="half")
    >>> made = coarsen(repo, ["data/t"], {"x": 2}, to=half, engine=Inline())
    >>> zarr.open_array(made.version.session().store, path="half/data/t", mode="r")[:].tolist()
    [2.0, 7.0]
    """
    version = Version.of(source)
    session = version.session()
    arrays = companions(session, selected(session, paths))
    require_windows(factors, how, boundary, arrays)
    budget = Budget.of(max_mem)
    named, bounds = coordinates(session, arrays), set(map(bounds_of, arrays))
    builds: list[Build] = []
    small: list[Small] = []
    kept: list[tuple[ArrayInfo, ArrayInfo, Move]] = []
    for array in arrays:
        windows, path = windows_of(array, factors), to.path(array.path)
        if stays(array, factors, how, named):
            kept.append(as_it_is(array, path))
        elif is_coordinate(array, named) and array.ndim <= 2 and not is_field(windows):
            small.append(coarse_coordinate(session, array, path, windows, boundary, array.path in bounds))
        else:
            one = of_field(array, how, named)
            new = coarse(array, path, windows, one, boundary, chunks)
            builds.append(build(array, new, windows, one, boundary, budget))
    return run_building(
        "coarsen",
        version,
        session,
        to,
        arrays,
        Building(builds, kept, small),
        {
            "factors": {str(dim): int(factor) for dim, factor in factors.items()},
            "how": how,
            "boundary": boundary,
            "chunks": [each.new[0].document["chunk_grid"] for each in builds],
        },
        engine=engine,
        job_id=job_id,
        message=message,
        progress=progress,
    )


def of_field(array: ArrayInfo, how: How, named: set[str]) -> How:
    """Coordinates of two dimensions are averaged, whatever becomes of the data."""
    wanted: How = "mean" if array.path in named else how
    if array.dtype.kind in _NUMBERS or wanted in _OF_TIMES.get(array.dtype.kind, ()):
        return wanted
    return "first"


def stays(array: ArrayInfo, factors: Mapping[str, int], how: How, named: set[str]) -> bool:
    """Whether an array is on the coarser grid already: it has none of the dimensions, or all of its windows
    are of one element and the result would be what is stored.
    """
    if all(array.axis(name) is None for name in factors):
        return True
    if any(window > 1 for window in windows_of(array, factors)):
        return False
    return is_coordinate(array, named) or of_field(array, how, named) == "first"


def is_field(windows: Shape) -> bool:
    """Whether it shrinks along more than one axis; a coordinate that does is computed by tasks."""
    return sum(window > 1 for window in windows) > 1


def require_windows(factors: Mapping[str, int], how: str, boundary: str, arrays: Sequence[ArrayInfo]) -> None:
    require_dimensions(list(factors), arrays)
    for name, factor in factors.items():
        if not isinstance(factor, int | np.integer) or factor < 1:
            raise InvalidInputError(
                f"expected a factor of at least 1 for {name!r}, found {factor!r}", ErrorKind.NOT_ALLOWED
            )
    if not factors:
        raise InvalidInputError("expected a factor for a dimension, found none", ErrorKind.NOT_ALLOWED)
    for given, known, what in ((how, HOW, "how"), (boundary, _EDGES, "boundary")):
        if given not in known:
            raise InvalidInputError(
                f"expected {what} to be one of {', '.join(known)}, found {given!r}", ErrorKind.NOT_ALLOWED
            )
    for array in arrays:
        windows = windows_of(array, factors)
        if boundary == "exact" and any(n % w for n, w in zip(array.shape, windows, strict=True)):
            raise InvalidInputError(
                f"expected lengths of `{array.path}` that are multiples of {windows}, found {array.shape}: "
                "pass boundary='trim' to leave out the rest, or boundary='pad' for a smaller last window",
                ErrorKind.NOT_ALLOWED,
            )


def windows_of(array: ArrayInfo, factors: Mapping[str, int]) -> Shape:
    windows = [1] * array.ndim
    for name, factor in factors.items():
        axis = array.axis(name)
        if axis is not None:
            windows[axis] = int(factor)
    return tuple(windows)


def coarse_shape(shape: Shape, windows: Shape, boundary: Edge) -> Shape:
    """
    >>> coarse_shape((5, 4), (2, 2), "trim"), coarse_shape((5, 4), (2, 2), "pad")
    ((2, 2), (3, 2))
    """
    if boundary == "pad":
        return tuple(-(-n // w) for n, w in zip(shape, windows, strict=True))
    return tuple(n // w for n, w in zip(shape, windows, strict=True))


def coarse(
    array: ArrayInfo,
    path: str,
    windows: Shape,
    how: How,
    boundary: Edge,
    chunks: Sequence[int] | Mapping[str, int] | None = None,
) -> ArrayInfo:
    """The metadata of the result."""
    shape = coarse_shape(array.shape, windows, boundary)
    grid = tuple(max(min(c, n), 1) for c, n in zip(array.chunks, shape, strict=True))
    if how == "first":
        out = array.changed(path, shape=shape, chunks=grid)
    else:
        padded = boundary == "pad" and any(n % w for n, w in zip(array.shape, windows, strict=True))
        probe = np.zeros([w + 1 if padded and w > 1 else w for w in windows], unpacked_dtype(array))
        dtype = reduced(probe, windows, how, boundary).dtype
        attributes = unpacked_attributes(array)
        method = HOW[how]
        dims = [str(d) for d, w in zip(array.dims, windows, strict=True) if w > 1 and d]
        if method and dims:
            said = f"{': '.join(dims)}: {method}"
            attributes["cell_methods"] = " ".join(filter(None, [attributes.get("cell_methods"), said]))
        if how == "count":
            attributes = {key: value for key, value in attributes.items() if key != "units"}
        out = array.retyped(path, dtype, shape=shape, dims=array.dims, chunks=grid, attributes=attributes)
    some = lengths(chunks, out, grid, "chunks")
    return out.changed(path, chunks=some)


def build(
    array: ArrayInfo,
    new: ArrayInfo,
    windows: Shape,
    how: How,
    boundary: Edge,
    budget: Budget,
    round_: int = 0,
) -> Build:
    elements = float(np.prod(windows, dtype=float))
    factor = 1 + elements * array.itemsize / new.itemsize  # what is made, and what is read for it
    block = block_of([new], budget, [array], factor=factor)
    return Build(array, (new,), block, _Coarsened(array, windows, how, boundary, str(new.dtype)), round_)


@dataclass(frozen=True)
class _Coarsened:
    """See `building.Compute`."""

    array: ArrayInfo
    windows: Shape
    how: How
    boundary: Edge
    dtype: str

    def __call__(self, session: Session, start: Shape, stop: Shape) -> Sequence[Values]:
        old = open_array(session, self.array.path)
        axes = zip(start, stop, self.windows, old.shape, strict=True)
        region = tuple(slice(a * w, min(b * w, n)) for a, b, w, n in axes)
        values = np.asarray(old[region])
        if self.how == "first":
            return [values[tuple(slice(None, None, w) for w in self.windows)]]
        out = np.empty(tuple(np.subtract(stop, start).tolist()), self.dtype)
        size = old.dtype.itemsize * math.prod(self.windows)
        for part in slabs(out.shape, size):
            inside = tuple(slice(s.start * w, s.stop * w) for s, w in zip(part, self.windows, strict=True))
            some = values[inside]
            out[part] = reduced(unpacked(self.array, some), self.windows, self.how, self.boundary)
        return [out]


def reduced(values: Values, windows: Shape, how: How, boundary: Edge) -> Values:
    """One value for each window, by xarray."""
    if how == "first":
        return values[tuple(slice(None, None, w) for w in windows)]
    gaps = boundary == "pad" and any(n % w for n, w in zip(values.shape, windows, strict=True))
    if gaps and values.dtype.kind == "b":
        values = values.astype("f8")  # what has gaps is padded with NaN
    dims = [f"d{axis}" for axis in range(values.ndim)]
    over = {dim: window for dim, window in zip(dims, windows, strict=True) if window > 1}
    if not over:
        over = {dims[0]: 1}
    array = xr.DataArray(values, dims=dims)
    rolled = array.coarsen(over, boundary="pad" if boundary == "pad" else "trim")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of windows without a value: they are NaN
        out: Values = np.asarray(getattr(rolled, how)().values)
    return out


def coarse_coordinate(
    session: Session, array: ArrayInfo, path: str, windows: Shape, boundary: Edge, bounds: bool
) -> Small:
    """A coordinate variable, or its bounds, on the coarser grid."""
    return coarse_values(array, values_of(session, array), path, windows, boundary, bounds)


def coarse_values(
    array: ArrayInfo, values: Values, path: str, windows: Shape, boundary: Edge, bounds: bool
) -> Small:
    shape = coarse_shape(array.shape, windows, boundary)
    axis = int(np.argmax(windows))
    window, count = windows[axis], shape[axis]
    if bounds and array.ndim == 2 and array.shape[1] == 2 and axis == 0:
        last = np.minimum(np.arange(1, count + 1) * window, array.shape[0]) - 1
        out = np.stack([values[::window, 0][:count], values[last, 1]], axis=1)
    elif values.dtype.kind in "mM":
        out = reduced(values, windows, "mean", boundary) if values.size else values[:count]
    elif values.dtype.kind in "iufc":
        out = reduced(values, windows, "mean", boundary) if min(shape) else np.zeros(shape, values.dtype)
    else:
        out = values[tuple(slice(None, None, w) for w in windows)][tuple(map(slice, shape))]
    grid = tuple(max(min(c, n), 1) for c, n in zip(array.chunks, shape, strict=True))
    if out.dtype == array.dtype:
        new = array.changed(path, shape=shape, chunks=grid)
    else:
        attributes = unpacked_attributes(array)
        new = array.retyped(path, out.dtype, shape=shape, dims=array.dims, chunks=grid, attributes=attributes)
    return Small(array, new, out)
