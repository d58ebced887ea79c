"""The operations that reduce whole dimensions or the cells of groups, with the values of xarray."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Unpack

import numpy as np
import xarray as xr

from frazil.argument_docs import with_argument_docs
from frazil.arguments import require_choice
from frazil.errors import InvalidInputError
from frazil.jobs.job import JobResult, Source
from frazil.pipeline.reductions.fields import (
    By,
    Field,
    Grouping,
    coordinate,
    grouping,
    label_names,
    require_same_labels,
    resampling,
)
from frazil.pipeline.reductions.reduction_job import (
    How,
    QuantileOptions,
    ReductionOperation,
    ReductionOptions,
    run_reduction,
    takes_options,
    takes_quantile_options,
)
from frazil.pipeline.transform.arrays import names_of
from frazil.repository.session.session import Session

#: Names of one or several arrays, or of dimensions.
type Names = str | Sequence[str]


@takes_options
def reduce(
    source: Source,
    paths: Names,
    dims: Names | None = None,
    how: How = "mean",
    **options: Unpack[ReductionOptions],
) -> JobResult:
    """Reduce arrays along dimensions by one or several statistics, in one commit.

    Floats are added in float64. The result is then rounded to the data type that numpy gives: float32 stays
    float32. Sums of integers are exact. The results keep the coordinates of the retained dimensions.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        paths: The path of an array of numbers, or several paths.
        dims: The name of a dimension to reduce, or several. The default, None, reduces all dimensions.
        how: The statistic: ``"mean"``, ``"sum"``, ``"min"``, ``"max"``, ``"std"``, ``"var"``, ``"count"``,
            ``"any"``, ``"all"``, ``"first"``, ``"last"``, ``"quantile"`` or ``"median"``. The results of a
            sequence of statistics are named ``<array>_<how>``.

    Returns:
        The `JobResult`, whose ``version`` has the results.

    Raises:
        InvalidInputError: An array does not hold numbers (``invalid-array-metadata``), a dimension or a
            statistic is unknown (``unknown-choice``), a result would replace an array that the job reads
            (``conflicting-arguments``), or the source is not on a branch and ``to`` is missing
            (``not-on-branch``).
        NodeNotFoundError: A path has no array.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="temperature") as store:
        ...     t = zarr.create_array(store, name="t", data=np.arange(6.0).reshape(3, 2), chunks=(1, 2),
        ...                           dimension_names=("time", "x"))
        >>> result = frazil.pipeline.reduce(repo, "t", "time", engine="inline")
        >>> mean = zarr.open_array(result.version.session().store, path="mean/t", mode="r")
        >>> mean[:].tolist(), mean.attrs["cell_methods"]
        ([2.0, 3.0], 'time: mean')
    """
    # A result of one statistic is in a group of that name, results of several are in `reduce`.
    operation = ReductionOperation(names_of(paths), _how(how), None if dims is None else names_of(dims))
    return run_reduction(operation, source, options)


@takes_options
@with_argument_docs(reduce)
def mean(
    source: Source, paths: Names, dims: Names | None = None, **options: Unpack[ReductionOptions]
) -> JobResult:
    """Compute the mean of arrays along dimensions, in one commit.

    This is `reduce` with ``how="mean"``.

    Returns:
        The `JobResult`, whose ``version`` has the results: in the group ``/mean``, unless ``to`` is given.

    Raises:
        InvalidInputError: As in `reduce`.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="a table") as store:
        ...     t = zarr.create_array(store, name="t", data=np.diag([2.0, 4.0]), dimension_names=("y", "x"))
        >>> result = frazil.pipeline.mean(repo, "t", "x", engine="inline")
        >>> zarr.open_array(result.version.session().store, path="mean/t", mode="r")[:].tolist()
        [1.0, 2.0]
    """
    return reduce(source, paths, dims, "mean", **options)


@takes_options
@with_argument_docs(reduce)
def sum(  # noqa: A001  # as numpy and xarray have it
    source: Source, paths: Names, dims: Names | None = None, **options: Unpack[ReductionOptions]
) -> JobResult:
    """Compute the sum of arrays along dimensions, in one commit.

    This is `reduce` with ``how="sum"``. Integers are added exactly, modulo 2**64 as in
    numpy.
    """
    return reduce(source, paths, dims, "sum", **options)


@takes_options
@with_argument_docs(reduce)
def min(  # noqa: A001
    source: Source, paths: Names, dims: Names | None = None, **options: Unpack[ReductionOptions]
) -> JobResult:
    """Find the smallest value of arrays along dimensions, in one commit.

    This is `reduce` with ``how="min"``.
    """
    return reduce(source, paths, dims, "min", **options)


@takes_options
@with_argument_docs(reduce)
def max(  # noqa: A001
    source: Source, paths: Names, dims: Names | None = None, **options: Unpack[ReductionOptions]
) -> JobResult:
    """Find the largest value of arrays along dimensions, in one commit.

    This is `reduce` with ``how="max"``.
    """
    return reduce(source, paths, dims, "max", **options)


@takes_options
@with_argument_docs(reduce)
def std(
    source: Source, paths: Names, dims: Names | None = None, **options: Unpack[ReductionOptions]
) -> JobResult:
    """Compute the standard deviation of arrays along dimensions, in one commit.

    This is `reduce` with ``how="std"``. The sum of squares is divided by the number of
    cells minus ``ddof``, which is 0 by default.

    Returns:
        The `JobResult`, whose ``version`` has the results: in the group ``/std``, unless ``to`` is given.

    Raises:
        InvalidInputError: As in `reduce`.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="a table") as store:
        ...     t = zarr.create_array(store, name="t", data=np.diag([2.0, 4.0]), dimension_names=("y", "x"))
        >>> result = frazil.pipeline.std(repo, "t", "x", engine="inline")
        >>> zarr.open_array(result.version.session().store, path="std/t", mode="r")[:].tolist()
        [1.0, 2.0]
    """
    return reduce(source, paths, dims, "std", **options)


@takes_options
@with_argument_docs(reduce)
def count(
    source: Source, paths: Names, dims: Names | None = None, **options: Unpack[ReductionOptions]
) -> JobResult:
    """Count the values of arrays that are not NaN along dimensions, in one commit.

    This is `reduce` with ``how="count"``.

    Returns:
        The `JobResult`, whose ``version`` has the results: in the group ``/count``, unless ``to`` is given.

    Raises:
        InvalidInputError: As in `reduce`.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> row = np.array([[1.0, np.nan]])
        >>> with repo.transaction("main", message="a row") as store:
        ...     t = zarr.create_array(store, name="t", data=row, dimension_names=("y", "x"))
        >>> result = frazil.pipeline.count(repo, "t", "x", engine="inline")
        >>> zarr.open_array(result.version.session().store, path="count/t", mode="r")[:].tolist()
        [1]
    """
    return reduce(source, paths, dims, "count", **options)


@takes_quantile_options
@with_argument_docs(reduce)
def quantile(
    source: Source,
    paths: Names,
    q: float | Sequence[float] = 0.5,
    dims: Names | None = None,
    **options: Unpack[QuantileOptions],
) -> JobResult:
    """Compute quantiles of arrays along dimensions, in one commit.

    This is `reduce` with ``how="quantile"``. Quantiles are exact, with linear interpolation as in numpy,
    where the cells of a task take at most ``exact_below`` bytes. Beyond that they come from sketches, and the
    attribute ``quantile_rank_error`` of the result holds their rank error (99 % confidence).

    Args:
        q: A quantile between 0 and 1, or several. Several quantiles become the dimension ``quantile`` of the
            result. The default is 0.5, the median.

    Returns:
        The `JobResult`, whose ``version`` has the results: in the group ``/quantile``, unless ``to`` is
        given.

    Raises:
        InvalidInputError: ``q`` is not between 0 and 1 (``invalid-argument``), or as in `reduce`.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="a row") as store:
        ...     row = zarr.create_array(store, name="t", data=np.arange(5.0), dimension_names=("x",))
        >>> result = frazil.pipeline.quantile(repo, "t", [0.25, 0.5], engine="inline")
        >>> zarr.open_array(result.version.session().store, path="quantile/t", mode="r")[:].tolist()
        [1.0, 2.0]
    """
    return reduce(source, paths, dims, "quantile", q=q, **options)


#: The periods of a climatology: parts of a time in xarray.
PERIODS: Final = ("month", "season", "dayofyear", "hour")


@takes_options
@with_argument_docs(reduce)
def groupby(
    source: Source,
    paths: Names,
    by: By,
    how: How = "mean",
    dims: Names | None = None,
    **options: Unpack[ReductionOptions],
) -> JobResult:
    """Reduce the cells of each group along the dimensions of the labels, in one commit.

    Groups are sorted by label. Cells without a label are ignored. The group dimension takes the position of
    the first dimension of the labels.

    Args:
        by: The labels of the cells: a part of a time (``"time.month"``, ``"time.season"``, in the calendar of
            the coordinate), the name of a coordinate, a DataArray of labels with a name, or a grouper of
            xarray (``{"lat": BinGrouper(...)}``).
        how: The statistic, or several: see `reduce`. The default is ``"mean"``.
        dims: Dimensions to reduce in addition to those of the labels. The default, None, adds none.

    Returns:
        The `JobResult`, whose ``version`` has the results: in the group ``/groupby``, unless ``to`` is given.

    Raises:
        InvalidInputError: The labels do not fit the array or have no name (``invalid-argument``), or as in
            `reduce`.

    Examples:
        >>> import frazil, numpy as np, xarray as xr, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="stations") as store:
        ...     t = zarr.create_array(store, name="t", data=np.array([1.0, 2, 4]), dimension_names=("x",))
        >>> labels = xr.DataArray([7, 7, 9], dims="x", name="zone")
        >>> result = frazil.pipeline.groupby(repo, "t", labels, engine="inline")
        >>> zarr.open_array(result.version.session().store, path="groupby/t", mode="r")[:].tolist()
        [1.5, 4.0]
    """
    operation = LabelGroups(names_of(paths), _how(how), None if dims is None else names_of(dims), {}, by)
    return run_reduction(operation, source, options)


@dataclass(frozen=True, slots=True)
class LabelGroups(ReductionOperation):
    """The operation of `groupby`."""

    name = "groupby"
    by: By = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The coordinates with the labels."""
        return label_names(self.by)

    def grouping_of(self, session: Session, array: Field) -> Grouping:
        """Return the groups of equal labels."""
        return _labelled(session, array, self.by, "by")


