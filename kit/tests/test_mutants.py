"""A reader that ignores one rule fails a case of this rule."""

from __future__ import annotations

import unicodedata
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import icechunk_kit.cases  # noqa: F401 - registers the cases
import pytest
from icechunk_kit.case import CASES
from icechunk_kit.runner import Adapter, run

SOURCE = (Path(__file__).parent / "simple_reader.py").read_text()


def mutants() -> dict[str, tuple[str, str, str]]:
    """Return the cases that see each mutant, the text of the reader that it changes, and the new text."""
    result = {}
    for block in (Path(__file__).parent / "mutants.txt").read_text().split("\n\n")[1:]:
        head, old, new = block.rstrip("\n").split("\n")
        rule, pattern = head.split(" | ")
        result[rule] = (pattern, old[2:].replace("⏎", "\n"), new[2:].replace("⏎", "\n"))
    return result


MUTANTS = mutants()


class Inside(Adapter):
    """An adapter in this process: it runs the text of a reader."""

    def __init__(self, source: str) -> None:
        super().__init__([])
        self.module = ModuleType("reader")
        self.module.__dict__["normalize"] = partial(unicodedata.normalize, "NFC")
        exec(compile(source, "reader", "exec"), self.module.__dict__)

    def ask(self, request: dict[str, Any], seconds: float) -> Any:
        arguments = dict(request)
        operation = self.module.OPERATIONS.get(arguments.pop("op"))
        if operation is None:
            return {"unsupported": True}
        try:
            return {"value": operation(**arguments)}
        except Exception as error:
            return {"error": {"kind": self.module.kind(error), "message": repr(error)}}


def outcomes(source: str, pattern: str) -> dict[str, str]:
    cases = [case for name, case in CASES.items() if fnmatch(name, pattern)]
    assert cases, pattern
    return {result.case.id: result.outcome for result in run([Inside(source)], cases)}


def test_the_reader_passes_the_cases_that_mutants_fail() -> None:
    patterns = sorted({pattern for pattern, _, _ in MUTANTS.values()})
    failures = [
        name
        for pattern in patterns
        for name, outcome in outcomes(SOURCE, pattern).items()
        if outcome == "failed"
    ]
    assert failures == []


@pytest.mark.parametrize("rule", MUTANTS)
def test_a_reader_that_ignores_a_rule_fails(rule: str) -> None:
    pattern, old, new = MUTANTS[rule]
    assert SOURCE.count(old) >= 1, old
    assert "failed" in outcomes(SOURCE.replace(old, new), pattern).values()
