"""A function of numpy blocks over whole arrays: `map_blocks`, with a halo whose results are cut off."""

from __future__ import annotations

import hashlib
import inspect
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final, Literal, Unpack

import numpy as np

from frazil.arguments import conflicting, misfit
from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import Budget, slabs
from frazil.jobs.engine import least_tasks
from frazil.jobs.job import BoundedRunOptions, JobResult, Source, Target, takes_versions, with_options
from frazil.jobs.parallel_write import Block
from frazil.jobs.task_failures import dumps
from frazil.pipeline.derivation.operation import ArrayOperation, BlockPlan, SourceView
from frazil.pipeline.derivation.relations import Read, Relation, Whole, Window
from frazil.pipeline.transform.arrays import (
    ArrayInfo,
    GridRunOptions,
    Json,
    Lengths,
    Shape,
    Values,
    array_info,
    chunk_lengths,
    names_of,
    open_array,
    require_dimensions,
    with_companions,
)
from frazil.pipeline.transform.block_job import ComputedArrays, OutputArrays, TransferredArray, block_for
from frazil.repository.session.session import Session

type Boundary = Literal["reflect", "nearest", "periodic"] | float
type Halo = int | Mapping[str | int, int | tuple[int, int]]
#: Elements before and after a block, for each axis.
type Margins = tuple[tuple[int, int], ...]

_BOUNDARIES: Final = ("reflect", "nearest", "periodic")


def read_with_halo(
    array: Any, spans: Sequence[tuple[int, int]], margins: Sequence[tuple[int, int]], boundary: Boundary
) -> Values:
    """Return the values of a region (``spans``: start and stop of each axis) with margins around it."""
    outer = [(a - low, b + high) for (a, b), (low, high) in zip(spans, margins, strict=True)]
    inside = [(max(a, 0), min(b, n)) for (a, b), n in zip(outer, array.shape, strict=True)]
    if isinstance(boundary, str) and all(array.shape) and outer != inside:
        index = []
        for (a, b), n in zip(outer, array.shape, strict=True):
            positions = np.arange(a, b)
            if boundary == "periodic":
                positions %= n
            elif boundary == "nearest":
                positions = np.clip(positions, 0, n - 1)
            else:
                positions %= 2 * n
                positions = np.minimum(positions, 2 * n - 1 - positions)
            index.append(positions)
        return np.asarray(array.oindex[tuple(index)])
    values = np.asarray(array[tuple(slice(a, b) for a, b in inside)])
    missing = [(c - a, b - d) for (a, b), (c, d) in zip(outer, inside, strict=True)]
    if not any(map(any, missing)):
        return values
    return np.pad(values, missing, constant_values=0 if isinstance(boundary, str) else boundary)


_NUMBERS: Final = frozenset("biufc")


@dataclass(frozen=True, slots=True)
class InputGrid:
    """The grid of the inputs, which is that of the ``first``, and how the grid of the results differs."""

    first: ArrayInfo
    margins: Margins | None
    dropped: frozenset[int]
    new: dict[str, int]

    @property
    def axes(self) -> list[int]:
        """The axes of the first input that the results have."""
        return [axis for axis in range(self.first.ndim) if axis not in self.dropped]

    def arranged[T](self, new: Sequence[T], values: Sequence[T]) -> tuple[T, ...]:
        """Return a value for each axis of a result: of its ``new`` axes, then of the first input's axes."""
        return (*new, *(values[axis] for axis in self.axes))


