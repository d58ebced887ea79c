"""Pyramids: the same arrays on ever coarser grids, and metadata that describe the levels.

A round of the job computes each level from the level below it. So the cost of a level depends on its own
size, and all levels are one commit. The convention tells readers where the levels are:

    multiscales   attributes of the group, see github.com/zarr-conventions/multiscales: the levels, the level
                  that each is derived from, scale and translation of its cells (GeoZarr builds on it)
    ome           OME-NGFF 0.5, for microscopy: one array, levels are arrays, with axes and units

Level 0 is the source itself: within the same repository it shares the chunks of the source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, Unpack

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import Budget
from frazil.jobs.job import JobResult, Source, Target, Version, takes_versions, with_options
from frazil.pipeline.transform.arrays import (
    ArrayInfo,
    ChunkRunOptions,
    Json,
    arrays_below,
    chunk_lengths,
    is_coordinate,
    with_companions,
)
from frazil.pipeline.transform.block_job import BlockJob, run_block_job
from frazil.pipeline.transform.coarsening import CoarseArrays, How, require_windows, window_lengths

#: The name of a statistic in the multiscales convention.
_RESAMPLING: Final = {"mean": "average", "first": "nearest", "min": "min", "max": "max", "median": "med"}
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


def multiscales_attributes(
    arrays: Sequence[ArrayInfo], factors: Mapping[str, int], levels: int, how: str
) -> Json:
    """Return attributes of the multiscales convention for a group.

    Scales are along the axes of the first array.
    """
    layout: list[Json] = []
    for level in range(levels):
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


def ome_attributes(array: ArrayInfo, factors: Mapping[str, int], levels: int, how: str) -> Json:
    """Return attributes of OME-NGFF 0.5 for a group. The size of a pixel is unknown: the attributes say 1."""
    datasets = []
    for level in range(levels):
        scale, translation = _scales(array, factors, level)
        transforms = [{"type": "scale", "scale": scale}, {"type": "translation", "translation": translation}]
        datasets.append({"path": str(level), "coordinateTransformations": transforms})
    axes = [_ome_axis(array, str(dim)) for dim in array.dims]
    multiscale = {"name": array.name, "axes": axes, "datasets": datasets, "type": how}
    return {"ome": {"version": "0.5", "multiscales": [multiscale]}}


def _ome_axis(array: ArrayInfo, dim: str) -> Json:
    axis: Json = {"name": dim}
    if dim.lower() in _OME_TYPES:
        axis["type"] = _OME_TYPES[dim.lower()]
    unit = array.attributes.get(f"{dim}_unit")
    if isinstance(unit, str):
        axis["unit"] = _OME_UNITS.get(unit, unit)
    return axis


def _scales(array: ArrayInfo, factors: Mapping[str, int], level: int) -> tuple[list[float], list[float]]:
    """Return, for each axis, the size of a cell of a level and the centre of its first cell.

    Both are in cells of level 0.
    """
    scale = [float(length**level) for length in window_lengths(array, factors)]
    return scale, [(each - 1) / 2 for each in scale]


type Convention = Literal["multiscales", "ome"]

_CONVENTIONS: Final = ("multiscales", "ome")
#: Statistics of statistics that are not the statistics of level 0: the count of counts, for example.
_NOT_COMPOSABLE: Final = frozenset({"count", "std", "var"})


@with_options(ChunkRunOptions)
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
    **options: Unpack[ChunkRunOptions],
) -> JobResult:
    """Store arrays at several levels of resolution below a target, in one commit.

    Level ``0`` holds the arrays unchanged. Levels ``1``, ``2``, ... are each coarser than the level before by
    ``factors``, see `coarsen`. Elements at the end of a dimension that do not fill a window are ignored.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        paths: Paths of arrays, or of groups for all arrays below them. ``convention="ome"`` takes one path,
            of an array with named dimensions.
        to: The `Target` of the levels.
        levels: The number of levels, level 0 included. The default, None, makes levels until the arrays fit
            into one chunk.
        factors: The factor from level to level by dimension, such as ``{"y": 2, "x": 2}``.
        how: The statistic: ``"mean"``, ``"sum"``, ``"min"``, ``"max"``, ``"median"`` or ``"first"``.
        convention: The metadata of the levels. With ``"multiscales"`` a level is a group of all arrays and
            their coordinates; with ``"ome"`` (OME-NGFF 0.5) it is one array.
        **options: The options of `frazil.pipeline.transform.options.ChunkRunOptions`: ``chunks`` (of the
            coarser levels), ``engine``, ``job_id``, ``message``, ``progress``, ``max_mem``.

    Returns:
        The `JobResult`, whose ``version`` has the levels.

    Raises:
        InvalidInputError: As in `coarsen`; ``how`` is ``"count"``, ``"std"`` or ``"var"``, which cannot be
            computed from the level below (``unknown-choice``); or ``levels`` is below 1 or so large that a
            level would be empty (``invalid-argument``).
        NodeNotFoundError: A path has no node.
        TypeError: An option is unknown.

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
    version = Version.of(source)
    session = version.session()
    arrays = arrays_below(session, paths)
    if convention != "ome":
        arrays = with_companions(session, arrays)
    require_windows(factors, how, "trim", arrays)
    _require_convention(convention, how, arrays)
    coarse = CoarseArrays(session, arrays, factors, how, "trim", Budget.of(options.get("max_mem")))
    fields = [each for each in arrays if not is_coordinate(each, coarse.coordinates)]
    count = _level_count(fields, factors) if levels is None else levels
    if count < 1 or any(min(_level_shape(each, factors, count - 1), default=1) < 1 for each in fields):
        raise InvalidInputError(
            f"levels must be at least 1 and leave at least one element of each array, got {levels}",
            ErrorKind.INVALID_ARGUMENT,
        )
    for array in arrays:
        name = "" if convention == "ome" else f"/{array.path.strip('/')}"
        level_0, *levels_above = (to.path(f"{level}{name}") for level in range(count))
        coarse.transfer_array(array, [level_0])
        if max(window_lengths(array, factors), default=1) > 1:
            chunks = chunk_lengths(options.get("chunks"), array, array.chunks, "chunks")
            coarse.add_array(array, levels_above, chunks)
        else:
            coarse.transfer_array(array, levels_above)
    attributes = (
        ome_attributes(fields[0], factors, count, how)
        if convention == "ome"
        else multiscales_attributes(fields, factors, count, how)
    )
    outputs = replace(coarse.outputs, group_attributes={to.path(""): attributes})
    parameters = {
        "factors": {str(dim): int(factor) for dim, factor in factors.items()},
        "levels": count,
        "how": how,
        "convention": convention,
        "chunks": outputs.chunk_grids,
    }
    return run_block_job(BlockJob("pyramid", version, session, to, arrays, outputs, parameters), options)


