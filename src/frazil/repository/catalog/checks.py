"""The checks of a verification: rules that the files of a repository must keep, by name.

``checks`` is the table of all checks. A finding names its check. The names never change their meaning.

Severity is what a finding means:

    loss         bytes or metadata of a version cannot be read any more
    damage       files can be read, but contradict the specification or each other
    warning      nothing is wrong now, but something needs attention
    information  nothing is wrong
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from frazil.repository.catalog.check_table import TABLE

#: The level of a verification, which says how much it reads. See ``Repository.upkeep.verify``.
type VerifyLevel = Literal["metadata", "exists", "checksum", "decode"]

#: The levels of a verification. Each level includes the levels before it.
LEVELS: Final[tuple[VerifyLevel, ...]] = ("metadata", "exists", "checksum", "decode")


class Severity(StrEnum):
    """The meaning of a finding."""

    LOSS = "loss"
    DAMAGE = "damage"
    WARNING = "warning"
    INFORMATION = "information"


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a verification.

    Attributes:
        name: The name, which a finding has as ``check``.
        section: The section of the specification, or the page of the documentation.
        level: The lowest level of a verification that makes the check.
        severity: The severity of a finding. A file that cannot be read any more is always a loss.
        rule: The rule that the check tests.
        action: What to do with a finding.

    Examples:
        >>> check_named("tags-sorted").section
        'Repo Info File'
    """

    name: str
    section: str
    level: VerifyLevel
    severity: Severity
    rule: str
    action: str


#: What to do, by severity, where the table has nothing more exact.
_ACTIONS: Final = {
    Severity.LOSS: "Run `frazil repair`, with `--copy` if there is a copy of the repository.",
    Severity.DAMAGE: "Run `frazil repair`, with `--copy` if there is a copy, or write the data again.",
    Severity.WARNING: "Read the detail of the finding.",
    Severity.INFORMATION: "Nothing.",
}

#: All checks, in the order of the documentation.
checks: Final[tuple[Check, ...]] = tuple(
    Check(row.name, row.section, row.level, Severity(row.severity), row.rule, row.action or action)
    for row in TABLE
    for action in (_ACTIONS[Severity(row.severity)],)
)

_BY_NAME: Final = {check.name: check for check in checks}


def check_named(name: str) -> Check:
    """Return the check with a name."""
    return _BY_NAME[name]
