"""The results of a verification, as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast, get_args

import numpy as np

from frazil.display import Record, Shown
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import U32

#: The level of a verification, which says how much it reads. See ``Repository.verify``.
type VerifyLevel = Literal["metadata", "exists", "checksum"]

_SHOWN = 20
_SHOWN_COUNTS = (
    *("level", "snapshots", "manifests", "references", "bytes_read"),
    *("native_chunks", "compared_chunks"),
)


def verify_level(level: object) -> VerifyLevel:
    """Check the level of a verification.

    Args:
        level: ``"metadata"``, ``"exists"`` or ``"checksum"``.

    Returns:
        The level.

    Raises:
        InvalidInputError: There is no such level (``unknown-choice``).

    Examples:
        >>> verify_level("exists")
        'exists'
    """
    if not isinstance(level, str) or level not in get_args(VerifyLevel.__value__):
        raise InvalidInputError(
            f"level must be metadata, exists or checksum, got {level!r}", ErrorKind.UNKNOWN_CHOICE
        )
    return cast("VerifyLevel", level)


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """A problem that a verification found.

    Attributes:
        problem: ``unreadable``, ``size``, ``count``, ``outside`` or ``log`` for metadata files; ``missing``,
            ``short``, ``exchanged`` or ``checksum`` for chunk files; the kind of the error for foreign
            objects and for bytes that could not be read.
        key: The key of the object in the repository, or the URL of a foreign object.
        node: The id of the array. Empty for a file of several arrays.
        coordinates: The coordinates of the lost chunks, uint32 of shape (k, ndim).
        detail: A description.
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
    """The result of a verification.

    Attributes:
        level: The level of the verification.
        snapshots: The number of checked snapshots.
        manifests: The number of checked manifests.
        references: The number of checked references.
        bytes_read: The number of bytes of chunks that were read.
        findings: All problems.
        paths: The paths of the arrays in ``findings``, by node id.
        native_chunks: The number of chunks in chunk files that were read.
        compared_chunks: The number of these chunks that have a recorded checksum.

    Examples:
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

    shown_as: ClassVar[str] = "VerificationReport"

    @property
    def ok(self) -> bool:
        """Whether the verification found no problem at its level."""
        return not self.findings

    def rows(self) -> list[dict[str, Any]]:
        """Return the findings as rows, with one row for each lost chunk.

        Returns:
            Rows with the keys ``problem``, ``key``, ``path``, ``coordinates`` and ``detail``. A finding
            without chunks has one row, with None as ``coordinates``.
        """
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
        for name in _SHOWN_COUNTS:
            yield name, str(getattr(self, name))
        yield "findings", str(len(self.findings))
        for problem, count in sorted(Counter(each.problem for each in self.findings).items()):
            yield problem, str(count)
        if self.findings:
            more = [f"and {len(self.findings) - _SHOWN} more"] if len(self.findings) > _SHOWN else []
            yield "first findings", "\n".join([*map(str, self.findings[:_SHOWN]), *more])