def _require_convention(convention: str, how: str, arrays: Sequence[ArrayInfo]) -> None:
    if how in _NOT_COMPOSABLE:
        raise InvalidInputError(
            f"how must be one of mean, sum, min, max, median, first, got {how!r}, which cannot be computed "
            "from the level below",
            ErrorKind.UNKNOWN_CHOICE,
        )
    if convention not in _CONVENTIONS:
        raise InvalidInputError(
            f"convention must be multiscales or ome, got {convention!r}", ErrorKind.UNKNOWN_CHOICE
        )
    if convention == "ome" and (len(arrays) != 1 or None in arrays[0].dims):
        raise InvalidInputError(
            "paths must be one array with names for all dimensions for convention='ome', got "
            f"{[each.path for each in arrays]}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )


def _level_shape(array: ArrayInfo, factors: Mapping[str, int], level: int) -> tuple[int, ...]:
    """Return the shape of an array at a level."""
    lengths = window_lengths(array, factors)
    return tuple(n // length**level for n, length in zip(array.shape, lengths, strict=True))


def _level_count(arrays: Sequence[ArrayInfo], factors: Mapping[str, int]) -> int:
    """Return the number of levels until all dimensions that shrink fit into one chunk."""
    count = 1
    for array in arrays:
        for n, chunk, length in zip(array.shape, array.chunks, window_lengths(array, factors), strict=True):
            level = 0
            while length > 1 and n // length**level > chunk:
                level += 1
            count = max(count, level + 1)
    return count
