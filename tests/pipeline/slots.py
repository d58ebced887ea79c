"""A simulation of the tasks of a job on many slots, from the plan of the job.

The engine `Plan` gets the tasks of a job, and runs each with a work function that does nothing. So a job on
an array of 10 GB, whose chunks are not stored, takes a tenth of a second.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import zarr

import frazil
import frazil.pipeline as ops
from frazil.jobs.blocks import I64
from frazil.jobs.engine import Task
from frazil.jobs.task_failures import sendable, shared_value
from frazil.jobs.task_results import Outcome
from frazil.pipeline.transform.block_job import BlockItem, ComputedArrays

#: The fixed time of a task in seconds, and the bytes that a task reads or writes in a second.
START: Final = 0.1
RATE: Final = 1e8


def nothing(fork: frazil.ForkSession, shared: Any, item: Any) -> Outcome:
    """The work of a task in a simulation."""
    return Outcome()


def bytes_of(computed: ComputedArrays, starts: I64, stops: I64) -> I64:
    """Return the bytes that each block reads (whole chunks) and writes, before compression."""
    written = np.prod(stops - starts, axis=1) * sum(new.itemsize for new in computed.new)
    old = computed.old
    read = np.full(len(starts), old.itemsize, np.int64)
    for number, (axis, relation) in enumerate(computed.reads[0].axes):
        length, cell = old.shape[number], old.chunks[number]
        low, high = (starts[:, axis], stops[:, axis]) if axis is not None else np.array([[0], [1]])
        spans = relation.reads(low, high, length)
        owners = np.repeat(np.arange(len(low)), np.diff(spans.offsets))
        first, last = spans.low // cell, -(-spans.high // cell)
        counts = np.maximum(last - first, 0)
        chunks = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        owner, chunk = np.unique(np.stack([np.repeat(owners, counts), chunks]), axis=1)  # each is read once
        elements = np.minimum((chunk + 1) * cell, length) - chunk * cell
        read *= np.bincount(owner, elements, minlength=len(low)).astype(np.int64)
    return np.asarray(read + written)


@dataclass
class Plan:
    """An engine with many slots: the bytes of each task for each phase, and those of the largest block."""

    slots: int
    resumable: bool = False
    phases: list[list[int]] = field(default_factory=list)
    largest: int = 0

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        common = shared_value(shared)
        without_work = sendable(replace(common, work=nothing))
        phase = list[int]()
        self.phases.append(phase)
        for message in tasks:
            _, arrays = common.shared
            item = frazil_item(message)
            assert isinstance(item, BlockItem)
            sizes = bytes_of(arrays[item.computed], item.starts, item.stops)
            self.largest = max(self.largest, int(sizes.max()))
            phase.append(int(sizes.sum()))
            yield task(without_work, message)


def frazil_item(message: bytes) -> Any:
    """Return the item of a message of `frazil.jobs.task_rounds.run_task`: it follows a number of 8 bytes."""
    return shared_value(message[8:])


@dataclass(frozen=True, repr=False)
class Simulation:
    """The bytes of the tasks of each phase, and the seconds until the last one ends.

    ``busy`` is the share of the time of all slots in which tasks run.
    """

    phases: tuple[tuple[int, ...], ...]
    busy: float
    makespan: float
    largest: int

    @property
    def tasks(self) -> tuple[int, ...]:
        """The number of tasks of each phase."""
        return tuple(map(len, self.phases))

    @property
    def moved(self) -> int:
        """The bytes that all tasks read and write."""
        return sum(map(sum, self.phases))

    def __repr__(self) -> str:
        return f"tasks {self.tasks}, busy {self.busy:.2f}, {self.makespan:.2f} s, {self.moved / 1e9:.2f} GB"


def simulate(plan: Plan) -> Simulation:
    """Run the tasks of each phase in their order, each on the first free slot."""
    work = makespan = 0.0
    for sizes in plan.phases:
        free = [0.0] * plan.slots
        for size in sizes:
            seconds = START + size / RATE
            work += seconds
            heapq.heapreplace(free, free[0] + seconds)
        makespan += max(free)
    phases = tuple(map(tuple, plan.phases))
    return Simulation(phases, work / (plan.slots * makespan), makespan, plan.largest)


def empty_array(shape: Sequence[int], chunks: Sequence[int], dtype: str = "f4") -> frazil.Repository:
    """Return a repository with an array `data/t` whose chunks are not stored."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="metadata") as store:
        names = ("time", "lat", "lon")
        zarr.create_array(
            store, name="data/t", shape=tuple(shape), chunks=tuple(chunks), dtype=dtype, dimension_names=names
        )
        axes = np.arange(shape[0]), np.linspace(-80, 80, shape[1]), np.linspace(0, 359, shape[2])
        units = "hours since 2001-01-01", "degrees_north", "degrees_east"
        for name, values, unit in zip(names, axes, units, strict=True):
            attributes: Any = {"units": unit, **({"calendar": "standard"} if name == "time" else {})}
            zarr.create_array(
                store, name=f"data/{name}", data=values, dimension_names=[name], attributes=attributes
            )
    return repo


def simulated(call: Any, repo: frazil.Repository, slots: int, **options: Any) -> Simulation:
    """Return the simulation of an operation on ``data/t``."""
    plan = Plan(slots)
    call(repo, ["data/t"], to=ops.Target(repo, group=f"out{slots}"), engine=plan, **options)
    return simulate(plan)
