"""Results as a table, JSON, TAP and a badge."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import product
from pathlib import Path
from typing import Any

from icechunk_kit.case import LEVELS, VERSIONS, Case
from icechunk_kit.runner import OUTCOMES, Result

#: The colours of a badge: every level, some level, none.
COLOURS = ("#2e7d32", "#9a6700", "#b42318")
INTRODUCTION = (
    "Each cell has the cases that passed, failed and are not supported. The script",
    "`kit/scripts/results` makes this page.",
    "A case that failed is a difference from the specification, or from what the reference does where the",
    "text is silent. The [deviations](deviations/README.md) explain many of them.",
)


def description(case: Case) -> dict[str, str]:
    """Return what a case is, without its files."""
    return {key: getattr(case, key) for key in ("id", "level", "version", "rule", "why")}


def document(name: str, results: Sequence[Result]) -> dict[str, Any]:
    """Return everything that a page of results needs, as values of JSON."""
    rows = [
        {
            **description(each.case),
            "outcome": each.outcome,
            "detail": each.detail,
            "seconds": round(each.seconds, 3),
        }
        for each in results
    ]
    today = datetime.now(UTC).date().isoformat()
    return {"implementation": name, "date": today, "levels": levels(rows), "results": rows}


def counts(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], list[int]]:
    """Return for each level and version that has results how often each of `OUTCOMES` is there."""
    total = Counter((row["level"], row["version"], row["outcome"]) for row in rows)
    cells = {key: [total[*key, outcome] for outcome in OUTCOMES] for key in product(LEVELS, VERSIONS)}
    return {key: cell for key, cell in cells.items() if any(cell)}


def levels(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return for each version the highest level of which, and of all below, each case passed. Empty: none."""
    reached, cells = dict.fromkeys(VERSIONS, ""), counts(rows)
    for version in VERSIONS:
        for level in LEVELS:
            passed, *others = cells.get((level, version), [0])
            if any(others):
                break
            reached[version] = level if passed else reached[version]
    return reached


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the counts for each level and version, in Markdown."""
    lines = ["| level | version | " + " | ".join(OUTCOMES) + " |", "|---|---|" + "--:|" * len(OUTCOMES)]
    lines += [f"| {' | '.join(key)} | {' | '.join(map(str, cell))} |" for key, cell in counts(rows).items()]
    return "\n".join(lines)


def comparison(documents: Sequence[dict[str, Any]]) -> str:
    """Return a page in Markdown: the counts of several implementations, and each case that failed.

    Args:
        documents: The results of each implementation, as `document` returns them.
    """
    columns = list(product(LEVELS, VERSIONS))
    lines = ["# Results", "", *INTRODUCTION, ""]
    lines.append("| implementation | date | " + " | ".join(" ".join(column) for column in columns) + " |")
    lines.append("|---|---|" + "--:|" * len(columns))
    for each in documents:
        cells = counts(each["results"])
        texts = [" / ".join(map(str, cells.get(column, []))) for column in columns]
        lines.append(f"| {each['implementation']} | {each['date']} | {' | '.join(texts)} |")
    for each in documents:
        failed = [row for row in each["results"] if row["outcome"] == "failed"]
        lines += ["", f"## {each['implementation']}", ""] if failed else []
        lines += [f"- `{row['id']}`: {_short(row['detail'])}" for row in failed]
    return "\n".join(lines) + "\n"


def _short(detail: str) -> str:
    """Return the answer that was wrong, in one line without the names of folders."""
    answer = detail.partition(": the answer is ")[2] or detail
    answer = re.sub(r"(file://)?/\S*icechunk-kit-\w+", "FOLDER", answer)
    return "`" + re.sub(r"(\\n|[\s`|])+", " ", answer)[:200] + "`"


def tap(rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Return the lines of the Test Anything Protocol, version 14. An unsupported case is a skip."""
    yield "TAP version 14"
    for number, row in enumerate(rows, 1):
        skip = f" # SKIP {row['detail']}" if row["outcome"] == "unsupported" else ""
        yield f"{'not ok' if row['outcome'] == 'failed' else 'ok'} {number} - {row['id']}{skip}"
        if row["outcome"] == "failed":
            yield f"  ---\n  message: {json.dumps(row['detail'])}\n  rule: {json.dumps(row['rule'])}\n  ..."
    yield f"1..{len(rows)}"


def badge(reached: Mapping[str, str]) -> str:
    """Return an SVG that says the highest level of each version, as `levels` returns them."""
    words = [f"{level} {version}" for version, level in reached.items() if level]
    text = ", ".join(words) or "no level"
    colour = COLOURS[0 if len(words) == len(VERSIONS) else 1 if words else 2]
    left, right = 66, 14 + 7 * len(text)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="Icechunk: {escape(text)}"><rect width="{left}" height="20" fill="#444"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{colour}"/>'
        '<g fill="#fff" font-family="Verdana,sans-serif" font-size="11">'
        f'<text x="6" y="14">Icechunk</text><text x="{left + 6}" y="14">{escape(text)}</text></g></svg>\n'
    )


def export(cases: Iterable[Case], folder: Path) -> None:
    """Write the files and the steps of each case, for an implementation that does not use the runner."""
    for case in cases:
        target = folder / case.id
        repository = target / "repository"
        repository.mkdir(parents=True)
        steps = case.build(repository)
        content = {**description(case), "steps": steps}
        (target / "case.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
