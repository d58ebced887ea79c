"""Work on many items at the same time, in limited memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future

from frazil.threads import SIZES, Purpose, thread_pool


def side_by_side[T, R](
    items: Iterable[T],
    work: Callable[[T], R],
    threads: int,
    purpose: Purpose = Purpose.COLLECTION_STEPS,
    *,
    weight: Callable[[T], float] = lambda item: 0.0,
) -> Iterator[R]:
    """Do the same as ``map``, on threads and in order.

    At most ``threads`` items run or wait at a time, and the sum of their weights is at most 1. An item with a
    larger weight runs alone. If the caller stops, items that have not started are cancelled.
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
