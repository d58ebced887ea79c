"""A reader or a writer that ignores one rule fails a case: an adapter with one change of its text."""

from __future__ import annotations

import sys
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

HERE = Path(__file__).parent
#: The adapter of the mutants in each file.
SOURCES = {
    "mutants.txt": (HERE / "simple_reader.py").read_text(),
    "writer_mutants.txt": (HERE.parent / "adapters" / "python_api.py").read_text(),
}


def mutants() -> dict[str, tuple[str, str, str, str]]:
    """Return the text of the adapter, the cases that see a mutant, the text that changes, and the new one."""
    result = {}
    for file, source in SOURCES.items():
        for block in (HERE / file).read_text().split("\n\n")[1:]:
            head, old, new = block.rstrip("\n").split("\n")
            rule, pattern = head.split(" | ")
            result[rule] = (source, pattern, old[2:].replace("⏎", "\n"), new[2:].replace("⏎", "\n"))
    return result


MUTANTS = mutants()


class Inside(Adapter):
    """An adapter in this process: it runs the text of an adapter."""

    def __init__(self, source: str) -> None:
        super().__init__([])
        self.module = ModuleType("adapter")
        self.module.__dict__["normalize"] = partial(unicodedata.normalize, "NFC")
        exec(compile(source, "adapter", "exec"), self.module.__dict__)

    def ask(self, request: dict[str, Any], seconds: float) -> Any:
        arguments = dict(request)
        operation = self.module.OPERATIONS.get(arguments.pop("op"))
        if operation is None:
            return {"unsupported": True}
        try:
            return {"value": operation(**arguments)}
        except Exception as error:
            return {"error": {"kind": self.module.kind(error), "message": repr(error)}}


@pytest.fixture(autouse=True)
def arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["adapter", "frazil"])


def failures(source: str, patterns: set[str]) -> list[str]:
    cases = [case for name, case in CASES.items() if any(fnmatch(name, pattern) for pattern in patterns)]
    return [result.case.id for result in run([Inside(source)], cases) if result.outcome == "failed"]


@pytest.mark.parametrize("file", SOURCES)
def test_an_adapter_passes_the_cases_that_its_mutants_fail(file: str) -> None:
    source = SOURCES[file]
    assert failures(source, {pattern for text, pattern, _, _ in MUTANTS.values() if text == source}) == []


@pytest.mark.parametrize("rule", MUTANTS)
def test_a_mutant_fails(rule: str) -> None:
    source, pattern, old, new = MUTANTS[rule]
    assert old in source
    assert failures(source.replace(old, new), {pattern})
