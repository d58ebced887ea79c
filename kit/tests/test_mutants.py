"""A reader or a writer that ignores one rule fails a case.

A mutant is an adapter with one change of its text, or an adapter whose files change after each request.
"""

from __future__ import annotations

import sys
import unicodedata
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import icechunk_kit.cases  # noqa: F401 - registers the cases
import pytest
from icechunk_kit.case import CASES, Case
from icechunk_kit.checks import load
from icechunk_kit.files import FOLDERS, ROOT_ID, envelope
from icechunk_kit.runner import Adapter, run
from icechunk_kit.schema import pack

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
#: What a mutant of the writer breaks, the cases that see it, what they say, the kind of file, and the change.
SPOILED = [
    line.split(" | ", 4)
    for line in (HERE / "spoiled.txt").read_text().splitlines()
    if line and line[0] != "#"
]
RIGHT = {
    "Repo": 'header["compression"] = 0',
    "Snapshot": 'd["nodes"].sort(key=lambda node: node["path"].split("/"))',
}
KINDS = {folder: kind for kind, folder in FOLDERS.items()}
READER = ("refs", "log", "properties", "list", "metadata", "read", "count", "diff", "updates", "get")


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


class Spoiled(Inside):
    """An adapter of a writer: a statement changes the document of each file that a request writes."""

    def __init__(self, kind: str, statement: str) -> None:
        super().__init__(SOURCES["writer_mutants.txt"])
        self.kind, self.statement = kind, compile(statement, kind, "exec")

    def ask(self, request: dict[str, Any], seconds: float) -> Any:
        folder = Path(request["location"]["path"])
        before = {path: path.read_bytes() for path in files(folder)}
        if self.kind == "Before" and folder / "repo" in before:
            self.spoil(folder / "repo", "Repo")
        answer = super().ask(request, seconds)
        is_first = request["op"] == "create" or request.get("message") == "message base"
        for path in files(folder) if not is_first or "is_root" in self.statement.co_names else ():
            if path.read_bytes() != before.get(path) and KINDS.get(path.parent.name, "Repo") == self.kind:
                self.spoil(path, self.kind)
        return answer

    def spoil(self, path: Path, kind: str) -> None:
        file = load(path, kind)
        names: dict[str, Any] = {"ROOT_ID": ROOT_ID, "d": file.document, "path": path, "header": {}}
        exec(self.statement, names | {"is_root": path.name == "1CECHNKREP0F1RSTCMT0"})
        if path.exists():
            header = {"version": file.header[36], "writer": "a mutant"} | names["header"]
            path.write_bytes(envelope(kind, pack(kind, file.document), **header))


def files(folder: Path) -> list[Path]:
    """Return the metadata files in the order in which a writer writes them."""
    return [path for name in (*(f"{room}/*" for room in KINDS), "repo") for path in folder.glob(name)]


@pytest.fixture(autouse=True)
def arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["adapter", "frazil"])


def written(case: Case, folder: Path) -> list[dict[str, Any]]:
    """Return the steps of a case that write, and those of the kit: only the rules judge the files."""
    return [step for step in case.build(folder) if step["op"] not in READER]


def failures(adapter: Adapter, patterns: set[str], *, reads: bool = True) -> list[str]:
    cases = [case for name, case in CASES.items() if any(fnmatch(name, pattern) for pattern in patterns)]
    assert cases, patterns
    cases = cases if reads else [replace(case, build=partial(written, case)) for case in cases]
    return [
        f"{result.case.id}: {result.detail}" for result in run([adapter], cases) if result.outcome == "failed"
    ]


@pytest.mark.parametrize("file", SOURCES)
def test_an_adapter_passes_the_cases_that_its_mutants_fail(file: str) -> None:
    source = SOURCES[file]
    patterns = {pattern for text, pattern, _, _ in MUTANTS.values() if text == source}
    assert failures(Inside(source), patterns) == []


@pytest.mark.parametrize("rule", MUTANTS)
def test_a_mutant_fails(rule: str) -> None:
    source, pattern, old, new = MUTANTS[rule]
    assert old in source
    assert failures(Inside(source.replace(old, new)), {pattern})


@pytest.mark.deep  # takes seconds
@pytest.mark.parametrize("kind", sorted({kind for _, _, _, kind, _ in SPOILED}))
def test_a_writer_that_follows_the_text_passes(kind: str) -> None:
    """Its files have another form than those of Frazil, and the same content."""
    names = {"write.names", *(["write.nodes.order"] if kind == "Snapshot" else [])}
    results = failures(
        Spoiled(kind, RIGHT.get(kind, "pass")), names | {pattern for _, pattern, *_ in SPOILED}
    )
    assert [text for text in results if "manifest.size" not in text] == []


@pytest.mark.sample(12)
@pytest.mark.parametrize(("rule", "pattern", "detail", "kind", "statement"), SPOILED)
def test_a_mutant_of_the_writer_fails(
    rule: str, pattern: str, detail: str, kind: str, statement: str
) -> None:
    results = failures(Spoiled(kind, statement), {pattern}, reads="." not in detail)
    assert results and all(detail in text for text in results)
