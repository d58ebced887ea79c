"""What an inspection found: a table with a row for each file, and what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from frazil.display import counted
from frazil.spark.ingest.combining import Combined
from frazil.spark.ingest.inspection import Looked
from frazil.spark.ingest.layout import ANY
from frazil.spark.ingest.problems import Problem
from frazil.spark.ingest.units import shown
from frazil.spark.progress import size

_TOLD: Final = 10


@dataclass(frozen=True, slots=True)
class Report:
    """Files and their problems. ``str`` of it is for people, ``table`` for programs.

    ``unchanged`` is how many of the files are in the repository already.
    """

    looked: Looked
    combined: Combined
    problems: tuple[Problem, ...]
    unchanged: int = 0

    @property
    def urls(self) -> tuple[str, ...]:
        return self.looked.urls

    @property
    def concat_dim(self) -> str | None:
        return self.combined.dim

    @property
    def bad(self) -> tuple[str, ...]:
        """The files that cannot be ingested."""
        return tuple(dict.fromkeys(each.url for each in self.problems if each.url is not None and each.fatal))

    def fatal(self, allow: Collection[str] = ()) -> tuple[Problem, ...]:
        return tuple(each for each in self.problems if each.fatal and each.kind not in allow)

    def table(self) -> pa.Table:
        """``url, size, fingerprint, format, layout, steps, first, last, problem, message`` of each file."""
        looked = self.looked
        worst = {each.url: each for each in reversed(self.problems) if each.fatal}
        worst = {**{each.url: each for each in reversed(self.problems)}, **worst}
        told = [worst.get(url) for url in looked.urls]
        first, last = self._ends()
        formats = [looked.layouts[code].format if code >= 0 else None for code in looked.layout.tolist()]
        columns: dict[str, Any] = {
            "url": list(looked.urls),
            "size": looked.size,
            "fingerprint": list(map(bytes.hex, map(bytes, looked.fingerprint))),
            "format": formats,
            "layout": looked.layout,
            "steps": looked.length,
            "first": first,
            "last": last,
            "problem": [None if each is None else each.kind for each in told],
            "message": [None if each is None else each.message for each in told],
        }
        strings = {"url", "fingerprint", "format", "first", "last", "problem", "message"}
        arrays = [
            pa.array(values, pa.string() if name in strings else None) for name, values in columns.items()
        ]
        return pa.table(arrays, names=list(columns))

    def _ends(self) -> tuple[list[str | None], list[str | None]]:
        looked, combined = self.looked, self.combined
        labels = combined.labels
        if labels is None:
            return [None] * len(looked.urls), [None] * len(looked.urls)
        starts, stops = combined.steps.start[:-1], combined.steps.start[1:]

        def ends(at: Any) -> list[str | None]:
            return [
                shown(labels[i], combined.units, combined.calendar) if low < high else None
                for i, low, high in zip(at.tolist(), starts.tolist(), stops.tolist(), strict=True)
            ]

        return ends(np.minimum(starts, len(labels) - 1)), ends(stops - 1)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        looked, combined = self.looked, self.combined
        formats = Counter(looked.layouts[code].format for code in looked.layout[looked.layout >= 0].tolist())
        lines = [
            f"{counted(len(looked.urls), 'file')}, {size(int(looked.size.sum()))}"
            + (f" ({', '.join(sorted(formats))})" if formats else "")
        ]
        if self.unchanged:
            lines.append(f"{self.unchanged:,} of them are in the repository, unchanged")
        axis = combined.axis
        if axis is not None and len(axis):
            ends = [shown(axis[i], combined.units, combined.calendar) for i in (0, -1)]
            lines.append(f"{combined.dim}: {counted(len(axis), 'step')}, {ends[0]} to {ends[1]}")
        elif combined.dim is not None:
            lines.append(f"{combined.dim}: {counted(combined.length, 'step')}, without labels")
        for family in combined.families:
            for name, each in family.layout.variables.items():
                kept = ", ".join(
                    filter(None, [f"chunks {each.chunks}" if each.chunks else "", each.codec or ""])
                )
                dims = ", ".join(
                    dim if length == ANY else f"{dim}: {length}"
                    for dim, length in zip(each.dims, each.shape, strict=True)
                )
                mark = " " if each.coordinate else "*"
                lines.append(f"  {mark} {name} ({dims}) {each.dtype}{'  ' + kept if kept else ''}")
        kinds = Counter((each.kind, each.fatal) for each in self.problems)
        for (kind, fatal), count in kinds.items():
            lines.append(f"{'problem' if fatal else 'note'}: {kind} ({count})")
            some = [each for each in self.problems if (each.kind, each.fatal) == (kind, fatal)][:_TOLD]
            lines += [f"    {each.url + ': ' if each.url else ''}{each.message}" for each in some]
            if count > len(some):
                lines.append(f"    and {count - len(some):,} more")
        if not self.fatal():
            lines.append("no problems")
        return lines
