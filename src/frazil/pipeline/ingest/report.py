"""The report on inspected files: a table, the problems and notes, and the lines that results print."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from frazil.display import Listing, Shown, counted, some_of
from frazil.jobs.progress import Summary, brief, listed, size
from frazil.pipeline.ingest.dataset import Dataset
from frazil.pipeline.ingest.inspection import ANY, Inspection, VirtualChunks, dims_text
from frazil.pipeline.ingest.options import Problem
from frazil.readers.base_reader import VariableSchema

#: A reference to fewer bytes costs more than these bytes themselves...
SMALL: Final = 4 << 10
#: ... if a variable has more references than this.
MANY: Final = 1_000
#: The number of variables that a note names.
_NAMED: Final = 10


def notes(dataset: Dataset, files: NDArray[np.bool_]) -> list[Problem]:
    """Return notes, one for each layout of ``files`` (a mask), on left out parts, and on slow references."""
    inspection = dataset.inspection
    rows = np.flatnonzero(files & (inspection.layout >= 0))
    codes, first, counts = np.unique(inspection.layout[rows], return_index=True, return_counts=True)
    problems = []
    for code, row, count in zip(codes.tolist(), rows[first].tolist(), counts.tolist(), strict=True):
        layout, alike = inspection.layouts[code], f" ({count:,} such files)" if count > 1 else ""
        types = [f"{name} ({why})" for name, why in layout.skipped.items()]
        lists: dict[str, Sequence[str]] = {"types": types, "groups": layout.groups}
        for kind, text in layout.changes:
            lists[kind] = [*lists.get(kind, ()), text]
        for kind, names in lists.items():
            if names:
                what = "left out" if kind in ("types", "groups") else kind
                more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
                text = f"{what}{alike}: {', '.join(names[:_NAMED])}{more}"
                problems.append(Problem(kind, text, inspection.urls[row], fatal=False))
    for family in dataset.families:
        url, lengths = inspection.urls[int(family.files[0])], inspection.length[family.files]
        steps = int(lengths.sum()) if dataset.steps.axis is None else len(dataset.steps.axis)
        small: dict[int, list[tuple[str, int]]] = {}
        single: list[str] = []
        for name, each in (family.layout.virtual or {}).items():
            if not isinstance(each, VirtualChunks):
                continue
            along = int(np.gcd.reduce([*lengths.tolist(), each.unit]))
            if ANY in each.chunks and along == 1 and (lengths > 1).all() and each.unit > 1:
                single.append(name)
            chunks = [along if chunk == ANY else chunk for chunk in each.chunks]
            shape = [steps if length == ANY else length for length in family.layout.variables[name].shape]
            grid = [-(-length // max(chunk, 1)) for length, chunk in zip(shape, chunks, strict=True)]
            bytes_ = math.prod(chunks) * each.dtype.itemsize
            if bytes_ < SMALL and math.prod(grid) > MANY:
                small.setdefault(bytes_, []).append((name, math.prod(grid)))
        if single:
            ends = f"{int(lengths.min()):,} to {int(lengths.max()):,}"
            text = f"{', '.join(single[:_NAMED])}: files of {ends} steps have chunks of one step in common"
            problems.append(Problem("chunks", text, url, fatal=False))
        for bytes_, members in sorted(small.items()):
            names = ", ".join(name for name, _ in members[:_NAMED])
            total = counted(sum(count for _, count in members), "reference")
            text = f"{total} to chunks of {size(bytes_)}: {names}; copies of these variables are faster"
            problems.append(Problem("references", f"{text} to read", url, fatal=False))
    return problems


def joined_report(reports: Mapping[str, Report]) -> Report:
    """Return the report on the files of the first group with those of all others."""
    (_, first), *others = reports.items()
    if not others:
        return first
    every = [*reports.values()]
    return replace(
        first,
        problems=tuple(each for report in every for each in report.problems),
        unchanged=sum(report.unchanged for report in every),
        chunks=tuple(each for report in every for each in report.chunks),
        groups=dict(others),
    )


#: The number of variables and of problems that the HTML lists.
_LISTED = 100


def files_line(inspection: Inspection) -> str:
    """Return the number of files, their size and their formats as text."""
    formats = sorted(
        {inspection.layouts[code].format for code in set(inspection.layout.tolist()) if code >= 0}
    )
    kinds = f" ({', '.join(formats)})" if formats else ""
    return f"{counted(len(inspection.urls), 'file')}, {size(int(inspection.size.sum()))}{kinds}"


def steps_line(dataset: Dataset) -> str:
    """Return the number of steps of the dimension, and its first and last label, as text."""
    steps, axis = dataset.steps, dataset.steps.axis
    if axis is None or not len(axis):
        return f"{counted(steps.length, 'step')}, without labels"
    return f"{counted(len(axis), 'step')}, {steps.label_text(axis[0])} to {steps.label_text(axis[-1])}"


def variable_line(variable: VariableSchema) -> str:
    """Return the dimensions, dtype, chunks and compression of a variable as text."""
    stored = [f"chunks {variable.chunks}" if variable.chunks else "", variable.codec or ""]
    parts = [f"{dims_text(variable)} {variable.dtype}", ", ".join(filter(None, stored))]
    return "  ".join(filter(None, parts))


def _kinds(problems: Iterable[Problem]) -> str:
    kinds = Counter(each.kind for each in problems)
    return brief(", ".join(f"{kind} ({count:,})" for kind, count in kinds.items()) or "none")


_EXAMPLES: Final = 10


@dataclass(frozen=True, slots=True)
class ChosenChunks:
    """The chunks that an ingest chose for a new array of data.

    Attributes:
        array: The path of the array.
        shape: The shape of a chunk.
        bytes: The number of bytes of the decoded values of a chunk.
        reason: Why the chunks have this shape.
    """

    array: str
    shape: tuple[int, ...]
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True, repr=False)
class Report(Summary):
    """The inspected files and their problems: ``str(report)`` for people, `table` for programs.

    Attributes:
        dataset: The files as one dataset: dimension, steps and variables.
        problems: All problems and notes, in the order in which they were found.
        unchanged: The number of files that the repository already contains.
        chunks: The chunks of the new arrays of data, as `ChosenChunks`. Empty for an inspection.
        groups: The reports on the files of other groups, by path. ``problems``, ``unchanged`` and ``chunks``
            are those of all groups.
    """

    dataset: Dataset
    problems: tuple[Problem, ...]
    unchanged: int = 0
    chunks: tuple[ChosenChunks, ...] = ()
    groups: Mapping[str, Report] = field(default_factory=dict)

    shown_as: ClassVar[str] = "pipeline.ingest.Report"

    @property
    def inspection(self) -> Inspection:
        """The contents of all files, as columns."""
        return self.dataset.inspection

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of all files, in the order of the call."""
        return self.inspection.urls

    @property
    def concat_dim(self) -> str | None:
        """The dimension in which files follow each other; None if there is none."""
        return self.dataset.dim

    @property
    def bad(self) -> tuple[str, ...]:
        """The URLs of the files that cannot be ingested."""
        return tuple(dict.fromkeys(each.url for each in self.fatal() if each.url is not None))

    @property
    def notes(self) -> tuple[Problem, ...]:
        """The problems that do not stop an ingest, such as variables that are left out."""
        return tuple(each for each in self.problems if not each.fatal)

    def fatal(self) -> tuple[Problem, ...]:
        """Return the problems that stop an ingest."""
        return tuple(each for each in self.problems if each.fatal)

    def table(self) -> pa.Table:
        """Return a table with one row for each file."""
        inspection, steps = self.inspection, self.dataset.steps
        worst = {each.url: each for each in (*self.notes[::-1], *self.fatal()[::-1])}  # the first fatal one
        problems = [worst.get(url) for url in inspection.urls]
        starts, stops = steps.start[:-1].tolist(), steps.start[1:].tolist()
        ends: list[list[str | None]] = [[None] * len(inspection.urls) for _ in range(2)]
        if steps.labels is not None:
            for row, (low, high) in enumerate(zip(starts, stops, strict=True)):
                if low < high:
                    ends[0][row], ends[1][row] = map(steps.label_text, steps.labels[[low, high - 1]])
        formats = [
            inspection.layouts[code].format if code >= 0 else None for code in inspection.layout.tolist()
        ]
        columns = {
            "url": pa.array(inspection.urls, pa.string()),
            "size": inspection.size,
            "fingerprint": pa.array(list(map(bytes.hex, map(bytes, inspection.fingerprint))), pa.string()),
            "format": pa.array(formats, pa.string()),
            "layout": inspection.layout,
            "steps": inspection.length,
            "first": pa.array(ends[0], pa.string()),
            "last": pa.array(ends[1], pa.string()),
            "problem": pa.array([None if each is None else each.kind for each in problems], pa.string()),
            "message": pa.array([None if each is None else each.message for each in problems], pa.string()),
        }
        return pa.table(columns)

    def outline(self) -> list[tuple[str, str]]:
        """Return the few lines that `IngestResult` prints, as names and values."""
        before = f"{self.unchanged:,} of them already in the repository" if self.unchanged else ""
        rows = [("files", listed([files_line(self.inspection), before]))]
        if self.concat_dim is not None:
            rows.append((self.concat_dim, steps_line(self.dataset)))
        data = [name for name, each in self._variables() if not each.coordinate]
        rows += [("variables", brief(some_of(data))), ("problems", _kinds(self.fatal()))]
        rows += [("notes", _kinds(self.notes))] if self.notes else []
        return [*rows, *(("chunks", line) for line in self.chunk_lines()[:1])]

    def _variables(self) -> list[tuple[str, VariableSchema]]:
        families = reversed(self.dataset.families)  # the first family decides
        return [*{name: each for one in families for name, each in one.layout.variables.items()}.items()]

    def chunk_lines(self) -> list[str]:
        """Return the chunks of the new arrays as text: a line for all arrays with the same chunks."""
        alike: dict[tuple[tuple[int, ...], int, str], list[str]] = {}
        for each in self.chunks:
            alike.setdefault((each.shape, each.bytes, each.reason), []).append(each.array)
        return [
            f"{some_of(arrays)}: {shape}, {size(bytes_)}, {reason}"
            for (shape, bytes_, reason), arrays in alike.items()
        ]

    def details(self) -> Iterable[tuple[str, Shown]]:
        """Return all variables, problems and notes: the folded parts of the HTML, as titles and records."""
        described = ((name, brief(variable_line(each))) for name, each in self._variables())
        yield "all variables", Listing("variables", described, _LISTED)
        if self.problems:
            listing = ((each.kind, brief(f"{each.url or ''} {each.message}")) for each in self.problems)
            yield "all problems", Listing("problems", listing, _LISTED)

    _rows, _details = outline, details

    def __str__(self) -> str:
        dataset = self.dataset
        lines = [files_line(self.inspection)]
        if self.unchanged:
            lines.append(f"{self.unchanged:,} of them are in the repository, unchanged")
        if dataset.dim is not None:
            lines.append(f"{dataset.dim}: {steps_line(dataset)}")
        for name, each in self._variables():
            lines.append(f"  {' ' if each.coordinate else '*'} {name} {variable_line(each)}")
        for path, other in self.groups.items():
            if other.dataset.families:
                count = counted(int(other.dataset.members.sum()), "file")
                lines.append(f"{path}: {count}, {other.dataset.dim}: {steps_line(other.dataset)}")
        alike: dict[tuple[str, bool], list[Problem]] = {}
        for problem in self.problems:
            alike.setdefault((problem.kind, problem.fatal), []).append(problem)
        for (kind, fatal), some in alike.items():
            lines.append(f"{'problem' if fatal else 'note'}: {kind} ({len(some)})")
            lines += [f"    {each.url + ': ' if each.url else ''}{each.message}" for each in some[:_EXAMPLES]]
            if len(some) > _EXAMPLES:
                lines.append(f"    and {len(some) - _EXAMPLES:,} more")
        if not self.fatal():
            lines.append("no problems")
        return "\n".join(lines)
