"""A part of arrays as arrays of their own: by number, by label, by place on the globe.

Where a part begins and ends at borders of chunks (or at the end of the array) and nothing is left out in
between, its chunks are taken over without decoding; otherwise tasks read what they need of the source and
write chunks of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.job_result import JobResult
from frazil.jobs.memory import Budget, MaxMem
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
    told,
)
from frazil.pipeline.transform.block_job import Build, Building, Small, Values, block_of, run_building
from frazil.pipeline.transform.cf_metadata import coordinate_of, kind_of, values_of
from frazil.pipeline.transform.transfer import Move
from frazil.repository.session.session import Session

#: Along one axis: a position, a range of them, or any positions.
type Positions = int | range | tuple[int, ...]


@takes_versions
def select(
    source: Source,
    paths: Sequence[str],
    *,
    to: Target,
    isel: Mapping[str, Any] | None = None,
    sel: Mapping[str, Any] | None = None,
    method: str | None = None,
    chunks: Sequence[int] | Mapping[str, int] | None = None,
    shards: Sequence[int] | Mapping[str, int] | None = None,
    max_mem: MaxMem = None,
    engine: Engine | EngineName | None = None,
    job_id: str | None = None,
    message: str | None = None,
    progress: Progress | None = None,
) -> JobResult:
    """Take a part of arrays to another place, in one commit; without a selection, all of them.

    ``paths`` are arrays, or groups for all that is below; their coordinates come along. ``isel`` selects by
    number, ``sel`` by label of the coordinate variables, as in xarray: a value (the dimension goes), a list,
    or a slice, which includes its end for labels. Times are given as xarray takes them
    (``slice("2001-01", "2001-03")``). ``method`` is for labels that are not there: ``"nearest"``, ... Arrays
    without a dimension are not selected by it. Without ``chunks`` and ``shards`` both stay.
    ``max_mem`` bounds the values that one task holds; without it that is 256 MB, or what one chunk needs.

    Raises ``InvalidInputError`` for dimensions and labels that are not there.

    >>> import frazil, zarr
    >>> from frazil.spark import Inline, Target, select
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> with repo.transaction("main", message="a row") as store:
    ...     options = {"shape": (9,), "chunks": (3,), "dtype": "i4", "dimension_names": ["x"]}
    ...     zarr.create_array(store, name="data/t", **options)[:] = range(9)
    >>> to = Target(repo, group="part")
    >>> part = select(repo, ["data/t"], isel={"x": slice(3, 6)}, to=to, engine=Inline())
    >>> zarr.open_array(part.version.session().store, path="part/data/t", mode="r")[:].tolist()
    [3, 4, 5]
    """
    version = Version.of(source)
    session = version.session()
    arrays = companions(session, selected(session, paths))
    isel, sel = dict(isel or {}), dict(sel or {})
    require_dimensions([*isel, *sel], arrays)
    both = sorted(set(isel) & set(sel))
    if both:
        raise InvalidInputError(
            f"expected a dimension in isel or in sel, found {both[0]!r} in both", ErrorKind.NOT_ALLOWED
        )

    def positions(array: ArrayInfo, dim: str) -> Positions:
        if dim in isel:
            return numbered(isel[dim], array, dim)
        return labelled(session, array, dim, sel[dim], method)

    parameters = {
        "isel": {dim: told(value) for dim, value in isel.items()},
        "sel": {dim: told(value) for dim, value in sel.items()},
        "method": method,
    }
    return _part(
        "select",
        version,
        session,
        arrays,
        _Positions([*isel, *sel], positions),
        parameters,
        (),
        chunks,
        shards,
        to,
        max_mem,
        engine=engine,
        job_id=job_id,
        message=message,
        progress=progress,
    )


@takes_versions
def crop(
    source: Source,
    paths: Sequence[str],
    *,
    to: Target,
    latitude: tuple[float, float] | None = None,
    longitude: tuple[float, float] | None = None,
    chunks: Sequence[int] | Mapping[str, int] | None = None,
    shards: Sequence[int] | Mapping[str, int] | None = None,
    max_mem: MaxMem = None,
    engine: Engine | EngineName | None = None,
    job_id: str | None = None,
    message: str | None = None,
    progress: Progress | None = None,
) -> JobResult:
    """Take the part of arrays between two latitudes and two longitudes, both included.

    Coordinate variables are recognised by their standard name, units or name (CF). It does not matter in
    which direction they go, nor whether longitudes are counted from -180 or from 0: ``(-10, 20)`` takes
    350 to 20 degrees of a global grid, in this order, and calls them -10 to 20. Otherwise as `select`.
    """
    version = Version.of(source)
    session = version.session()
    arrays = companions(session, selected(session, paths))
    wanted = {"latitude": latitude, "longitude": longitude}
    found: dict[str, tuple[Positions, ArrayInfo]] = {}
    small: list[Small] = []
    for array in arrays:
        between = (
            wanted.get(kind_of(array) or "") if array.ndim == 1 and array.dims[0] == array.name else None
        )
        if between is None:
            continue
        values = values_of(session, array).astype("f8")
        places, meant = _between(values, between, kind_of(array) == "longitude")
        found[array.path] = (places, array)
        if isinstance(places, tuple):
            grid = (max(min(array.chunks[0], len(places)), 1),)
            new = array.changed(to.path(array.path), shape=(len(places),), chunks=grid)
            small.append(Small(array, new, meant.astype(array.dtype)))
    missing = [
        kind
        for kind, between in wanted.items()
        if between and all(kind_of(a) != kind for _, a in found.values())
    ]
    if missing:
        raise InvalidInputError(
            f"expected a coordinate variable of {missing[0]} (by standard_name, units or name), found none",
            ErrorKind.INVALID_ARRAY_METADATA,
        )

    def positions(array: ArrayInfo, dim: str) -> Positions | None:
        known = found.get(f"{array.group.rstrip('/')}/{dim}")
        return known[0] if known else None

    names = sorted({array.name for _, array in found.values()})
    return _part(
        "crop",
        version,
        session,
        arrays,
        _Positions(names, positions),
        {"latitude": latitude, "longitude": longitude},
        small,
        chunks,
        shards,
        to,
        max_mem,
        engine=engine,
        job_id=job_id,
        message=message,
        progress=progress,
    )


@dataclass(frozen=True, slots=True)
class _Positions:
    """Which positions are wanted along dimensions."""

    dims: Sequence[str]
    find: Any  # (array, dimension) -> Positions | None

    def of(self, array: ArrayInfo) -> tuple[Positions, ...]:
        out: list[Positions] = [range(n) for n in array.shape]
        for dim in self.dims:
            axis = array.axis(dim)
            places = None if axis is None else self.find(array, dim)
            if axis is not None and places is not None:
                out[axis] = places
        return tuple(out)


def _part(
    name: str,
    version: Version,
    session: Session,
    arrays: Sequence[ArrayInfo],
    wanted: _Positions,
    parameters: dict[str, Any],
    small: Sequence[Small],
    chunks: Sequence[int] | Mapping[str, int] | None,
    shards: Sequence[int] | Mapping[str, int] | None,
    to: Target,
    max_mem: MaxMem,
    **running: Any,
) -> JobResult:
    budget = Budget.of(max_mem)
    builds: list[Build] = []
    moves: list[tuple[ArrayInfo, ArrayInfo, Move]] = []
    known, there = {each.old.path for each in small}, {array.path for array in arrays}
    for array in arrays:
        if array.path in known:
            continue
        positions = wanted.of(array)
        new = _cut(array, to.path(array.path), positions, chunks, shards, there)
        move = _aligned(array, new, positions)
        if move is not None:
            moves.append((array, new, move))
        else:
            block = block_of([new], budget, [array], factor=3)
            builds.append(Build(array, (new,), block, _Gathered(array.path, positions)))
    grids = [new.document["chunk_grid"] for _, new, _ in moves]
    grids += [build.new[0].document["chunk_grid"] for build in builds]
    return run_building(
        name,
        version,
        session,
        to,
        arrays,
        Building(builds, moves, small),
        {**parameters, "chunks": grids},
        **running,
    )


def _cut(
    array: ArrayInfo,
    path: str,
    positions: Sequence[Positions],
    chunks: Sequence[int] | Mapping[str, int] | None,
    shards: Sequence[int] | Mapping[str, int] | None,
    there: set[str],
) -> ArrayInfo:
    """The metadata of the part. Of dimensions that go, it names the coordinates (``there``) that stay."""
    kept = [axis for axis, places in enumerate(positions) if not isinstance(places, int)]
    shape = tuple(len(places) for places in positions if not isinstance(places, int))
    dims = [array.dims[axis] for axis in kept]
    named = dims if any(dims) else None
    inner = tuple(array.chunks[axis] for axis in kept)
    outer = None if array.shards is None else tuple(array.shards[axis] for axis in kept)
    out = array.changed(path, shape=shape, chunks=inner, shards=outer, dimension_names=named)
    if len(kept) < array.ndim:
        attributes = array.attributes
        gone = [str(array.dims[axis]) for axis in range(array.ndim) if axis not in kept]
        gone = [dim for dim in gone if f"{array.group.rstrip('/')}/{dim}" in there - {array.path}]
        if gone:
            attributes["coordinates"] = " ".join([*str(attributes.get("coordinates", "")).split(), *gone])
            out.document["attributes"] = attributes
        out.document["codecs"] = [each for each in out.document["codecs"] if each["name"] != "transpose"]
    if chunks is None and shards is None:
        return out
    some = lengths(chunks, out, inner, "chunks")
    return out.changed(
        path,
        chunks=some,
        shards=lengths(shards, out, outer if chunks is None else None, "shards", inner=some),
    )


def _aligned(old: ArrayInfo, new: ArrayInfo, positions: Sequence[Positions]) -> Move | None:
    """How to take over whole chunks, if that is possible."""
    if old.document["codecs"] != new.document["codecs"]:
        return None
    if old.document["chunk_grid"] != new.document["chunk_grid"]:
        return None
    low, high = [], []
    for places, length, step in zip(positions, old.shape, old.grid, strict=True):
        if not isinstance(places, range) or places.step != 1 or places.start % step:
            return None
        if places.stop % step and places.stop != length:
            return None
        low.append(places.start // step)
        high.append(-(-places.stop // step))
    return Move(old.path, new.path, tuple(low), tuple(high))


@dataclass(frozen=True, slots=True)
class _Gathered:
    """See `building.Compute`."""

    path: str
    positions: tuple[Positions, ...]

    def __call__(self, session: Session, start: Shape, stop: Shape) -> Sequence[Values]:
        spans = iter(zip(start, stop, strict=True))
        index: list[Any] = []
        for places in self.positions:
            if isinstance(places, int):
                index.append(slice(places, places + 1))
                continue
            some = places[slice(*next(spans))]
            whole = isinstance(some, range) and some.step == 1
            index.append(slice(some.start, some.stop) if whole else np.array(some, np.int64))  # type: ignore[union-attr]
        array = open_array(session, self.path)
        basic = all(isinstance(each, slice) for each in index)
        values = np.asarray(array[tuple(index)] if basic else array.oindex[tuple(index)])
        return [values.reshape([b - a for a, b in zip(start, stop, strict=True)])]


def numbered(given: Any, array: ArrayInfo, dim: str) -> Positions:
    """Positions by number. Raises ``InvalidInputError`` for those that are not there.

    Numbers below 0 count from the end; slices are those of Python.
    """
    length = array.shape[array.axis(dim) or 0]
    if isinstance(given, slice):
        try:
            return range(length)[given]
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"expected a slice of whole numbers along {dim!r}, found {given!r}", ErrorKind.NOT_ALLOWED
            ) from error
    numbers = np.asarray(given)
    if numbers.dtype == np.bool_ and numbers.shape == (length,):
        numbers = np.flatnonzero(numbers)
    if numbers.size == 0:
        return range(0)
    if (
        numbers.dtype.kind not in "iu"
        or numbers.ndim > 1
        or not ((-length <= numbers) & (numbers < length)).all()
    ):
        raise InvalidInputError(
            f"expected positions along {dim!r} of `{array.path}`, of {length} elements, found {given!r}",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    return _simple(numbers % length)


def labelled(session: Session, array: ArrayInfo, dim: str, given: Any, method: str | None) -> Positions:
    """Positions by label. Raises ``InvalidInputError`` without coordinates, or without such a label."""
    axis = array.axis(dim) or 0
    coordinate = coordinate_of(session, array, dim)
    if coordinate is None or coordinate.shape != (array.shape[axis],):
        raise InvalidInputError(
            f"expected a coordinate variable for {dim!r} beside `{array.path}`, found none: take isel",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    raw = np.asarray(open_array(session, coordinate.path)[...])
    labels = xr.conventions.decode_cf_variable(dim, xr.Variable((dim,), raw, coordinate.attributes))
    places = xr.DataArray(np.arange(len(raw)), dims=dim, coords={dim: labels})
    try:
        found = places.sel({dim: given}, method=None if isinstance(given, slice) else method)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"expected a label of {dim!r}, which goes from {labels.values[:1]} to {labels.values[-1:]}, "
            f"found {given!r}: {error}",
            ErrorKind.INVALID_CHUNK_INDEX,
        ) from error
    return _simple(found.values)


def _simple(numbers: Values) -> Positions:
    """A number, a range if they are one, or all of them."""
    if numbers.ndim == 0:
        return int(numbers)
    if len(numbers) == 0:
        return range(0)
    first, last = int(numbers[0]), int(numbers[-1])
    if last - first == len(numbers) - 1 and (np.diff(numbers) == 1).all():
        return range(first, last + 1)
    return tuple(numbers.tolist())


def _between(values: Values, between: tuple[float, float], around: bool) -> tuple[Positions, Values]:
    """Positions of the coordinates between two values, and what to call them."""
    low, high = between
    if not around:
        low, high = min(low, high), max(low, high)
        places = _simple(np.flatnonzero((values >= low) & (values <= high)))
        return places, values
    if high < low:
        high += 360
    turned = low + (values - low) % 360
    # rounding must not put what is at the western border to its end
    turned = np.where(np.isclose(turned, low + 360, rtol=0, atol=1e-9) & (high < low + 360), low, turned)
    order = np.argsort(turned, kind="stable")
    if len(values) > 1 and values[0] > values[-1]:
        order = order[::-1]
    order = order[turned[order] <= high + 1e-9]
    if np.array_equal(turned[order], values[order]):
        return _simple(order), values
    return tuple(order.tolist()), turned[order]
