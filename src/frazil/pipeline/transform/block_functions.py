"""A function of numpy blocks, over whole arrays.

With a halo a block comes with values around it, from its neighbours. At the borders of the array they are
made up, by the ``boundary`` (names as in scipy.ndimage and dask, here for ``a b c d``):

    "reflect"    b a | a b c d | d c        the border is between two values
    "nearest"    a a | a b c d | d d
    "periodic"   c d | a b c d | a b
    a number     k k | a b c d | k k

The result for the halo is cut off again, so blocks can be of any size: those of the result are not seen in it
if the function looks no further than the halo.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.engines import engine_of
from frazil.jobs.job_result import JobResult
from frazil.jobs.memory import Budget, MaxMem, slabs
from frazil.jobs.parallel_write import Block
from frazil.jobs.pickles import dumps
from frazil.jobs.progress import Progress
from frazil.jobs.versions import Source, Target, Version, takes_versions
from frazil.pipeline.transform.arrays import (
    ArrayInfo,
    Json,
    Shape,
    companions,
    info,
    lengths,
    open_array,
    require_dimensions,
)
from frazil.pipeline.transform.block_job import Build, Building, Values, as_it_is, block_of, run_building
from frazil.repository.session.session import Session

type Boundary = Literal["reflect", "nearest", "periodic"] | float
type Halo = int | Mapping[str | int, int | tuple[int, int]]

#: Tasks of a function whose cost nobody has said.
_TASKS: Final = 32
_NUMBERS: Final = frozenset("biufc")
_BOUNDARIES: Final = ("reflect", "nearest", "periodic")


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
    chunks: Sequence[int] | Mapping[str, int] | None = None,
    shards: Sequence[int] | Mapping[str, int] | None = None,
    drop: Sequence[str | int] = (),
    new: Mapping[str, int] | None = None,
    fill_value: Any = None,
    attributes: Mapping[str, Any] | None = None,
    max_mem: MaxMem = None,
    tasks: int | None = None,
    engine: Engine | EngineName | None = None,
    job_id: str | None = None,
    message: str | None = None,
    progress: Progress | None = None,
) -> JobResult:
    """Call ``function(block, ...)`` for all blocks of some arrays on one grid; its results are new arrays.

    It gets a numpy array for each of ``paths``, and ``block=`` (a `Block`: path, start and stop of what it
    makes) if it has such a parameter after those. It returns one array, or as many as there are ``names``.
    These are the paths of the results below ``to``; without them the path of the first input is taken.

    All inputs have the shape of the first, or have names for all dimensions, which are among those of the
    first: their blocks then have length 1 along the others.

    ``halo`` elements around each block are there for the function, everywhere or by dimension (``{"lat":
    2, "lon": (1, 3)}``), and are cut off its result. Axes to ``drop`` are whole in each block, and not in
    the result; ``new`` axes of the given lengths come before the others. ``dtype`` is that of the
    results, or one for each, otherwise that of the first input, and values that it cannot hold (fractions
    in integers) are refused; ``fill_value`` and ``attributes`` likewise. ``chunks`` are those of the
    results, otherwise as they are. ``max_mem`` bounds what is read and made for one block, not what the
    function makes in between; without it that is 256 MB, or what one chunk needs. Raises
    ``InvalidInputError`` with the number of bytes if one chunk needs more than ``max_mem``.

    There are at least ``tasks`` tasks, if the results have so many chunks: what a function costs is not known
    from the size of its blocks. Without it there are at least 32, and at least as many as the engine runs at
    the same time. A task that fails is tried again alone.

    Functions of a module that executors can import travel by name; others by value.

    >>> import frazil, zarr, numpy as np
    >>> from frazil.spark import Inline, Target, map_blocks
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> with repo.transaction("main", message="wind") as store:
    ...     for name, value in (("u", 3.0), ("v", 4.0)):
    ...         array = zarr.create_array(store, name=name, shape=(4, 6), chunks=(2, 3), dtype="f8")
    ...         array[:] = value
    >>> made = map_blocks(np.hypot, repo, ["u", "v"], to=Target(repo), names=["speed"], engine=Inline())
    >>> zarr.open_array(made.version.session().store, path="speed", mode="r")[0, :3].tolist()
    [5.0, 5.0, 5.0]
    """
    version = Version.of(source)
    session = version.session()
    arrays = [info(session, path) for path in ([paths] if isinstance(paths, str) else paths)]
    if not arrays:
        raise InvalidInputError("expected paths of arrays, found none", ErrorKind.NOT_ALLOWED)
    if isinstance(boundary, str) and boundary not in _BOUNDARIES:
        raise InvalidInputError(
            f"expected a boundary of {', '.join(_BOUNDARIES)} or a number, found {boundary!r}",
            ErrorKind.NOT_ALLOWED,
        )
    first = arrays[0]
    require_dimensions([*(halo if isinstance(halo, Mapping) else ()), *drop], [first])
    for array in arrays[1:]:
        _require_grid(first, array)
    dropped = frozenset(axis for name in drop if (axis := first.axis(name)) is not None)
    margins = _margins(halo, first)
    if margins and any(margins[axis] != (0, 0) for axis in dropped):
        raise InvalidInputError(
            f"expected no halo along axes that are dropped, found {halo}", ErrorKind.NOT_ALLOWED
        )
    made = dict(new or {})
    kept = [axis for axis in range(first.ndim) if axis not in dropped]
    shape = (*made.values(), *(first.shape[axis] for axis in kept))
    dims = (*made, *(first.dims[axis] for axis in kept))
    grid = (*made.values(), *(first.chunks[axis] for axis in kept))
    names = [first.path] if names is None else list(names)
    results = [
        _result(first, to.path(name), one, shape, dims, grid, chunks, shards, fill, attrs)
        for name, one, fill, attrs in zip(
            names,
            _each(dtype, len(names)),
            _each(fill_value, len(names)),
            _each(attributes, len(names)),
            strict=True,
        )
    ]
    size = sum(each.itemsize for each in arrays) * max(
        np.prod([first.shape[axis] for axis in dropped], dtype=float), 1.0
    )
    factor = 1 + size / sum(each.itemsize for each in results)
    if tasks is not None and tasks < 1:
        raise InvalidInputError(f"tasks: expected at least 1, found {tasks}", ErrorKind.NOT_ALLOWED)
    # The default is made when there is work: a job that was done starts no Spark.
    engine = None if engine is None else engine_of(engine)
    most = tasks or max(_TASKS, getattr(engine, "slots", 1))
    block = block_of(results, Budget.of(max_mem), arrays, factor=factor, whole=range(len(made)), tasks=most)
    compute = _Mapped(
        function,
        tuple(each.path for each in arrays),
        tuple(_places(first, each) for each in arrays),
        first.shape,
        margins,
        boundary,
        dropped,
        len(made),
        results[0].path,
        len(results),
        "block" in list(_parameters(function))[len(arrays) :],
        tuple(
            None if asked is not None else each.dtype
            for asked, each in zip(_each(dtype, len(names)), results, strict=True)
        ),
    )
    chosen = {each.path for each in arrays} | {each.path for each in results}
    more = [] if to.repo is version.repo and to.group.strip("/") == "" else companions(session, [first])
    coordinates = [
        as_it_is(each, to.path(each.path))
        for each in more
        if each.path not in chosen and to.path(each.path) not in chosen
    ]
    return run_building(
        "map_blocks",
        version,
        session,
        to,
        arrays,
        Building([Build(first, tuple(results), block, compute, tasks=most)], coordinates),
        {
            "function": fingerprint(function),
            "names": names,
            "halo": margins,
            "boundary": boundary,
            "dtype": [str(each.dtype) for each in results],
            "chunks": [each.document["chunk_grid"] for each in results],
            "fill_value": str(fill_value),
            "attributes": json.loads(json.dumps(attributes, default=str)),
            "drop": sorted(dropped),
            "new": made,
        },
        engine=engine,
        job_id=job_id,
        message=message,
        progress=progress,
    )


@dataclass(frozen=True, slots=True)
class _Mapped:
    """See `building.Compute`. ``places`` are, for each input, the axes of the first that it has."""

    function: Callable[..., Any]
    paths: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]
    shape: Shape
    margins: tuple[tuple[int, int], ...] | None
    boundary: Boundary
    dropped: frozenset[int]
    new: int
    path: str
    count: int
    told: bool
    dtypes: tuple[np.dtype[Any] | None, ...]  # of the results, where the caller has asked for none

    def __call__(self, session: Session, start: Shape, stop: Shape) -> Sequence[Values]:
        spans = list(zip(start, stop, strict=True))[self.new :]
        for axis in sorted(self.dropped):
            spans.insert(axis, (0, self.shape[axis]))
        inputs = []
        for path, places in zip(self.paths, self.places, strict=True):
            margins = [(self.margins or _none(self.shape))[axis] for axis in places]
            values = with_halo(
                open_array(session, path), [spans[axis] for axis in places], margins, self.boundary
            )
            index = tuple(slice(None) if axis in places else None for axis in range(len(self.shape)))
            inputs.append(values[index])
        told = {"block": Block(self.path, start, stop)} if self.told else {}
        out = self.function(*inputs, **told)
        blocks = [out] if self.count == 1 and not isinstance(out, tuple) else list(out)
        if len(blocks) != self.count:
            raise InvalidInputError(
                f"expected {self.count} arrays from the function, found {len(blocks)}",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
        out = [self._trimmed(np.asarray(each)) for each in blocks]
        for block, dtype in zip(out, self.dtypes, strict=True):
            if dtype is not None:
                _require_fit(self.path, block, dtype)
        return out

    def _trimmed(self, block: Values) -> Values:
        if self.margins is None:
            return block
        kept = [margin for axis, margin in enumerate(self.margins) if axis not in self.dropped]
        if block.ndim != self.new + len(kept):
            return block  # refused by who writes it
        lengths = block.shape[self.new :]
        trim = [slice(low, n - high) for (low, high), n in zip(kept, lengths, strict=True)]
        return block[(*(slice(None),) * self.new, *trim)]


def _require_fit(path: str, block: Values, dtype: np.dtype[Any]) -> None:
    """Raises ``InvalidInputError`` for values that change when they are stored as ``dtype``. Floats may be
    rounded to shorter floats.
    """
    found = block.dtype
    if dtype.kind not in _NUMBERS or np.can_cast(found, dtype) or not block.ndim:
        return  # a block of no dimensions is refused by who writes it
    if found.kind in _NUMBERS:
        if dtype.kind in "fc" and np.can_cast(found, dtype, "same_kind"):
            return
        with np.errstate(invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
            parts = (block[part] for part in slabs(block.shape, block.itemsize))
            if all((part.astype(dtype) == part).all() for part in parts):
                return
    raise InvalidInputError(
        f"expected values that {dtype} holds for `{path}`, found others in a block of {found}: pass "
        "dtype= to map_blocks, or convert them in the function",
        ErrorKind.INVALID_ARRAY_METADATA,
    )


def with_halo(
    array: Any, spans: Sequence[tuple[int, int]], margins: Sequence[tuple[int, int]], boundary: Boundary
) -> Values:
    """Values of a region and around it; made up where the array ends."""
    wanted = [(a - low, b + high) for (a, b), (low, high) in zip(spans, margins, strict=True)]
    if boundary == "periodic":
        index = [np.arange(a, b) % max(n, 1) for (a, b), n in zip(wanted, array.shape, strict=True)]
        inside = all(a >= 0 and b <= n for (a, b), n in zip(wanted, array.shape, strict=True))
        values = array[tuple(slice(a, b) for a, b in wanted)] if inside else array.oindex[tuple(index)]
        return np.asarray(values)
    if isinstance(boundary, str) and all(array.shape):
        # What is mirrored may lie further inside than the block: read that far, then pick.
        places = [_mirrored(a, b, n, boundary) for (a, b), n in zip(wanted, array.shape, strict=True)]
        region = tuple(slice(int(each.min()), int(each.max()) + 1) for each in places)
        picked = np.asarray(array[region])
        for axis, (each, part) in enumerate(zip(places, region, strict=True)):
            if len(each) != picked.shape[axis] or (np.diff(each) != 1).any():
                picked = np.take(picked, each - part.start, axis=axis)
        return picked
    there = [(max(a, 0), min(b, n)) for (a, b), n in zip(wanted, array.shape, strict=True)]
    values = np.asarray(array[tuple(slice(a, b) for a, b in there)])
    missing = [(c - a, b - d) for (a, b), (c, d) in zip(wanted, there, strict=True)]
    if not any(map(any, missing)):
        return values
    return np.pad(values, missing, constant_values=0 if isinstance(boundary, str) else boundary)


def _mirrored(start: int, stop: int, length: int, boundary: str) -> NDArray[np.int64]:
    """Where the values of ``start`` to ``stop`` are in an array of a length that goes on at its ends.

    >>> _mirrored(-2, 5, 4, "reflect").tolist(), _mirrored(-2, 5, 4, "nearest").tolist()
    ([1, 0, 0, 1, 2, 3, 3], [0, 0, 0, 1, 2, 3, 3])
    """
    places = np.arange(start, stop)
    if boundary == "nearest":
        return np.clip(places, 0, length - 1)
    places %= 2 * length
    return np.minimum(places, 2 * length - 1 - places)


def _margins(halo: Halo | None, array: ArrayInfo) -> tuple[tuple[int, int], ...] | None:
    if halo is None or halo == 0:
        return None
    if isinstance(halo, Mapping):
        given = {array.axis(name): depth for name, depth in halo.items()}
        depths = [given.get(axis, 0) for axis in range(array.ndim)]
    else:
        depths = [halo] * array.ndim
    pairs = tuple(depth if isinstance(depth, tuple) else (depth, depth) for depth in depths)
    if any(depth < 0 for pair in pairs for depth in pair):
        raise InvalidInputError(
            f"expected a halo of at least 0 elements, found {halo}", ErrorKind.NOT_ALLOWED
        )
    return pairs


def _none(shape: Shape) -> tuple[tuple[int, int], ...]:
    return ((0, 0),) * len(shape)


def _places(first: ArrayInfo, other: ArrayInfo) -> tuple[int, ...]:
    if other.shape == first.shape:
        return tuple(range(first.ndim))
    return tuple(first.dims.index(name) for name in other.dims)


def _require_grid(first: ArrayInfo, other: ArrayInfo) -> None:
    if other.shape == first.shape:
        return
    order = [first.axis(name) if name is not None else None for name in other.dims]
    fits = all(axis is not None for axis in order) and order == sorted(order, key=lambda axis: axis or 0)
    if not fits or any(n != first.shape[axis or 0] for axis, n in zip(order, other.shape, strict=True)):
        raise InvalidInputError(
            f"expected arrays on the grid of `{first.path}` {first.dims} {first.shape}, "
            f"found `{other.path}` {other.dims} {other.shape}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )


def _result(
    first: ArrayInfo,
    path: str,
    dtype: Any,
    shape: Shape,
    dims: tuple[str | None, ...],
    grid: Shape,
    chunks: Sequence[int] | Mapping[str, int] | None,
    shards: Sequence[int] | Mapping[str, int] | None,
    fill_value: Any,
    attributes: Mapping[str, Any] | None,
) -> ArrayInfo:
    if dtype is None and fill_value is None:  # the data type as it is written, whatever it is
        named = list(dims) if any(dims) else None
        kept = first.attributes if attributes is None else dict(attributes)
        out = first.changed(path, shape=shape, chunks=grid, dimension_names=named, attributes=kept)
    else:
        out = first.retyped(
            path,
            first.dtype if dtype is None else dtype,
            shape=shape,
            dims=dims,
            chunks=grid,
            fill_value=fill_value,
            attributes=attributes,
        )
    some = lengths(chunks, out, grid, "chunks")
    return out.changed(path, chunks=some, shards=lengths(shards, out, None, "shards", inner=some))


def _each(given: Any, count: int) -> list[Any]:
    """One for each, or the same for all."""
    return list(given) if isinstance(given, list | tuple) and len(given) == count else [given] * count


def _parameters(function: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # of some compiled functions nothing is known
        return {}


def fingerprint(function: Any, above: tuple[Any, ...] = ()) -> Json:
    """What tells a function from another: for the id of a job.

    Its code, and the values that it has with it: defaults, closures, the state of an object, globals that
    are no functions and no modules. Not what it calls. ``above``: functions that have this one with them.
    """
    inner = getattr(function, "func", None)
    if inner is not None and hasattr(function, "keywords"):  # functools.partial
        given = [*function.args, *sorted(function.keywords.items())]
        return {**fingerprint(inner, above), "given": _hash_values(given, above)}
    owner = getattr(function, "__self__", None)
    if inspect.ismethod(function):
        return {**fingerprint(function.__func__, above), "given": _hash_values([owner], above)}
    kind = type(function)
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', kind.__qualname__)}"
    code = getattr(function, "__code__", None)
    if any(function is each for each in above):
        return {"name": name}
    above = (*above, function)
    hashed = hashlib.sha256()
    if isinstance(code, CodeType):
        _hash_code(code, hashed.update)
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
        hashed.update(_hash_values([*cells, *defaults, *_globals(function, code)], above).encode())
    elif isinstance(getattr(kind.__call__, "__code__", None), CodeType):  # an object that can be called
        hashed.update(_hash_values([kind.__call__, function.__getstate__()], above).encode())
    return {"name": name, "code": hashed.hexdigest()[:16]}


def _globals(function: Any, code: CodeType) -> list[Any]:
    """Values that a function finds in its module, or in the cells of a notebook."""
    kinds = _PLAIN + _CHANGING * (function.__module__ == "__main__")  # a module may keep a cache
    names = sorted(set(_names(code)) & function.__globals__.keys())
    values = [(name, function.__globals__[name]) for name in names]
    return [each for each in values if isinstance(each[1], kinds)]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


#: What has a pickle that says it all, the same in each process.
_PLAIN: Final = (bool, int, float, complex, str, bytes, tuple, np.ndarray, np.generic)
_CHANGING: Final = (list, dict)


def _hash_values(values: Sequence[Any], above: tuple[Any, ...] = ()) -> str:
    """What a function has with it: other functions by their code, all else by its pickle."""
    parts = [
        repr(fingerprint(value, above)).encode() if _is_function(value) else _pickled(value)
        for value in values
    ]
    return hashlib.sha256(b"|".join(parts)).hexdigest()[:16]


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, type)


def _pickled(value: Any) -> bytes:
    if isinstance(value, set | frozenset):  # in another order in each process
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
