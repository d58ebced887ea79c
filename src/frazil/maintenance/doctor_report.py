"""The public values of ``Repository.upkeep.doctor``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from frazil.display import Record, Shown
from frazil.remedies import Remedy


@dataclass(frozen=True, slots=True, repr=False)
class DoctorFinding(Record):
    """Something that makes a repository slow, expensive or unsafe, and the command that fixes it.

    Attributes:
        check: The name of the check, such as ``small-chunk-files``.
        subject: What the finding is about: a branch, a lease, a folder.
        detail: What was found, with numbers.
        remedy: What fixes it.
    """

    check: str
    subject: str
    detail: str
    remedy: Remedy

    shown_as: ClassVar[str] = "ops.DoctorFinding"

    @property
    def command(self) -> str:
        """The Python call that fixes it, on a handle ``repo``."""
        return str(self.remedy)

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        return ((name, getattr(self, name)) for name in ("check", "subject", "detail", "command"))


@dataclass(frozen=True, slots=True, repr=False)
class DoctorReport(Record):
    """The result of ``Repository.upkeep.doctor``.

    Attributes:
        findings: The findings, in the order of the checks.
        checks: The names of all checks that were made.
    """

    findings: list[DoctorFinding] = field(default_factory=list, hash=False)
    checks: tuple[str, ...] = ()

    shown_as: ClassVar[str] = "ops.DoctorReport"

    @property
    def ok(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    def __str__(self) -> str:
        """Return two lines for each finding: what it is, and the command that fixes it."""
        if self.ok:
            return f"no findings in {len(self.checks)} checks\n"
        return "".join(
            f"{each.check}: {each.subject}: {each.detail}\n    {each.command}\n" for each in self.findings
        )

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        for each in self.findings:
            yield f"{each.check} ({each.subject})", f"{each.detail}. {each.command}"
        yield "checks", ", ".join(self.checks)
