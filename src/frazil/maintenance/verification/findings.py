"""The results of a verification, as values."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np

from frazil.display import Record, Shown, counted
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import U32, U64
from frazil.maintenance.verification.checks import LEVELS, Check, Severity, VerifyLevel, check_named

_SHOWN: Final = 20
#: The number of branches and tags of one finding that its text names.
_NAMES: Final = 5
#: Findings with these severities make a report not ok.
_BAD: Final = frozenset({Severity.LOSS, Severity.DAMAGE, Severity.WARNING})


def verify_level(level: object) -> VerifyLevel:
    """Check the level of a verification."""
    if not isinstance(level, str) or level not in LEVELS:
        names = f"{', '.join(LEVELS[:-1])} or {LEVELS[-1]}"
        raise InvalidInputError(f"level must be {names}, got {level!r}", ErrorKind.UNKNOWN_CHOICE)
    return level


@dataclass(frozen=True, slots=True)
class Affected:
    """The arrays and versions that need a file.

    Attributes:
        arrays: The paths of the arrays. Empty for a file that all arrays of a version need.
        branches: The branches whose newest version needs the file.
        tags: The tags whose version needs the file.
        snapshots: The number of versions that need the file, those of older commits included.
    """

    arrays: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    snapshots: int = 0

    def __str__(self) -> str:
        named = (
            ("array", "arrays", self.arrays),
            ("branch", "branches", self.branches),
            ("tag", "tags", self.tags),
        )
        parts = [
            f"{one if len(names) == 1 else many} {_joined(names)}" for one, many, names in named if names
        ]
        return ", ".join([*parts, counted(self.snapshots, "snapshot")])


def _joined(names: tuple[str, ...]) -> str:
    shown = [*names[:_NAMES], *([f"{len(names) - _NAMES} more"] if len(names) > _NAMES else [])]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """A result of a check: a file that is damaged, or something else to know.

    Attributes:
        check: The name of the check: see `checks`.
        key: The key of the object in the repository, the URL of a foreign object, or a folder.
        node: The id of the array. Empty for a file of several arrays.
        coordinates: The coordinates of the chunks, uint32 of shape (k, ndim).
        detail: A description.
        is_unreadable: Whether readers refuse the whole file.
        affected: The versions that need the file. Empty for files that are not part of a version.
        offsets: The positions of these chunks in their chunk file, uint64 of shape (k,). Empty for other
            files.

    Examples:
        >>> finding = Finding("missing", "chunks/A")
        >>> finding.severity.value, finding.action
        ('loss', 'Run `frazil repair`, with `--copy` if there is a copy of the repository.')
    """

    check: str
    key: str
    node: bytes = b""
    coordinates: U32 = field(default_factory=lambda: np.zeros((0, 0), np.uint32))
    detail: str = ""
    is_unreadable: bool = False
    affected: Affected = Affected()
    offsets: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))

    @property
    def severity(self) -> Severity:
        """The severity: that of the check, and ``loss`` for a file that readers refuse."""
        return Severity.LOSS if self.is_unreadable else check_named(self.check).severity

    @property
    def action(self) -> str:
        """What to do."""
        return check_named("unreadable" if self.is_unreadable else self.check).action

    def __str__(self) -> str:
        chunks = f", {len(self.coordinates)} chunks" if len(self.coordinates) else ""
        return f"{self.check}: {self.key}{chunks}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class VerificationReport(Record):
    """The result of a verification.

    Attributes:
        level: The level of the verification.
        snapshots: The number of checked snapshots.
        manifests: The number of checked manifests.
        references: The number of checked references.
        bytes_read: The number of bytes of chunks that were read.
        findings: All findings.
        paths: The paths of the arrays in ``findings``, by node id.
        native_chunks: The number of chunks in chunk files that were read.
        compared_chunks: The number of these chunks that have a recorded checksum.
        resumed: The number of pieces of work that an earlier run with the same state has done.

    Examples:
        >>> report = VerificationReport("metadata", 1, 0, 0, 0, (Finding("missing", "chunks/A"),), {})
        >>> report.ok, report.rows()[0]["check"], report.rows()[0]["severity"]
        (False, 'missing', 'loss')
        >>> print(report)
        <frazil.VerificationReport>
        level: metadata
        snapshots: 1
        manifests: 0
        references: 0
        bytes_read: 0
        native_chunks: 0
        compared_chunks: 0
        findings: 1
        missing: 1
        first findings: missing: chunks/A
        <BLANKLINE>
    """

    level: VerifyLevel
    snapshots: int
    manifests: int
    references: int
    bytes_read: int
    findings: tuple[Finding, ...]
    paths: Mapping[bytes, str]
    native_chunks: int = 0
    compared_chunks: int = 0
    resumed: int = 0

    shown_as: ClassVar[str] = "VerificationReport"

    @property
    def ok(self) -> bool:
        """Whether all findings have the severity ``information``."""
        return not self.problems

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings with the severities ``loss``, ``damage`` and ``warning``."""
        return tuple(each for each in self.findings if each.severity in _BAD)

    def rows(self) -> list[dict[str, Any]]:
        """Return the findings as rows, with one row for each lost chunk. pandas makes a table of them.

        Returns:
            Rows with the keys ``severity``, ``check``, ``key``, ``path``, ``coordinates``, ``detail`` and
            ``action``, and with those of `Affected`: ``arrays``, ``branches``, ``tags`` and ``snapshots``. A
            finding without chunks has one row, with None as ``coordinates``.
        """
        return [
            {
                "severity": each.severity.value,
                "check": each.check,
                "key": each.key,
                "path": self.paths.get(each.node),
                "coordinates": coordinates,
                "detail": each.detail,
                "action": each.action,
                "arrays": list(each.affected.arrays),
                "branches": list(each.affected.branches),
                "tags": list(each.affected.tags),
                "snapshots": each.affected.snapshots,
            }
            for each in self.findings
            for coordinates in each.coordinates.tolist() or [None]
        ]

    def to_json(self) -> str:
        """Return the report as JSON: its numbers, ``ok``, and the rows as ``findings``.

        Returns:
            The text of one object.

        Examples:
            >>> import json
            >>> report = VerificationReport("metadata", 1, 0, 0, 0, (), {})
            >>> json.loads(report.to_json())["ok"]
            True
        """
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        document = {"level": self.level, "ok": self.ok, **numbers, "findings": self.rows()}
        return json.dumps(document, indent=2, ensure_ascii=False)

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        for name in ("level", *_NUMBERS[:-1]):
            yield name, str(getattr(self, name))
        if self.resumed:
            yield "resumed", str(self.resumed)
        yield "findings", str(len(self.findings))
        for check, count in sorted(Counter(each.check for each in self.findings).items()):
            yield check, str(count)
        if self.findings:
            more = [f"and {len(self.findings) - _SHOWN} more"] if len(self.findings) > _SHOWN else []
            yield "first findings", "\n".join([*map(str, self._worst()[:_SHOWN]), *more])

    def _worst(self) -> list[Finding]:
        """Return the findings, the worst first."""
        order = list(Severity)
        return sorted(self.findings, key=lambda each: order.index(each.severity))


_NUMBERS: Final = (
    *("snapshots", "manifests", "references", "bytes_read"),
    *("native_chunks", "compared_chunks", "resumed"),
)

__all__ = ["Affected", "Check", "Finding", "Severity", "VerificationReport", "VerifyLevel", "verify_level"]
