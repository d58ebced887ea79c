"""Where data come from: what the commits of jobs say of their inputs, as values and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any, ClassVar, Final

from frazil.display import Shown, counted
from frazil.jobs.job_identity import JOB
from frazil.jobs.summary import Summary, brief
from frazil.jobs.versions import Source, Version, takes_versions
from frazil.pipeline.publishing import AUDIT
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.handle.repository import Repository

#: Steps that are named in a summary.
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True, repr=False)
class Step(Summary):
    """One commit: the job that made it, with its inputs; ``job`` is None for a commit of somebody else.

    ``inputs`` are mappings with ``repository``, ``branch``, ``snapshot``, ``paths`` and ``digest``;
    ``audit`` is the report of a check that the commit records.
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

    def __repr__(self) -> str:
        return Summary.__str__(self)

    def __str__(self) -> str:
        made = f"{self.job} ({self.job_id})" if self.job else "no job"
        lines = [
            f"{self.snapshot_id}  {self.written_at:%Y-%m-%d %H:%M}  {self.message}",
            f"  job      {made}",
        ]
        lines += [
            f"  read     {', '.join(each['paths'])} of {each['repository']} at {each['snapshot']}"
            for each in self.inputs
        ]
        lines += [f"  wrote    {', '.join(self.outputs)}"] if self.outputs else []
        told = ", ".join(f"{name}={value!r}" for name, value in (self.parameters or {}).items())
        lines += [f"  with     {told}"] if told else []
        if self.audit is not None:
            rows = self.audit.get("rows", ())
            lines.append(f"  audit    {sum(row['ok'] for row in rows)} of {len(rows)} rules hold")
        return "\n".join(lines)


@takes_versions
def lineage(repo: Repository, snapshot_id: str | None = None) -> Step:
    """The job record of a commit: of the tip of ``main`` unless told. ``print`` it to read it.

    Raises ``SnapshotNotFoundError``.
    """
    wanted = repo.lookup_branch("main") if snapshot_id is None else snapshot_id
    return _step(repo.lookup_snapshot(wanted))


@dataclass(frozen=True, slots=True, repr=False)
class Graph(Summary):
    """Steps, newest first; a row for each thing that was read."""

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

    def __repr__(self) -> str:
        return Summary.__str__(self)

    @property
    def rows(self) -> tuple[tuple[str, str, str, str, str], ...]:
        """(snapshot, job, what was written, what was read, its snapshot)."""
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
        """All paths that one was made from, over all steps."""
        found: set[str] = set()
        todo = {"/" + path.strip("/")}
        while todo:
            one = todo.pop()
            for step in self.steps:
                if any(_within(one, wrote) for wrote in step.outputs):
                    read = {name for each in step.inputs for name in each["paths"]}
                    todo |= read - found
                    found |= read
        return frozenset(found)

    def __str__(self) -> str:
        rows = [("snapshot", "job", "wrote", "read", "of snapshot"), *self.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

    def _repr_html_(self) -> str:
        head = ("snapshot", "job", "wrote", "read", "of snapshot")
        rows = "".join(f"<tr>{_tags('td', row)}</tr>" for row in self.rows)
        return f"<table><tr>{_tags('th', head)}</tr>{rows}</table>"


@takes_versions
def lineage_graph(source: Source, *, branch: str = "main", jobs_only: bool = True) -> Graph:
    """The steps that lead to a version, newest first: those of jobs, or all."""
    version = Version.of(source, branch=branch) if isinstance(source, Repository) else source
    history: Sequence[Step] = tuple(map(_step, version.repo.ancestry(snapshot_id=version.snapshot_id)))
    return Graph(tuple(step for step in history if step.job is not None or not jobs_only))


def _step(info: SnapshotInfo) -> Step:
    told, audit = info.metadata.get(JOB), info.metadata.get(AUDIT)
    plain = Step(info.id, info.written_at, info.message, audit=audit if isinstance(audit, dict) else None)
    if not isinstance(told, dict):
        return plain
    return Step(
        info.id,
        info.written_at,
        info.message,
        told.get("name"),
        told.get("id"),
        told.get("parameters"),
        tuple(told.get("inputs", ())),
        tuple(told.get("outputs", ())),
        told.get("metrics"),
        plain.audit,
    )


def _within(path: str, wrote: str) -> bool:
    return path == wrote or wrote == "/" or path.startswith(wrote.rstrip("/") + "/")


def _tags(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)
