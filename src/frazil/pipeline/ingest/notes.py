"""Notes on files: problems that do not stop an ingest.

A variable of a type that no array can hold is left out. A variable in chunks of a few bytes makes too many
references for fast reads. Both are notes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from frazil.display import counted
from frazil.jobs.progress import size
from frazil.pipeline.ingest.dataset import Dataset
from frazil.pipeline.ingest.families import Family
from frazil.pipeline.ingest.file_layout import ANY, VirtualChunks
from frazil.pipeline.ingest.problems import Problem

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
