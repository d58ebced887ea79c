"""Rounds of tasks: an engine runs the items of a job, and the results are merged into the session of the job.

driver      ``prepare`` returns the items; each item becomes a message with its number
executor    `run_task`: forks the session, calls the work function, encodes a `Result`
driver      merges the results; a staged result of an earlier run replaces a task
"""

from __future__ import annotations

import functools
import pickle
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from frazil import host
from frazil.changes.node_changes import NOTHING_READ, ReadSet, joined_reads
from frazil.errors import ErrorKind, IcechunkError, SessionStateError
from frazil.format.ids import id_to_text
from frazil.jobs.bulk_commit import TaskChanges
from frazil.jobs.engine import Engine, attempt
from frazil.jobs.job import Metrics, Tasks, Work
from frazil.jobs.progress import Progress
from frazil.jobs.staging import StagedRound, Staging
from frazil.jobs.task_failures import dumps, unsendable
from frazil.jobs.task_results import Outcome, Result, decode_result, encode_result, stage_references
from frazil.repository.ids import new_object_id
from frazil.repository.paths import absolute
from frazil.repository.session.session import ForkSession, Session, state_of
from frazil.repository.session.staged_work import STAGING
from frazil.storage.checks import TRAFFIC


@dataclass(slots=True)
class Tally:
    """The sums over the finished tasks. ``returned`` is the number of bytes that tasks sent back."""

    tasks: int = 0
    returned: int = 0
    totals: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0

    def add_result(self, result: Result) -> None:
        """Add the metrics of one task."""
        outcome, stored = result.outcome, result.stored
        self.longest = max(self.longest, result.seconds)
        self.totals.update(
            retries=result.retries,
            resumed=int(result.staged),
            rows=outcome.rows,
            chunks=outcome.chunks,
            bytes_read=outcome.bytes_read,
            bytes_written=outcome.bytes_written,
            requests=stored.requests,
            stored_bytes_read=stored.bytes_read,
            stored_bytes_written=stored.bytes_written,
        )
        self.totals["task_microseconds"] += round(result.seconds * 1e6)

    def metrics(self, seconds: float) -> Metrics:
        """Return the metrics of the job, including the requests of the driver."""
        driver, totals = TRAFFIC.take_counts(), dict(self.totals)
        task_seconds = totals.pop("task_microseconds", 0) / 1e6
        totals["requests"] = totals.get("requests", 0) + driver.requests
        totals["stored_bytes_read"] = totals.get("stored_bytes_read", 0) + driver.bytes_read
        totals["stored_bytes_written"] = totals.get("stored_bytes_written", 0) + driver.bytes_written
        return Metrics(
            tasks=self.tasks,
            returned=self.returned,
            seconds=round(seconds, 3),
            task_seconds=round(task_seconds, 3),
            longest_task_seconds=round(self.longest, 3),
            **totals,
        )


_NUMBER: Final = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class RoundInput:
    """The value that all tasks of a round share. ``references`` is the folder for staged references."""

    base: ForkSession
    work: Work
    shared: Any
    staged: StagedRound | None
    references: str


