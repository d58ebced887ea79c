"""The report of a validation, which can be read, printed, stored in a commit, or raised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, ClassVar, Final

from frazil.display import Shown
from frazil.errors import ValidationFailedError
from frazil.jobs.summary import Summary, brief

#: Rules that failed and are named in a summary.
_SHOWN: Final = 6


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one rule.

    Attributes:
        rule: The name of the rule.
        path: The path of the array or group.
        ok: Whether the rule holds.
        expected: What the rule expects, in words.
        found: What the version has, in words.
        where: The index and the labels of the first value that breaks the rule, or empty.
    """

    rule: str
    path: str
    ok: bool
    expected: str
    found: str
    where: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Report(Summary):
    """The results of all rules, in their order, and the snapshot that was checked.

    Examples:
        >>> from frazil.pipeline import Report, Row
        >>> report = Report("ABC", (Row("Units", "/t2m", False, "K", "degC"),))
        >>> report.ok, report.verdict()
        (False, '1 of 1 rules failed')
        >>> print(report)
        1 of 1 rules failed in ABC
        FAILED  Units /t2m: expected K, found degC
        >>> Report.from_json(report.as_json()) == report
        True
        >>> report.raise_if_failed()
        Traceback (most recent call last):
        frazil.errors.ValidationFailedError: 1 of 1 rules failed in ABC
        FAILED  Units /t2m: expected K, found degC
    """

    snapshot_id: str
    rows: tuple[Row, ...]

    shown_as: ClassVar[str] = "pipeline.Report"

    @property
    def ok(self) -> bool:
        """Whether all rules hold."""
        return all(row.ok for row in self.rows)

    @property
    def failed(self) -> tuple[Row, ...]:
        """The results of the rules that failed."""
        return tuple(row for row in self.rows if not row.ok)

    def raise_if_failed(self) -> None:
        """Raise an error if a rule failed.

        Raises:
            ValidationFailedError: A rule failed. The error has the report.
        """
        if not self.ok:
            raise ValidationFailedError(f"{self._heading()}\n" + "\n".join(map(_line, self.failed)), self)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON, for the metadata of a commit.

        Returns:
            A mapping with ``ok``, ``snapshot`` and ``rows``.
        """
        return {"ok": self.ok, "snapshot": self.snapshot_id, "rows": [asdict(row) for row in self.rows]}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Report:
        """Return the report of a mapping that `as_json` made.

        Args:
            document: The mapping.

        Returns:
            The report.
        """
        return Report(document["snapshot"], tuple(Row(**row) for row in document["rows"]))

    def verdict(self) -> str:
        """Return how many rules failed, in words.

        Returns:
            A text such as ``"1 of 3 rules failed"``.
        """
        return f"{len(self.failed)} of {len(self.rows)} rules failed"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "snapshot", self.snapshot_id
        yield "rules", self.verdict()
        failed = self.failed
        yield from ((f"{row.rule} {row.path}", brief(_findings(row))) for row in failed[:_SHOWN])
        if len(failed) > _SHOWN:
            yield "and", f"{len(failed) - _SHOWN:,} more"

    def _heading(self) -> str:
        return f"{self.verdict()} in {self.snapshot_id}"

    def __repr__(self) -> str:
        return Summary.__str__(self)

    def __str__(self) -> str:
        return "\n".join([self._heading(), *map(_line, self.rows)])

    def _repr_html_(self) -> str:
        """Return a table, for notebooks."""
        head = ("", "rule", "path", "expected", "found", "where")
        cells = (
            ("ok" if row.ok else "FAILED", row.rule, row.path, row.expected, row.found, row.where)
            for row in self.rows
        )
        rows = "".join(map(_html_row, cells))
        return f"<p>{escape(self._heading())}</p><table><tr>{_tags('th', head)}</tr>{rows}</table>"


def _line(row: Row) -> str:
    verdict = "ok    " if row.ok else "FAILED"
    return f"{verdict}  {row.rule} {row.path}: {_findings(row)}"


def _findings(row: Row) -> str:
    where = f" at {row.where}" if row.where else ""
    return f"expected {row.expected}, found {row.found}{where}"


def _tags(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)


def _html_row(texts: Iterable[str]) -> str:
    return f"<tr>{_tags('td', texts)}</tr>"
