"""Verdicts: a mask of the files that are still good, and the problems of the others."""

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
    """A mask of the files that are still good, and the problems of the others."""

    inspection: Inspection
    allow: frozenset[str]
    good: NDArray[np.bool_]
    problems: tuple[Problem, ...] = ()

    def after(self, objections: Iterable[Objection]) -> Self:
        """Return the verdicts after objections to files.

        A file with an objection is not good any more. If ``allow`` tolerates the kind of the objection, the
        file stays good, and the verdicts get a note.
        """
        good = self.good.copy()
        problems = list(self.problems)
        for each in objections:
            url = self.inspection.urls[each.file]
            if each.kind in self.allow:
                text = f"{each.text}: `{each.kind}` is allowed, which {TABLE[each.kind].allowed}"
                problems.append(Problem(each.kind, text, url, fatal=False))
            else:
                good[each.file] = False
                problems.append(Problem(each.kind, each.text, url))
        return replace(self, good=good, problems=tuple(problems))

    def with_problems(self, problems: Iterable[Problem]) -> Self:
        """Return the verdicts with more problems."""
        return replace(self, problems=(*self.problems, *problems))

    def good_of(self, files: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the good files among ``files``."""
        return files[self.good[files]]

    def good_families(self, families: Sequence[Family]) -> list[Family]:
        """Return the families with their good files, without families that have none."""
        remaining = [replace(family, files=self.good_of(family.files)) for family in families]
        return [family for family in remaining if len(family.files)]
