"""The result of a job: its new version and its metrics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from frazil.display import Shown, counted
from frazil.jobs.progress import size
from frazil.jobs.summary import Summary, brief, listed
from frazil.jobs.versions import Version


@dataclass(frozen=True, slots=True, repr=False)
class Metrics(Summary):
    """The work and the cost of a job.

    Attributes:
        tasks: The number of tasks.
        retries: The number of failed attempts of tasks that succeeded later.
        resumed: The number of tasks whose results an earlier run had staged.
        rows: The number of rows that tasks report, such as steps of a dimension.
        chunks: The number of chunks that tasks wrote.
        bytes_read: The bytes of values that tasks read, before compression.
        bytes_written: The bytes of values that tasks wrote, before compression.
        requests: The number of requests to storages by tasks, and by the driver before the commit.
        stored_bytes_read: The bytes that these requests read from storages.
        stored_bytes_written: The bytes that these requests wrote to storages.
        returned: The bytes that tasks sent back to the driver.
        seconds: The time from the start of the job to its commit.
        task_seconds: The sum of the times of all tasks.
        longest_task_seconds: The time of the longest task.

    >>> from frazil.pipeline import Metrics
    >>> metrics = Metrics(tasks=4, chunks=12, bytes_written=96_000_000, seconds=1.5)
    >>> metrics.work(), metrics.writes()
    ('4 tasks in 1.5 s', '12 chunks, 96.0 MB')
    """

    tasks: int = 0
    retries: int = 0
    resumed: int = 0
    rows: int = 0
    chunks: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    requests: int = 0
    stored_bytes_read: int = 0
    stored_bytes_written: int = 0
    returned: int = 0
    seconds: float = 0.0
    task_seconds: float = 0.0
    longest_task_seconds: float = 0.0

    shown_as: ClassVar[str] = "pipeline.Metrics"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        return (
            ("tasks", self.work()),
            ("values read", size(self.bytes_read)),
            ("values written", self.writes()),
            ("storage", f"{counted(self.requests, 'request')}, {self._stored()}"),
            ("returned", size(self.returned)),
            ("task seconds", f"{self.task_seconds:.1f}, the longest {self.longest_task_seconds:.1f}"),
        )

    def _stored(self) -> str:
        return f"{size(self.stored_bytes_read)} read, {size(self.stored_bytes_written)} written"

    def work(self) -> str:
        """Return the tasks and the time as text.

        Returns:
            One line, such as ``"4 tasks in 1.5 s"``, with retries and resumed tasks if there are any.
        """
        more = [f"{self.retries:,} retried" if self.retries else ""]
        more += [f"{self.resumed:,} of an earlier run" if self.resumed else ""]
        return listed([f"{counted(self.tasks, 'task')} in {self.seconds:.1f} s", *more])

    def writes(self) -> str:
        """Return the written rows, chunks and bytes as text.

        Returns:
            One line, such as ``"12 chunks, 96.0 MB"``; ``"nothing"`` if the tasks wrote nothing.
        """
        numbers = ((self.rows, "row"), (self.chunks, "chunk"))
        parts = [counted(number, noun) for number, noun in numbers if number]
        return listed([*parts, size(self.bytes_written) if self.bytes_written else ""])


@dataclass(frozen=True, slots=True, repr=False)
class JobResult(Summary):
    """The result of a job.

    Attributes:
        id: The id of the job.
        version: The version with the result of the job.
        metrics: The work and the cost of this run.
        done_before: Whether an earlier run or another driver had committed the job, or it changes nothing.
        values: The values that the tasks of the last round returned.
    """

    id: str
    version: Version
    metrics: Metrics
    done_before: bool = False
    values: tuple[Any, ...] = ()

    shown_as: ClassVar[str] = "pipeline.JobResult"

    @property
    def snapshot_id(self) -> str:
        """The id of the snapshot with the result."""
        return self.version.snapshot_id

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "id", brief(self.id)
        yield "snapshot", self.version.place()
        if self.done_before:
            yield "done before", "the result was already in the repository"
        else:
            yield "work", self.metrics.work()
            if self.metrics.rows or self.metrics.chunks or self.metrics.bytes_written:
                yield "wrote", self.metrics.writes()  # if ``finish`` wrote everything, tasks report nothing

    def _details(self) -> Iterable[tuple[str, Shown]]:
        yield "version", self.version
        yield "metrics", self.metrics
        if any(value is not None for value in self.values):
            yield "values", f"{counted(len(self.values), 'value')}: {brief(self.values)}"
