"""The metrics of a running job: the sums of the metrics that its tasks report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from frazil.jobs.job_result import Metrics
from frazil.jobs.task_results import Result
from frazil.storage.traffic import TRAFFIC


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