def _labelled(session: Session, array: Field, by: By, argument: str) -> Grouping:
    if isinstance(by, xr.DataArray):
        require_same_labels(session, array, by, argument)
    return grouping(session, array.parent, by)


def _how(how: How) -> How:
    return how if isinstance(how, str) else names_of(how)


@takes_options
@with_argument_docs(reduce)
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

    `anomaly` takes the result.

    Args:
        period: The period: ``"month"`` (the default), ``"season"``, ``"dayofyear"`` or ``"hour"``. It becomes
            a dimension of the result, instead of the time.
        how: The statistic, or several: see `reduce`. The default is ``"mean"``.
        years: The first and the last year, both included. The default, None, takes all years.
        time: The name of the time dimension.

    Returns:
        The `JobResult`, whose ``version`` has the results: in the group ``/climatology``, unless ``to`` is
        given.

    Raises:
        InvalidInputError: The period is unknown (``unknown-choice``), or as in `reduce`.

    Examples:
        >>> import frazil, pandas as pd, xarray as xr, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> times = pd.to_datetime(["2001-01-01", "2001-02-01", "2002-01-01", "2002-02-01"])
        >>> series = xr.Dataset({"t": ("time", [1.0, 4.0, 3.0, 8.0])}, {"time": times})
        >>> session = repo.writable_session("main")
        >>> _ = series.to_zarr(session.store, zarr_format=3, consolidated=False)
        >>> snapshot_id = session.commit("two years")
        >>> result = frazil.pipeline.climatology(repo, "t", "month", engine="inline")
        >>> zarr.open_array(result.version.session().store, path="climatology/t", mode="r")[:].tolist()
        [2.0, 6.0]
    """
    require_choice("period", period, PERIODS)

    operation = Climatology(names_of(paths), _how(how), None, {}, period, years, time)
    return run_reduction(operation, source, options)


@dataclass(frozen=True, slots=True)
class Climatology(ReductionOperation):
    """The operation of `climatology`."""

    name = "climatology"
    period: str = "month"
    years: tuple[int, int] | None = None
    time: str = "time"

    def grouping_of(self, session: Session, array: Field) -> Grouping:
        """Return the periods."""
        only = None
        if self.years is not None:
            year = coordinate(session, array.parent, self.time).dt.year.values
            only = (year >= self.years[0]) & (year <= self.years[1])
        return grouping(session, array.parent, f"{self.time}.{self.period}", only=only)


@takes_options
@with_argument_docs(reduce)
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
    """Reduce arrays to a lower frequency of time, in one commit, as xarray's ``resample``.

    A period without any time is NaN for every statistic; counts and sums of integers are then floats. A
    period whose values are all NaN has the count 0 and the sum 0 (``min_count=1`` makes the sum NaN).

    Args:
        freq: The frequency, as in pandas and xarray: ``"1D"``, ``"MS"``, ``"YS"``, ...
        how: The statistic, or several: see `reduce`. The default is ``"mean"``.
        time: The name of the time dimension. Its calendar applies.
        closed: The side of a period that belongs to it, ``"left"`` or ``"right"``. The default, None, is the
            default of pandas for the frequency.
        label: The side of a period that gives its label, ``"left"`` or ``"right"``. The default, None, is the
            default of pandas for the frequency.

    Returns:
        The `JobResult`, whose ``version`` has the results: in the group ``/resample``, unless ``to`` is
        given.

    Raises:
        InvalidInputError: As in `reduce`.

    Examples:
        >>> import frazil, pandas as pd, xarray as xr, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> times = pd.to_datetime(["2001-01-01", "2001-02-01", "2002-01-01", "2002-02-01"])
        >>> series = xr.Dataset({"t": ("time", [1.0, 4.0, 3.0, 8.0])}, {"time": times})
        >>> session = repo.writable_session("main")
        >>> _ = series.to_zarr(session.store, group="data", zarr_format=3, consolidated=False)
        >>> snapshot_id = session.commit("two years")
        >>> result = frazil.pipeline.resample(repo, "data/t", "YS", "max", engine="inline")
        >>> zarr.open_array(result.version.session().store, path="resample/data/t", mode="r")[:].tolist()
        [4.0, 8.0]
    """
    operation = Resampling(names_of(paths), _how(how), None, {}, freq, time, closed, label)
    return run_reduction(operation, source, options)


@dataclass(frozen=True, slots=True)
class Resampling(ReductionOperation):
    """The operation of `resample`."""

    name = "resample"
    freq: str = ""
    time: str = "time"
    closed: str | None = None
    label: str | None = None

    def grouping_of(self, session: Session, array: Field) -> Grouping:
        """Return the bins."""
        return resampling(session, array.parent, self.time, self.freq, closed=self.closed, label=self.label)


@takes_options
@with_argument_docs(reduce)
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
    """Compute statistics of each zone along the dimensions of the labels, in one commit.

    `frazil.pipeline.reductions.zones.rasterized` makes labels from polygons.

    Args:
        zones: The zones: a DataArray of labels with a name (cells with the label NaN are in no zone), the
            name of a coordinate with labels, or the borders of bands of latitude, such as ``[-90, -30, 30,
            90]``. A band includes its lower border; the last band includes its upper border too.
        how: The statistic, or several: see `reduce`. The default is ``("mean", "std", "min", "max",
            "count")``.
        latitude: The name of the coordinate of latitudes, which bands need.
        dims: Dimensions to reduce in addition to those of the labels. The default, None, adds none.

    Returns:
        The `JobResult`, whose ``version`` has the results: in the group ``/zonal_stats``, unless ``to`` is
        given.

    Raises:
        InvalidInputError: The borders do not rise or the labels do not fit the array (``invalid-argument``),
            or as in `reduce`.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="a meridian") as store:
        ...     for name in ("lat", "t"):
        ...         array = zarr.create_array(
        ...             store, name=name, data=np.arange(-90.0, 91, 30), dimension_names=["lat"]
        ...         )
        >>> result = frazil.pipeline.zonal_stats(repo, "t", [-90, 0, 90], "max", engine="inline")
        >>> zarr.open_array(result.version.session().store, path="zonal_stats/t", mode="r")[:].tolist()
        [-30.0, 90.0]
    """
    if not isinstance(zones, str | xr.DataArray):
        if np.ndim(np.asarray(zones, object)) != 1:
            raise InvalidInputError(
                "zones must be a DataArray of labels, the name of a coordinate, or borders of bands, got an "
                f"array with {np.ndim(zones)} dimensions"
            )
        zones = tuple(float(each) for each in zones)
        if len(zones) < 2 or not (np.diff(zones) > 0).all():
            raise InvalidInputError(
                f"zones must be at least two borders in ascending order, got {list(zones)}"
            )
    operation = ZonalStatistics(
        names_of(paths), _how(how), None if dims is None else names_of(dims), {}, zones, latitude
    )
    return run_reduction(operation, source, options)


@dataclass(frozen=True, slots=True)
class ZonalStatistics(ReductionOperation):
    """The operation of `zonal_stats`. ``zones`` are labels, or the borders of bands."""

    name = "zonal_stats"
    zones: xr.DataArray | str | tuple[float, ...] = ""
    latitude: str = "lat"

    @property
    def labels(self) -> tuple[str, ...]:
        """The coordinates with the labels, or the latitude."""
        return (self.latitude,) if isinstance(self.zones, tuple) else label_names(self.zones)

    def grouping_of(self, session: Session, array: Field) -> Grouping:
        """Return the zones."""
        if not isinstance(self.zones, tuple):
            return _labelled(session, array, self.zones, "zones")
        bands = coordinate(session, array.parent, self.latitude)
        values, edges = np.asarray(bands.values, np.float64), np.asarray(self.zones, np.float64)
        codes = np.searchsorted(edges, values, side="right").astype(np.int64) - 1
        codes[values == edges[-1]] = len(edges) - 2
        codes[(codes >= len(edges) - 1) | np.isnan(values)] = -1
        middles = (edges[:-1] + edges[1:]) / 2
        attributes = {name: value for name, value in bands.attrs.items() if name != "bounds"}
        return Grouping(tuple(map(str, bands.dims)), codes, "zone", middles, attributes)
