"""A function of numpy blocks over whole arrays: `map_blocks`.

With a halo, a block includes values around it, and the result for the halo is cut off. So the result does
not depend on the size of the blocks, if the function looks no further than the halo.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Unpack

import numpy as np

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.engines import engine_of
from frazil.jobs.job_result import JobResult
from frazil.jobs.memory import Budget
from frazil.jobs.run_options import with_options
from frazil.jobs.versions import Source, Target, Version, takes_versions
from frazil.pipeline.transform.array_arguments import GridRunOptions, chunk_lengths, require_dimensions
from frazil.pipeline.transform.array_info import (
    ArrayInfo,
    Shape,
    array_info,
    with_companions,
)
from frazil.pipeline.transform.block_job import (
    BlockJob,
    ComputedArrays,
    OutputArrays,
    TransferredArray,
    block_for,
    run_block_job,
)
from frazil.pipeline.transform.function_blocks import FunctionBlocks, InputGrid
from frazil.pipeline.transform.function_fingerprint import fingerprint
from frazil.pipeline.transform.halo import (
    Boundary,
    Halo,
    margins_of,
    require_boundary,
)
from frazil.repository.session.session import Session

#: The least number of tasks of a function, whose cost is unknown.
_TASKS: Final = 32


@with_options(GridRunOptions)
@takes_versions
def map_blocks(
    function: Callable[..., Any],
    source: Source,
    paths: Sequence[str],
    *,
    to: Target,
    names: Sequence[str] | None = None,
    halo: Halo | None = None,
    boundary: Boundary = "reflect",
    dtype: Any = None,
    drop: Sequence[str | int] = (),
    new: Mapping[str, int] | None = None,
    fill_value: Any = None,
    attributes: Mapping[str, Any] | None = None,
    tasks: int | None = None,
    **options: Unpack[GridRunOptions],
) -> JobResult:
    """Store the results of a function of numpy blocks as new arrays, in one commit.

    The function is called for all blocks of arrays on one grid. All inputs have the shape of the first one,
    or named dimensions that are among those of the first one; their blocks then have length 1 along the other
    axes. The coordinates of the first input are copied to the target. A task that fails is retried alone. The
    size of a block does not tell what the function costs, so ``tasks`` sets the least number of tasks.

    Args:
        function: The function. It gets a numpy array for each of ``paths``, and ``block=`` (a `Block` with
            the path, start and stop of the result) if it has such a parameter after those. It returns one
            array, or as many arrays as there are ``names``. Executors import a function of an installed
            module by its name; other functions are sent to them by value.
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        paths: The paths of the inputs.
        to: The `Target` of the results.
        names: The paths of the results below the target. The default, None, is the path of the first input.
        halo: The number of elements that a block includes on each side, for all dimensions or by dimension:
            ``2``, or ``{"lat": 2, "lon": (1, 3)}`` for one element before and three after. They are cut off
            the results. The default, None, is no halo.
        boundary: The values of the halo beyond the borders of the array: ``"reflect"`` (the default),
            ``"nearest"``, ``"periodic"`` or a number.
        dtype: The data type of the results, or a list with one for each. The default, None, is the data type
            of the first input. Values that the type cannot hold (fractions in integers) raise an error.
        drop: Dimensions, by name or number, that are whole in each block, and that the results do not have.
        new: Dimensions that only the results have, before the others: ``{name: length}``.
        fill_value: The fill value of the results, or a list with one for each. The default, None, is that of
            the first input, or with ``dtype`` NaN, NaT or zero.
        attributes: The attributes of the results, or a list with one mapping for each. The default, None, are
            the attributes of the first input.
        tasks: The least number of tasks, if the results have this many chunks. The default, None, is 32,
            or the number of tasks that the engine runs at the same time if that is larger.
        max_mem: The most memory for the values that are read and written for one block, in bytes: a number,
            or a text such as ``"1GB"``. It does not bound what the function needs in between. The default,
            None, is 256 MB, or more where one chunk needs more.
        **options: The chunks and shards of the results, and the run options (``engine``, ``job_id``, ...).

    Returns:
        The `JobResult`, whose ``version`` has the new arrays.

    Raises:
        InvalidInputError: The arguments do not fit the arrays, or one chunk needs more than ``max_mem``.
        TaskFailedError: The function raises an error.
        TypeError: An option is unknown.

    Examples:
        >>> import frazil, zarr, numpy as np
        >>> from frazil.pipeline import Target, map_blocks
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="wind") as store:
        ...     for name, value in (("u", 3.0), ("v", 4.0)):
        ...         array = zarr.create_array(store, name=name, shape=(4, 6), chunks=(2, 3), dtype="f8")
        ...         array[:] = value
        >>> result = map_blocks(np.hypot, repo, ["u", "v"], to=Target(repo), names=["speed"], engine="inline")
        >>> zarr.open_array(result.version.session().store, path="speed", mode="r")[0, :3].tolist()
        [5.0, 5.0, 5.0]
    """
    version = Version.of(source)
    session = version.session()
    arrays = [array_info(session, path) for path in ([paths] if isinstance(paths, str) else paths)]
    grid = _grid(arrays, halo, boundary, drop, new)
    names = [arrays[0].path] if names is None else list(names)
    dtypes, fill_values, all_attributes = (_each(x, len(names)) for x in (dtype, fill_value, attributes))
    results = [
        _result(grid, to.path(name), *each, options)
        for name, each in zip(names, zip(dtypes, fill_values, all_attributes, strict=True), strict=True)
    ]
    if tasks is not None and tasks < 1:
        raise InvalidInputError(f"tasks must be at least 1, got {tasks}", ErrorKind.INVALID_ARGUMENT)
    # The default engine is created only for work: a job that is done already does not start Spark.
    if options.get("engine") is not None:
        options["engine"] = engine_of(options["engine"])
    tasks = tasks or max(_TASKS, getattr(options.get("engine"), "slots", 1))
    blocks = FunctionBlocks(
        function,
        grid,
        tuple(each.path for each in arrays),
        tuple(_axes_in_first(grid.first, each) for each in arrays),
        boundary,
        results[0].path,
        takes_block="block" in list(_parameters(function))[len(arrays) :],
        dtypes=tuple(
            None if given is not None else each.dtype for given, each in zip(dtypes, results, strict=True)
        ),
    )
    block = _block(grid, arrays, results, Budget.of(options.get("max_mem")), tasks)
    computed = ComputedArrays(grid.first, tuple(results), block, blocks, tasks=tasks)
    coordinates = [] if _is_same_group(version, to) else _coordinates(session, arrays, results, to)
    parameters = {
        "function": fingerprint(function),
        "names": names,
        "halo": grid.margins,
        "boundary": boundary,
        "dtype": [str(each.dtype) for each in results],
        "chunks": [each.document["chunk_grid"] for each in results],
        "fill_value": str(fill_value),
        "attributes": json.loads(json.dumps(attributes, default=str)),
        "drop": sorted(grid.dropped),
        "new": grid.new,
    }
    outputs = OutputArrays([computed], coordinates)
    return run_block_job(BlockJob("map_blocks", version, session, to, arrays, outputs, parameters), options)


def _grid(
    arrays: Sequence[ArrayInfo],
    halo: Halo | None,
    boundary: Boundary,
    drop: Sequence[str | int],
    new: Mapping[str, int] | None,
) -> InputGrid:
    if not arrays:
        raise InvalidInputError("paths must name at least one array, got none", ErrorKind.INVALID_ARGUMENT)
    require_boundary(boundary)
    first = arrays[0]
    require_dimensions([*(halo if isinstance(halo, Mapping) else ()), *drop], [first])
    for array in arrays[1:]:
        _require_same_grid(first, array)
    dropped = frozenset(axis for name in drop if (axis := first.axis(name)) is not None)
    margins = margins_of(halo, first)
    if margins and any(margins[axis] != (0, 0) for axis in dropped):
        raise InvalidInputError(
            f"halo must be 0 along the dimensions in drop, got {halo}", ErrorKind.CONFLICTING_ARGUMENTS
        )
    return InputGrid(first, margins, dropped, dict(new or {}))


def _require_same_grid(first: ArrayInfo, other: ArrayInfo) -> None:
    if other.shape == first.shape:
        return
    order = [first.axis(name) if name is not None else None for name in other.dims]
    fits = all(axis is not None for axis in order) and order == sorted(order, key=lambda axis: axis or 0)
    if not fits or any(n != first.shape[axis or 0] for axis, n in zip(order, other.shape, strict=True)):
        raise InvalidInputError(
            f"All inputs must be on the grid of `{first.path}` {first.dims} {first.shape}, "
            f"got `{other.path}` {other.dims} {other.shape}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )


def _axes_in_first(first: ArrayInfo, other: ArrayInfo) -> tuple[int, ...]:
    """Return for each axis of an input, the axis of the first input."""
    if other.shape == first.shape:
        return tuple(range(first.ndim))
    return tuple(first.dims.index(name) for name in other.dims)


def _result(
    grid: InputGrid,
    path: str,
    dtype: Any,
    fill_value: Any,
    attributes: Mapping[str, Any] | None,
    options: GridRunOptions,
) -> ArrayInfo:
    first, new_lengths = grid.first, list(grid.new.values())
    shape = grid.arranged(new_lengths, first.shape)
    dims = grid.arranged(list(grid.new), first.dims)
    chunks = grid.arranged(new_lengths, first.chunks)
    if dtype is None and fill_value is None:  # any data type, as the document has it
        out = first.with_layout(
            path,
            shape=shape,
            chunks=chunks,
            dimension_names=list(dims) if any(dims) else None,
            attributes=first.attributes if attributes is None else dict(attributes),
        )
    else:
        out = first.with_dtype(
            path,
            first.dtype if dtype is None else dtype,
            shape=shape,
            dims=dims,
            chunks=chunks,
            fill_value=fill_value,
            attributes=attributes,
        )
    inner = chunk_lengths(options.get("chunks"), out, chunks, "chunks")
    outer = chunk_lengths(options.get("shards"), out, None, "shards", inner=inner)
    return out.with_layout(path, chunks=inner, shards=outer)


def _block(
    grid: InputGrid, arrays: Sequence[ArrayInfo], results: Sequence[ArrayInfo], budget: Budget, tasks: int
) -> Shape:
    """Return the shape of the blocks of the results. New axes are whole."""
    depth = max(np.prod([grid.first.shape[axis] for axis in grid.dropped], dtype=float), 1.0)
    inputs = sum(each.itemsize for each in arrays) * depth
    factor = 1 + inputs / sum(each.itemsize for each in results)
    return block_for(results, budget, arrays, factor=factor, whole=range(len(grid.new)), tasks=tasks)


def _is_same_group(version: Version, to: Target) -> bool:
    return to.repo is version.repo and to.group.strip("/") == ""


def _coordinates(
    session: Session, arrays: Sequence[ArrayInfo], results: Sequence[ArrayInfo], to: Target
) -> list[TransferredArray]:
    """Return the coordinates of the first input, except those that are inputs or results themselves."""
    paths = {each.path for each in arrays} | {each.path for each in results}
    return [
        TransferredArray.whole(each, to.path(each.path))
        for each in with_companions(session, [arrays[0]])
        if each.path not in paths and to.path(each.path) not in paths
    ]


def _each(given: Any, count: int) -> list[Any]:
    """Return one value for each result: the values of a list of that length, or the same value for all."""
    return list(given) if isinstance(given, list | tuple) and len(given) == count else [given] * count


def _parameters(function: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # some compiled functions have no signature
        return {}
