"""Fields on other latitudes and longitudes, by the library xarray-regrid.

Both grids are rectilinear: one coordinate of latitudes and one of longitudes. Every value of the result may
need values from all around the globe, so a task reads whole planes of the source, for some of the other
dimensions (times, levels): ``max_mem`` has to hold one chunk of those.

    nearest       the value of the nearest cell
    bilinear      from the four cells around; a cell beside a missing value is missing
    conservative  the mean of the cells below, weighted by the areas they share: integrals are kept

Global grids are closed around the globe and over the poles, whatever way longitudes are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np
import xarray as xr

from frazil.errors import ErrorKind, InvalidInputError
from frazil.extras import needs
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.job_result import JobResult
from frazil.jobs.memory import Budget, MaxMem
from frazil.jobs.progress import Progress
from frazil.jobs.versions import Source, Target, Version, takes_versions
from frazil.pipeline.transform.arrays import (
    ArrayInfo,
    Json,
    Shape,
    companions,
    lengths,
    open_array,
    selected,
    told,
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
    coordinate_of,
    coordinates,
    is_coordinate,
    kind_of,
    unpacked,
    unpacked_attributes,
    unpacked_dtype,
    values_of,
)
from frazil.pipeline.transform.transfer import Move
from frazil.repository.session.session import Session

type Method = Literal["nearest", "bilinear", "conservative"]

_METHODS: Final = ("nearest", "bilinear", "conservative")
#: What xarray-regrid knows as coordinates of a globe.
_NAMES: Final = ("latitude", "longitude")
_ALIASES: Final = {"lat": "latitude", "lon": "longitude"}


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
    chunks: Sequence[int] | Mapping[str, int] | None = None,
    max_mem: MaxMem = None,
    engine: Engine | EngineName | None = None,
    job_id: str | None = None,
    message: str | None = None,
    progress: Progress | None = None,
) -> JobResult:
    """Interpolate arrays to other latitudes and longitudes, in one commit.

    ``paths`` are arrays, or groups for all that is below; coordinates come along, those of the grid are the
    new ones. ``target_grid`` has the new latitudes and longitudes, centres of cells in degrees: a mapping
    ``{"lat": [...], "lon": [...]}`` or a dataset with such coordinates. Those of the source are recognised by
    standard name, units or name (CF), and the dimensions keep their names. Packed values are unpacked.

    ``skipna`` leaves missing values out of conservative means (the default there) as long as at most
    ``nan_threshold`` of a cell is missing: with 1.0 any value will do, with 0.0 none may be missing. Arrays
    that lack one of the dimensions are taken over as they are, or left out if they have the other.

    Raises ``InvalidInputError`` for arrays without such coordinates, for grids that do not go one way, and
    for too little ``max_mem``.

    >>> import frazil, numpy as np, xarray as xr
    >>> from frazil.spark import Inline, Target, regrid
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> session = repo.writable_session("main")
    >>> coords = {"lat": [0, 10], "lon": [0, 10]}
    >>> field = xr.Dataset({"t": (("lat", "lon"), [[0.0, 1.0], [2.0, 3.0]])}, coords)
    >>> written = field.to_zarr(session.store, group="data", zarr_format=3, consolidated=False)
    >>> snapshot = session.commit("a field")
    >>> finer = {"lat": [0, 5, 10], "lon": [0, 5]}
    >>> made = regrid(repo, ["data/t"], finer, to=Target(repo, group="fine"), engine=Inline())
    >>> store = made.version.session().store
    >>> xr.open_zarr(store, group="fine/data", consolidated=False)["t"].values.tolist()
    [[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]]
    """
    version = Version.of(source)
    session = version.session()
    arrays = companions(session, selected(session, paths))
    if method not in _METHODS:
        raise InvalidInputError(
            f"expected a method of {', '.join(_METHODS)}, found {method!r}", ErrorKind.NOT_ALLOWED
        )
    if not 0 <= nan_threshold <= 1:
        raise InvalidInputError(
            f"expected a nan_threshold between 0 and 1, found {nan_threshold}", ErrorKind.NOT_ALLOWED
        )
    wanted, said = _wanted(target_grid)
    skip = method == "conservative" if skipna is None else skipna
    named = coordinates(session, arrays)
    axes = {array.path: _axes(session, array) for array in arrays}
    fields = {array.path for array in arrays if len(axes[array.path]) == 2}
    if not fields:
        raise InvalidInputError(
            "expected arrays over a latitude and a longitude (by standard_name, units or name), "
            f"found {[array.path for array in arrays]}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    builds: list[Build] = []
    kept: list[tuple[ArrayInfo, ArrayInfo, Move]] = []
    small: list[Small] = []
    for array in arrays:
        found, path = axes[array.path], to.path(array.path)
        if not found:
            kept.append(as_it_is(array, path))
        elif array.path in fields and array.dtype.kind in "iufb":
            grid = _Grid.of(session, array, found, wanted, method, skip, nan_threshold)
            new = _result(array, path, grid, chunks)
            builds.append(Build(array, (new,), _block(array, new, found, max_mem), grid))
        elif array.ndim == 1 and is_coordinate(array, named) and array.name == array.dims[0]:
            small.append(_coordinate(array, path, wanted[found[0][0]], said[found[0][0]]))
    return run_building(
        "regrid",
        version,
        session,
        to,
        arrays,
        Building(builds, kept, small),
        {
            "grid": {kind: told(values) for kind, values in wanted.items()},
            "method": method,
            "skipna": skip,
            "nan_threshold": nan_threshold,
            "chunks": [each.new[0].document["chunk_grid"] for each in builds],
        },
        engine=engine,
        job_id=job_id,
        message=message,
        progress=progress,
    )


type _Axes = list[tuple[str, int]]  # kind and axis


@dataclass(frozen=True, eq=False)
class _Grid:
    """See `building.Compute`."""

    array: ArrayInfo
    axes: tuple[tuple[str, int], ...]
    old: Mapping[str, Values]
    new: Mapping[str, Values]
    method: Method
    skipna: bool
    nan_threshold: float
    dtype: str = ""

    @staticmethod
    def of(
        session: Session,
        array: ArrayInfo,
        axes: _Axes,
        new: Mapping[str, Values],
        method: Method,
        skipna: bool,
        nan_threshold: float,
    ) -> _Grid:
        old = {}
        for kind, axis in axes:
            coordinate = coordinate_of(session, array, array.dims[axis])
            assert coordinate is not None
            values = values_of(session, coordinate).astype("f8")
            _require_one_way(values, coordinate.path)
            old[kind] = values
        grid = _Grid(array, tuple(axes), old, new, method, skipna, nan_threshold)
        shape = [array.shape[axis] if axis in dict(axes).values() else 1 for axis in range(array.ndim)]
        dtype = grid.interpolated(np.zeros(shape, unpacked_dtype(array))).dtype
        return _Grid(array, tuple(axes), old, new, method, skipna, nan_threshold, str(dtype))

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
        """By the library, which knows the coordinates of a globe by their names."""
        dims = [f"d{axis}" for axis in range(values.ndim)]
        for kind, axis in self.axes:
            dims[axis] = kind
        field = xr.DataArray(values, dims=dims, coords={kind: self.old[kind] for kind, _ in self.axes})
        target = xr.Dataset(coords={kind: self.new[kind] for kind, _ in self.axes})
        out = self._interpolated(field, target)
        return np.asarray(out.transpose(*dims).values)

    def _interpolated(self, field: xr.DataArray, target: xr.Dataset) -> Any:
        regridder = _regridder()(field)
        if self.method == "nearest":
            return regridder.nearest(target, time_dim=None)
        if self.method == "bilinear":
            if not self.skipna:
                return regridder.linear(target, time_dim=None)
            there = field.notnull()
            share = _regridder()(there.astype("f8")).linear(target, time_dim=None)
            filled = _regridder()(field.where(there, 0)).linear(target, time_dim=None)
            least = 1 - min(max(self.nan_threshold, 1e-6), 1 - 1e-6)
            return (filled / share.where(share > 0)).where(share >= least)
        return regridder.conservative(
            target,
            latitude_coord="latitude",
            time_dim=None,
            skipna=self.skipna,
            nan_threshold=self.nan_threshold,
        )


@lru_cache(maxsize=1)
def _regridder() -> Any:
    with needs("regrid"):
        from xarray_regrid import Regridder  # it takes a second, and most processes never regrid

    return Regridder


def _wanted(target_grid: xr.Dataset | Mapping[str, Any]) -> tuple[dict[str, Values], dict[str, Json]]:
    """New latitudes and longitudes, and their attributes."""
    values: dict[str, Values] = {}
    said: dict[str, Json] = {}
    given = target_grid.coords if isinstance(target_grid, xr.Dataset) else target_grid
    for name, coordinate in given.items():
        attributes = dict(getattr(coordinate, "attrs", {}))
        kind = str(attributes.get("standard_name", _ALIASES.get(str(name).lower(), str(name).lower())))
        if kind in _NAMES:
            values[kind] = np.asarray(coordinate, "f8")
            said[kind] = attributes
            _require_one_way(values[kind], str(name))
    missing = [kind for kind in _NAMES if kind not in values]
    if missing:
        raise InvalidInputError(
            f"expected a target grid with `lat` and `lon`, found {', '.join(map(str, given)) or 'nothing'}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    return values, said


def _require_one_way(values: Values, name: str) -> None:
    steps = np.diff(values) if values.ndim == 1 else np.zeros(1)
    if values.ndim != 1 or len(values) < 2 or not ((steps > 0).all() or (steps < 0).all()):
        raise InvalidInputError(
            f"expected at least two coordinates `{name}` that grow or fall, found {values.tolist()[:5]}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )


def _axes(session: Session, array: ArrayInfo) -> _Axes:
    """Which axes of an array are latitudes and longitudes."""
    out: _Axes = []
    for axis, dim in enumerate(array.dims):
        coordinate = coordinate_of(session, array, dim)
        kind = kind_of(coordinate) if coordinate is not None else None
        if kind in _NAMES:
            out.append((str(kind), axis))
    return out


def _result(
    array: ArrayInfo, path: str, grid: _Grid, chunks: Sequence[int] | Mapping[str, int] | None
) -> ArrayInfo:
    shape = list(array.shape)
    for kind, axis in grid.axes:
        shape[axis] = len(grid.new[kind])
    lengths_ = tuple(max(min(c, n), 1) for c, n in zip(array.chunks, shape, strict=True))
    out = array.retyped(
        path,
        grid.dtype,
        shape=tuple(shape),
        dims=array.dims,
        chunks=lengths_,
        attributes=unpacked_attributes(array),
    )
    return out.changed(path, chunks=lengths(chunks, out, lengths_, "chunks"))


def _block(array: ArrayInfo, new: ArrayInfo, axes: _Axes, max_mem: MaxMem) -> Shape:
    """Whole planes of the result, for some of the other dimensions."""
    planes = [array.shape[axis] for _, axis in axes], [new.shape[axis] for _, axis in axes]
    before, after = (float(np.prod(each)) for each in planes)
    budget = Budget.of(max_mem)
    factor = 2 + 3 * before * 8 / max(after * new.itemsize, 1)
    return block_of([new], budget, [array], factor=factor, whole=[axis for _, axis in axes])


def _coordinate(array: ArrayInfo, path: str, values: Values, said: Json) -> Small:
    """A new coordinate variable; the bounds of the old grid are not its bounds."""
    attributes = {**unpacked_attributes(array), **{key: str(value) for key, value in said.items()}}
    if bounds_of(array):
        attributes.pop("bounds")
    shape, grid = values.shape, (max(min(array.chunks[0], len(values)), 1),)
    dtype = array.dtype if array.dtype.kind == "f" else np.dtype("f8")
    new = array.retyped(path, dtype, shape=shape, dims=array.dims, chunks=grid, attributes=attributes)
    return Small(array, new, values.astype(dtype))
