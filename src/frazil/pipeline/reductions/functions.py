"""The operations: `reduce` and its short names, groups, climatologies, resampling.

Each reads a version and makes one commit; the result has the dimensions that stay, their coordinates, and the
attributes of the original with ``cell_methods`` that say what was done. Results are what xarray computes from
the same arrays, up to the order of additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Unpack

import numpy as np
import xarray as xr

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.job_result import JobResult
from frazil.jobs.versions import Source
from frazil.pipeline.reductions.fields import Field, coordinate, require_same_labels
from frazil.pipeline.reductions.groups import By, Grouping, grouping, label_names, resampling, said
from frazil.pipeline.reductions.reduction_job import Asked, How, Settings, run, several
from frazil.repository.session.session import Session

#: The periods of a climatology, and what makes their labels.
PERIODS: Final = ("month", "season", "dayofyear", "hour")


def reduce(
    source: Source,
    paths: str | Sequence[str],
    dims: str | Sequence[str] | None = None,
    how: How = "mean",
    **settings: Unpack[Settings],
) -> JobResult:
    """Reduce arrays along dimensions, all of them unless told.

    ``how``: mean, sum, min, max, std, var, count, any, all, first, last, quantile, median; or several, whose
    results are then named ``<array>_<how>``. For the rest see `Settings`. Floats are added in float64 and
    rounded at the end to the type that numpy gives (float32 stays float32); sums of integers are exact.

    Raises ``InvalidInputError`` for arrays of something else than numbers, unknown dimensions and names, and
    for a target that would overwrite an input.

    >>> import frazil, numpy as np, zarr
    >>> from frazil.spark import Inline, reduce
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> with repo.transaction("main", message="temperature") as store:
    ...     t = zarr.create_array(store, name="t", data=np.arange(6.0).reshape(3, 2), chunks=(1, 2),
    ...                           dimension_names=("time", "x"))
    >>> result = reduce(repo, "t", "time", engine=Inline())
    >>> mean = zarr.open_array(result.version.session().store, path="mean/t", mode="r")
    >>> mean[:].tolist(), mean.attrs["cell_methods"]
    ([2.0, 3.0], 'time: mean')
    """
    names = several(how)
    going = None if dims is None else several(dims)
    name = names[0] if isinstance(how, str) else "reduce"
    return run(
        source, Asked(name, several(paths), going, names, not isinstance(how, str), None, {}, settings)
    )


def mean(
    source: Source, paths: str | Sequence[str], dims: Any = None, **settings: Unpack[Settings]
) -> JobResult:
    """`reduce` with ``how="mean"``."""
    return reduce(source, paths, dims, "mean", **settings)


def sum(  # noqa: A001  # as numpy and xarray have it
    source: Source, paths: str | Sequence[str], dims: Any = None, **settings: Unpack[Settings]
) -> JobResult:
    """`reduce` with ``how="sum"``."""
    return reduce(source, paths, dims, "sum", **settings)


def min(  # noqa: A001
    source: Source, paths: str | Sequence[str], dims: Any = None, **settings: Unpack[Settings]
) -> JobResult:
    """`reduce` with ``how="min"``."""
    return reduce(source, paths, dims, "min", **settings)


def max(  # noqa: A001
    source: Source, paths: str | Sequence[str], dims: Any = None, **settings: Unpack[Settings]
) -> JobResult:
    """`reduce` with ``how="max"``."""
    return reduce(source, paths, dims, "max", **settings)


def std(
    source: Source, paths: str | Sequence[str], dims: Any = None, **settings: Unpack[Settings]
) -> JobResult:
    """`reduce` with ``how="std"``."""
    return reduce(source, paths, dims, "std", **settings)


def count(
    source: Source, paths: str | Sequence[str], dims: Any = None, **settings: Unpack[Settings]
) -> JobResult:
    """`reduce` with ``how="count"``."""
    return reduce(source, paths, dims, "count", **settings)


def quantile(
    source: Source,
    paths: str | Sequence[str],
    q: float | Sequence[float] = 0.5,
    dims: Any = None,
    **settings: Any,
) -> JobResult:
    """`reduce` with ``how="quantile"``: exact where the cells fit into ``exact_below`` bytes, else by
    sketches, whose rank error is in the attribute ``quantile_rank_error`` of the result.
    """
    return reduce(source, paths, dims, "quantile", **{**settings, "q": q})


def groupby(
    source: Source,
    paths: str | Sequence[str],
    by: By,
    how: How = "mean",
    dims: str | Sequence[str] | None = None,
    **settings: Unpack[Settings],
) -> JobResult:
    """Reduce the cells of each group along the dimensions of its labels, and along ``dims`` too.

    ``by``: a part of a time ("time.month", "time.season", in the calendar of the coordinate), the name of a
    coordinate, an array of labels with a name, or a grouper of xarray (``{"lat": BinGrouper(...)}``).
    Groups are sorted; cells without a label have none. The group dimension takes the place of the first that
    it is made of.
    """

    def groups(session: Session, field: Field) -> Grouping:
        if isinstance(by, xr.DataArray):
            require_same_labels(session, field, by, "by")
        return grouping(session, field.parent, by)

    going = None if dims is None else several(dims)
    asked = Asked(
        "groupby",
        several(paths),
        going,
        several(how),
        not isinstance(how, str),
        groups,
        {"by": said(by)},
        settings,
        labels=label_names(by),
    )
    return run(source, asked)


def climatology(
    source: Source,
    paths: str | Sequence[str],
    period: str = "month",
    how: How = "mean",
    *,
    years: tuple[int, int] | None = None,
    time: str = "time",
    **settings: Unpack[Settings],
) -> JobResult:
    """What is usual in each month, season, day of the year or hour: over all years, or from the first to the
    last of ``years``. `anomaly` takes the result.
    """
    if period not in PERIODS:
        raise InvalidInputError(
            f"period: expected one of {', '.join(PERIODS)}, found {period!r}", ErrorKind.NOT_ALLOWED
        )

    def groups(session: Session, field: Field) -> Grouping:
        only = None
        if years is not None:
            year = coordinate(session, field.parent, time).dt.year.values
            only = (year >= years[0]) & (year <= years[1])
        return grouping(session, field.parent, f"{time}.{period}", only=only)

    parameters = {"period": period, "years": None if years is None else list(years), "time": time}
    asked = Asked(
        "climatology",
        several(paths),
        None,
        several(how),
        not isinstance(how, str),
        groups,
        parameters,
        settings,
        labels=(time,),
    )
    return run(source, asked)


def resample(
    source: Source,
    paths: str | Sequence[str],
    freq: str,
    how: How = "mean",
    *,
    time: str = "time",
    closed: str | None = None,
    label: str | None = None,
    **settings: Unpack[Settings],
) -> JobResult:
    """Reduce to another frequency: "1D", "MS", "YS", ... as pandas and xarray call them, in the calendar of
    the time coordinate. ``closed`` and ``label``: which side of a bin belongs to it, and names it.
    A period without any time is NaN, whatever ``how`` is, and counts and sums of integers are then floats; a
    period whose values are all NaN has the count and the sum 0 (``min_count=1`` makes the sum NaN).
    """

    def groups(session: Session, field: Field) -> Grouping:
        return resampling(session, field.parent, time, freq, closed=closed, label=label)

    parameters = {"freq": freq, "time": time, "closed": closed, "label": label}
    asked = Asked(
        "resample",
        several(paths),
        None,
        several(how),
        not isinstance(how, str),
        groups,
        parameters,
        settings,
        labels=(time,),
    )
    return run(source, asked)


def zonal_stats(
    source: Source,
    paths: str | Sequence[str],
    zones: xr.DataArray | str | Sequence[float],
    how: How = ("mean", "std", "min", "max", "count"),
    *,
    latitude: str = "lat",
    dims: str | Sequence[str] | None = None,
    **settings: Unpack[Settings],
) -> JobResult:
    """Statistics of each zone.

    ``zones``: an array of labels over some dimensions (with a name; NaN is no zone), the name of a coordinate
    with labels, or the borders of bands of latitude, ``[-90, -30, 30, 90]``; a band has its lower border, the
    last its upper one too. ``dims`` go as well. For polygons see
    `frazil.pipeline.reductions.zones.rasterized`.
    """
    parameters: dict[str, Any]
    if isinstance(zones, str | xr.DataArray):
        by = zones
        parameters = {"zones": said(by)}
        labels = label_names(by)

        def groups(session: Session, field: Field) -> Grouping:
            if isinstance(by, xr.DataArray):
                require_same_labels(session, field, by, "zones")
            return grouping(session, field.parent, by)
    else:
        if np.ndim(np.asarray(zones, object)) != 1:
            raise InvalidInputError(
                "zones: expected labels (a DataArray), a name, or borders of bands, found an array of "
                f"{np.ndim(zones)} dimensions",
                ErrorKind.NOT_ALLOWED,
            )
        borders = [float(each) for each in zones]
        parameters = {"zones": borders, "latitude": latitude}
        labels = (latitude,)
        if len(borders) < 2 or not (np.diff(borders) > 0).all():
            raise InvalidInputError(
                f"zones: expected at least two borders, each larger than the one before; found {borders}",
                ErrorKind.NOT_ALLOWED,
            )

        def groups(session: Session, field: Field) -> Grouping:
            return bands(coordinate(session, field.parent, latitude), borders)

    asked = Asked(
        "zonal_stats",
        several(paths),
        None if dims is None else several(dims),
        several(how),
        not isinstance(how, str),
        groups,
        parameters,
        settings,
        labels=labels,
    )
    return run(source, asked)


def bands(latitude: xr.DataArray, borders: Sequence[float]) -> Grouping:
    """Bands of latitude, named by their middle."""
    values, edges = np.asarray(latitude.values, np.float64), np.asarray(borders, np.float64)
    codes = np.searchsorted(edges, values, side="right").astype(np.int64) - 1
    codes[values == edges[-1]] = len(edges) - 2
    codes[(codes >= len(edges) - 1) | np.isnan(values)] = -1
    middles = (edges[:-1] + edges[1:]) / 2
    told = {name: value for name, value in latitude.attrs.items() if name != "bounds"}
    return Grouping(tuple(map(str, latitude.dims)), codes, "zone", middles, told)
