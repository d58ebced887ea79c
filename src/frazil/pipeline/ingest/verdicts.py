"""Verdicts: which files are good so far, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from frazil.pipeline.ingest.families import (
    Family,
)
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.problems import TABLE, Problem
from frazil.pipeline.ingest.step_order import (
    Objection,
)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Which files are good so far, and what is wrong with the others."""

    inspection: Inspection
    allow: frozenset[str]
    good: NDArray[np.bool_]
    problems: tuple[Problem, ...] = ()

    def after(self, objections: Iterable[Objection]) -> Self:
        """Without the files that are objected to; with those whose problem is allowed, and a note of it."""
        good = self.good.copy()
        problems = list(self.problems)
        for each in objections:
            url = self.inspection.urls[each.file]
            if each.kind in self.allow:
                text = f"{each.text}: allow={{{each.kind!r}}} {TABLE[each.kind].allowed}"
                problems.append(Problem(each.kind, text, url, fatal=False))
            else:
                good[each.file] = False
                problems.append(Problem(each.kind, each.text, url))
        return replace(self, good=good, problems=tuple(problems))

    def with_problems(self, problems: Iterable[Problem]) -> Self:
        return replace(self, problems=(*self.problems, *problems))

    def good_of(self, files: NDArray[np.int64]) -> NDArray[np.int64]:
        return files[self.good[files]]

    def good_families(self, families: Sequence[Family]) -> list[Family]:
        remaining = [replace(family, files=self.good_of(family.files)) for family in families]
        return [family for family in remaining if len(family.files)]