@dataclass(frozen=True, slots=True)
class FunctionBlocks:
    """Call the function for a block: see `frazil.pipeline.transform.block_job.Compute`.

    ``axes`` are, for each input, the axes of the first input that it has. ``path`` is that of the first
    result. ``dtypes`` are those of the results, None where the caller gives one.
    """

    function: Callable[..., Any]
    grid: InputGrid
    paths: tuple[str, ...]
    axes: tuple[tuple[int, ...], ...]
    boundary: Boundary
    path: str
    takes_block: bool
    dtypes: tuple[np.dtype[Any] | None, ...]

    def __call__(self, session: Session, start: Shape, stop: Shape) -> Sequence[Values]:
        """Return the results of the function for a block."""
        grid = self.grid
        shape, margins = grid.first.shape, grid.margins or ((0, 0),) * grid.first.ndim
        spans = list(zip(start, stop, strict=True))[len(grid.new) :]
        for axis in sorted(grid.dropped):
            spans.insert(axis, (0, shape[axis]))
        inputs = []
        for path, axes in zip(self.paths, self.axes, strict=True):
            array, around = open_array(session, path), [margins[axis] for axis in axes]
            values = read_with_halo(array, [spans[axis] for axis in axes], around, self.boundary)
            inputs.append(values[tuple(slice(None) if axis in axes else None for axis in range(len(shape)))])
        keywords = {"block": Block(self.path, start, stop)} if self.takes_block else {}
        returned, count = self.function(*inputs, **keywords), len(self.dtypes)
        blocks = [returned] if count == 1 and not isinstance(returned, tuple) else list(returned)
        if len(blocks) != count:
            raise misfit(f"The function must return {count} arrays, got {len(blocks)}")
        out = []
        for block, dtype in zip(map(np.asarray, blocks), self.dtypes, strict=True):
            lead, trimmed = len(grid.new), grid.arranged([], margins)
            if grid.margins is not None and block.ndim == lead + len(trimmed):  # else the job refuses it
                lengths = block.shape[lead:]
                trims = [slice(low, n - high) for (low, high), n in zip(trimmed, lengths, strict=True)]
                block = block[(*(slice(None),) * lead, *trims)]
            if dtype is not None:
                _require_fit(self.path, block, dtype)
            out.append(block)
        return out


