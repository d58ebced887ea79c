"""Commands for jobs: job open, job task, job status, job commit for batch systems, and events."""

from __future__ import annotations

import os
import subprocess
import warnings
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import click

from frazil.cli import arguments as args
from frazil.cli.command import Output, argument, option, picked, table, verb
from frazil.cli.opening import BranchChange, OpenTarget, clock
from frazil.display import counted
from frazil.errors import SessionStateError
from frazil.repository.target import Target
from frazil.storage.profiles import storage_of_location

if TYPE_CHECKING:
    from frazil.jobs import SharedJob

_Target = Annotated[Target, argument(type=args.TargetType(), metavar="LOCATION[@BRANCH]")]
_Id = Annotated[str, argument(metavar="ID")]
#: The exit status of a command that a signal has ended, as in a shell.
_SIGNAL: Final = 128
#: The exit statuses for a program that does not exist, or cannot be run, as in a shell.
_NO_PROGRAM: Final = 127
_CANNOT_RUN: Final = 126
#: What `job status` prints of a missing task as JSON.
_FIELDS: Final = ("number", "attempts", "host", "process", "started_at", "error")
#: What it prints of a job that is not committed.
_JOB: Final = ("id", "name", "branch", "snapshot_id", "started_at")


def _job(target: Target, job_id: str) -> SharedJob:
    from frazil.jobs import shared

    opened = OpenTarget(target)
    return shared(opened.repo, job_id, opened.branch)


@verb("job open")
def job_open(
    output: Output,
    target: _Target,
    tasks: Annotated[int, option("-n", "--tasks", required=True, metavar="N")],
    job_id: Annotated[str | None, option("--id", metavar="ID")],
) -> None:
    """Open a job on a branch (default: `main`), and print its id.

    The N tasks of the job run anywhere, such as in a batch system, and `frazil job commit` makes one commit
    of their results. If a job with this ID is open, the command does nothing. If it was committed, the
    command also says so on standard error, because tasks with this ID do nothing. The job can be committed
    for seven days, and holds back `frazil collect` until then. `frazil lease` gives it up.

    Args:
        tasks: The number of tasks.
        job_id: The id of the job (default: a new id).

    Examples:
        frazil job open ice --tasks 100                    print a new id
        frazil job open ice@dev --tasks 8 --id 2026-11-27  with an id of your own
    """
    from frazil.jobs import open_shared

    opened = OpenTarget(target)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # the line below says it
        job = open_shared(opened.repo, tasks, branch=opened.branch, job_id=job_id)
    if job.snapshot_id is not None:
        click.echo(
            f"the job `{job.id}` was committed before, as {job.snapshot_id}: its tasks and its commit do "
            "nothing. Give a new job another id",
            err=True,
        )
    output.emit(picked(job, "id", "branch", "tasks", "snapshot_id"), [job.id])


@verb("job task", ignore_unknown_options=True)
def job_task(
    output: Output,
    target: _Target,
    job_id: _Id,
    number: Annotated[int, argument(type=click.IntRange(min=0), metavar="NUMBER")],
    command: Annotated[tuple[str, ...], argument(nargs=-1, required=True, metavar="COMMAND...")],
    again: bool,
) -> int:
    """Run a command as the task NUMBER of a job, from 0, unless the task has a result.

    In a Python program, `frazil.jobs.shared().task()` is the context in which this task writes. The exit
    status is that of the program. It is 1 if the program ends without an error and without a result, and 127
    or 126 if there is no such program or it cannot be run, as in a shell.

    Args:
        again: Run the command even if the task has a result, and replace the result.

    Examples:
        frazil job task ice 2026-11-27 17 -- python write.py  in SLURM: "$SLURM_ARRAY_TASK_ID" for 17
    """
    from frazil.jobs.shared_job import JOB_AGAIN, JOB_ID, JOB_TARGET, JOB_TASK

    job = _job(target, job_id)
    if job.has_result(number) and not again:
        text = f"task {number} has a result" if job.snapshot_id is None else "the job was committed"
        click.echo(f"{text}: the command does not run", err=True)
        return 0
    variables = {
        JOB_TARGET: str(target),
        JOB_ID: job_id,
        JOB_TASK: str(number),
        JOB_AGAIN: "1" if again else "",
    }
    try:
        status = subprocess.run(command, env=os.environ | variables).returncode
    except OSError as error:
        reason = "there is no such program" if isinstance(error, FileNotFoundError) else error.strerror
        click.echo(f"cannot run the command `{command[0]}` of task {number}: {reason}", err=True)
        return _NO_PROGRAM if isinstance(error, FileNotFoundError) else _CANNOT_RUN
    if status == 0 and not _job(target, job_id).has_result(number):
        raise SessionStateError(
            f"the command has ended, but task {number} has no result. The program must write in "
            "`with frazil.jobs.shared().task() as session:`"
        )
    return status if status >= 0 else _SIGNAL - status