@dataclass(slots=True)
class Rounds:
    """The rounds of one job. ``reads`` are the paths on which the plans of its rounds depend."""

    session: Session
    staging: Staging | None
    engine: Engine
    progress: Progress | None
    tally: Tally
    manifests_on_executors_above: int
    number: int = 0
    reads: ReadSet = NOTHING_READ

    def run(self, prepare: Callable[[Session], Tasks], work: Work) -> list[Any]:
        """Run the work for all items that ``prepare`` returns, merge the changes, and return the values."""
        generation = state_of(self.session).generation
        tasks = prepare(self.session)
        plan = ReadSet(trees=frozenset(map(absolute, tasks.reads)))
        self.reads = joined_reads([self.reads, plan])
        items = [_pickled(item, f"item {number}") for number, item in enumerate(tasks.items)]
        self.tally.tasks += len(items)
        if self.progress is not None:
            self.progress.expect(len(items))
        staged = self._stage_round(generation, items)
        self.number += 1
        base = self.session.fork()
        above, keeps = self.manifests_on_executors_above, staged is not None
        changes = TaskChanges(self.session, base, self._references(staged), above, keeps)
        common = RoundInput(base, work, tasks.shared, staged, changes.place)
        results = self._staged_results(common, len(items), changes)
        self._run_missing(common, items, results, changes)
        changes.finish(self.engine)
        return [results[number].outcome.value for number in range(len(items))]

    def _stage_round(self, generation: int, items: list[bytes]) -> StagedRound | None:
        """Stage the round. Returns None if the engine does not stage results."""
        if self.staging is None:
            return None
        if state_of(self.session).generation != generation:
            raise SessionStateError(
                "`prepare` forked its session, but then the job cannot be resumed. Run the job with an "
                "engine that is not `resumable`, or write with the session itself",
                ErrorKind.NOT_ALLOWED,
            )
        return self.staging.stage_round(self.number, self.session, items)

    def _references(self, staged: StagedRound | None) -> str:
        """Return the key of the folder for references that tasks stage.

        A later run that continues this one may need them until the commit.
        """
        if staged is not None:
            return staged.folder.subfolder("references").key
        return f"{STAGING}/{id_to_text(new_object_id())}"

    def _staged_results(self, common: RoundInput, count: int, changes: TaskChanges) -> dict[int, Result]:
        """Return the results of an earlier run, by the number of the task."""
        results: dict[int, Result] = {}
        if common.staged is not None:
            for number, result in common.staged.results(common.work.__module__):
                if number < count:
                    results[number] = changes.add_result(result)
                    self._report(result)
        return results

    def _run_missing(
        self, common: RoundInput, items: list[bytes], results: dict[int, Result], changes: TaskChanges
    ) -> None:
        """Run the tasks without a result."""
        missing = [number for number in range(len(items)) if number not in results]
        parts = {"work": common.work, "shared": common.shared}
        shared = _pickled(common, "the work function or the shared value", parts)
        messages = [_NUMBER.pack(number) + items[number] for number in missing]
        for number, data in zip(missing, self.engine.run(run_task, messages, shared), strict=True):
            result = results[number] = changes.add_result(decode_result(data))
            self.tally.returned += len(data)
            self._report(result)

    def _report(self, result: Result) -> None:
        self.tally.add_result(result)
        outcome = result.outcome
        if self.progress is not None:
            self.progress.advance(
                rows=outcome.rows,
                chunks=outcome.chunks,
                bytes=outcome.bytes_written,
                resumed=result.staged,
            )


def _pickled(value: Any, name: str, parts: Any = None) -> bytes:
    try:
        return dumps(value)
    except IcechunkError:
        raise  # its message names the reason, such as a session with changes
    except Exception as error:
        raise unsendable(name, parts or value, dumps, error) from error


# On executors


def run_task(shared: bytes, message: bytes) -> bytes:
    """Run one task: one item, in its own fork."""
    started = host.monotonic_seconds()
    common = _unpickled(shared)
    staged, work = common.staged, common.work
    (number,) = _NUMBER.unpack_from(message)
    # Another task of the same partition may have failed, or this result may have been lost after staging.
    if attempt() and staged is not None and (data := staged.get_result(number, work.__module__)) is not None:
        return data
    fork = common.base.fork()  # not `base`, which this process uses for the next task
    outcome = work(fork, common.shared, pickle.loads(message[_NUMBER.size :]))
    if not isinstance(outcome, Outcome):
        raise TypeError(f"the work function of a job must return an Outcome, got {type(outcome).__name__}")
    fork.workspace.writer.flush()  # the result must refer only to durable chunks
    seconds = round(host.monotonic_seconds() - started, 6)
    changes, segments = stage_references(fork, common.references)
    tracker = fork.workspace.reads
    result = Result(
        changes,
        outcome,
        ends=state_of(fork).ends(),
        retries=attempt(),
        seconds=seconds,
        stored=TRAFFIC.take_counts(),
        segments=segments,
        reads=NOTHING_READ if tracker is None else tracker.reads(),
    )
    data = encode_result(result)
    if staged is not None:
        staged.put_result(number, data)
    return data


@functools.lru_cache(maxsize=2)
def _unpickled(shared: bytes) -> RoundInput:
    """Unpickle once in each process, so that snapshot and node table are not read for each task."""
    common: RoundInput = pickle.loads(shared)
    return common
