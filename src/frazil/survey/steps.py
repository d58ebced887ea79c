"""The parallel step of a survey: a piece of work for many items, on threads of this process or by an engine.

A piece is a function of a module, from the context of a repository and an item to results. It uses only its
arguments and may run more than once.
"""

from __future__ import annotations

import functools
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import batched, chain, islice
from typing import Any, Final, Protocol

import numpy as np

from frazil.arguments import require_progress
from frazil.engines import Engine, EngineName, described, engine_of
from frazil.format.snapshot import ManifestFiles
from frazil.repository.catalog.context import Context
from frazil.threads import SIZES, Purpose, thread_pool

#: A piece of work: from a context and an item to results.
type Piece = Callable[[Context, Any], Iterable[Any]]
#: Does a piece of work for all items in any process. Yields the results in the order of the items.
type Run = Callable[[Piece, Sequence[Any]], Iterator[Any]]

#: The number of items that run at the same time in one process.
_ITEMS: Final = 4
#: Limits of one item: references, manifests, and snapshots. Its work takes some time and fits into memory.
_REFS: Final = 1 << 20
_MANIFESTS: Final = 200
_SNAPSHOTS: Final = 200


def run_with(context: Context, engine: Engine | EngineName | None = None) -> Run:
    """Return the function that does pieces of work: by an engine, or on threads of this process."""
    if engine is None:
        return lambda piece, items: chain.from_iterable(
            side_by_side(items, lambda item: list(piece(context, item)), _ITEMS)
        )
    runner = engine_of(engine)

    def by_tasks(piece: Piece, items: Sequence[Any]) -> Iterator[Any]:
        results = runner.run(run_piece, list(map(pickle.dumps, items)), pickle.dumps((piece, context)))
        with described(f"frazil {piece.__name__}"):  # the engine reads it before the first result
            first = list(islice(results, 1))
        for result in chain(first, results):
            yield from pickle.loads(result)

    return by_tasks


def run_piece(shared: bytes, task: bytes) -> bytes:
    """Run one task: a piece with one item. The result is a pickled list."""
    piece, context = _unpacked(shared)
    return pickle.dumps(list(piece(context, pickle.loads(task))))


@functools.lru_cache(maxsize=2)
def _unpacked(shared: bytes) -> tuple[Piece, Context]:
    unpickled: tuple[Piece, Context] = pickle.loads(shared)
    return unpickled


def snapshot_batches[T](rows: Sequence[T], size: int = _SNAPSHOTS) -> list[Sequence[T]]:
    """Return rows in batches. Each row costs one or two requests."""
    return list(batched(rows, size))


def manifest_batches(manifests: ManifestFiles) -> list[ManifestFiles]:
    """Return manifests in batches with a limited number of references."""
    weights = np.maximum(manifests.num_chunk_refs.astype(np.int64), _REFS // _MANIFESTS)
    cuts = (np.flatnonzero(np.diff(np.cumsum(weights) // _REFS)) + 1).tolist()
    pairs = zip([0, *cuts], [*cuts, len(manifests)], strict=True)
    return [manifests.select_manifests(slice(low, high)) for low, high in pairs if high > low]


def side_by_side[T, R](
    items: Iterable[T],
    work: Callable[[T], R],
    threads: int,
    purpose: Purpose = Purpose.COLLECTION_STEPS,
    *,
    weight: Callable[[T], float] = lambda item: 0.0,
) -> Iterator[R]:
    """Do the same as ``map``, on threads and in order.

    At most ``threads`` items run or wait at a time, and their weights are at most 1 together.
    """
    with thread_pool(purpose, min(max(1, threads), SIZES[purpose])) as pool:
        running: deque[tuple[Future[R], float]] = deque()
        load = 0.0
        try:
            for item in items:
                heavy = weight(item)
                while running and (len(running) >= threads or load + heavy > 1):
                    done, lighter = running.popleft()
                    load -= lighter
                    yield done.result()
                running.append((pool.submit(work, item), heavy))
                load += heavy
            while running:
                yield running.popleft()[0].result()
        finally:
            for waiting, _ in running:
                waiting.cancel()


class Progress(Protocol):
    """The progress of upkeep: the number of steps, and each finished step, from the caller's thread."""

    def expect(self, tasks: int) -> None:
        """Announce steps."""

    def advance(self, *, bytes: int = 0) -> None:
        """Count one more finished step."""


class NoProgress:
    """Reports nothing."""

    def expect(self, tasks: int) -> None:
        """Ignore the steps."""

    def advance(self, *, bytes: int = 0) -> None:
        """Ignore the step."""


NO_PROGRESS: Final[Progress] = NoProgress()


def progress_of(progress: Progress | None) -> Progress:
    """Return the argument ``progress`` of a public function, or an object that reports nothing."""
    require_progress(progress, "expect", "advance")
    return NO_PROGRESS if progress is None else progress
