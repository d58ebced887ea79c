"""Lineage: the inputs that the commits of jobs record, as values and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Final

from frazil.display import Shown, counted
from frazil.handle.repository import Repository
from frazil.jobs.job import Source, Version, takes_versions
from frazil.jobs.job_history import job_record
from frazil.jobs.progress import Summary, brief
from frazil.pipeline.publishing import AUDIT
from frazil.repository.catalog.version_info import SnapshotInfo

#: Steps that a summary lists.
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True, repr=False)
class Step(Summary):
    """One commit, with the record of its job.

    Attributes:
        snapshot_id: The id of the snapshot.
        written_at: The time of the commit.
        message: The message of the commit.
        job: The name of the operation; None for a commit that no job made.
        job_id: The id of the job.
        parameters: The arguments of the operation.
        inputs: One mapping for each version that the job read, with ``repository``, ``branch``, ``snapshot``,
            ``paths`` and ``digest``.
        outputs: The paths that the job wrote.
        metrics: The time, the bytes and other measures of the job.
        audit: The report of a check that the commit records.
    """

    snapshot_id: str
    written_at: datetime
    message: str
    job: str | None = None
    job_id: str | None = None
    parameters: dict[str, Any] | None = None
    inputs: tuple[dict[str, Any], ...] = ()
    outputs: tuple[str, ...] = ()
    metrics: dict[str, Any] | None = None
    audit: dict[str, Any] | None = None

    shown_as: ClassVar[str] = "pipeline.Step"

    def __str__(self) -> str:
        job = f"{self.job} ({self.job_id})" if self.job else "no job"
        lines = [f"{self.snapshot_id}  {self.written_at:%Y-%m-%d %H:%M}  {self.message}", f"  job      {job}"]
        lines += [
            f"  read     {', '.join(each['paths'])} of {each['repository']} at {each['snapshot']}"
            for each in self.inputs
        ]
        lines += [f"  wrote    {', '.join(self.outputs)}"] if self.outputs else []
        parameters = ", ".join(f"{name}={value!r}" for name, value in (self.parameters or {}).items())
        lines += [f"  with     {parameters}"] if parameters else []
        if self.audit is not None:
            rows = self.audit.get("rows")
            rows = rows if isinstance(rows, list) else []
            held = [row for row in rows if isinstance(row, dict) and row.get("ok") is True]
            lines.append(f"  audit    {len(held)} of {len(rows)} rules hold")
        return "\n".join(lines)


@takes_versions
def lineage(repo: Repository, snapshot_id: str | None = None) -> Step:
    """Return the commit of a snapshot, with the record of its job; ``print`` shows it.

    Args:
        repo: The repository.
        snapshot_id: The id of the snapshot. The default, None, is the tip of ``main``.

    Returns:
        The `Step`. Its ``job`` is None if no job made the commit.

    Raises:
        SnapshotNotFoundError: The repository does not have the snapshot.
        FormatError: If the record of the job is damaged.

    Examples:
        >>> import frazil
        >>> from frazil.pipeline import lineage
        >>> lineage(frazil.Repository.create(frazil.in_memory_storage())).message
        'Repository initialized'
    """
    return _step(repo.lookup_snapshot(repo.lookup_branch("main") if snapshot_id is None else snapshot_id))


@dataclass(frozen=True, slots=True, repr=False)
class Graph(Summary):
    """The steps of a history, newest first. As a table, it has a row for each input of each step.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> from frazil.pipeline import lineage_graph, mean
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="a row") as store:
        ...     row = zarr.create_array(store, name="t", data=np.arange(4.0), dimension_names=["x"])
        >>> result = mean(repo, "t", engine="inline")
        >>> lineage_graph(repo).inputs_of("/mean/t")
        frozenset({'/t'})
    """

    steps: tuple[Step, ...]

    shown_as: ClassVar[str] = "pipeline.Graph"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "steps", counted(len(self.steps), "step")
        yield from (
            (step.snapshot_id, brief(f"{step.job or 'no job'}: {step.message}"))
            for step in self.steps[:_SHOWN]
        )
        if len(self.steps) > _SHOWN:
            yield "and", f"{len(self.steps) - _SHOWN:,} more"

    @property
    def rows(self) -> tuple[tuple[str, str, str, str, str], ...]:
        """The rows of the table: snapshot, job, paths of outputs, paths of inputs, snapshot of the input."""
        return tuple(
            (
                step.snapshot_id,
                step.job or "",
                ", ".join(step.outputs),
                ", ".join(each["paths"]),
                each["snapshot"],
            )
            for step in self.steps
            for each in step.inputs or ({"paths": [], "snapshot": ""},)
        )

    def inputs_of(self, path: str) -> frozenset[str]:
        """Return the direct and indirect inputs of a node, over all steps.

        Args:
            path: The path of an array or a group.

        Returns:
            The paths of the inputs.
        """
        inputs: set[str] = set()
        pending = {"/" + path.strip("/")}
        while pending:
            current = pending.pop()
            for step in self.steps:
                roots = [output.rstrip("/") for output in step.outputs]
                if any(current == root or current.startswith(f"{root}/") for root in roots):
                    step_inputs = {name for each in step.inputs for name in each["paths"]}
                    pending |= step_inputs - inputs
                    inputs |= step_inputs
        return frozenset(inputs)

    def __str__(self) -> str:
        rows = [("snapshot", "job", "wrote", "read", "of snapshot"), *self.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


@takes_versions
def lineage_graph(source: Source, *, branch: str = "main", jobs_only: bool = True) -> Graph:
    """Return the steps of the history of a version, newest first.

    Args:
        source: A `Version`, or a `Repository` for the tip of ``branch``.
        branch: The name of the branch. It is ignored if ``source`` is a version.
        jobs_only: Whether the graph has only the commits of jobs. With False it has all commits.

    Returns:
        The `Graph`.

    Raises:
        RefNotFoundError: The branch does not exist.
        FormatError: If the record of a job is damaged.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> from frazil.pipeline import lineage_graph, mean
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="a row") as store:
        ...     row = zarr.create_array(store, name="t", data=np.arange(4.0), dimension_names=["x"])
        >>> result = mean(repo, "t", engine="inline")
        >>> [step.job for step in lineage_graph(repo, jobs_only=False).steps]
        ['mean', None, None]
    """
    version = Version.of(source, branch=branch) if isinstance(source, Repository) else source
    history: Sequence[Step] = tuple(map(_step, version.repo.ancestry(snapshot_id=version.snapshot_id)))
    return Graph(tuple(step for step in history if step.job is not None or not jobs_only))


def _step(info: SnapshotInfo) -> Step:
    record, audit = job_record(info.metadata, info.id), info.metadata.get(AUDIT)
    plain = Step(info.id, info.written_at, info.message, audit=audit if isinstance(audit, dict) else None)
    if record is None:
        return plain
    return replace(
        plain,
        job=record.name,
        job_id=record.id,
        parameters=record.parameters,
        inputs=tuple(each.as_json() for each in record.inputs),
        outputs=record.outputs,
        metrics=record.metrics,
    )
