"""Arrays on a coarser grid: statistics over windows of neighbours.

Elements that do not fill a window at the end of a dimension are an error (``boundary="exact"``, as in
xarray), are left out (``"trim"``), or make a smaller window (``"pad"``).

Coordinates get the mean of each window, bounds the lower bound of the first and the upper bound of the last
element. Dates and durations have the statistics that xarray has for them. For a statistic that a data type
does not have (the sum of dates, the mean of strings) the result is the first element of each window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from frazil.jobs.job_result import JobResult
from frazil.jobs.memory import Budget
from frazil.jobs.run_options import with_options
from frazil.jobs.versions import Source, Target, Version, takes_versions
from frazil.pipeline.transform.array_info import arrays_below, with_companions
from frazil.pipeline.transform.block_job import (
    BlockJob,
    ComputedArrays,
    DriverArray,
    OutputArrays,
    TransferredArray,
    run_block_job,
)
from frazil.pipeline.transform.cf_metadata import (
    bounds_path,
    coordinate_paths,
    coordinate_values,
    is_coordinate,
)
from frazil.pipeline.transform.options import ChunkRun, ChunkRunOptions
from frazil.pipeline.transform.window_statistics import (
    Edge,
    How,
    Windows,
    coarse_array,
    coarse_coordinate,
    computed_statistics,
    is_on_coarse_grid,
    require_windows,
    statistic_of,
)


@with_options(ChunkRunOptions, ChunkRun)
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
    """Make arrays coarser by whole factors, ``{"lat": 4, "lon": 4}``, in one commit.

    ``paths`` are arrays, or groups for all arrays below; their coordinates come along. ``how`` is ``mean``,
    ``sum``, ``min``, ``max``, ``median``, ``std``, ``var``, ``count`` (of values that are not missing) or
    ``first`` (one element of each window as it is, for classes and strings). Packed values are unpacked, see
    `frazil.pipeline.transform.cf_metadata`. Arrays without any of the dimensions are copied as they are.
    ``chunks`` are those of the results; without it they are as long as those of the arrays.

    ``max_mem`` bounds the values that one task holds; without it that is 256 MB, or what one chunk needs.
    ``boundary`` says what happens to elements at the end of a dimension that do not fill a window:
    ``"exact"`` refuses them, ``"trim"`` leaves them out, ``"pad"`` makes a smaller last window of them.

    Raises ``InvalidInputError`` for a dimension that no array has, a factor below 1, and with
    ``boundary="exact"`` for a length that is no multiple of its factor.

    >>> import frazil, zarr, numpy as np
    >>> from frazil.pipeline import Inline, Target, coarsen
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> with repo.transaction("main", message="a row") as store:
    ...     array = zarr.create_array(
    ...         store, name="data/t", data=np.array([1.0, 3, 5, 9]), chunks=(2,), dimension_names=["x"]
    ...     )
    >>> half = Target(repo, group="half")
    >>> result = coarsen(repo, ["data/t"], {"x": 2}, to=half, engine=Inline())
    >>> zarr.open_array(result.version.session().store, path="half/data/t", mode="r")[:].tolist()
    [2.0, 7.0]
    """
    run = ChunkRun(**options)
    version = Version.of(source)
    session = version.session()
    arrays = with_companions(session, arrays_below(session, paths))
    require_windows(factors, how, boundary, arrays)
    budget = Budget.of(run.max_mem)
    coordinates, bounds = coordinate_paths(arrays), set(map(bounds_path, arrays))
    computed: list[ComputedArrays] = []
    coarse: list[DriverArray] = []
    transferred: list[TransferredArray] = []
    for array in arrays:
        path = to.path(array.path)
        if is_on_coarse_grid(array, factors, how, coordinates):
            transferred.append(TransferredArray.whole(array, path))
            continue
        windows = Windows.of(array, factors, statistic_of(array, how, coordinates), boundary)
        if is_coordinate(array, coordinates) and array.ndim <= 2 and not windows.is_multidimensional:
            values = coordinate_values(session, array)
            coarse.append(coarse_coordinate(array, values, path, windows, are_bounds=array.path in bounds))
        else:
            new = coarse_array(array, path, windows, run.chunks)
            computed.append(computed_statistics(array, new, windows, budget))
    outputs = OutputArrays(computed, transferred, coarse)
    parameters = {
        "factors": {str(dim): int(factor) for dim, factor in factors.items()},
        "how": how,
        "boundary": boundary,
        "chunks": outputs.chunk_grids,
    }
    return run_block_job(BlockJob("coarsen", version, session, to, arrays, outputs, parameters), run)
