"""An executor of Cubed on the engines of Frazil, and a function that stores Cubed arrays in a session.

A plan of Cubed is a graph of operations. Each of them maps a function over the chunks of its output. The
executor runs one operation after the other, and sends several chunks in each task of the engine.

If an operation writes to Zarr arrays of a session, each task writes to its own fork, and the session gets the
changes of all forks after the last operation. So a run that fails changes nothing.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from itertools import batched
from typing import Any, Final, override

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.core.sync import sync

from frazil.arguments import wrong_type
from frazil.engines import Engine, EngineName, described
from frazil.errors import InvalidInputError
from frazil.extras import needs
from frazil.jobs.engine import engine_of, least_tasks
from frazil.jobs.parallel_write import returned
from frazil.jobs.progress import Progress
from frazil.jobs.task_failures import sendable, shared_value
from frazil.jobs.task_results import ValuePickler, dumped, encode_changes
from frazil.repository.session.session import ForkSession, Session
from frazil.zarr_store import IcechunkStore
from frazil.zarr_store.arrays import session_of, settings_of

#: Settings of zarr that Cubed changes for the whole process, when it is imported.
_SETTINGS: Final = {
    name: zarr.config.get(name, False) for name in ("array.write_empty_chunks", "array.rectilinear_chunks")
}

with needs("frazil.cubed", extra="cubed"):
    import cubed.array_api as xp
    from cubed.core.ops import blockwise
    from cubed.core.plan import intermediate_store
    from cubed.primitive.blockwise import BlockwiseSpec, key_to_slices
    from cubed.primitive.types import CubedArrayProxy
    from cubed.runtime.pipeline import visit_nodes
    from cubed.runtime.types import Callback, CubedPipeline, DagExecutor
    from cubed.runtime.utils import (
        execute_with_stats,
        handle_callbacks,
        handle_operation_end_callbacks,
        handle_operation_start_callbacks,
    )
    from cubed.storage.stores import zarr_python_v3 as _changes_settings  # noqa: F401
    from cubed.storage.zarr import LazyZarrArray

    import cubed

zarr.config.set(_SETTINGS)

__all__ = ["Executor", "store_cubed"]

#: The most chunks of one task: a task that fails is run again with all of them.
_MOST_CHUNKS: Final = 64
#: The attribute of a temporary array with the digest of the operation that computes it.
_DIGEST: Final = "frazil_digest"


class Executor(DagExecutor):
    """An executor of Cubed that runs the operations of a plan on an engine of Frazil.

    The engine tries a task again that fails, or whose worker dies. Pass the executor to ``cubed.Spec``, or to
    ``compute``.

    Args:
        engine: The engine of the tasks: an `Engine`, or "inline", "threads", "processes", "spark", "sail".
            The default, None, is ``default_engine()``.
        resume: Whether the executor uses chunks of temporary arrays that a run before it has computed. The
            runs need the same ``intermediate_store`` in their ``cubed.Spec``, and the same program on the
            same versions. Chunks of another program are computed again. Default: False.
        progress: A `frazil.pipeline.Progress` that shows the tasks. Default: none.

    Examples:
        >>> import cubed, cubed.array_api as xp, frazil.cubed
        >>> spec = cubed.Spec(allowed_mem="100MB", executor=frazil.cubed.Executor("threads"))
        >>> xp.sum(xp.ones((6, 4), chunks=(2, 2), spec=spec)).compute().item()
        24.0
    """

    def __init__(
        self,
        engine: Engine | EngineName | None = None,
        *,
        resume: bool = False,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(engine=engine, resume=resume)  # type: ignore[no-untyped-call]  # of equal executors
        self.engine = engine
        self.resume = resume
        self.progress = progress

    def __reduce__(self) -> tuple[Any, ...]:
        return Executor, ()  # functions of tasks refer to it, through arrays, and do not use it

    @property
    @override
    def name(self) -> str:
        """The name of the executor."""
        return "frazil"

    @override
    def execute_dag(self, dag: Any, callbacks: Sequence[Callback] | None = None, **options: Any) -> None:
        """Run the operations of a plan. Cubed calls this method.

        Args:
            dag: The plan, a graph of ``networkx``.
            callbacks: The callbacks of Cubed that get the events of operations and tasks.
            **options: The other options of Cubed, which this executor does not use.

        Raises:
            TaskFailedError: A task fails in all its attempts.
            InvalidInputError: ``invalid-argument`` if the plan has a part that cannot be sent to a worker.
            SessionStateError: ``merge-failed`` if two tasks write to the same chunk of a session.
        """
        engine = engine_of(self.engine)
        digests = _digests(dag) if self.resume else {}
        if self.progress is not None:
            counts = (node["primitive_op"].num_tasks for _, node in visit_nodes(dag) if _is_mapped(node))
            self.progress.expect(sum(-(-count // _batch(count, engine)) for count in counts))
        written: list[tuple[Session, list[ForkSession]]] = []
        for name, node in visit_nodes(dag):
            handle_operation_start_callbacks(callbacks, name)
            pipeline: CubedPipeline = node["pipeline"]
            if _is_mapped(node):
                written += self._run(engine, name, pipeline, digests, callbacks)
            else:  # the operation that creates the temporary arrays
                for array in pipeline.mappable:
                    _create(array, digests.get(array.path))
            handle_operation_end_callbacks(callbacks, name)
        for session, forks in written:
            session.merge(*forks)

    def _run(
        self,
        engine: Engine,
        name: str,
        pipeline: CubedPipeline,
        digests: Mapping[str, str],
        callbacks: Sequence[Callback] | None,
    ) -> Iterator[tuple[Session, list[ForkSession]]]:
        """Run an operation. Yields the session that it writes to, and the forks with the changes."""
        config, session = pipeline.config, _session_of(pipeline.config)
        base = None if session is None else session.fork()
        chunks = list(pipeline.mappable)
        size = _batch(len(chunks), engine)
        expected = -(-len(chunks) // size)
        if digests.keys() >= config.writes_map.keys():
            complete = [_present_chunks(proxy) for proxy in config.writes_map.values()]
            chunks = [each for each in chunks if not all(is_present(each) for is_present in complete)]
        batches = list(batched(chunks, size))
        common = (pipeline.function, _in_session(config, base), base)
        shared = sendable(common, f"the operation `{name}` of Cubed", dumps=_pickled)
        if self.progress is not None:
            for _ in range(expected - len(batches)):
                self.progress.advance(resumed=True)
        forks = []
        with described(f"cubed {name}"):
            results = engine.run(run_chunks, list(map(dumped, batches)), shared)
            for batch, data in zip(batches, results, strict=True):
                changes, values = pickle.loads(data)
                forks += [] if base is None else [returned(base, changes)]
                for value, statistics in values:
                    handle_callbacks(callbacks, value, {"name": name, **statistics})
                if self.progress is not None:
                    self.progress.advance(chunks=len(batch))
        if session is not None:
            yield session, forks


def _is_mapped(node: Mapping[str, Any]) -> bool:
    """Return whether an operation maps a function over chunks: all do but the one that creates arrays."""
    return isinstance(node["pipeline"].config, BlockwiseSpec)


def _batch(chunks: int, engine: Engine) -> int:
    """Return how many chunks of an operation are in one task."""
    return max(min(-(-chunks // least_tasks(engine)), _MOST_CHUNKS), 1)


def run_chunks(shared: bytes, message: bytes) -> bytes:
    """Run one task: an operation of a plan for some chunks of its output."""
    function, config, base = shared_value(shared)
    fork = None if base is None else base.fork()  # not `base`, which this process uses for the next task
    config, changes = _in_session(config, fork), b""
    values = [execute_with_stats(function, each, config=config) for each in pickle.loads(message)]
    if fork is not None:
        fork.workspace.writer.flush()  # the result must refer only to durable chunks
        changes = encode_changes(fork.workspace.changes)
    return dumped((changes, values))


# Arrays of sessions


class _Pickler(ValuePickler):
    """A pickler of operations: those that read a session that can be changed get a fork of it."""

    @override
    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is Session and not obj.read_only:
            return obj.fork().__reduce__()
        return super().reducer_override(obj)


class _VersionPickler(ValuePickler):
    """A pickler whose bytes are the same in each process: sessions are the ids of their versions."""

    @override
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Session):
            return tuple, (obj.__dask_tokenize__(),)
        return super().reducer_override(obj)


def _pickled(value: Any, pickler: type[ValuePickler] = _Pickler) -> bytes:
    with io.BytesIO() as out:
        pickler(out).dump(value)
        return out.getvalue()


class RegionArray(LazyZarrArray):
    """A region of a Zarr array, as the target of an operation. Its chunks are those of the operation."""

    store: Any
    path: str

    def __init__(self, array: zarr.Array[Any], starts: Sequence[int], source: Any) -> None:
        super().__init__(array.store, source.shape, source.dtype, source.chunksize, path=array.path)
        self._starts, self._settings = tuple(starts), settings_of(array)

    @override
    def create(self, mode: Any = None) -> Any:
        """Do nothing: the array is there. Cubed calls this method."""

    @override
    def open(self) -> Any:
        """Return the region. Cubed calls this method."""
        return self

    def in_session(self, session: Session) -> RegionArray:
        """Return the same region in another session."""
        other = copy(self)
        other.store = session.store
        return other

    def __setitem__(self, where: tuple[slice, ...], values: Any) -> None:
        at = zip(where, self._starts, strict=True)
        region = tuple(slice(each.start + start, each.stop + start) for each, start in at)
        self._array[region] = values

    @cached_property
    def _array(self) -> zarr.Array[Any]:
        return zarr.open_array(self.store, path=self.path, mode="r+", config=self._settings)


def _session_of(config: BlockwiseSpec) -> Session | None:
    """Return the session that an operation writes to; None if it writes to other stores."""
    arrays = [proxy.array for proxy in config.writes_map.values()]
    stores = [store for store in (getattr(each, "store", None) for each in arrays) if _is_ours(store)]
    return session_of(stores) if stores else None


def _is_ours(store: Any) -> bool:
    return isinstance(store, IcechunkStore)


def _in_session(config: BlockwiseSpec, session: Session | None) -> BlockwiseSpec:
    """Return an operation that writes to another session."""
    if session is None:
        return config

    def moved(array: Any) -> Any:
        if isinstance(array, RegionArray):
            return array.in_session(session)
        if not _is_ours(getattr(array, "store", None)):
            return array
        return zarr.open_array(session.store, path=array.path, mode="r+", config=settings_of(array))

    proxies = {
        name: CubedArrayProxy(moved(each.array), each.chunks) for name, each in config.writes_map.items()
    }
    return replace(config, writes_map=proxies)


# Temporary arrays


def _parts(array: Any) -> list[zarr.Array[Any]]:
    """Return the Zarr arrays of an array of a plan: one for each field of a structured type."""
    opened = array.open()
    return list(opened.values()) if isinstance(opened, dict) else [opened]


def _create(array: Any, digest: str | None) -> None:
    """Create a temporary array. With a digest, the chunks of an equal array are kept."""
    if digest is not None:
        with suppress(FileNotFoundError, KeyError):
            if all(each.attrs.get(_DIGEST) == digest for each in _parts(array)):
                return
            _delete(array)
    array.create(mode="a")
    if digest is not None:
        for each in _parts(array):
            each.attrs[_DIGEST] = digest


def _delete(array: Any) -> None:
    with suppress(FileNotFoundError, KeyError):  # it was never created
        sync(_parts(array)[0].store.delete_dir(array.path))


def _digests(dag: Any) -> dict[str, str]:
    """Return a digest of the operations that compute each temporary array, by the name of the array."""
    digests: dict[str, str] = {}
    for name, node in visit_nodes(dag):
        config = node["pipeline"].config
        if _is_mapped(node) and _session_of(config) is None:
            sources = [digests.get(each, "") for each in sorted(config.reads_map)]
            document = _pickled((node["pipeline"].function, config, sources), _VersionPickler)
            digest = sha256(document).hexdigest()
            digests |= dict.fromkeys(dag.successors(name), digest)
    return digests


def _present_chunks(proxy: CubedArrayProxy) -> Callable[[Sequence[int]], bool]:
    """Return a function that says whether a chunk of an operation is complete in its target."""
    grids: list[NDArray[np.bool_]] = []
    for array in _parts(proxy.array):
        keys = set(sync(_listed(array.store, array.path)))
        prefix = f"{array.path}/" if array.path else ""
        counts = tuple(-(-size // step) for size, step in zip(array.shape, array.chunks, strict=True))
        present = (prefix + array.metadata.encode_chunk_key(at) in keys for at in np.ndindex(counts))
        grids.append(np.fromiter(present, np.bool_, math.prod(counts)).reshape(counts))
    steps = array.chunks

    def is_present(chunk: Sequence[int]) -> bool:
        where = zip(key_to_slices(tuple(chunk), proxy.array, proxy.chunks), steps, strict=True)
        box = tuple(slice(each.start // step, -(-each.stop // step)) for each, step in where)
        return all(bool(grid[box].all()) for grid in grids)

    return is_present


async def _listed(store: Any, prefix: str) -> list[str]:
    return [key async for key in store.list_prefix(prefix)]


# Writes


def store_cubed(
    *,
    sources: Sequence[Any],
    targets: Sequence[zarr.Array[Any]],
    regions: Sequence[tuple[slice, ...] | None] | None = None,
    executor: Executor | None = None,
    **options: Any,
) -> Session:
    """Write Cubed arrays to Zarr arrays of one session or fork.

    The chunks of the sources may be any: if several of them share a chunk of the target, Cubed rechunks them.
    A region may begin and end inside of chunks of the target: these are written with their stored values
    around the region. The temporary arrays of the plan are deleted.

    Args:
        sources: The Cubed arrays. All have the same ``cubed.Spec``.
        targets: The Zarr arrays, one for each source. All of them belong to the same session.
        regions: The region of each target, one for each source: a tuple of slices without steps. None
            selects the first elements along each dimension.
        executor: The executor. Default: that of the ``cubed.Spec``, or an executor on threads.
        **options: ``callbacks`` of Cubed; ``optimize_graph`` and ``optimize_function`` of ``cubed.plan``.

    Returns:
        The session or fork of the targets, which now has all changes.

    Raises:
        InvalidInputError: ``invalid-argument``: the targets belong to several sessions, a region does not
            fit its source, or the executor is not of Frazil.
        TaskFailedError: A task fails in all its attempts.
        ValueError: A task needs more memory than ``allowed_mem`` of the ``cubed.Spec``.

    Examples:
        >>> import cubed, cubed.array_api as xp, frazil, zarr
        >>> from frazil.cubed import store_cubed
        >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
        >>> array = zarr.create_array(session.store, name="a", shape=(4,), chunks=(2,), dtype="i8")
        >>> source = xp.arange(3, chunks=2, spec=cubed.Spec(allowed_mem="100MB"))
        >>> _ = store_cubed(sources=[source], targets=[array], regions=[(slice(1, 4),)])
        >>> array[:].tolist()
        [0, 0, 1, 2]
    """
    if not all(isinstance(source, xp.Array) for source in sources):
        actual = ", ".join(f"{type(each).__module__}.{type(each).__name__}" for each in sources)
        raise InvalidInputError(f"sources must be Cubed arrays, got {actual}")
    session = session_of(targets)
    where = [None] * len(targets) if regions is None else list(regions)
    if not len(sources) == len(targets) == len(where):
        raise InvalidInputError(
            f"sources, targets and regions must have the same length, got {len(sources)}, {len(targets)} and "
            f"{len(where)}"
        )
    spec = sources[0].spec
    executor = executor or spec.executor or Executor("threads")
    if not isinstance(executor, Executor):
        raise wrong_type("executor", executor, "frazil.cubed.Executor")
    callbacks = [*Callback.active, *options.pop("callbacks", ())]
    arrays = [_stored(*each) for each in zip(sources, targets, where, strict=True)]
    plan = cubed.plan(*arrays, **options)
    is_done = False
    try:
        plan.execute(executor=executor, callbacks=callbacks, spec=spec)
        is_done = True
    finally:
        if is_done or not executor.resume:
            place = intermediate_store(spec)
            for _, node in plan.dag.nodes(data=True):
                target = node.get("target")
                if isinstance(target, LazyZarrArray) and target.store == place:
                    _delete(target)
    return session


def _stored(source: Any, target: zarr.Array[Any], region: tuple[slice, ...] | None) -> Any:
    """Return the array of the operation that writes a source to a region of a target."""
    sizes = target.shape
    given = tuple(map(slice, source.shape)) if region is None else region
    if not isinstance(given, tuple) or not all(isinstance(each, slice) for each in given):
        raise InvalidInputError(f"a region must be a tuple of slices, got {region!r:.80}")
    given = (*given, *[slice(None)] * (len(sizes) - len(given)))
    lines = [range(size)[each] for size, each in zip(sizes, given, strict=False) if isinstance(each, slice)]
    if (
        len(given) != len(sizes)
        or tuple(map(len, lines)) != source.shape
        or {each.step for each in lines} - {1}
    ):
        raise InvalidInputError(
            f"the region of a target of shape {sizes} must select the shape of its source, {source.shape}, "
            f"with slices without steps, got {region}"
        )
    steps = target.shards or target.chunks
    box = [(line.start, line.stop) for line in lines]
    stored = cubed.from_array(target, spec=source.spec)
    for axis, (step, size) in enumerate(zip(steps, sizes, strict=True)):
        low, high = box[axis]
        outer = low - low % step, min(-(-high // step) * step, size)
        parts = [(outer[0], low), (low, high), (high, outer[1])]
        if outer != (low, high):
            pieces = []
            for start, stop in parts:
                box[axis] = start, stop
                if (start, stop) == (low, high):
                    pieces.append(source)
                elif start < stop:
                    pieces.append(stored[tuple(slice(*each) for each in box)])
            source = xp.concat([each.rechunk(steps) for each in pieces], axis=axis)
            box[axis] = outer
    if not all(_fits(along, step) for along, step in zip(source.chunks, steps, strict=True)):
        source = source.rechunk(steps)
    index = tuple(range(source.ndim))
    return blockwise(
        _same,
        index,
        source,
        index,
        dtype=source.dtype,
        align_arrays=False,
        target_store=RegionArray(target, [start for start, _ in box], source),
        fusable_with_successors=False,
    )


def _fits(lengths: Sequence[int], step: int) -> bool:
    """Return whether chunks of these lengths along an axis are equal, and hold whole chunks of a target."""
    return len({*lengths[:-1]} | {max(lengths)}) == 1 and (len(lengths) == 1 or lengths[0] % step == 0)


def _same(values: Any) -> Any:
    return values
