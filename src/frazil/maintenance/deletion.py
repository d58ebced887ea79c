"""Deletes many objects in batches, several at a time, with retries.

A batch that fails is tried again object by object, so that one bad object does not block a thousand others. A
storage with too many requests gets longer and longer pauses. After a number of failures in
a row, the deletion stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Lock
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
#: Upper limit for concurrent requests.
_MOST: Final = 1024


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

    def add(self, part: DeletionResult) -> None:
        """Add the result of a part."""
        self.objects += part.objects
        self.size += part.size
        self.failed += part.failed
        self.throttled += part.throttled
        self.errors = (self.errors + part.errors)[:_MAX_ERRORS]


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
        total = DeletionResult()
        starts = range(0, len(garbage.sizes), _BATCH)
        self._progress.expect(len(starts))

        def delete(start: int) -> DeletionResult:
            batch = garbage.part(start, start + _BATCH)
            return self._delete(batch.keys(), batch.sizes.tolist())

        concurrent = min(max(1, self._limits.concurrent), _MOST)
        for done in side_by_side(starts, delete, concurrent, Purpose.BATCH_DELETES):
            total.add(done)
            self._progress.advance(bytes=done.size)
        return total

    def _delete(self, keys: list[str], sizes: list[int]) -> DeletionResult:
        """Delete objects with one request. If it fails, delete each object alone."""
        self._give_up_if_hopeless()
        done = DeletionResult()
        error = self._patiently(keys, done)
        if error is None:
            done.objects, done.size = len(keys), sum(sizes)
            with self._lock:
                self._in_a_row = 0
        elif len(keys) == 1:
            done.failed, done.errors = 1, [f"{keys[0]}: {error.message}"]
            self._failed(error)
        else:
            for key, size in zip(keys, sizes, strict=True):
                done.add(self._delete([key], [size]))
        return done

    def _patiently(self, keys: list[str], done: DeletionResult) -> StorageError | None:
        """Delete the keys, with pauses while the storage is throttled. Return another error."""
        pause = _FIRST_PAUSE_S
        while True:
            try:
                self._storage.delete(keys)
            except StorageError as error:
                if error.kind != ErrorKind.THROTTLED:
                    return error
                done.throttled += 1
                if pause >= _LONGEST_PAUSE_S:
                    self._failed(error)
                    self._give_up_if_hopeless()
                self._sleep(host.random_between(0.5, 1.0) * pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            else:
                return None

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
        total.add(done)
    return total


def _delete(context: Context, item: tuple[ObjectListing, DeleteLimits]) -> Iterator[DeletionResult]:
    files, limits = item
    yield Sweeper(context.storage, limits).sweep(files)
