"""The report on inspected files: a table, the problems and notes, and the lines that results print.

A variable of a type that no array can hold is left out. A variable in chunks of a few bytes makes too many
references for fast reads. Both are notes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from frazil.display import Shown, counted, some_of
from frazil.jobs.progress import Listing, Summary, brief, listed, size
from frazil.pipeline.ingest.arrays import TargetArray
from frazil.pipeline.ingest.dataset import Dataset
from frazil.pipeline.ingest.families import Family
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.layouts import ANY, VirtualChunks
from frazil.pipeline.ingest.problems import Problem
from frazil.readers.file_schema import VariableSchema

#: A reference to fewer bytes costs more than these bytes themselves...
SMALL: Final = 4 << 10
#: ... if a variable has more references than this.
MANY: Final = 1_000
#: The number of variables that a note names.
_NAMED: Final = 10


def notes(dataset: Dataset) -> list[Problem]:
    """Return notes on variables that are left out, and on references to a few bytes.

    Files with the same layout get one note, with the URL of the first file.
    """
    inspection = dataset.inspection
    codes, first, counts = np.unique(inspection.layout, return_index=True, return_counts=True)
    problems = []
    for code, row, count in zip(codes.tolist(), first.tolist(), counts.tolist(), strict=True):
        if code >= 0 and inspection.layouts[code].skipped:
            text = reasons(inspection.layouts[code].skipped)
            more = f" ({count:,} such files)" if count > 1 else ""
            problems.append(Problem("types", f"left out{more}: {text}", inspection.urls[row], fatal=False))
    for family in dataset.families:
        problems += _small_references(dataset, family)
    return problems


def reasons(skipped: Mapping[str, str]) -> str:
    """Return names with their reasons as text, such as ``"s (a compound or opaque type)"``."""
    named = [f"{name} ({why})" for name, why in list(skipped.items())[:_NAMED]]
    more = len(skipped) - len(named)
    return ", ".join(named) + (f" and {more:,} more" if more else "")


def _small_references(dataset: Dataset, family: Family) -> Iterator[Problem]:
    inspection = dataset.inspection
    lengths = inspection.length[family.files]
    steps = int(lengths.sum()) if dataset.axis is None else len(dataset.axis)
    small: dict[int, list[tuple[str, int]]] = {}
    single: list[str] = []
    for name, each in (family.layout.virtual or {}).items():
        if not isinstance(each, VirtualChunks):
            continue
        along = int(np.gcd.reduce([*lengths.tolist(), each.unit]))
        if ANY in each.chunks and along == 1 and (lengths > 1).all() and each.unit > 1:
            single.append(name)
        chunks = tuple(along if chunk == ANY else chunk for chunk in each.chunks)
        shape = tuple(steps if length == ANY else length for length in family.layout.variables[name].shape)
        grid = [-(-length // max(chunk, 1)) for length, chunk in zip(shape, chunks, strict=True)]
        bytes_ = math.prod(chunks) * each.dtype.itemsize
        if bytes_ < SMALL and math.prod(grid) > MANY:
            small.setdefault(bytes_, []).append((name, math.prod(grid)))
    if single:
        ends = f"{int(lengths.min()):,} to {int(lengths.max()):,}"
        text = f"{', '.join(single[:_NAMED])}: files of {ends} steps have chunks of one step in common"
        yield Problem("chunks", text, inspection.urls[int(family.files[0])], fatal=False)
    for bytes_, members in sorted(small.items()):
        names = ", ".join(name for name, _ in members[:_NAMED])
        total = counted(sum(count for _, count in members), "reference")
        text = f"{total} to chunks of {size(bytes_)}: {names}; copies of these variables are faster to read"
        yield Problem("references", text, inspection.urls[int(family.files[0])], fatal=False)


#: The number of variables and of problems that the HTML lists.
_LISTED = 100


def outline(dataset: Dataset, problems: Sequence[Problem], unchanged: int) -> list[tuple[str, str]]:
    """Return names and values of the lines: files, steps, variables, and kinds of problems and notes."""
    before = f"{unchanged:,} of them already in the repository" if unchanged else ""
    rows = [("files", listed([files_line(dataset.inspection), before]))]
    if dataset.dim is not None:
        rows.append((dataset.dim, steps_line(dataset)))
    data = [name for name, each in _variables(dataset) if not each.coordinate]
    rows.append(("variables", brief(some_of(data))))
    rows.append(("problems", _kinds(each for each in problems if each.fatal)))
    notes = [each for each in problems if not each.fatal]
    return [*rows, *([("notes", _kinds(notes))] if notes else [])]


def details(dataset: Dataset, problems: Sequence[Problem]) -> Iterable[tuple[str, Shown]]:
    """Return all variables, problems and notes, as records for HTML."""
    described = ((name, brief(variable_line(each))) for name, each in _variables(dataset))
    yield "all variables", _listing("variables", described)
    if problems:
        listing = ((each.kind, brief(f"{each.url or ''} {each.message}")) for each in problems)
        yield "all problems", _listing("problems", listing)


def files_line(inspection: Inspection) -> str:
    """Return the number of files, their size and their formats as text."""
    formats = sorted(
        {inspection.layouts[code].format for code in set(inspection.layout.tolist()) if code >= 0}
    )
    kinds = f" ({', '.join(formats)})" if formats else ""
    return f"{counted(len(inspection.urls), 'file')}, {size(int(inspection.size.sum()))}{kinds}"


def steps_line(dataset: Dataset) -> str:
    """Return the number of steps of the dimension, and its first and last label, as text."""
    axis = dataset.axis
    if axis is None or not len(axis):
        return f"{counted(dataset.steps.length, 'step')}, without labels"
    ends = [dataset.steps.label_text(axis[i]) for i in (0, -1)]
    return f"{counted(len(axis), 'step')}, {ends[0]} to {ends[1]}"


def variable_line(variable: VariableSchema) -> str:
    """Return the dimensions, dtype, chunks and compression of a variable as text."""
    dims = ", ".join(
        dim if length == ANY else f"{dim}: {length}"
        for dim, length in zip(variable.dims, variable.shape, strict=True)
    )
    stored = [f"chunks {variable.chunks}" if variable.chunks else "", variable.codec or ""]
    return "  ".join(filter(None, [f"({dims}) {variable.dtype}", ", ".join(filter(None, stored))]))


def _variables(dataset: Dataset) -> list[tuple[str, VariableSchema]]:
    return [each for family in dataset.families for each in family.layout.variables.items()]


def _kinds(problems: Iterable[Problem]) -> str:
    kinds = Counter(each.kind for each in problems)
    return brief(", ".join(f"{kind} ({count:,})" for kind, count in kinds.items()) or "none")


def _listing(title: str, rows: Iterable[tuple[str, str]]) -> Listing:
    first = list(islice(rows, _LISTED + 1))
    more = [("and", "more")] if len(first) > _LISTED else []
    return Listing(title, [*first[:_LISTED], *more])


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


def chosen_chunks(targets: Iterable[TargetArray]) -> tuple[ChosenChunks, ...]:
    """Return the chunks of the arrays that have a reason for them: of new arrays of data."""
    return tuple(
        ChosenChunks(each.path, each.chunks, each.chunk_bytes, each.chunk_reason)
        for each in targets
        if each.chunk_reason and each.shape
    )


@dataclass(frozen=True, slots=True, repr=False)
class Report(Summary):
    """The inspected files and their problems: ``str(report)`` for people, `table` for programs.

    Attributes:
        dataset: The files as one dataset: dimension, steps and variables.
        problems: All problems and notes, in the order in which they were found.
        unchanged: The number of files that the repository already contains.
        chunks: The chunks of the new arrays of data, as `ChosenChunks`. Empty for an inspection.
    """

    dataset: Dataset
    problems: tuple[Problem, ...]
    unchanged: int = 0
    chunks: tuple[ChosenChunks, ...] = ()

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
        return tuple(dict.fromkeys(each.url for each in self.problems if each.url is not None and each.fatal))

    @property
    def notes(self) -> tuple[Problem, ...]:
        """The problems that do not stop an ingest, such as variables that are left out."""
        return tuple(each for each in self.problems if not each.fatal)

    def fatal(self, allow: Collection[str] = ()) -> tuple[Problem, ...]:
        """Return the problems that stop an ingest."""
        return tuple(each for each in self.problems if each.fatal and each.kind not in allow)

    def table(self) -> pa.Table:
        """Return a table with one row for each file."""
        inspection = self.inspection
        worst = {each.url: each for each in reversed(self.problems) if each.fatal}
        worst = {**{each.url: each for each in reversed(self.problems)}, **worst}
        problems = [worst.get(url) for url in inspection.urls]
        first, last = self._ends()
        formats = [
            inspection.layouts[code].format if code >= 0 else None for code in inspection.layout.tolist()
        ]
        columns: dict[str, Any] = {
            "url": list(inspection.urls),
            "size": inspection.size,
            "fingerprint": list(map(bytes.hex, map(bytes, inspection.fingerprint))),
            "format": formats,
            "layout": inspection.layout,
            "steps": inspection.length,
            "first": first,
            "last": last,
            "problem": [None if each is None else each.kind for each in problems],
            "message": [None if each is None else each.message for each in problems],
        }
        strings = {"url", "fingerprint", "format", "first", "last", "problem", "message"}
        arrays = [
            pa.array(values, pa.string() if name in strings else None) for name, values in columns.items()
        ]
        return pa.table(arrays, names=list(columns))

    def _ends(self) -> tuple[list[str | None], list[str | None]]:
        inspection, dataset = self.inspection, self.dataset
        labels = dataset.labels
        if labels is None:
            return [None] * len(inspection.urls), [None] * len(inspection.urls)
        steps = dataset.steps
        starts, stops = steps.start[:-1], steps.start[1:]

        def ends(at: Any) -> list[str | None]:
            return [
                steps.label_text(labels[i]) if low < high else None
                for i, low, high in zip(at.tolist(), starts.tolist(), stops.tolist(), strict=True)
            ]

        return ends(np.minimum(starts, len(labels) - 1)), ends(stops - 1)

    def outline(self) -> list[tuple[str, str]]:
        """Return the few lines that `IngestResult` prints, as names and values."""
        rows = outline(self.dataset, self.problems, self.unchanged)
        return [*rows, *(("chunks", line) for line in self.chunk_lines()[:1])]

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
        """Return the folded parts of the HTML, as titles and records."""
        return details(self.dataset, self.problems)

    _rows, _details = outline, details

    def __repr__(self) -> str:
        return Summary.__str__(self)

    def __str__(self) -> str:
        dataset = self.dataset
        lines = [files_line(self.inspection)]
        if self.unchanged:
            lines.append(f"{self.unchanged:,} of them are in the repository, unchanged")
        if dataset.dim is not None:
            lines.append(f"{dataset.dim}: {steps_line(dataset)}")
        for family in dataset.families:
            for name, each in family.layout.variables.items():
                lines.append(f"  {' ' if each.coordinate else '*'} {name} {variable_line(each)}")
        kinds = Counter((each.kind, each.fatal) for each in self.problems)
        for (kind, fatal), count in kinds.items():
            lines.append(f"{'problem' if fatal else 'note'}: {kind} ({count})")
            some = [each for each in self.problems if (each.kind, each.fatal) == (kind, fatal)][:_EXAMPLES]
            lines += [f"    {each.url + ': ' if each.url else ''}{each.message}" for each in some]
            if count > len(some):
                lines.append(f"    and {count - len(some):,} more")
        if not self.fatal():
            lines.append("no problems")
        return "\n".join(lines)
