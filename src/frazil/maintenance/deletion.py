"""Deletes many objects in batches, several at a time, with retries.

A batch that fails is tried again object by object, so that one bad object does not block a thousand others. A
storage with too many requests gets fewer requests at a time and longer pauses. After a number of failures in
a row, the deletion stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import BoundedSemaphore, Lock
from typing import Final

from frazil import host
from frazil.errors import ConflictError, ErrorKind, StorageError
from frazil.repository.catalog.context import Context
from frazil.storage.base import Storage
from frazil.survey.columns import ObjectListing, Objects
from frazil.survey.steps import NO_PROGRESS, Progress, Run, side_by_side
from frazil.threads import Purpose

_BATCH: Final = 1000
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 20.0
_MAX_ERRORS: Final = 10
_FILES_PER_TASK: Final = 50_000


@dataclass(frozen=True, slots=True)
class DeleteLimits:
    """The number of concurrent requests, and of failures in a row after which the deletion stops."""

    concurrent: int = 10
    failures_in_a_row: int = 50


@dataclass(slots=True)
class DeletionResult:
    """The result of a deletion: counts, bytes, and the first errors."""

    objects: int = 0
    size: int = 0
    failed: int = 0
    throttled: int = 0
    errors: list[str] = field(default_factory=list)


class Sweeper:
    """Deletes objects, and counts failures in a row over all its deletions.

    ``sleep`` is called with the seconds of a pause.
    """

    def __init__(
        self,
        storage: Storage,
        limits: DeleteLimits,
        sleep: Callable[[float], None] = host.pause,
        progress: Progress = NO_PROGRESS,
    ) -> None:
        self._storage = storage
        self._limits = limits
        self._sleep = sleep
        self._progress = progress
        self._lock = Lock()
        self._in_a_row = 0
        self._last: StorageError | None = None

    def sweep(self, garbage: Objects) -> DeletionResult:
        """Delete all objects of a list, and return the counts."""
        done = DeletionResult()
        # Starts with one request at a time. Each success allows one more.
        gate = _Gate(self._limits.concurrent)
        starts = range(0, len(garbage.sizes), _BATCH)
        self._progress.expect(len(starts))

        def delete(start: int) -> int:
            batch = garbage.part(start, start + _BATCH)
            return self._batch(list(zip(batch.keys(), batch.sizes.tolist(), strict=True)), done, gate)

        for size in side_by_side(starts, delete, self._limits.concurrent, Purpose.BATCH_DELETES):
            self._progress.advance(bytes=size)
        return done

    def _batch(self, batch: Sequence[tuple[str, int]], done: DeletionResult, gate: _Gate) -> int:
        """Delete the objects of a batch. Return the number of bytes of all of them."""
        size = sum(size for _, size in batch)
        self._give_up_if_hopeless()
        with gate:
            error = self._patiently([key for key, _ in batch], done, gate)
        if error is None:
            self._count(done, batch, [])
            return size
        if len(batch) == 1:
            self._count(done, [], [(batch[0], error)])
            return size
        for one in batch:
            self._give_up_if_hopeless()
            error = self._patiently([one[0]], done, gate)
            self._count(done, [one] if error is None else [], [] if error is None else [(one, error)])
        return size

    def _patiently(self, keys: list[str], done: DeletionResult, gate: _Gate) -> StorageError | None:
        """Delete the keys, with pauses while the storage is throttled. Return another error."""
        pause = _FIRST_PAUSE_S
        while True:
            try:
                self._storage.delete(keys)
            except StorageError as error:
                if error.kind != ErrorKind.THROTTLED:
                    return error
                gate.narrow()
                with self._lock:
                    done.throttled += 1
                if pause >= _LONGEST_PAUSE_S:
                    self._failed(error)
                    self._give_up_if_hopeless()
                self._sleep(host.random_between(0.5, 1.0) * pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            else:
                gate.widen()
                return None

    def _count(
        self,
        done: DeletionResult,
        deleted: Sequence[tuple[str, int]],
        failed: Sequence[tuple[tuple[str, int], StorageError]],
    ) -> None:
        with self._lock:
            done.objects += len(deleted)
            done.size += sum(size for _, size in deleted)
            done.failed += len(failed)
            room = _MAX_ERRORS - len(done.errors)
            done.errors += [f"{key}: {error.message}" for (key, _), error in failed[:room]]
            if deleted:
                self._in_a_row = 0
        for _, error in failed:
            self._failed(error)

    def _failed(self, error: StorageError) -> None:
        with self._lock:
            self._in_a_row += 1
            self._last = error

    def _give_up_if_hopeless(self) -> None:
        if self._in_a_row >= max(1, self._limits.failures_in_a_row):
            raise ConflictError(
                message=f"{self._in_a_row} requests to delete failed in a row, the last one with: "
                f"{self._last}. The repository is complete. Collect garbage again when the storage works",
                kind=ErrorKind.GC_DELETES_FAILING,
            ) from self._last


def delete_files(run: Run, files: ObjectListing, limits: DeleteLimits) -> DeletionResult:
    """Delete files by tasks. If a task gives up, its error does not count the files of other tasks."""
    parts = [files.part(start, start + _FILES_PER_TASK) for start in range(0, len(files), _FILES_PER_TASK)]
    total = DeletionResult()
    for done in run(_delete, [(part, limits) for part in parts]):
        total.objects += done.objects
        total.size += done.size
        total.failed += done.failed
        total.throttled += done.throttled
        total.errors = (total.errors + done.errors)[:_MAX_ERRORS]
    return total


def _delete(context: Context, item: tuple[ObjectListing, DeleteLimits]) -> Iterator[DeletionResult]:
    files, limits = item
    yield Sweeper(context.storage, limits).sweep(files)


#: Upper limit for concurrent requests.
_MOST: Final = 1024


class _Gate:
    """Admits a number of threads at a time, from one up to a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = min(max(1, limit), _MOST)
        self._inside = BoundedSemaphore(self._limit)
        self._closed = 0
        self._lock = Lock()
        for _ in range(self._limit - 1):
            self._inside.acquire()
            self._closed += 1

    def __enter__(self) -> None:
        self._inside.acquire()

    def __exit__(self, *exc: object) -> None:
        self._inside.release()

    def widen(self) -> None:
        """Admit one more thread, up to the limit."""
        with self._lock:
            if self._closed:
                self._closed -= 1
                self._inside.release()

    def narrow(self) -> None:
        """Admit one thread less, but at least one."""
        with self._lock:
            if self._closed < self._limit - 1 and self._inside.acquire(blocking=False):
                self._closed += 1
