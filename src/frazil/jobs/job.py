"""Jobs: the plan on the driver, the work on the executors, and the record in the commit.

    prepare    driver: creates the metadata of the result, and returns the items of work
    work       executors: is called for each item, perhaps several times, with its own fork of the session
    phases     prepare and work again, with the merged changes, for results that need several rounds
    finish     driver: writes results that need the values of all items (coordinates, partial results)

`frazil.jobs.job_run` runs a job, and commits its result once.

Operations (`frazil.pipeline.rechunk`, ``ingest``, ...) are functions that make a ``Job`` and run it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frazil.jobs.bulk_commit import MANIFESTS_ON_EXECUTORS_ABOVE
from frazil.jobs.task_results import Outcome
from frazil.jobs.versions import Input, Target
from frazil.repository.session.session import ForkSession, Session


@dataclass(frozen=True, slots=True)
class Tasks:
    """The work of one round.

    Args:
        items: The items of work, one for each task. They can be pickled. Two items must not write the same
            chunk.
        shared: A value that all tasks get. Default: None.
        reads: The paths of nodes that the plan depends on. Like inputs, they are checked before each commit.
            Default: none.

    >>> from frazil.pipeline import Tasks
    >>> Tasks([0, 1, 2], shared="t").items
    [0, 1, 2]
    """

    items: Sequence[Any]
    shared: Any = None
    reads: tuple[str, ...] = ()


#: ``(fork, shared, item) -> Outcome``: a function that runs on an executor, perhaps more than once.
type Work = Callable[[ForkSession, Any, Any], Outcome]


@dataclass(frozen=True, slots=True)
class Phase:
    """One more round of a job. Its session and its forks see all changes of the earlier rounds.

    Args:
        prepare: A function that gets the session and the values of the previous round, and returns the
            `Tasks`. It may delete nodes that only the previous round needed.
        work: The function that executors call for each item.
    """

    prepare: Callable[[Session, list[Any]], Tasks]
    work: Work


@dataclass(frozen=True, slots=True)
class Job:
    """A plan on the driver, work on executors, and one commit. `run_job` runs it.

    Args:
        name: The name of the operation, for the record in the commit and for messages.
        target: The `Target` of the result.
        prepare: A function that gets the session of the job, creates the metadata of the result, and returns
            the `Tasks`. A second run of the job calls it again.
        work: The function ``(fork, shared, item) -> Outcome`` that executors call for each item. Executors
            must be able to import it. It may be called more than once for an item.
        finish: A function that gets the session and the values of the last round, before the commit. None:
            no such step.
        parameters: The parameters of the operation, as values that JSON can hold. They are part of the id.
        inputs: The versions that the job reads. If they are on the branch of the target, they are checked
            before each commit.
        writes: The paths that the job creates or changes. Default: the root, which means any path.
        message: The message of the commit. None: the name of the job.
        metadata: More metadata of the commit.
        id: The id of the job. None: derived from the name, parameters, inputs and target.
        phases: More rounds after ``work``.
        manifests_on_executors_above: With more references in a round, the executors write the manifests
            (`frazil.jobs.bulk_commit`).
        track_reads: Whether all nodes and chunks that are read through the session of the job and its forks
            are also checked before each commit. Default: False.

    >>> import frazil, zarr
    >>> from frazil.pipeline import Job, Outcome, Target, Tasks, run_job
    >>> def prepare(session):
    ...     _ = zarr.create_array(session.store, name="n", shape=(4,), chunks=(2,), dtype="i4")
    ...     return Tasks([0, 2])
    >>> def work(fork, shared, item):
    ...     zarr.open_array(fork.store, path="n")[item : item + 2] = item
    ...     return Outcome(rows=2, chunks=1)
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> result = run_job(Job("count", Target(repo), prepare, work), "inline")
    >>> zarr.open_array(result.version.session().store, path="n")[:].tolist()
    [0, 0, 2, 2]
    """

    name: str
    target: Target
    prepare: Callable[[Session], Tasks]
    work: Work
    finish: Callable[[Session, list[Any]], None] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[Input, ...] = ()
    writes: tuple[str, ...] = ("/",)
    message: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    phases: tuple[Phase, ...] = ()
    manifests_on_executors_above: int = MANIFESTS_ON_EXECUTORS_ABOVE
    track_reads: bool = False
