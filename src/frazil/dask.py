"""Functions that store dask arrays in a session, with one task for each dask chunk.

Every task writes to its own fork. So the tasks can run in threads, in processes or on several machines. The
merges form a tree, and fail if two tasks write the same zarr chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import batched
from typing import Any

import numpy as np
import zarr
from zarr.core.array_spec import ArrayConfigParams

from frazil.distributed import extract_session, merge_sessions
from frazil.errors import InvalidInputError
from frazil.extras import needs
from frazil.repository.session.session import ForkSession, Session
from frazil.storage.memory import MemoryStorage
from frazil.zarr_store.arrays import session_of, settings_of

with needs("frazil.dask", extra="xarray"):
    from dask.array.core import Array, slices_from_chunks
    from dask.base import compute, get_scheduler
    from dask.delayed import Delayed, delayed

__all__ = [
    "SimpleGraph",
    "computing_meta",
    "merge_sessions_array_kwargs",
    "session_merge_reduction",
    "store_dask",
]

#: A dask graph as plain tasks: a function and its arguments, by key.
type SimpleGraph = Mapping[tuple[str, int], tuple[Any, ...]]

_MERGED_AT_ONCE = 8

Region = tuple[slice | int, ...]

#: Arguments of ``dask.array.store`` that ``store_dask`` cannot support. Ignoring them would hide mistakes.
_UNSUPPORTED = ("compute", "lock", "return_stored", "load_stored")


def store_dask(
    *,
    sources: Sequence[Array],
    targets: Sequence[zarr.Array[Any]],
    regions: Sequence[Region | None] | None = None,
    split_every: int | None = None,
    **store_kwargs: Any,
) -> Session:
    """Write dask arrays to zarr arrays of one session or fork.

    Each dask chunk is a task with its own fork. The forks are merged in a tree.

    Args:
        sources: The dask arrays.
        targets: The zarr arrays, one for each source. All of them belong to the same session.
        regions: The region of each target, one for each source: a tuple of slices and integers that selects
            as many elements as the source has. None selects the first elements along each dimension.
        split_every: The number of forks that one task merges. Default: 8.
        **store_kwargs: Arguments of ``dask.compute``, such as ``scheduler``.

    Returns:
        The session or fork of the targets, which now has all changes.

    Raises:
        SessionStateError: Two dask chunks write to the same zarr chunk (``merge-failed``).
        InvalidInputError: The targets belong to several sessions, a region does not fit its source, or the
            repository is in memory and dask.distributed has workers in other processes
            (``invalid-argument``).
        TypeError: ``store_kwargs`` has ``compute``, ``lock``, ``return_stored`` or ``load_stored``, arguments
            of ``dask.array.store``.

    Examples:
        >>> import dask.array, frazil, zarr
        >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
        >>> array = zarr.create_array(session.store, name="a", shape=(4,), chunks=(2,), dtype="i8")
        >>> fork = session.fork()
        >>> target = zarr.open_array(fork.store, path="a")
        >>> session.merge(store_dask(sources=[dask.array.arange(4, chunks=2)], targets=[target]))
        >>> array[:].tolist()
        [0, 1, 2, 3]
    """
    for name in _UNSUPPORTED:
        if name in store_kwargs:
            raise TypeError(
                f"store_dask does not support the argument {name}. Pass arguments of dask.compute"
            )
    if not all(isinstance(source, Array) for source in sources):
        actual = ", ".join(type(source).__name__ for source in sources)
        raise InvalidInputError(f"sources must be dask arrays, got {actual}")
    session = session_of(targets)
    _require_reachable(session, store_kwargs.get("scheduler"))
    where_to = [None] * len(targets) if regions is None else regions
    if not len(sources) == len(targets) == len(where_to):
        raise InvalidInputError(
            f"sources, targets and regions must have the same length, got {len(sources)}, {len(targets)} and "
            f"{len(where_to)}"
        )
    # All tasks share this object, so dask sends it to each process once.
    fork = delayed(session.fork(), traverse=False)
    chunk_writes = [
        delayed(_write_chunk)(fork, target.path, settings_of(target), where, chunk)
        for source, target, region in zip(sources, targets, where_to, strict=True)
        for where, chunk in _chunks(source, target, region)
    ]
    merged = _tree(chunk_writes, lambda group: delayed(_merge)(fork, group), split_every)
    session.merge(*compute(*merged, **store_kwargs))  # type: ignore[no-untyped-call]  # dask has no types
    return session


def session_merge_reduction(
    arrays: Array | list[Array], *, split_every: int | None, **store_kwargs: Any
) -> Session:
    """Compute dask arrays whose chunks are zarr arrays of forks, and merge these forks.

    ``dask.array.store(..., compute=False, return_stored=True, load_stored=False)`` returns such arrays. So
    does a function that writes to a fork and returns the zarr array.

    Args:
        arrays: A dask array, or a list of dask arrays.
        split_every: The number of forks that one task merges. None stands for 8.
        **store_kwargs: Arguments of ``dask.compute``, such as ``scheduler``.

    Returns:
        One fork with all changes. Pass it to ``merge`` of the session.

    Raises:
        SessionStateError: Two forks changed the same chunk (``merge-failed``).
        TypeError: An item is not a dask array, or a chunk is not a zarr array of a fork.
        ValueError: ``arrays`` is empty.

    Examples:
        >>> import dask.array, frazil, zarr
        >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
        >>> array = zarr.create_array(session.store, name="a", shape=(4,), chunks=(2,), dtype="i8")
        >>> target = zarr.open_array(session.fork().store, path="a")
        >>> options = dict(compute=False, return_stored=True, load_stored=False, lock=False)
        >>> stored = dask.array.store(dask.array.arange(4, chunks=2), target, **options)
        >>> session.merge(session_merge_reduction(stored, split_every=None))
        >>> array[:].tolist()
        [0, 1, 2, 3]
    """
    several = [arrays] if isinstance(arrays, Array) else arrays
    if not isinstance(several, list | tuple) or not all(isinstance(each, Array) for each in several):
        raise TypeError(f"arrays must be a dask array or a list of dask arrays, got {arrays!r:.80}")
    # dask has no types
    chunks = [chunk for array in several for chunk in array.to_delayed().ravel()]  # type: ignore[no-untyped-call]
    sessions = _tree(
        [delayed(extract_session)(chunk) for chunk in chunks], delayed(merge_sessions), split_every
    )
    return merge_sessions(compute(*sessions, **store_kwargs))  # type: ignore[no-untyped-call]


def merge_sessions_array_kwargs(*sessions: Any, axis: Any = None, keepdims: Any = None) -> ForkSession:
    """Call ``frazil.distributed.merge_sessions``, for ``dask.array.reduction``.

    Args:
        *sessions: Forks, or lists of forks.
        axis: Ignored. dask passes it.
        keepdims: Ignored. dask passes it.

    Returns:
        One fork with the changes of all forks.

    Examples:
        >>> import frazil
        >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
        >>> merged = merge_sessions_array_kwargs([session.fork(), session.fork()], axis=0, keepdims=True)
    """
    return merge_sessions(*sessions)


def computing_meta[**P, R](func: Callable[P, R]) -> Callable[P, Any]:
    """Decorate a function so that dask can infer the type of its result without a call.

    With ``computing_meta=True``, the decorated function returns a placeholder, an array with one object.

    Args:
        func: A function that dask calls for chunks.

    Returns:
        The decorated function.

    Examples:
        >>> computing_meta(abs)(-3), computing_meta(abs)(computing_meta=True).dtype
        (3, dtype('O'))
    """

    @wraps(func)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Any:
        if kwargs.get("computing_meta", False):
            return np.array([object()], dtype=object)
        return func(*args, **kwargs)

    return wrapper


def _tree(
    parts: list[Delayed], merge: Callable[[tuple[Delayed, ...]], Delayed], split_every: int | None
) -> list[Delayed]:
    """Merge groups of parts until at most one part is left."""
    while len(parts) > 1:
        parts = list(map(merge, batched(parts, max(split_every or _MERGED_AT_ONCE, 2))))
    return parts


def _require_reachable(session: Session, scheduler: Any) -> None:
    """Raise an error for workers that cannot read a repository in memory: dask would retry forever."""
    if not isinstance(session.workspace.context.storage, MemoryStorage):
        return
    client = getattr(get_scheduler(scheduler=scheduler), "__self__", None)  # type: ignore[no-untyped-call]
    if client is None or not hasattr(client, "scheduler_info"):
        return
    remote = [name for name in client.scheduler_info()["workers"] if not name.startswith("inproc://")]
    if remote:
        raise InvalidInputError(
            "the workers of dask must be able to read the repository, got a repository in memory and the "
            f"worker {remote[0]} in another process. Use local_filesystem_storage or an object store, or "
            "scheduler='threads'"
        )


def _chunks(source: Array, target: zarr.Array[Any], region: Region | None) -> Iterator[tuple[Region, Any]]:
    """Yield the chunks of a dask array, each with its region in the target."""
    if region is None:
        region = tuple(map(slice, source.shape))
    region = region if isinstance(region, tuple) else (region,)
    region = (*region, *[slice(None)] * (len(target.shape) - len(region)))
    fits = len(region) == len(target.shape) and all(map(_selects, region, target.shape))
    lines = [range(size)[each] for size, each in zip(target.shape, region, strict=True)] if fits else []
    if not fits or tuple(len(line) for line in lines if isinstance(line, range)) != source.shape:
        raise InvalidInputError(
            f"the region of a target of shape {target.shape} must select the shape of its source, "
            f"{source.shape}, got {region}"
        )
    # dask has no types
    places = slices_from_chunks(source.chunks)  # type: ignore[no-untyped-call]
    chunks = source.to_delayed().ravel()  # type: ignore[no-untyped-call]
    for place, chunk in zip(places, chunks, strict=True):
        along = iter(place)
        yield tuple(_part(line, next(along)) if isinstance(line, range) else line for line in lines), chunk


def _part(line: range, place: slice) -> slice:
    part = line[place]
    return slice(part.start, part.stop, part.step)


def _selects(each: slice | int, size: int) -> bool:
    if isinstance(each, slice):
        return (each.step or 1) > 0
    return isinstance(each, int | np.integer) and -size <= each < size


def _write_chunk(
    fork: ForkSession, path: str, settings: ArrayConfigParams, where: Region, chunk: np.ndarray[Any, Any]
) -> ForkSession:
    own = fork.fork()
    zarr.open_array(own.store, path=path, mode="r+", config=settings)[where] = chunk
    return own


def _merge(fork: ForkSession, parts: Sequence[ForkSession]) -> ForkSession:
    own = fork.fork()
    own.merge(*parts)
    return own
