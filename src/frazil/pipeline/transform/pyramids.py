"""Pyramids: the same arrays on ever coarser grids, and metadata that say so.

Each level is made of the one below it by `coarsen`, as a round of one job, so a level costs what it is large
and all of them are one commit. The convention says how readers find them:

    multiscales   attributes of the group, see github.com/zarr-conventions/multiscales: which levels there
                  are, what each was derived from, scale and translation of its cells (GeoZarr builds on it)
    ome           OME-NGFF 0.5, for microscopy: one array, levels are arrays, with axes and units

Level 0 is the source itself, whose chunks are referred to, not copied, in the same repository.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.job_result import JobResult
from frazil.jobs.memory import Budget, MaxMem
from frazil.jobs.progress import Progress
from frazil.jobs.versions import Source, Target, Version, takes_versions
from frazil.pipeline.transform.arrays import ArrayInfo, Json, companions, lengths, selected
from frazil.pipeline.transform.block_job import Build, Building, Small, as_it_is, run_building
from frazil.pipeline.transform.cf_metadata import bounds_of, coordinates, is_coordinate, values_of
from frazil.pipeline.transform.coarsening import (
    How,
    build,
    coarse,
    coarse_values,
    is_field,
    of_field,
    require_windows,
    windows_of,
)
from frazil.pipeline.transform.transfer import Move

type Convention = Literal["multiscales", "ome"]

#: How the multiscales convention calls the methods.
_RESAMPLING: Final = {"mean": "average", "first": "nearest", "min": "min", "max": "max", "median": "med"}
#: The count of counts, and the deviation of deviations, would say nothing of level 0.
_NOT_OF_LEVELS: Final = frozenset({"count", "std", "var"})
_MULTISCALES: Final = {
    "schema_url": "https://raw.githubusercontent.com/zarr-conventions/multiscales/refs/tags/v1/schema.json",
    "spec_url": "https://github.com/zarr-conventions/multiscales/blob/v1/README.md",
    "uuid": "d35379db-88df-4056-af3a-620245f8e347",
    "name": "multiscales",
    "description": "Multiscale layout of zarr datasets",
}
_OME_TYPES: Final = {"x": "space", "y": "space", "z": "space", "t": "time", "c": "channel"}
_OME_UNITS: Final = {
    "um": "micrometer",
    "µm": "micrometer",
    "nm": "nanometer",
    "mm": "millimeter",
    "s": "second",
}


@takes_versions
def pyramid(
    source: Source,
    paths: Sequence[str],
    *,
    to: Target,
    levels: int | None = None,
    factors: Mapping[str, int],
    how: How = "mean",
    convention: Convention = "multiscales",
    chunks: Sequence[int] | Mapping[str, int] | None = None,
    max_mem: MaxMem = None,
    engine: Engine | EngineName | None = None,
    job_id: str | None = None,
    message: str | None = None,
    progress: Progress | None = None,
) -> JobResult:
    """Make levels ``0`` (the arrays as they are), ``1``, ``2``, ... below ``to``, in one commit.

    Each level is coarser than the one before by ``factors``, ``{"y": 2, "x": 2}``, see `coarsen`; what does
    not fill a window at the end is cut off. ``levels`` counts all of them; without it there are as many as it
    takes for the arrays to fit into one chunk. With ``convention="multiscales"`` a level is a group of all
    arrays and their coordinates; with ``"ome"`` it is one array (give one path, with named dimensions).

    Raises ``InvalidInputError`` as `coarsen`, and for ``count``, ``std`` and ``var``, of which no level can
    be made from the one below it.

    >>> import frazil, zarr, numpy as np
    >>> from frazil.spark import Inline, Target, pyramid
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> with repo.transaction("main", message="a picture") as store:
    ...     made = zarr.create_array(
    ...         store, name="data/p", data=np.ones((64, 64)), chunks=(16, 16), dimension_names=["y", "x"]
    ...     )
    >>> half = {"y": 2, "x": 2}
    >>> result = pyramid(repo, ["data/p"], factors=half, to=Target(repo, group="levels"), engine=Inline())
    >>> root = zarr.open_group(result.version.session().store, path="levels", mode="r")
    >>> levels = [level["asset"] for level in root.attrs["multiscales"]["layout"]]
    >>> [(level, root[f"{level}/data/p"].shape) for level in levels]
    [('0', (64, 64)), ('1', (32, 32)), ('2', (16, 16))]
    """
    version = Version.of(source)
    session = version.session()
    chosen = selected(session, paths)
    arrays = chosen if convention == "ome" else companions(session, chosen)
    require_windows(factors, how, "trim", arrays)
    if how in _NOT_OF_LEVELS:
        raise InvalidInputError(
            f"expected how to be what can be computed level from level, found {how!r}",
            ErrorKind.NOT_ALLOWED,
        )
    if convention not in ("multiscales", "ome"):
        raise InvalidInputError(
            f"expected a convention of multiscales or ome, found {convention!r}", ErrorKind.NOT_ALLOWED
        )
    if convention == "ome" and (len(arrays) != 1 or None in arrays[0].dims):
        raise InvalidInputError(
            f"expected one array with names for all dimensions, found {[each.path for each in arrays]}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    named, bounds = coordinates(session, arrays), set(map(bounds_of, arrays))
    fields = [each for each in arrays if not is_coordinate(each, named)]
    count = _count(fields, factors) if levels is None else levels
    if count < 1 or any(min(windows_shape(each, factors, count - 1), default=1) < 1 for each in fields):
        raise InvalidInputError(
            f"expected a number of levels that leaves something of the arrays, found {levels}",
            ErrorKind.NOT_ALLOWED,
        )

    def place(array: ArrayInfo, level: int) -> str:
        return to.path(str(level) if convention == "ome" else f"{level}/{array.path.strip('/')}")

    budget = Budget.of(max_mem)
    builds: list[Build] = []
    kept: list[tuple[ArrayInfo, ArrayInfo, Move]] = []
    small: list[Small] = []
    for array in arrays:
        windows = windows_of(array, factors)
        coarser = any(window > 1 for window in windows)
        kept.append(as_it_is(array, place(array, 0)))
        below = kept[-1][1]
        if coarser and is_coordinate(array, named) and array.ndim <= 2 and not is_field(windows):
            values = values_of(session, array)
            for level in range(1, count):
                one = coarse_values(below, values, place(array, level), windows, "trim", array.path in bounds)
                small.append(one)
                below, values = one.new, one.values
            continue
        for level in range(1, count):
            path = place(array, level)
            if not coarser:
                kept.append(as_it_is(array, path))
                continue
            method = of_field(array, how, named)
            new = coarse(below, path, windows, method, "trim", lengths_of(chunks, array))
            # the first level reads the source, the others what the round before has made
            old = array if level == 1 else below
            builds.append(build(old, new, windows, method, "trim", budget, level - 1))
            below = new
    attributes = (
        _ome(fields[0], factors, count, how) if convention == "ome" else _layout(fields, factors, count, how)
    )
    return run_building(
        "pyramid",
        version,
        session,
        to,
        arrays,
        Building(builds, kept, small, {to.path(""): attributes}),
        {
            "factors": {str(dim): int(factor) for dim, factor in factors.items()},
            "levels": count,
            "how": how,
            "convention": convention,
            "chunks": [each.new[0].document["chunk_grid"] for each in builds],
        },
        engine=engine,
        job_id=job_id,
        message=message,
        progress=progress,
    )


def lengths_of(chunks: Sequence[int] | Mapping[str, int] | None, array: ArrayInfo) -> tuple[int, ...]:
    """Chunks of all levels: as of the source, unless told otherwise."""
    out = lengths(chunks, array, array.chunks, "chunks")
    assert out is not None
    return out


def windows_shape(array: ArrayInfo, factors: Mapping[str, int], level: int) -> tuple[int, ...]:
    """The shape of an array at a level."""
    windows = windows_of(array, factors)
    return tuple(n // w**level for n, w in zip(array.shape, windows, strict=True))


def _count(arrays: Sequence[ArrayInfo], factors: Mapping[str, int]) -> int:
    """Levels until all dimensions that shrink fit into one chunk."""
    count = 1
    for array in arrays:
        for n, chunk, window in zip(array.shape, array.chunks, windows_of(array, factors), strict=True):
            level = 0
            while window > 1 and n // window**level > chunk:
                level += 1
            count = max(count, level + 1)
    return count


def _scales(array: ArrayInfo, factors: Mapping[str, int], level: int) -> tuple[list[float], list[float]]:
    """Cells of level 0 for one of a level along each axis, and where its first has its centre."""
    scale = [float(window**level) for window in windows_of(array, factors)]
    return scale, [(each - 1) / 2 for each in scale]


def _layout(arrays: Sequence[ArrayInfo], factors: Mapping[str, int], count: int, how: str) -> Json:
    """Attributes of the multiscales convention; scales are along the axes of the first array."""
    layout: list[Json] = []
    for level in range(count):
        scale, translation = _scales(arrays[0], factors, level)
        entry: Json = {"asset": str(level), "transform": {"scale": scale, "translation": translation}}
        if level:
            entry["derived_from"] = str(level - 1)
        layout.append(entry)
    method = _RESAMPLING.get(how, how)
    return {
        "zarr_conventions": [_MULTISCALES],
        "multiscales": {"layout": layout, "resampling_method": method},
    }


def _ome(array: ArrayInfo, factors: Mapping[str, int], count: int, how: str) -> Json:
    """Attributes of OME-NGFF 0.5; the size of a pixel is not known, and 1."""
    axes: list[Json] = []
    for dim in array.dims:
        axis: Json = {"name": dim}
        if str(dim).lower() in _OME_TYPES:
            axis["type"] = _OME_TYPES[str(dim).lower()]
        unit = array.attributes.get(f"{dim}_unit")
        if isinstance(unit, str):
            axis["unit"] = _OME_UNITS.get(unit, unit)
        axes.append(axis)
    datasets = []
    for level in range(count):
        scale, translation = _scales(array, factors, level)
        moves = [{"type": "scale", "scale": scale}, {"type": "translation", "translation": translation}]
        datasets.append({"path": str(level), "coordinateTransformations": moves})
    multiscale = {"name": array.name, "axes": axes, "datasets": datasets, "type": how}
    return {"ome": {"version": "0.5", "multiscales": [multiscale]}}
