"""dask's door: store dask arrays in a session, one task for each dask chunk.

    fork ──┬── task: fork again, write one dask chunk ──┬── merge ──┬── merge into the fork
           ├── task                                     ├           │
           └── ...                                      └── merge ──┘

Every task writes to a fork of its own, so threads, processes and machines are the same, and two tasks that
write the same zarr chunk are noticed by the merge. The merges form a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import batched
from typing import Any

import numpy as np
import zarr
from zarr.core.array_spec import ArrayConfigParams

from frazil.display import some_of
from frazil.distributed import extract_session, merge_sessions
from frazil.errors import ErrorKind, InvalidInputError
from frazil.extras import needs
from frazil.repository.session.session import ForkSession, Session
from frazil.storage.memory import MemoryStorage
from frazil.zarr_store import IcechunkStore

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

#: A dask graph as plain tasks: key -> function and arguments.
type SimpleGraph = Mapping[tuple[str, int], tuple[Any, ...]]

_MERGED_AT_ONCE = 8

Region = tuple[slice | int, ...]

#: Arguments of ``dask.array.store`` that make no sense here, and must not be ignored in silence.
_UNSUPPORTED = ("compute", "lock", "return_stored", "load_stored")


def store_dask(
    *,
    sources: Sequence[Array],
    targets: Sequence[zarr.Array[Any]],
    regions: Sequence[Region | None] | None = None,
    split_every: int | None = None,
    **store_kwargs: Any,
) -> Session:
    """Write dask arrays to zarr arrays of one session or fork, and return it, with everything merged.

    ``regions`` are where in its target each source goes: slices and numbers, which select as many elements as
    the source has, or None for the first elements along each dimension. ``split_every`` is how many forks are
    merged at a time (8 if not given); ``store_kwargs`` go to ``dask.compute``, such as ``scheduler``.

    Raises ``SessionStateError`` (``merge-failed``) if dask chunks share zarr chunks, ``InvalidInputError``
    for targets of several sessions, for regions that do not fit their sources, and for an in-memory
    repository with workers of dask.distributed in other processes; ``TypeError`` for the arguments
    ``compute``, ``lock``, ``return_stored`` and ``load_stored`` of ``dask.array.store``.

    >>> import dask.array, frazil, zarr
    >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    >>> array = zarr.create_array(session.store, name="a", shape=(4,), chunks=(2,), dtype="i8")
    >>> fork = session.fork()
    >>> target = zarr.open_array(fork.store, path="a")
    >>> session.merge(store_dask(sources=[dask.array.arange(4, chunks=2)], targets=[target]))
    >>> zarr.open_array(session.store, path="a")[:].tolist()
    [0, 1, 2, 3]
    """
    for name in _UNSUPPORTED:
        if name in store_kwargs:
            raise TypeError(
                f"store_dask does not support the argument {name}: give arguments of dask.compute"
            )
    if not all(isinstance(source, Array) for source in sources):
        actual = ", ".join(type(source).__name__ for source in sources)
        raise InvalidInputError(f"sources: expected dask arrays, found {actual}", ErrorKind.INVALID_ARGUMENT)
    session = _session(targets)
    _require_reachable(session, store_kwargs.get("scheduler"))
    where_to = [None] * len(targets) if regions is None else regions
    if not len(sources) == len(targets) == len(where_to):
        raise InvalidInputError(
            f"expected as many sources as targets and regions, found {len(sources)}, {len(targets)} and "
            f"{len(where_to)}",
            ErrorKind.INVALID_ARGUMENT,
        )
    # Shared by all tasks, and so sent to each process once.
    fork = delayed(session.fork(), traverse=False)
    chunk_writes = [
        delayed(_write_chunk)(fork, target.path, _settings(target), where, chunk)
        for source, target, region in zip(sources, targets, where_to, strict=True)
        for where, chunk in _chunks(source, target, region)
    ]
    merged = _tree(chunk_writes, lambda group: delayed(_merge)(fork, group), split_every)
    session.merge(*compute(*merged, **store_kwargs))  # type: ignore[no-untyped-call]  # dask has no types
    return session


def session_merge_reduction(
    arrays: Array | list[Array], *, split_every: int | None, **store_kwargs: Any
) -> Session:
    """Compute dask arrays whose chunks are zarr arrays of forks, and merge the forks to one.

    Such arrays come from ``dask.array.store(..., compute=False, return_stored=True, load_stored=False)``,
    and from functions that write to a fork and return the zarr array. ``split_every`` is how many forks are
    merged at a time (8 if None); ``store_kwargs`` go to ``dask.compute``.

    Raises ``SessionStateError`` (``merge-failed``) if two of the forks changed the same chunk, ``TypeError``
    for what is not a dask array and for chunks that are no zarr arrays of forks, ``ValueError`` without
    arrays.
    """
    several = [arrays] if isinstance(arrays, Array) else arrays
    if not isinstance(several, list | tuple) or not all(isinstance(each, Array) for each in several):
        raise TypeError(f"arrays: expected a dask array, or a list of them, found {arrays!r:.80}")
    # dask has no types
    chunks = [chunk for array in several for chunk in array.to_delayed().ravel()]  # type: ignore[no-untyped-call]
    sessions = _tree(
        [delayed(extract_session)(chunk) for chunk in chunks], delayed(merge_sessions), split_every
    )
    return merge_sessions(compute(*sessions, **store_kwargs))  # type: ignore[no-untyped-call]


def merge_sessions_array_kwargs(*sessions: Any, axis: Any = None, keepdims: Any = None) -> ForkSession:
    """``frazil.distributed.merge_sessions`` as ``dask.array.reduction`` calls it; the other arguments mean
    nothing here.
    """
    return merge_sessions(*sessions)


def computing_meta[**P, R](func: Callable[P, R]) -> Callable[P, Any]:
    """A function that gives something meaningless, an object in an array, when dask asks for what kind of
    array it gives, with ``computing_meta=True``.

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
    """Parts merged some at a time, until there is one, or none if there was none."""
    while len(parts) > 1:
        parts = list(map(merge, batched(parts, max(split_every or _MERGED_AT_ONCE, 2))))
    return parts


