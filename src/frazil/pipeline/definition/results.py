"""What the methods of a pipeline return: its plan, its runs, its state, and its graph."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final, Literal

from frazil.display import Shown, counted
from frazil.jobs.progress import Summary, brief, size
from frazil.pipeline.derivation.refresh import DerivedArray

#: The names of files that a line has.
_NAMED: Final = 3


def some_names(names: tuple[str, ...]) -> str:
    """Return the first names, and the number of the others."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


class _Lines(Summary):
    """A result that prints as lines."""

    __slots__ = ()

    def _lines(self) -> Iterator[str]:
        raise NotImplementedError

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        return [(f"line {at}", brief(line)) for at, line in enumerate(self._lines(), 1)]

    def __str__(self) -> str:
        return "\n".join(self._lines())


@dataclass(frozen=True, slots=True, repr=False)
class PlannedIngest(_Lines):
    """What a run would ingest into a group.

    Attributes:
        group: The path of the group.
        new: The names of files that the group does not have.
        changed: The names of files with other contents than those that were ingested.
        known: The number of files that are ingested or quarantined, and have not changed.
        left_out: The names of files that would be left out, each with the reason.
        span: The first and the last label of the new and changed files, as text. Empty without labels.
        tasks: The number of tasks.
        bytes: The bytes of the values that the tasks write, before compression. References have none.
    """

    group: str
    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    known: int = 0
    left_out: tuple[tuple[str, str], ...] = ()
    span: tuple[str, ...] = ()
    tasks: int = 0
    bytes: int = 0

    shown_as: ClassVar[str] = "pipeline.PlannedIngest"

    def _lines(self) -> Iterator[str]:
        work = f": {counted(self.tasks, 'task')}, writes {size(self.bytes)}" if self.tasks else ""
        counts = f"{len(self.new):,} new, {len(self.changed):,} changed, {self.known:,} known"
        yield f"{self.group}: {counts}{work}{', ' * bool(self.span)}{' to '.join(self.span)}"
        for word, names in (("new", self.new), ("changed", self.changed)):
            if names:
                yield f"  {word}: {some_names(names)}"
        yield from (f"  left out: {name}: {reason}" for name, reason in self.left_out)


@dataclass(frozen=True, slots=True, repr=False)
class PipelinePlan(_Lines):
    """What a run of a pipeline would do. Nothing was written.

    Attributes:
        name: The name of the pipeline.
        ingest: What would be ingested, for each table.
        derived: The derived arrays that would be computed, each with the reason and the files.
        seconds: The time of the jobs, from the throughput of earlier ones. None: it is not known.

    Examples:
        >>> from frazil.pipeline import PipelinePlan
        >>> PipelinePlan("feed", (), (), None).is_empty
        True
    """

    name: str
    ingest: tuple[PlannedIngest, ...]
    derived: tuple[DerivedArray, ...]
    seconds: float | None

    shown_as: ClassVar[str] = "pipeline.PipelinePlan"

    @property
    def is_empty(self) -> bool:
        """Whether a run would do nothing."""
        return not (self.derived or any(each.new or each.changed or each.left_out for each in self.ingest))

    def _lines(self) -> Iterator[str]:
        yield from (line for each in self.ingest for line in each._lines())
        yield from (f"{each.path}: {each.operation}: {each.row()}" for each in self.derived)
        if self.is_empty:
            yield "nothing to do"
        elif self.seconds is None:
            yield "time: not known, because the history has no earlier run of these operations"
        else:
            yield f"time: about {self.seconds:.0f} s"


type Outcome = Literal["published", "left-out", "unchanged", "rules-failed", "unfinished"]


@dataclass(frozen=True, slots=True, repr=False)
class PastRun(_Lines):
    """A run of a pipeline, as the history has it.

    Attributes:
        name: The name of the pipeline.
        outcome: ``"published"``, with or without all files; ``"rules-failed"``: nothing was published;
            ``"unfinished"``: the next run continues it.
        snapshot_id: The id of the published version, or of the last commit.
        seconds: The time of its jobs.
        rules: The number of rules that hold.
        written_at: The time of the commit.
        tag: The name of the tag of the version. None: it has no tag.
    """

    name: str
    outcome: Outcome
    snapshot_id: str
    seconds: float
    rules: int = 0
    written_at: datetime | None = None
    tag: str | None = None

    shown_as: ClassVar[str] = "pipeline.PastRun"

    def _lines(self) -> Iterator[str]:
        yield f"{brief(self.written_at)}, {self.seconds:.1f} s, {self.outcome} ({self.snapshot_id})"


