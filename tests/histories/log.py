"""The JSON lines of a worker: what it begins, and the answer that it gets.

A worker writes a line before each call and a line after it. Each line reaches the operating system before the
worker continues, so that it stays when the worker is killed.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.histories.layout import Changes


class Outcome(StrEnum):
    """The answer to an operation."""

    OK = "ok"
    NOTHING = "nothing"  #: it succeeded, and there was nothing to do
    REFUSED = "refused"  #: an error, and the repository is unchanged
    UNKNOWN = "unknown"  #: no answer, or one that leaves the effect open


class Rule(StrEnum):
    """What is true of the version before a commit."""

    NONE = ""
    FIRST = "first"  #: it is the version that the session began at
    DISJOINT = "disjoint"  #: nobody else has changed the same chunks since then
    OURS = "ours"  #: others may have changed them


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a worker. Times are nanoseconds of the monotonic clock, which all processes share."""

    mark: str  #: A text that no other operation has. It is the message of the commit.
    kind: str  #: What the operation is, such as ``commit``.
    ref: str = ""  #: The branch or the tag.
    begin: int = 0  #: The time before the call.
    end: int | None = None  #: The time after the call, or None.
    outcome: Outcome = Outcome.UNKNOWN  #: The answer.
    #: The version that the operation creates or reads, as far as the worker has its id.
    snapshot: str | None = None
    target: str | None = None  #: The version that the ref shall name.
    previous: str | None = None  #: The version that a session began at, or that a reset replaces.
    rule: Rule = Rule.NONE  #: What is true of the version before the commit.
    changes: Changes = field(default_factory=lambda: Changes({}, {}))  #: The numbers of a commit.
    row: tuple[int, ...] | None = None  #: The numbers of a read.
    error: str | None = None  #: The kind of the error.


class LogFile:
    """The log that one worker writes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def begin(self, mark: str, kind: str, **values: Any) -> None:
        """Write what the worker is about to do."""
        self._write({"line": "begin", "mark": mark, "kind": kind, "begin": time.monotonic_ns(), **values})

    def end(self, mark: str, outcome: Outcome, **values: Any) -> None:
        """Write the answer."""
        self._write({"line": "end", "mark": mark, "outcome": outcome, "end": time.monotonic_ns(), **values})

    def identify(self, mark: str, snapshot: str) -> None:
        """Write the version of an operation whose answer is lost."""
        self._write({"line": "identify", "mark": mark, "snapshot": snapshot})

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def operations(paths: Iterable[Path]) -> Iterator[Operation]:
    """Yield the operations of some logs, each as far as the logs describe it."""
    log: dict[str, Operation] = {}
    snapshots: dict[str, str] = {}  # a later worker identifies the version of an earlier one
    for path in paths:
        for line in _lines(path):
            values = _values(line)
            mark = values["mark"]
            if line["line"] == "identify":
                snapshots[mark] = values["snapshot"]
            else:
                log[mark] = replace(log[mark], **values) if mark in log else Operation(**values)
    for mark, operation in log.items():
        yield replace(operation, snapshot=snapshots[mark]) if mark in snapshots else operation


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole lines. A worker that is killed can leave a part of a line at the end."""
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


def _values(line: dict[str, Any]) -> dict[str, Any]:
    values = {name: value for name, value in line.items() if name != "line"}
    if "outcome" in values:
        values["outcome"] = Outcome(values["outcome"])
    if "rule" in values:
        values["rule"] = Rule(values["rule"])
    values.pop("count", None)
    if "row" in values:
        values["row"] = tuple(values["row"])
    if "changes" in values:
        slots, pairs, append, name = values["changes"]
        values["changes"] = Changes(dict(slots), dict(pairs), None if append is None else tuple(append), name)
    return values


def as_lists(changes: Changes) -> list[Any]:
    """Return changes as lists for JSON, which has no numbers as keys."""
    return [list(changes.slots.items()), list(changes.pairs.items()), changes.append, changes.name]


def file_counts(paths: Iterable[Path]) -> Counter[str]:
    """Return how many files the collections deleted, and how many versions the retentions removed."""
    numbers: Counter[str] = Counter()
    kinds: dict[str, str] = {}
    for path in paths:
        for line in _lines(path):
            if line["line"] == "begin":
                kinds[line["mark"]] = line["kind"]
            numbers[kinds.get(line["mark"], "")] += line.get("count", 0)
    return numbers
