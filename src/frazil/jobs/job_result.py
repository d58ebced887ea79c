"""What a job returns: the version that it made, and what it took."""

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
    """What a job took.

    ``bytes_read`` and ``bytes_written`` are of values, as its tasks report them; ``stored_bytes_...`` are
    those that went to and from storages, in so many ``requests``, by the tasks and by the driver before the
    commit. ``retries`` are tries of tasks that failed before one went well, ``resumed`` tasks were done by
    an earlier run. ``returned`` are the bytes that tasks sent back. ``task_seconds`` is the sum over all
    tasks.
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
        """The tasks and the time, in words."""
        more = [f"{self.retries:,} tried again" if self.retries else ""]
        more += [f"{self.resumed:,} of an earlier run" if self.resumed else ""]
        return listed([f"{counted(self.tasks, 'task')} in {self.seconds:.1f} s", *more])

    def writes(self) -> str:
        """What was written, in words."""
        numbers = ((self.rows, "row"), (self.chunks, "chunk"))
        parts = [counted(number, noun) for number, noun in numbers if number]
        return listed([*parts, size(self.bytes_written) if self.bytes_written else ""])


@dataclass(frozen=True, slots=True, repr=False)
class JobResult(Summary):
    """What became of a job. ``done_before`` says that there was nothing left to do."""

    id: str
    version: Version
    metrics: Metrics
    done_before: bool = False
    values: tuple[Any, ...] = ()

    shown_as: ClassVar[str] = "pipeline.JobResult"

    @property
    def snapshot_id(self) -> str:
        return self.version.snapshot_id

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "id", brief(self.id)
        yield "snapshot", self.version.place()
        if self.done_before:
            yield "done before", "there was nothing left to do"
        else:
            yield "work", self.metrics.work()
            if self.metrics.rows or self.metrics.chunks or self.metrics.bytes_written:
                yield "wrote", self.metrics.writes()  # by tasks: ``finish`` may have written instead of them

    def _details(self) -> Iterable[tuple[str, Shown]]:
        yield "version", self.version
        yield "metrics", self.metrics
        if any(value is not None for value in self.values):
            yield "values", f"{counted(len(self.values), 'value')}: {brief(self.values)}"