@dataclass(frozen=True, slots=True, repr=False)
class PipelineRun(PastRun):
    """The result of a run of a pipeline.

    Attributes:
        name: The name of the pipeline.
        outcome: ``"published"``; ``"left-out"``: published, without some files that have problems;
            ``"unchanged"``: there was nothing to do.
        snapshot_id: The id of the published version.
        seconds: The time of the run.
        rules: The number of rules that hold.
        written_at: The time of the commit.
        tag: The name of the tag of the version. None: it has no tag.
        files: The number of files that were ingested.
        left_out: The names of files that were left out, each with the reason.
        derived: The paths of derived arrays that were computed or refreshed.
        expired: The number of versions that retention removed.
        bytes_deleted: The bytes of the files that were deleted with them.
    """

    files: int = 0
    left_out: tuple[tuple[str, str], ...] = ()
    derived: tuple[str, ...] = ()
    expired: int = 0
    bytes_deleted: int = 0

    shown_as: ClassVar[str] = "pipeline.PipelineRun"

    def _lines(self) -> Iterator[str]:
        if self.outcome == "unchanged":
            yield f"nothing new since {self.snapshot_id}"
        else:
            tag = "" if self.tag is None else f", with the tag {self.tag}"
            yield f"published {self.snapshot_id}{tag}, in {self.seconds:.1f} s"
            computed = counted(len(self.derived), "derived array")
            yield f"{counted(self.files, 'file')} ingested, {computed} computed, {self.rules:,} rules hold"
        yield from (f"left out: {name}: {reason}" for name, reason in self.left_out)
        if self.expired:
            yield f"retention: {counted(self.expired, 'version')} removed, {size(self.bytes_deleted)} deleted"


@dataclass(frozen=True, slots=True, repr=False)
class PipelineStatus(_Lines):
    """The state of a pipeline.

    Attributes:
        name: The name of the pipeline.
        snapshot_id: The id of the published version. None before the first one.
        published_at: The time of its commit.
        newest: The newest label of each group of files as text, by group.
        runs: The last runs that the history has, the newest first.
        quarantined: The names of files that are left out, each with the reason.
        behind: The derived arrays that are not current.
    """

    name: str
    snapshot_id: str | None = None
    published_at: datetime | None = None
    newest: tuple[tuple[str, str], ...] = ()
    runs: tuple[PastRun, ...] = ()
    quarantined: tuple[tuple[str, str], ...] = ()
    behind: tuple[DerivedArray, ...] = ()

    shown_as: ClassVar[str] = "pipeline.PipelineStatus"

    def _lines(self) -> Iterator[str]:
        when = (
            "nothing yet" if self.published_at is None else f"{self.snapshot_id}, {brief(self.published_at)}"
        )
        yield f"published: {when}"
        yield from (f"newest in {group}: {label}" for group, label in self.newest)
        yield from (f"run: {line}" for each in self.runs for line in each._lines())
        yield from (f"quarantined: {name}: {reason}" for name, reason in self.quarantined)
        yield from (f"not current: {each.path}: {each.row()}" for each in self.behind)


@dataclass(frozen=True, slots=True, repr=False)
class PipelineGraph(_Lines):
    """The steps of a pipeline: what each one reads, its operation, and what it writes.

    Attributes:
        steps: For each step, the names of its inputs, its operation, and the name of its output.
    """

    steps: tuple[tuple[tuple[str, ...], str, str], ...]

    shown_as: ClassVar[str] = "pipeline.PipelineGraph"

    def _lines(self) -> Iterator[str]:
        yield from (f"{', '.join(inputs)} -> {how} -> {output}" for inputs, how, output in self.steps)

    def mermaid(self) -> str:
        """Return the graph as a flowchart of Mermaid, which pages of GitHub and GitLab draw.

        A box is a group. An arrow into it has the name of the operation. Groups that no step reads have an
        arrow to the publication, which checks the rules for all groups.

        Returns:
            The text of the flowchart.

        Examples:
            >>> from frazil.pipeline import PipelineGraph
            >>> steps = ((("a.nc",), "ingest", "/a"), (("/a",), "publish, 0 rules", "branch main"))
            >>> print(PipelineGraph(steps).mermaid())
            flowchart LR
                n0[/"a.nc"/]
                n1["/a"]
                n0 -- "ingest" --> n1
                n2{{"publish, 0 rules"}}
                n1 --> n2
                n3(["branch main"])
                n2 --> n3
        """
        (*steps, (groups, rules, branch)), lines = self.steps, ["flowchart LR"]
        numbers, read = dict[str, int](), set[str]()

        def number(key: str, text: str, shape: str = '["{}"]') -> int:
            if key not in numbers:
                numbers[key] = len(numbers)
                lines.append(f"    n{numbers[key]}{shape.format(_mermaid(text))}")
            return numbers[key]

        for inputs, how, output in steps:
            if how == "ingest":
                sources = [number("files: " + ", ".join(inputs), "\n".join(inputs), '[/"{}"/]')]
            else:
                found = [_group_of(each, numbers) or each for each in inputs]
                read.update(found)
                sources = [number(each, each) for each in dict.fromkeys(found)]
            target = number(output, output)
            lines += [f'    n{each} -- "{_mermaid(how)}" --> n{target}' for each in sources]
        gate = number("rules: ", rules, '{{{{"{}"}}}}')
        lines += [f"    n{numbers[each]} --> n{gate}" for each in groups if each not in read]
        lines.append(f"    n{gate} --> n{number('branch: ', branch, '(["{}"])')}")
        return "\n".join(lines)


def _group_of(path: str, groups: Iterable[str]) -> str | None:
    """Return the innermost of the groups that has a path."""
    above = [each for each in groups if f"{path}/".startswith(f"{each.rstrip('/')}/")]
    return max(above, key=len, default=None)


def _mermaid(text: str) -> str:
    """Return a text for a place between quotation marks in Mermaid, whose labels are HTML."""
    return re.sub(r"[^\w\s/.,:(){}=@+-]", lambda match: f"#{ord(match[0])};", text).replace("\n", "<br>")
