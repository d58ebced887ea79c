"""The operations `reduce` and its short names, which reduce whole dimensions.

Each operation reads a version and makes one commit. A result has the retained dimensions, their coordinates,
and the attributes of the array; its ``cell_methods`` name the statistic. The values are those that xarray
computes from the same arrays, up to the order of additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from frazil.argument_docs import with_argument_docs
from frazil.jobs.job_result import JobResult
from frazil.jobs.versions import Source
from frazil.pipeline.reductions.options import (
    How,
    QuantileOptions,
    ReductionOptions,
    takes_options,
    takes_quantile_options,
)
from frazil.pipeline.reductions.reduction_job import run_reduction

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
        **options: The options of `frazil.pipeline.reductions.options.ReductionOptions` (``skipna``,
            ``weights``, ``to``, ...) and of `frazil.jobs.run_options.RunOptions` (``engine``, ``job_id``,
            ...).

    Returns:
        The `JobResult`, whose ``version`` has the results.

    Raises:
        InvalidInputError: An array does not hold numbers (``invalid-array-metadata``), a dimension or a
            statistic is unknown (``unknown-choice``), a result would replace an array that the job reads
            (``conflicting-arguments``), or the source is not on a branch and ``to`` is missing
            (``not-on-branch``).
        NodeNotFoundError: A path has no array.
        TypeError: An option is unknown.

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
    name = how if isinstance(how, str) else "reduce"
    return run_reduction(name, source, paths, how, options, dims=dims)


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
