"""The operations: `reduce` and its short names, groups, climatologies, resampling, zones.

Each reads a version and makes one commit. A result has the retained dimensions, their coordinates, and the
attributes of the array with ``cell_methods`` that name the statistic. Results are what xarray computes from
the same arrays, up to the order of additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Unpack

import numpy as np
import xarray as xr

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.job_result import JobResult
from frazil.jobs.run_options import with_options
from frazil.jobs.versions import Source
from frazil.pipeline.reductions.fields import Field, coordinate, require_same_labels
from frazil.pipeline.reductions.groups import By, Grouping, grouping, label_names, recorded_labels, resampling
from frazil.pipeline.reductions.options import How, QuantileOptions, ReductionOptions, ReductionSettings
from frazil.pipeline.reductions.reduction_job import run_reduction
from frazil.pipeline.reductions.request import GroupingRule, ReductionRequest
from frazil.repository.session.session import Session

#: The periods of a climatology: parts of a time that xarray has.
PERIODS: Final = ("month", "season", "dayofyear", "hour")

_takes_options = with_options(ReductionOptions, ReductionSettings)

#: Names of one or several arrays, or of dimensions.
type Names = str | Sequence[str]


@_takes_options
def reduce(
    source: Source,
    paths: Names,
    dims: Names | None = None,
    how: How = "mean",
    **options: Unpack[ReductionOptions],
) -> JobResult:
    """Reduce arrays along dimensions, in one commit.

    ``paths`` are arrays of numbers. ``dims`` are names of dimensions; None are all. ``how`` is a statistic:
    mean, sum, min, max, std, var, count, any, all, first, last, quantile, median; or several, whose results
    are then named ``<array>_<how>``. The options are those of
    `frazil.pipeline.reductions.options.ReductionOptions`. Floats are added in float64 and rounded at the end
    to the type that numpy gives (float32 stays float32); sums of integers are exact.

    Raises ``InvalidInputError`` for arrays that are not of numbers, unknown dimensions and statistics, and
    for a target that would replace an input; ``TypeError`` for an unknown option.

    >>> import frazil, numpy as np, zarr
    >>> from frazil.pipeline import Inline, reduce
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> with repo.transaction("main", message="temperature") as store:
    ...     t = zarr.create_array(store, name="t", data=np.arange(6.0).reshape(3, 2), chunks=(1, 2),
    ...                           dimension_names=("time", "x"))
    >>> result = reduce(repo, "t", "time", engine=Inline())
    >>> mean = zarr.open_array(result.version.session().store, path="mean/t", mode="r")
    >>> mean[:].tolist(), mean.attrs["cell_methods"]
    ([2.0, 3.0], 'time: mean')
    """
    # A result of one statistic is in a group of that name, results of several are in `reduce`.
    name = how if isinstance(how, str) else "reduce"
    return run_reduction(source, ReductionRequest.of(name, paths, how, options, dims=dims))


@_takes_options
def mean(
    source: Source, paths: Names, dims: Names | None = None, **options: Unpack[ReductionOptions]
) -> JobResult:
    """`reduce` with ``how="mean"``."""
    return reduce(source, paths, dims, "mean", **options)


@_takes_options
def sum(  # noqa: A001  # as numpy and xarray have it
    source: Source, paths: Names, dims: Names | None = None, **options: Unpack[ReductionOptions]
) -> JobResult:
    """`reduce` with ``how="sum"``."""
    return reduce(source, paths, dims, "sum", **options)


@_takes_options
def min(  # noqa: A001
    source: Source, paths: Names, dims: Names | None = None, **options: Unpack[ReductionOptions]
) -> JobResult:
    """`reduce` with ``how="min"``."""
    return reduce(source, paths, dims, "min", **options)


@_takes_options
def max(  # noqa: A001
    source: Source, paths: Names, dims: Names | None = None, **options: Unpack[ReductionOptions]
) -> JobResult:
    """`reduce` with ``how="max"``."""
    return reduce(source, paths, dims, "max", **options)


@_takes_options
def std(
    source: Source, paths: Names, dims: Names | None = None, **options: Unpack[ReductionOptions]
) -> JobResult:
    """`reduce` with ``how="std"``."""
    return reduce(source, paths, dims, "std", **options)


@_takes_options
def count(
    source: Source, paths: Names, dims: Names | None = None, **options: Unpack[ReductionOptions]
) -> JobResult:
    """`reduce` with ``how="count"``."""
    return reduce(source, paths, dims, "count", **options)


@with_options(QuantileOptions, ReductionSettings)
def quantile(
    source: Source,
    paths: Names,
    q: float | Sequence[float] = 0.5,
    dims: Names | None = None,
    **options: Unpack[QuantileOptions],
) -> JobResult:
    """`reduce` with ``how="quantile"``. ``q`` is a number or several, between 0 and 1.

    Quantiles are exact where the cells fit into ``exact_below`` bytes, otherwise from sketches, whose rank
    error is in the attribute ``quantile_rank_error`` of the result.
    """
    return reduce(source, paths, dims, "quantile", q=q, **options)


@_takes_options
def groupby(
    source: Source,
    paths: Names,
    by: By,
    how: How = "mean",
    dims: Names | None = None,
    **options: Unpack[ReductionOptions],
) -> JobResult:
    """Reduce the cells of each group along the dimensions of its labels, and along ``dims`` too.

    ``by`` is a part of a time ("time.month", "time.season", in the calendar of the coordinate), the name of a
    coordinate, an array of labels with a name, or a grouper of xarray (``{"lat": BinGrouper(...)}``). Groups
    are sorted; cells without a label are left out. The group dimension takes the position of the first
    dimension of the labels.

    >>> import frazil, numpy as np, xarray as xr, zarr
    >>> from frazil.pipeline import Inline, groupby
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> with repo.transaction("main", message="stations") as store:
    ...     t = zarr.create_array(store, name="t", data=np.array([1.0, 2, 4]), dimension_names=("x",))
    >>> labels = xr.DataArray([7, 7, 9], dims="x", name="zone")
    >>> result = groupby(repo, "t", labels, engine=Inline())
    >>> zarr.open_array(result.version.session().store, path="groupby/t", mode="r")[:].tolist()
    [1.5, 4.0]
    """
    rule = _labels_rule(by, "by")
    parameters = {"by": recorded_labels(by)}
    request = ReductionRequest.of(
        "groupby", paths, how, options, dims=dims, grouping=rule, parameters=parameters
    )
    return run_reduction(source, request)


def _labels_rule(by: By, argument: str) -> GroupingRule:
    def grouping_of(session: Session, field: Field) -> Grouping:
        if isinstance(by, xr.DataArray):
            require_same_labels(session, field, by, argument)
        return grouping(session, field.parent, by)

    return GroupingRule(grouping_of, label_names(by))


@_takes_options
def climatology(
    source: Source,
    paths: Names,
    period: str = "month",
    how: How = "mean",
    *,
    years: tuple[int, int] | None = None,
    time: str = "time",
    **options: Unpack[ReductionOptions],
) -> JobResult:
    """Compute the climatology of arrays: a statistic of each period of the year or day, over all years.

    `anomaly` takes the result. ``period`` is one of "month", "season", "dayofyear", "hour". ``years`` are the
    first and the last year, None are all. ``time`` is the name of the time dimension.
    """
    if period not in PERIODS:
        raise InvalidInputError(
            f"period: expected one of {', '.join(PERIODS)}, found {period!r}", ErrorKind.UNKNOWN_CHOICE
        )

    def grouping_of(session: Session, field: Field) -> Grouping:
        only = None
        if years is not None:
            year = coordinate(session, field.parent, time).dt.year.values
            only = (year >= years[0]) & (year <= years[1])
        return grouping(session, field.parent, f"{time}.{period}", only=only)

    parameters = {"period": period, "years": None if years is None else list(years), "time": time}
    rule = GroupingRule(grouping_of, (time,))
    request = ReductionRequest.of("climatology", paths, how, options, grouping=rule, parameters=parameters)
    return run_reduction(source, request)


@_takes_options
def resample(
    source: Source,
    paths: Names,
    freq: str,
    how: How = "mean",
    *,
    time: str = "time",
    closed: str | None = None,
    label: str | None = None,
    **options: Unpack[ReductionOptions],
) -> JobResult:
    """Reduce to another frequency: "1D", "MS", "YS", ... as in pandas and xarray.

    ``time`` is the name of the time dimension, whose calendar applies. ``closed`` and ``label`` are "left" or
    "right": the side of a bin that belongs to it, and that gives its label. A period without any time is
    NaN for every statistic, and counts and sums of integers are then floats; a period whose values are all
    NaN has the count and the sum 0 (``min_count=1`` makes the sum NaN).
    """

    def grouping_of(session: Session, field: Field) -> Grouping:
        return resampling(session, field.parent, time, freq, closed=closed, label=label)

    parameters = {"freq": freq, "time": time, "closed": closed, "label": label}
    rule = GroupingRule(grouping_of, (time,))
    request = ReductionRequest.of("resample", paths, how, options, grouping=rule, parameters=parameters)
    return run_reduction(source, request)


@_takes_options
def zonal_stats(
    source: Source,
    paths: Names,
    zones: xr.DataArray | str | Sequence[float],
    how: How = ("mean", "std", "min", "max", "count"),
    *,
    latitude: str = "lat",
    dims: Names | None = None,
    **options: Unpack[ReductionOptions],
) -> JobResult:
    """Statistics of each zone, along the dimensions of its labels, and along ``dims`` too.

    ``zones`` is an array of labels over some dimensions (with a name; NaN is no zone), the name of a
    coordinate with labels, or the borders of bands of ``latitude``, ``[-90, -30, 30, 90]``: a band has its
    lower border, the last its upper one too. For polygons see `frazil.pipeline.reductions.zones.rasterized`.
    """
    parameters: dict[str, Any]
    if isinstance(zones, str | xr.DataArray):
        rule = _labels_rule(zones, "zones")
        parameters = {"zones": recorded_labels(zones)}
    else:
        borders = _band_borders(zones)

        def bands_of(session: Session, field: Field) -> Grouping:
            return latitude_bands(coordinate(session, field.parent, latitude), borders)

        rule = GroupingRule(bands_of, (latitude,))
        parameters = {"zones": borders, "latitude": latitude}
    request = ReductionRequest.of(
        "zonal_stats", paths, how, options, dims=dims, grouping=rule, parameters=parameters
    )
    return run_reduction(source, request)


def _band_borders(zones: Sequence[float]) -> list[float]:
    if np.ndim(np.asarray(zones, object)) != 1:
        raise InvalidInputError(
            "zones: expected labels (a DataArray), a name, or borders of bands, found an array of "
            f"{np.ndim(zones)} dimensions",
            ErrorKind.INVALID_ARGUMENT,
        )
    borders = [float(each) for each in zones]
    if len(borders) < 2 or not (np.diff(borders) > 0).all():
        raise InvalidInputError(
            f"zones: expected at least two borders, each larger than the one before; found {borders}",
            ErrorKind.INVALID_ARGUMENT,
        )
    return borders


def latitude_bands(latitude: xr.DataArray, borders: Sequence[float]) -> Grouping:
    """Bands of latitude between ``borders``, labelled with their middle."""
    values, edges = np.asarray(latitude.values, np.float64), np.asarray(borders, np.float64)
    codes = np.searchsorted(edges, values, side="right").astype(np.int64) - 1
    codes[values == edges[-1]] = len(edges) - 2
    codes[(codes >= len(edges) - 1) | np.isnan(values)] = -1
    middles = (edges[:-1] + edges[1:]) / 2
    attributes = {name: value for name, value in latitude.attrs.items() if name != "bounds"}
    return Grouping(tuple(map(str, latitude.dims)), codes, "zone", middles, attributes)
