"""The merge of reads that callers make one by one in the same turn of an event loop.

zarr reads chunks one by one, from many tasks. The tasks run in one turn of the loop. So the first read of a
turn schedules a dispatch for the next turn, and all reads until then are planned as one job. This costs one
turn of the loop: microseconds, before a request of milliseconds.

A ``LoopReads`` serves one event loop, and only this loop uses it, so it needs no locks. A merged request is a
separate task, because the tasks that wait for it may be cancelled one by one. If all of them are cancelled,
the request is cancelled too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.chunks.ranges import ByteRange, Job, MergeLimits, Outcome, cut_all, fetch_async
from frazil.errors import ErrorKind, StorageError
from frazil.lazy_names import ModuleOnDemand

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Buffer, Sequence

    _Waiting = list[tuple[ByteRange, asyncio.Future[Buffer]]]
else:
    asyncio = ModuleOnDemand("asyncio")


class LoopReads:
    """The reads of one event loop, with at most ``max_requests`` requests at a time."""

    def __init__(self, limits: MergeLimits, max_requests: int) -> None:
        self._limits = limits
        self._free = asyncio.Semaphore(max_requests)
        self._waiting: _Waiting = []
        self._running: set[asyncio.Task[None]] = set()  # the loop itself only has weak references to tasks

    async def read(self, wanted: ByteRange) -> Buffer:
        """Return the bytes of one range, which are fetched together with other reads of this turn."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Buffer] = loop.create_future()
        self._waiting.append((wanted, answer))
        if len(self._waiting) == 1:
            loop.call_soon(self._dispatch)
        return await answer

    async def fetch_all(self, requests: Sequence[ByteRange]) -> list[Outcome]:
        """Make several requests. Return the outcome of each."""
        return await asyncio.gather(*map(self._fetch, requests))

    async def _fetch(self, request: ByteRange) -> Outcome:
        async with self._free:
            return await fetch_async(request)

    def _dispatch(self) -> None:
        waiting = [(wanted, answer) for wanted, answer in self._waiting if not answer.done()]
        self._waiting = []
        if not waiting:
            return
        try:
            job = Job([wanted for wanted, _ in waiting], self._limits)
            served = [[waiting[row] for row in rows] for rows in job.parts()]
        except Exception as error:
            _fail(waiting, error)
            return
        for request, group in zip(job.requests, served, strict=True):
            task = asyncio.get_running_loop().create_task(self._serve(request, group))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            _cancel_when_deserted(task, group)

    async def _serve(self, request: ByteRange, group: _Waiting) -> None:
        try:
            wanted = [wanted for wanted, _ in group]
            outcomes = list(cut_all(wanted, request, await self._fetch(request)))
            if len(group) > 1 and all(map(_may_be_of_one, outcomes)):
                alone = zip(wanted, await self.fetch_all(wanted), strict=True)
                outcomes = [outcome for one, data in alone for outcome in cut_all([one], one, data)]
            for (_, answer), outcome in zip(group, outcomes, strict=True):
                if answer.done():
                    continue
                if isinstance(outcome, Exception):
                    answer.set_exception(outcome)
                else:
                    answer.set_result(outcome)
        except asyncio.CancelledError:
            for _, answer in group:
                answer.cancel()
            raise
        except Exception as error:
            _fail(group, error)


def _may_be_of_one(outcome: Outcome) -> bool:
    """Return whether one chunk may be the cause of the error of a merged request.

    A store of foreign objects refuses a whole range that goes beyond the end of the object.
    """
    return isinstance(outcome, StorageError) and outcome.kind == ErrorKind.VIRTUAL_CHUNK_FETCH


def _fail(group: _Waiting, error: Exception) -> None:
    for _, answer in group:
        if not answer.done():
            answer.set_exception(error)


def _cancel_when_deserted(task: asyncio.Task[None], group: _Waiting) -> None:
    """Cancel the request if all tasks that wait for it are cancelled."""
    left = len(group)

    def one_less(answer: asyncio.Future[Buffer]) -> None:
        nonlocal left
        left -= answer.cancelled()
        if left == 0:
            task.cancel()

    for _, answer in group:
        answer.add_done_callback(one_less)
