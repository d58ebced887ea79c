"""The task that inspects files.

Properties that many files share are in tables. The report on a file has codes: row numbers in these tables.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from frazil.pipeline.ingest.file_layout import (
    FileLayout,
    OwnAttributes,
)
from frazil.pipeline.ingest.file_report import Digests, FileReport, InspectionSpec, ReportRow, report_row
from frazil.threads import Purpose, thread_pool


@dataclass(slots=True)
class CodeTables:
    """Tables of shared properties. Each property is there once, and its code is the number of its row."""

    _layouts: dict[str, tuple[int, FileLayout]] = field(default_factory=dict)
    _owns: dict[OwnAttributes, int] = field(default_factory=dict)
    _individuals: dict[Digests, int] = field(default_factory=dict)

    def layout_code(self, layout: FileLayout) -> int:
        """Return the code of a layout, and add the layout if it is new."""
        return self._layouts.setdefault(layout.digest, (len(self._layouts), layout))[0]

    def own_code(self, own: OwnAttributes) -> int:
        """Return the code of the own attributes of a file, and add them if they are new."""
        return self._owns.setdefault(own, len(self._owns))

    def individual_code(self, digests: Digests) -> int:
        """Return the code of the digests of individual variables, and add them if they are new."""
        return self._individuals.setdefault(digests, len(self._individuals))

    @property
    def layouts(self) -> tuple[FileLayout, ...]:
        """All layouts, in the order of their codes."""
        return tuple(layout for _, layout in self._layouts.values())

    @property
    def owns(self) -> tuple[OwnAttributes, ...]:
        """All own attributes, in the order of their codes."""
        return tuple(self._owns)

    @property
    def individuals(self) -> tuple[Digests, ...]:
        """All digests of individual variables, in the order of their codes."""
        return tuple(self._individuals)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The reports on the files of one task, and the tables of their codes."""

    files: list[FileReport]
    layouts: tuple[FileLayout, ...]
    owns: tuple[OwnAttributes, ...]
    individuals: tuple[Digests, ...]


def inspection_task(shared: bytes, task: bytes) -> bytes:
    """Inspect some files.

    ``shared`` is a pickled `InspectionSpec`, ``task`` are pickled URLs and fingerprints. Returns a pickled
    `TaskReport`.
    """
    spec: InspectionSpec = pickle.loads(shared)
    urls, fingerprints = pickle.loads(task)
    tables = CodeTables()
    files: list[FileReport] = []
    for file, layout, own, individual in _rows(urls, fingerprints, spec):
        if layout is not None:
            file.layout = tables.layout_code(layout)
            file.own = tables.own_code(own)
            file.individual = tables.individual_code(individual)
        files.append(file)
    return pickle.dumps(TaskReport(files, tables.layouts, tables.owns, tables.individuals))


def _rows(
    urls: Sequence[str], fingerprints: Sequence[str | None], spec: InspectionSpec
) -> Iterator[ReportRow]:
    remote = any("://" in url and not url.startswith("file:") for url in urls)
    if not remote:
        yield from map(report_row, urls, fingerprints, repeat(spec))
        return
    with thread_pool(Purpose.FILE_INSPECTIONS) as pool:
        yield from pool.map(report_row, urls, fingerprints, repeat(spec))
