"""The report on files in a few lines: how results of ``ingest`` and ``inspect_files`` print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from frazil.display import Shown, counted, some_of
from frazil.jobs.progress import size
from frazil.jobs.summary import Listing, brief, listed
from frazil.pipeline.ingest.file_layout import ANY
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.problems import Problem
from frazil.pipeline.ingest.reconcile import Reconciliation
from frazil.readers.reader import VariableSchema

#: Variables and problems that the HTML lists.
_LISTED = 100


def outline(
    reconciliation: Reconciliation, problems: Sequence[Problem], unchanged: int
) -> list[tuple[str, str]]:
    """Names and values of the lines: the files, the steps, the variables, kinds of problems and of notes."""
    before = f"{unchanged:,} of them in the repository before" if unchanged else ""
    rows = [("files", listed([files_line(reconciliation.inspection), before]))]
    if reconciliation.dim is not None:
        rows.append((reconciliation.dim, steps_line(reconciliation)))
    data = [name for name, each in _variables(reconciliation) if not each.coordinate]
    rows.append(("variables", brief(some_of(data))))
    rows.append(("problems", _kinds(each for each in problems if each.fatal)))
    notes = [each for each in problems if not each.fatal]
    return [*rows, *([("notes", _kinds(notes))] if notes else [])]


def details(reconciliation: Reconciliation, problems: Sequence[Problem]) -> Iterable[tuple[str, Shown]]:
    """All variables, and all problems and notes, as records for HTML."""
    described = ((name, brief(variable_line(each))) for name, each in _variables(reconciliation))
    yield "all variables", _listing("variables", described)
    if problems:
        listing = ((each.kind, brief(f"{each.url or ''} {each.message}")) for each in problems)
        yield "all problems", _listing("problems", listing)


def files_line(inspection: Inspection) -> str:
    """How many files there are, their size and their formats."""
    formats = sorted(
        {inspection.layouts[code].format for code in set(inspection.layout.tolist()) if code >= 0}
    )
    kinds = f" ({', '.join(formats)})" if formats else ""
    return f"{counted(len(inspection.urls), 'file')}, {size(int(inspection.size.sum()))}{kinds}"


def steps_line(reconciliation: Reconciliation) -> str:
    """How many steps the dimension has, its first and its last label."""
    axis = reconciliation.axis
    if axis is None or not len(axis):
        return f"{counted(reconciliation.steps.length, 'step')}, without labels"
    ends = [reconciliation.steps.label_text(axis[i]) for i in (0, -1)]
    return f"{counted(len(axis), 'step')}, {ends[0]} to {ends[1]}"


def variable_line(variable: VariableSchema) -> str:
    """Dimensions, dtype, chunks and compression of a variable."""
    dims = ", ".join(
        dim if length == ANY else f"{dim}: {length}"
        for dim, length in zip(variable.dims, variable.shape, strict=True)
    )
    stored = [f"chunks {variable.chunks}" if variable.chunks else "", variable.codec or ""]
    return "  ".join(filter(None, [f"({dims}) {variable.dtype}", ", ".join(filter(None, stored))]))


def _variables(reconciliation: Reconciliation) -> list[tuple[str, VariableSchema]]:
    return [each for family in reconciliation.families for each in family.layout.variables.items()]


def _kinds(problems: Iterable[Problem]) -> str:
    kinds = Counter(each.kind for each in problems)
    return brief(", ".join(f"{kind} ({count:,})" for kind, count in kinds.items()) or "none")


def _listing(title: str, rows: Iterable[tuple[str, str]]) -> Listing:
    first = list(islice(rows, _LISTED + 1))
    more = [("and", "more")] if len(first) > _LISTED else []
    return Listing(title, [*first[:_LISTED], *more])