def _session(targets: Sequence[zarr.Array[Any]]) -> Session:
    stores = [getattr(target, "store", target) for target in targets]
    if not stores or not all(isinstance(store, IcechunkStore) and store == stores[0] for store in stores):
        raise InvalidInputError(
            "expected zarr arrays or stores of one session as targets, found "
            f"{some_of(map(repr, stores))}: open them with store=session.store",
            ErrorKind.INVALID_ARGUMENT,
        )
    assert isinstance(stores[0], IcechunkStore)
    return stores[0].session


def _require_reachable(session: Session, scheduler: Any) -> None:
    """Workers in other processes cannot read an in-memory repository. A scheduler of dask.distributed would
    give its tasks to one worker after the other, for ever.
    """
    if not isinstance(session.workspace.context.storage, MemoryStorage):
        return
    client = getattr(get_scheduler(scheduler=scheduler), "__self__", None)  # type: ignore[no-untyped-call]
    if client is None or not hasattr(client, "scheduler_info"):
        return
    remote = [name for name in client.scheduler_info()["workers"] if not name.startswith("inproc://")]
    if remote:
        raise InvalidInputError(
            "expected a repository that the workers of dask can read, found one in memory, and "
            f"{remote[0]} in another process: use local_filesystem_storage or an object store, or "
            "scheduler='threads'",
            ErrorKind.INVALID_ARGUMENT,
        )


def _chunks(source: Array, target: zarr.Array[Any], region: Region | None) -> Iterator[tuple[Region, Any]]:
    """Yield the chunks of a dask array, and where each of them goes in the target."""
    if region is None:
        region = tuple(map(slice, source.shape))
    region = region if isinstance(region, tuple) else (region,)
    region = (*region, *[slice(None)] * (len(target.shape) - len(region)))
    _check(source, target, region)
    lines = [range(size)[each] for size, each in zip(target.shape, region, strict=True)]
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


def _check(source: Array, target: zarr.Array[Any], region: Region) -> None:
    """What does not fit would be written next to the region, or over each other."""
    shape = target.shape
    fits = len(region) == len(shape) and all(map(_selects, region, shape))
    if fits:
        slices = [(each, size) for each, size in zip(region, shape, strict=True) if isinstance(each, slice)]
        fits = tuple(len(range(size)[each]) for each, size in slices) == source.shape
    if not fits:
        raise InvalidInputError(
            f"expected a region of {shape} of the shape {source.shape}, as the source has, found {region}",
            ErrorKind.INVALID_ARGUMENT,
        )


def _settings(target: zarr.Array[Any]) -> ArrayConfigParams:
    return {"write_empty_chunks": target.config.write_empty_chunks, "order": target.config.order}


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
