"""What a verification reports: values that are printed and compared, and do nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast, get_args

import numpy as np

from frazil.display import Record, Shown
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import U32

#: How much a verification reads; see ``Repository.verify``.
type VerifyLevel = Literal["metadata", "exists", "checksum"]

_SHOWN = 20


def verify_level(level: object) -> VerifyLevel:
    """Return the level; ``InvalidInputError`` (``unknown-choice``) if there is none of this name."""
    if not isinstance(level, str) or level not in get_args(VerifyLevel.__value__):
        raise InvalidInputError(
            f"level: expected metadata, exists or checksum, found {level!r}", ErrorKind.UNKNOWN_CHOICE
        )
    return cast("VerifyLevel", level)


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """Something that is wrong.

    problem      ``unreadable``, ``size``, ``count``, ``outside`` or ``log`` of metadata; ``missing``,
    ``short`` or
                 ``exchanged`` of chunk files; of foreign objects, and of bytes that could not be read, the
                 kind of the error
    key          of the object in the repository, or the URL of the foreign one
    node         id of the array, empty for files of several
    coordinates  of the chunks that are lost, uint32 (k, ndim)
    detail       in words
    """

    problem: str
    key: str
    node: bytes = b""
    coordinates: U32 = field(default_factory=lambda: np.zeros((0, 0), np.uint32))
    detail: str = ""

    def __str__(self) -> str:
        chunks = f", {len(self.coordinates)} chunks" if len(self.coordinates) else ""
        return f"{self.problem}: {self.key}{chunks}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class VerificationReport(Record):
    """What a verification read, and all that is wrong.

    ``snapshots``, ``manifests`` and ``references`` count what was checked, ``bytes_read`` the bytes of
    chunks. ``paths`` has the paths of the nodes in ``findings``.

    >>> report = VerificationReport("metadata", 1, 0, 0, 0, (Finding("missing", "chunks/A"),), {})
    >>> report.ok, report.rows()[0]["problem"]
    (False, 'missing')
    >>> print(report)
    <frazil.VerificationReport>
    level: metadata
    snapshots: 1
    manifests: 0
    references: 0
    bytes_read: 0
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

    shown_as: ClassVar[str] = "VerificationReport"

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong, as far as this level looks."""
        return not self.findings

    def rows(self) -> list[dict[str, Any]]:
        """The findings as rows, one for each chunk that is lost: problem, key, path, coordinates, detail."""
        return [
            {
                "problem": each.problem,
                "key": each.key,
                "path": self.paths.get(each.node),
                "coordinates": coordinates,
                "detail": each.detail,
            }
            for each in self.findings
            for coordinates in each.coordinates.tolist() or [None]
        ]

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        for name in ("level", "snapshots", "manifests", "references", "bytes_read"):
            yield name, str(getattr(self, name))
        yield "findings", str(len(self.findings))
        for problem, count in sorted(Counter(each.problem for each in self.findings).items()):
            yield problem, str(count)
        if self.findings:
            more = [f"and {len(self.findings) - _SHOWN} more"] if len(self.findings) > _SHOWN else []
            yield "first findings", "\n".join([*map(str, self.findings[:_SHOWN]), *more])
