"""A writer that ignores a rule fails a case: the adapter of Frazil with one change of its text."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import icechunk_kit.cases  # noqa: F401 - registers the cases
import pytest
from icechunk_kit.case import CASES
from icechunk_kit.runner import Adapter, run

SOURCE = (Path(__file__).parents[1] / "adapters" / "python_api.py").read_text()
GET = '    buffer = sync(store.get(key.strip("/"), default_buffer_prototype()))\n'
#: The case that must fail, a part of the text, and what stands there instead.
MUTANTS = {
    "a late commit is a conflict": ("conflict.commit", "properties, **options",
        "properties, **options, rebase_with=library.BasicConflictSolver()"),
    "without a solver a rebase decides nothing": ("conflict.fails.chunk", "library.ConflictDetector()",
        "library.BasicConflictSolver()"),
    "a solver takes what the user chose": ("conflict.solver.ours.chunk", "library.VersionSelection.UseOurs",
        "library.VersionSelection.UseTheirs"),
    "an amendment replaces a commit": ("amend.tag", "session.amend(message)", "session.commit(message)"),
    "a commit needs changes": ("session.empty", " if empty else {}", ""),
    "a commit has properties": ("write.properties", "commit(message, properties,", "commit(message, None,"),
    "a commit has its message": ("write.message", "commit(message,", "commit(message[:9],"),
    "a session that ended is read-only": ("session.ended", "sync(store.set(",
        "store.session.read_only or sync(store.set("),
    "a creation needs an empty place": ("write.create.twice", "create(storage(location), spec_version=",
        "open_or_create(storage(location), create_version="),
    "a new repository has its version": ("write.create.version-1", "spec_version=int(version)",
        "spec_version=2"),
    "a reset expects the tip": ("write.refs.branch.reset.from", 'start.get("from")', "None"),
    "a tag is immutable": ("write.refs.tag", "repo.create_tag(name",
        "name in repo.list_tags() or repo.create_tag(name"),
    "main stays": ("write.refs.branch.main", "repo.delete_branch(name)",
        'name == "main" or repo.delete_branch(name)'),
    "a chunk that is gone is an error": ("fault.missing.chunk", GET,
        f"    try:\n    {GET}    except Exception:\n        return None\n"),
    "the bound of an expiration is exclusive": ("expire.exclusive", "moment(before), delete_expired",
        "moment(before + 1), delete_expired"),
    "an expiration keeps tags": ("expire.tag", "delete_expired_tags=delete_tags", "delete_expired_tags=True"),
    "an expiration keeps branches": ("expire.branch", "delete_expired_branches=delete_branches",
        "delete_expired_branches=True"),
    "an expiration deletes tags if it must": ("expire.tag.deleted", "delete_expired_tags=delete_tags",
        "delete_expired_tags=False"),
    "a collection keeps new files": ("collect.orphans", "garbage_collect(moment(before))",
        "garbage_collect(moment(4102444800000000))"),
    "a collection deletes old files": ("collect.expired", "garbage_collect(moment(before))", "status"),
    "an upgrade writes": ("upgrade", "dry_run=False", "dry_run=True"),
    "a second implementation sees moves": ("turns.moved", 'session.move(paths["from"], paths["to"])',
        'session.move(paths["from"], paths["to"] + "x")'),
}  # fmt: skip


class Inside(Adapter):
    """An adapter in this process: it runs the text of an adapter."""

    def __init__(self, source: str) -> None:
        super().__init__([])
        self.module = ModuleType("adapter")
        exec(compile(source, "adapter", "exec"), self.module.__dict__)

    def ask(self, request: dict[str, Any], seconds: float) -> Any:
        arguments = dict(request)
        try:
            return {"value": self.module.OPERATIONS[arguments.pop("op")](**arguments)}
        except Exception as error:
            return {"error": {"kind": self.module.kind(error), "message": repr(error)}}


def outcome(source: str, name: str) -> str:
    return next(run([Inside(source)], [CASES[name]])).outcome


@pytest.mark.parametrize("rule", MUTANTS)
def test_a_writer_that_ignores_a_rule_fails(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["adapter", "frazil"])
    name, old, new = MUTANTS[rule]
    assert SOURCE.count(old) == 1, old
    assert outcome(SOURCE, name) == "passed"
    assert outcome(SOURCE.replace(old, new), name) == "failed"
