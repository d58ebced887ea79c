"""Arrays on a coarser grid: statistics over windows of neighbours.

Elements at the end of a dimension that do not fill a window are an error (``boundary="exact"``, as in
xarray), are ignored (``"trim"``), or make a smaller window (``"pad"``).

Coordinates get the mean of each window. Bounds get the lower bound of the first element and the upper bound
of the last one. Dates and durations have the statistics that xarray has for them. For a statistic that a data
type does not have (the sum of dates, the mean of strings) the result is the first element of each window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from frazil.jobs.job_result import JobResult
from frazil.jobs.memory import Budget
from frazil.jobs.run_options import with_options
from frazil.jobs.versions import Source, Target, Version, takes_versions
from frazil.pipeline.transform.array_arguments import ChunkRunOptions
from frazil.pipeline.transform.array_info import arrays_below, with_companions
from frazil.pipeline.transform.block_job import BlockJob, run_block_job
from frazil.pipeline.transform.window_statistics import (
    CoarseArrays,
    Edge,
    How,
    is_on_coarse_grid,
    require_windows,
)


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
    coarser too. Packed values are unpacked (`frazil.pipeline.transform.cf_metadata`). Arrays without any of
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
