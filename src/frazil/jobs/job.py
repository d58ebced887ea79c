"""What a job is: the plan on the driver, the work on the executors, and what the commit records.

    prepare    driver: metadata of what will be written, and the items of work
    work       executors: one call for each item, with a fork of its own; any number of times
    phases     prepare and work again, with the merged changes: for what does not fit in one round
    finish     driver: what needs the values of all items (coordinates, combined partial results)

`frazil.jobs.job_run` runs a job, and commits its result once.

Operations (`frazil.spark.rechunk`, ``ingest``, ...) are functions that make a ``Job`` and run it.
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
    """The work of one round. No two items may write to one chunk. ``shared`` goes to all of them. ``reads``
    are paths of nodes from which the plan was derived: as inputs are, they are compared before each commit.
    """

    items: Sequence[Any]
    shared: Any = None
    reads: tuple[str, ...] = ()


#: ``(fork, shared, item) -> Outcome``: runs on an executor, perhaps more than once.
type Work = Callable[[ForkSession, Any, Any], Outcome]


@dataclass(frozen=True, slots=True)
class Phase:
    """One more round of work. Its session and its forks see all changes of the rounds before. ``prepare``
    also gets the values of the round before, and may delete what only that round needed.
    """

    prepare: Callable[[Session, list[Any]], Tasks]
    work: Work


@dataclass(frozen=True, slots=True)
class Job:
    """See the module. ``writes`` are the paths that it creates or changes; ``phases`` come after ``work``,
    and ``finish`` gets the values of the last. With more than ``manifests_on_executors_above`` references in
    a round the executors write the manifests (`frazil.jobs.bulk_commit`). ``inputs`` are compared before each
    commit (`frazil.jobs.inputs`); with ``track_reads`` so is all that is read through the job's session and
    its forks.
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
