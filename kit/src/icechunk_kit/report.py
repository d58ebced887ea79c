"""Results as a table, JSON, TAP and a badge."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import product
from pathlib import Path
from typing import Any

from icechunk_kit.case import CASES, GROUNDS, LEVELS, VERSIONS, Case
from icechunk_kit.runner import OUTCOMES, Result

#: The colours of a badge: every level, some level, none.
COLOURS = ("#2e7d32", "#9a6700", "#b42318")
INTRODUCTION = (
    "Each cell has the cases that passed, failed and are not supported. The script",
    "`kit/scripts/results` makes this page.",
    "The first three columns have all cases by their ground: a *sentence* of the specification decides, the",
    "text is *silent* and existing repositories decide, or a file is damaged and an implementation must",
    "survive it (*robustness*). The specification has no demand of the last ground: its cases count for no",
    "level.",
    "The [deviations](deviations/README.md) explain many of the cases that failed.",
)


def description(case: Case) -> dict[str, str]:
    """Return what a case is, without its files."""
    return {key: getattr(case, key) for key in ("id", "level", "version", "ground", "rule", "why")}


def document(name: str, results: Sequence[Result], *, partial: bool = False) -> dict[str, Any]:
    """Return everything that a page of results needs, as values of JSON.

    Args:
        partial: A pattern selected the cases.
    """
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
    facts = {"implementation": name, "date": today, "levels": levels(rows), "partial": partial}
    return {**facts, "results": rows}


def levels(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return for each version the highest level of which, and of all below, each case passed. Empty: none.

    A level is the format: cases about damaged files do not count. A case that did not run has not passed.
    """
    reached, passed = dict.fromkeys(VERSIONS, ""), {row["id"] for row in rows if row["outcome"] == "passed"}
    for version, level in product(VERSIONS, LEVELS):
        below = LEVELS[: LEVELS.index(level) + 1]
        needed = [case for case in CASES.values() if case.version == version and case.level in below]
        if passed.issuperset(case.id for case in needed if case.ground != "robustness"):
            reached[version] = level
    return reached


def summary(content: Mapping[str, Any]) -> str:
    """Return the levels that an implementation reached, in words."""
    words = [f"{level} {version}" for version, level in content["levels"].items() if level]
    return ", ".join(words) or ("part of the cases" if content["partial"] else "no level")


def cells(rows: Iterable[Mapping[str, Any]], choices: Iterable[Mapping[str, str]]) -> str:
    """Return cells of a table: how often each of `OUTCOMES` is there, for each choice of rows."""
    texts = []
    for choice in choices:
        outcomes = [row["outcome"] for row in rows if choice.items() <= row.items()]
        texts.append(" / ".join(str(outcomes.count(each)) for each in OUTCOMES) if outcomes else "")
    return " | ".join(texts)


BY_GROUND = [{"ground": ground} for ground in GROUNDS]
BY_LEVEL = [{"level": level, "version": version} for level, version in product(LEVELS, VERSIONS)]


def table(content: Mapping[str, Any]) -> str:
    """Return the counts for each level, version and ground, in Markdown."""
    lines = [f"| level | version | {' | '.join(GROUNDS)} |", "|---|---|" + "--:|" * len(GROUNDS)]
    for choice in BY_LEVEL:
        text = cells(content["results"], [choice | ground for ground in BY_GROUND])
        lines += [f"| {' | '.join(choice.values())} | {text} |"] if text.strip(" |") else []
    return "\n".join([*lines, "", f"Each cell: {' / '.join(OUTCOMES)}. Reached: {summary(content)}."])


def comparison(documents: Sequence[dict[str, Any]]) -> str:
    """Return a page in Markdown: the counts of several implementations, and each case that failed.

    Args:
        documents: The results of each implementation, as `document` returns them.
    """
    heads = [" ".join(choice.values()) for choice in BY_GROUND + BY_LEVEL]
    lines = ["# Results", "", *INTRODUCTION, "", f"| implementation | date | {' | '.join(heads)} |"]
    lines.append("|---|---|" + "--:|" * len(heads))
    for each in documents:
        text = cells(each["results"], BY_GROUND + BY_LEVEL)
        lines.append(f"| {each['implementation']} | {each['date']} | {text} |")
    for each in documents:
        failed = [row for row in each["results"] if row["outcome"] == "failed"]
        failed.sort(key=lambda row: GROUNDS.index(row["ground"]))
        lines += ["", f"## {each['implementation']}", ""] if failed else []
        lines += [f"- {row['ground']}, `{row['id']}`: {_short(row['detail'])}" for row in failed]
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


def badge(content: Mapping[str, Any]) -> str:
    """Return an SVG that says the levels that an implementation reached."""
    text, count = summary(content), sum(map(bool, content["levels"].values()))
    colour = COLOURS[0 if count == len(VERSIONS) else 1 if count or content["partial"] else 2]
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
