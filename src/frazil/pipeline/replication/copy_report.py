"""The result of a copy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from frazil.display import Shown, counted
from frazil.jobs.summary import Summary, with_size


@dataclass(frozen=True, slots=True, repr=False)
class Copied(Summary):
    """The result of a copy, a clone or an export.

    Attributes:
        objects: The number of objects that were copied.
        bytes: Their size.
        existing: The number of objects that the target had already.
    """

    objects: int
    bytes: int
    existing: int

    shown_as: ClassVar[str] = "pipeline.Copied"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "copied", with_size(self.objects, "object", self.bytes)
        yield "existing", counted(self.existing, "object")
