"""The report on inspected files: a table with one row for each file, and the problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from frazil.display import Shown, some_of
from frazil.jobs.progress import size
from frazil.jobs.summary import Summary
from frazil.pipeline.ingest.arrays import TargetArray
from frazil.pipeline.ingest.dataset import Dataset
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.outline import details, files_line, outline, steps_line, variable_line
from frazil.pipeline.ingest.problems import Problem

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
