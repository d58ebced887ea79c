"""A client that runs jobs whose results are staged, and continues the jobs of processes that have stopped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.model import Content, Intent
from tests.simulation.storage import Crashed
from zarr.core.buffer.cpu import Buffer

from frazil.errors import IcechunkError
from frazil.jobs.engine import Inline
from frazil.jobs.job import Job, Target, Tasks
from frazil.jobs.job_run import run_job
from frazil.jobs.task_results import Outcome

if TYPE_CHECKING:
    from tests.simulation.operations import ClientRun

    from frazil.repository.session.session import ForkSession, Session


@dataclass(eq=False)
class StartedJob:
    """A job of a run, which several drivers may run. ``bases`` are the versions that it started at."""

    mark: str
    branch: str
    changes: Content
    bases: set[str] = field(default_factory=set)


def job(client: ClientRun) -> None:
    """Run a job: a new one, or one that this or another client has started."""
    jobs = client.run.jobs
    if jobs and client.numbers.random() < 0.5:
        started = client.numbers.choice(jobs)
    else:
        mark = client.mark()
        started = StartedJob(mark, client.branch(), client.changes(mark, 4))
        jobs.append(started)
    run(client, started)


def run(client: ClientRun, started: StartedJob) -> None:
    """Run a job as one of its drivers. A failure does not say that no driver has committed it."""
    mark = started.mark

    def prepare(session: Session) -> Tasks:
        started.bases.add(session.snapshot_id)
        is_one = len(started.bases) == 1
        client.run.model.intents[mark] = Intent(
            session.snapshot_id, started.changes, may_overwrite=not is_one
        )
        return Tasks(sorted(started.changes.items()))

    planned = Job("write", Target(client.repo, started.branch), prepare, work, message=mark, id=mark)
    try:
        result = run_job(planned, Inline(resumable=True))
    except IcechunkError as error:
        client.require_allowed(error)
        client.record(mark, "unknown", repr(error))
    except Crashed:
        client.record(mark, "unknown")
        raise
    else:
        # The version of an earlier commit may be one that a squash has left in its place.
        client.record(mark, "done", None if result.done_before else result.version.snapshot_id)


def work(fork: ForkSession, shared: Any, item: Any) -> Outcome:
    """Write one chunk."""
    chunk, data = item
    fork.store.set_sync(f"x/c/{chunk}", Buffer.from_bytes(data))
    return Outcome(chunks=1)
