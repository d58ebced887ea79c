"""The report on files in a few lines, as results of ``ingest`` and ``inspect_files`` print it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from frazil.display import Shown, counted, some_of
from frazil.jobs.progress import size
from frazil.jobs.summary import Listing, brief, listed
from frazil.pipeline.ingest.dataset import Dataset
from frazil.pipeline.ingest.file_layout import ANY
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.problems import Problem
from frazil.readers.reader import VariableSchema

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