@verb("job status")
def job_status(
    output: Output, target: _Target, job_id: Annotated[str | None, argument(metavar="[ID]", required=False)]
) -> int:
    """Show the tasks of a job that have no result, with the host of their last attempts.

    The exit status is 0 if no task is missing, else 1. Without ID, list the jobs of all branches that were
    started and not committed, with the number of their results.

    Examples:
        frazil job status ice 2026-11-27    the missing tasks of a job
        frazil job status ice               all jobs that are not committed
    """
    if job_id is None:
        from frazil.jobs.staging import staged_jobs

        jobs = staged_jobs(OpenTarget(target).repo)
        rows = ((each.id, each.name, each.branch, clock(each.started_at), str(each.tasks)) for each in jobs)
        output.emit(
            [picked(each, *_JOB, results="tasks") for each in jobs], table(rows, right=frozenset({4}))
        )
        return 0
    job = _job(target, job_id)
    missing = job.missing()
    document = picked(job, "id", "branch", "tasks", "snapshot_id")
    first = f"committed as {job.snapshot_id}"
    if job.snapshot_id is None:
        first = f"{job.tasks - len(missing):,} of {counted(job.tasks, 'task')} have a result"
    output.emit(
        document | {"missing": [picked(each, *_FIELDS) for each in missing]}, [first, *map(str, missing)]
    )
    return int(bool(missing))


@verb("job commit", commits=True)
def job_commit(
    output: Output, target: _Target, job_id: _Id, message: args.Message, metadata: args.Metadata
) -> None:
    """Commit the results of all tasks of a job, once.

    Another call does nothing. If tasks have no result, or two tasks wrote the same chunk, nothing is
    committed, and the results stay.

    Examples:
        frazil job commit ice 2026-11-27 -m "Model run of 27 November"
    """
    from frazil.jobs import shared

    change = BranchChange(output, target, dry_run=False)
    result = shared(change.repo, job_id, change.branch).commit(message, metadata)
    before = f"the job `{job_id}` was committed before, as {result.snapshot_id}"
    change.emit([before] * result.done_before, job=job_id, done_before=result.done_before)


@verb("events")
def events(
    output: Output,
    place: Annotated[str, argument(envvar="FRAZIL_EVENTS", metavar="[PLACE]")],
    failed: bool,
    since: args.Time,
) -> None:
    """Show the runs of jobs in an event log, newest first, also those that failed.

    PLACE is a folder, a URL or a profile; default: the first place in the variable FRAZIL_EVENTS, which makes
    runs write events. The columns: start in UTC, last event, job, duration, tasks, values read and written,
    repository, error. A run with START goes on, or its process was killed. With --json, a run is its last
    event, as OpenLineage defines it.

    Args:
        failed: Only runs that failed or were interrupted.
        since: Only runs that started from TIME on: 2026-11-01, 7d, 12h.

    Examples:
        frazil events s3://ops/events             all runs
        frazil events /ops/log --failed --since 1d  the failures of the last day
    """
    from frazil.jobs.events import FACET, read_runs
    from frazil.jobs.progress import size

    def row(run: dict[str, Any]) -> tuple[str, ...]:
        values = run["run"]["facets"][FACET]
        start = clock(datetime.fromisoformat(values["started_at"]))
        cost = (f"{values['run_seconds']:,.0f} s", f"{values['tasks']:,}")
        sizes = (size(values["bytes_read"]), size(values["bytes_written"]))
        repository, error = f"{values['repository']}@{values['branch']}", " ".join(values["error"].split())
        return (start, run["eventType"], run["job"]["name"], *cost, *sizes, repository, error)

    runs = read_runs(storage_of_location(place.partition(",")[0].strip()), since)
    runs = [run for run in runs if not failed or run["eventType"] in ("FAIL", "ABORT")]
    output.emit(runs, map(output.cut, table(map(row, runs), right=frozenset({3, 4, 5, 6}))), pages=True)
