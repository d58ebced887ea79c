"""What was found in files, in a few lines: how results of ``ingest`` and ``inspect_files`` print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from frazil.display import Shown, counted, some_of
from frazil.jobs.progress import size
from frazil.jobs.summary import Listing, brief, listed
from frazil.pipeline.ingest.file_schemas import ANY
from frazil.pipeline.ingest.inspection import Looked
from frazil.pipeline.ingest.problems import Problem
from frazil.pipeline.ingest.reconcile import Combined
from frazil.pipeline.ingest.time_conversion import shown
from frazil.readers.reader import VariableSchema

#: Variables and problems that the HTML lists.
_LISTED = 100


def outline(
    looked: Looked, combined: Combined, problems: Sequence[Problem], unchanged: int
) -> list[tuple[str, str]]:
    """Names and values of the lines: the files, the steps, the variables, kinds of problems and of notes."""
    before = f"{unchanged:,} of them in the repository before" if unchanged else ""
    rows = [("files", listed([files_found(looked), before]))]
    if combined.dim is not None:
        rows.append((combined.dim, steps_found(combined)))
    data = [name for name, each in _variables(combined) if not each.coordinate]
    rows.append(("variables", brief(some_of(data))))
    rows.append(("problems", _kinds(each for each in problems if each.fatal)))
    notes = [each for each in problems if not each.fatal]
    return [*rows, *([("notes", _kinds(notes))] if notes else [])]


def details(combined: Combined, problems: Sequence[Problem]) -> Iterable[tuple[str, Shown]]:
    """All variables, and all problems and notes, as records for HTML."""
    described = ((name, brief(variable_found(each))) for name, each in _variables(combined))
    yield "all variables", _listing("variables", described)
    if problems:
        listing = ((each.kind, brief(f"{each.url or ''} {each.message}")) for each in problems)
        yield "all problems", _listing("problems", listing)


def files_found(looked: Looked) -> str:
    """How many files there are, their size and their formats."""
    formats = sorted({looked.layouts[code].format for code in set(looked.layout.tolist()) if code >= 0})
    kinds = f" ({', '.join(formats)})" if formats else ""
    return f"{counted(len(looked.urls), 'file')}, {size(int(looked.size.sum()))}{kinds}"


def steps_found(combined: Combined) -> str:
    """How many steps the dimension has, its first and its last label."""
    axis = combined.axis
    if axis is None or not len(axis):
        return f"{counted(combined.length, 'step')}, without labels"
    ends = [shown(axis[i], combined.units, combined.calendar) for i in (0, -1)]
    return f"{counted(len(axis), 'step')}, {ends[0]} to {ends[1]}"


def variable_found(variable: VariableSchema) -> str:
    """Dimensions, dtype, chunks and compression of a variable."""
    dims = ", ".join(
        dim if length == ANY else f"{dim}: {length}"
        for dim, length in zip(variable.dims, variable.shape, strict=True)
    )
    stored = [f"chunks {variable.chunks}" if variable.chunks else "", variable.codec or ""]
    return "  ".join(filter(None, [f"({dims}) {variable.dtype}", ", ".join(filter(None, stored))]))


def _variables(combined: Combined) -> list[tuple[str, VariableSchema]]:
    return [each for family in combined.families for each in family.layout.variables.items()]


def _kinds(problems: Iterable[Problem]) -> str:
    kinds = Counter(each.kind for each in problems)
    return brief(", ".join(f"{kind} ({count:,})" for kind, count in kinds.items()) or "none")


def _listing(title: str, rows: Iterable[tuple[str, str]]) -> Listing:
    first = list(islice(rows, _LISTED + 1))
    more = [("and", "more")] if len(first) > _LISTED else []
    return Listing(title, [*first[:_LISTED], *more])