def _require_fit(path: str, block: Values, dtype: np.dtype[Any]) -> None:
    """Raise ``InvalidInputError`` for values that change when they are stored as ``dtype``."""
    actual = block.dtype
    if dtype.kind not in _NUMBERS or np.can_cast(actual, dtype) or not block.ndim:
        return  # the job refuses a block without dimensions
    if actual.kind in _NUMBERS:
        if dtype.kind in "fc" and np.can_cast(actual, dtype, "same_kind"):
            return
        with np.errstate(invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
            parts = (block[part] for part in slabs(block.shape, block.itemsize))
            if all((part.astype(dtype) == part).all() for part in parts):
                return
    raise misfit(
        f"The values of `{path}` must fit into {dtype}, got a block of {actual} with values that do not. "
        "Pass dtype= to map_blocks, or convert the values in the function"
    )


#: Types whose pickle is complete, and the same in each process.
_IMMUTABLE: Final = (bool, int, float, complex, str, bytes, tuple, np.ndarray, np.generic)
_MUTABLE: Final = (list, dict)


def fingerprint(function: Any, outer: tuple[Any, ...] = ()) -> Json:
    """Return the name of a function and a hash of its code and values, as JSON.

    The values are defaults, closures, the state of an object, and globals that are neither functions nor
    modules. ``outer``: the functions that refer to this one, which end a recursion.
    """
    inner = getattr(function, "func", None)
    if inner is not None and hasattr(function, "keywords"):  # functools.partial
        arguments = [*function.args, *sorted(function.keywords.items())]
        return {**fingerprint(inner, outer), "given": _hash_values(arguments, outer)}
    owner = getattr(function, "__self__", None)
    if inspect.ismethod(function):
        return {**fingerprint(function.__func__, outer), "given": _hash_values([owner], outer)}
    kind = type(function)
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', kind.__qualname__)}"
    code = getattr(function, "__code__", None)
    if any(function is each for each in outer):
        return {"name": name}
    outer = (*outer, function)
    hashed = hashlib.sha256()
    if isinstance(code, CodeType):
        _hash_code(code, hashed.update)
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
        names = sorted(set(_names(code)) & function.__globals__.keys())
        # Mutable globals of a module may be caches, those of a notebook are its variables.
        kinds = _IMMUTABLE + _MUTABLE * (function.__module__ == "__main__")
        used = [(name, value) for name in names if isinstance(value := function.__globals__[name], kinds)]
        hashed.update(_hash_values([*cells, *defaults, *used], outer).encode())
    elif isinstance(getattr(kind.__call__, "__code__", None), CodeType):  # an object that can be called
        hashed.update(_hash_values([kind.__call__, function.__getstate__()], outer).encode())
    return {"name": name, "code": hashed.hexdigest()[:16]}


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _hash_values(values: Sequence[Any], outer: tuple[Any, ...] = ()) -> str:
    """Return a hash of values: of functions by their fingerprint, of others by their pickle."""
    parts = []
    for value in values:
        is_function = callable(value) and not isinstance(value, type)
        parts.append(repr(fingerprint(value, outer)).encode() if is_function else _pickled(value))
    return hashlib.sha256(b"|".join(parts)).hexdigest()[:16]


def _pickled(value: Any) -> bytes:
    if isinstance(value, set | frozenset):  # the order differs between processes
        return repr(sorted(map(repr, value))).encode()
    return dumps(value)


def _hash_code(code: CodeType, update: Callable[[bytes], Any]) -> None:
    update(code.co_code)
    update(repr(code.co_names).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _hash_code(constant, update)
        else:
            update(_pickled(constant) if isinstance(constant, frozenset) else repr(constant).encode())


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
    axes. The coordinates of the first input are copied to the target. Only the task that fails is retried.
    The size of a block does not tell what the function costs, so ``tasks`` sets the least number of tasks.

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
            or twice the number of tasks that the engine runs at the same time if that is larger.
        max_mem: The most memory for the values that are read and written for one block, in bytes: a number,
            or a text such as ``"1GB"``. It does not bound what the function needs in between. The default,
            None, is 256 MB, or more where one chunk needs more.

    Returns:
        The `JobResult`, whose ``version`` has the new arrays.

    Raises:
        InvalidInputError: The arguments do not fit the arrays, or one chunk needs more than ``max_mem``.
        TaskFailedError: The function raises an error.

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
    if tasks is not None and tasks < 1:
        raise InvalidInputError(f"tasks must be at least 1, got {tasks}")
    operation = BlockFunction(
        names_of(paths),
        function,
        None if names is None else tuple(names),
        halo,
        boundary,
        dtype,
        tuple(drop),
        new,
        fill_value,
        attributes,
        tasks,
        options.get("chunks"),
        options.get("shards"),
    )
    return operation.run(source, to, options)


@dataclass(frozen=True, slots=True)
class BlockFunction(ArrayOperation):
    """The operation of `map_blocks`."""

    name = "map_blocks"
    function: Callable[..., Any]
    names: tuple[str, ...] | None = None
    halo: Halo | None = None
    boundary: Boundary = "reflect"
    dtype: Any = None
    drop: tuple[str | int, ...] = ()
    new: Mapping[str, int] | None = None
    fill_value: Any = None
    attributes: Mapping[str, Any] | None = None
    tasks: int | None = None
    chunks: Lengths | None = None
    shards: Lengths | None = None

    def plan(self, view: SourceView, to: Target, options: BoundedRunOptions) -> BlockPlan:
        """Return the results of the function."""
        session, function, boundary = view.session, self.function, self.boundary
        arrays = [array_info(session, path) for path in self.paths]
        grid = _grid(arrays, self.halo, boundary, self.drop, self.new)
        names = [arrays[0].path] if self.names is None else list(self.names)
        dtypes, fill_values, all_attributes = (  # a list has a value for each result
            list(value)
            if isinstance(value, list | tuple) and len(value) == len(names)
            else [value] * len(names)
            for value in (self.dtype, self.fill_value, self.attributes)
        )
        results = [
            _result(grid, to.path(name), *each, self.chunks, self.shards)
            for name, each in zip(names, zip(dtypes, fill_values, all_attributes, strict=True), strict=True)
        ]
        tasks = self.tasks or least_tasks(options.get("engine"))
        try:
            parameter_names = list(inspect.signature(function).parameters)
        except (TypeError, ValueError):  # some compiled functions have no signature
            parameter_names = []
        blocks = FunctionBlocks(
            function,
            grid,
            tuple(each.path for each in arrays),
            tuple(_axes_in_first(grid.first, each) for each in arrays),
            boundary,
            results[0].path,
            takes_block="block" in parameter_names[len(arrays) :],
            dtypes=tuple(
                None if value is not None else each.dtype for value, each in zip(dtypes, results, strict=True)
            ),
        )
        depth = max(np.prod([grid.first.shape[axis] for axis in grid.dropped], dtype=float), 1.0)
        factor = 1 + sum(each.itemsize for each in arrays) * depth / sum(each.itemsize for each in results)
        budget, whole = Budget.of(options.get("max_mem")), range(len(grid.new))  # new axes are whole
        block = block_for(results, budget, arrays, factor=factor, whole=whole, tasks=tasks)
        reads = _reads(grid, arrays, blocks.axes, boundary, moves=not blocks.takes_block)
        key = fingerprint(function)
        computed = ComputedArrays(
            grid.first, tuple(results), block, blocks, tasks=tasks, reads=reads, key=key
        )
        coordinates: list[TransferredArray] = []
        if to.repo is not view.version.repo or to.group.strip("/"):
            own = {each.path for each in arrays} | {each.path for each in results}
            coordinates = [
                TransferredArray.whole(each, to.path(each.path))
                for each in with_companions(session, [arrays[0]])
                if own.isdisjoint((each.path, to.path(each.path)))
            ]
        parameters = {
            "function": fingerprint(function),
            "names": names,
            "halo": grid.margins,
            "boundary": boundary,
            "dtype": [str(each.dtype) for each in results],
            "chunks": [each.document["chunk_grid"] for each in results],
            "fill_value": str(self.fill_value),
            "attributes": json.loads(json.dumps(self.attributes, default=str)),
            "drop": sorted(grid.dropped),
            "new": grid.new,
        }
        outputs = OutputArrays([computed], coordinates)
        return BlockPlan(arrays, outputs, parameters)


def _reads(
    grid: InputGrid,
    arrays: Sequence[ArrayInfo],
    axes: Sequence[tuple[int, ...]],
    boundary: Boundary,
    *,
    moves: bool,
) -> tuple[Read, ...]:
    """Return what a block of the results reads. ``moves`` False: the function gets the place of the block."""
    at = {axis: number + len(grid.new) for number, axis in enumerate(grid.axes)}
    margins = grid.margins or ((0, 0),) * grid.first.ndim

    def relation(axis: int) -> tuple[int | None, Relation]:
        if axis in grid.dropped:
            return None, Whole()
        before, after = margins[axis]
        return at[axis], Window(1, 0, before, after, boundary == "periodic", moves)

    return tuple(Read(array.path, tuple(map(relation, own))) for array, own in zip(arrays, axes, strict=True))


def _grid(
    arrays: Sequence[ArrayInfo],
    halo: Halo | None,
    boundary: Boundary,
    drop: Sequence[str | int],
    new: Mapping[str, int] | None,
) -> InputGrid:
    if not arrays:
        raise InvalidInputError("paths must name at least one array, got none")
    if isinstance(boundary, str) and boundary not in _BOUNDARIES:
        raise InvalidInputError(
            f"boundary must be one of {', '.join(_BOUNDARIES)} or a number, got {boundary!r}",
            ErrorKind.UNKNOWN_CHOICE,
        )
    first = arrays[0]
    require_dimensions([*(halo if isinstance(halo, Mapping) else ()), *drop], [first])
    for array in arrays[1:]:
        axes = _axes_in_first(first, array)
        fits = -1 not in axes and list(axes) == sorted(axes)
        if not fits or any(n != first.shape[axis] for axis, n in zip(axes, array.shape, strict=True)):
            raise misfit(
                f"All inputs must be on the grid of `{first.path}` {first.dims} {first.shape}, "
                f"got `{array.path}` {array.dims} {array.shape}"
            )
    dropped = frozenset(axis for name in drop if (axis := first.axis(name)) is not None)
    margins: Margins | None = None
    if halo:
        depths: list[Any] = [halo] * first.ndim
        if isinstance(halo, Mapping):
            widths = {first.axis(name): depth for name, depth in halo.items()}
            depths = [widths.get(axis, 0) for axis in range(first.ndim)]
        margins = tuple(depth if isinstance(depth, tuple) else (depth, depth) for depth in depths)
    if any(depth < 0 for pair in margins or () for depth in pair):
        raise InvalidInputError(f"halo must be at least 0 elements on each side, got {halo}")
    if margins and any(margins[axis] != (0, 0) for axis in dropped):
        raise conflicting(f"halo must be 0 along the dimensions in drop, got {halo}")
    return InputGrid(first, margins, dropped, dict(new or {}))


def _axes_in_first(first: ArrayInfo, other: ArrayInfo) -> tuple[int, ...]:
    """Return the axis of the first input for each axis of an input; -1 for an axis that the first lacks."""
    if other.shape == first.shape:
        return tuple(range(first.ndim))
    axes = (None if name is None else first.axis(name) for name in other.dims)
    return tuple(-1 if axis is None else axis for axis in axes)


def _result(
    grid: InputGrid,
    path: str,
    dtype: Any,
    fill_value: Any,
    attributes: Mapping[str, Any] | None,
    inner_lengths: Lengths | None,
    outer_lengths: Lengths | None,
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
    inner = chunk_lengths(inner_lengths, out, chunks, "chunks")
    outer = chunk_lengths(outer_lengths, out, None, "shards", inner=inner)
    return out.with_layout(path, chunks=inner, shards=outer)
