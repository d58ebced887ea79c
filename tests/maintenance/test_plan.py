"""Plans of upkeep: they print, become JSON, and are applied. The engine changes nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.maintenance.compaction.test_operation import LIMITS, small_files
from tests.maintenance.schedules import Seen
from tests.maintenance.test_in_use import opened_by
from tests.survey.test_survey import commits

import frazil
from frazil.storage.memory import MemoryStorage

TOMORROW = datetime.now(UTC) + timedelta(days=1)


def root_of(repo: frazil.Repository) -> str:
    *_, root = repo.ancestry(branch="main")
    return str(root.id)


def stored(repo: frazil.Repository) -> dict[str, bytes]:
    return {info.key: bytes(repo.storage.get(info.key)) for info in repo.storage.list("")}


PLANS: dict[str, Callable[[frazil.Repository], frazil.UpkeepPlan[Any, Any]]] = {
    "collect": lambda repo: repo.upkeep.collect(TOMORROW),
    "expire": lambda repo: repo.upkeep.expire(TOMORROW),
    "retain": lambda repo: repo.upkeep.retain(frazil.Retention(last=2)),
    "squash": lambda repo: repo.upkeep.squash("main", root_of(repo)),
    "compact": lambda repo: repo.upkeep.compact("merge", branch="main", limits=LIMITS),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_prints_becomes_json_and_is_applied(name: str) -> None:
    repo = small_files(MemoryStorage())
    repo.reset_branch("main", [*repo.ancestry(branch="main")][1].id)  # a version without a branch
    repo.storage.put("leases/ended", b'{"age": 1, "left": -60000000}')
    before = stored(repo)
    plan = PLANS[name](repo)
    document = json.loads(json.dumps(plan.as_dict()))
    assert "shown_as" not in document
    assert document["operation"] == name
    assert f"operation: {name}" in str(plan)
    assert stored(repo) == before
    plan.apply()
    assert stored(repo) != before
    again = PLANS[name](repo).as_dict()
    rows = [
        row for each in ("files", "removed") for row in again.get(each, ()) if row.get("kind") != "backups"
    ]
    assert rows == []


@pytest.mark.parametrize("message", [None, "one"])
def test_the_plan_of_a_squash_names_the_versions_that_leave(message: str | None) -> None:
    repo = small_files(MemoryStorage())
    plan = repo.upkeep.squash("main", root_of(repo), message=message)
    leaving, staying = (set(each.ids()) for each in (plan.report.removed, plan.report.retained))
    tip = plan.apply()
    after = {each.id for each in repo.ancestry(branch="main")}
    assert after == staying | {tip}
    assert not leaving & after


def test_a_plan_that_was_looked_at_reads_manifests_once() -> None:
    storage = commits(6)
    requests: list[str] = []
    plan = opened_by(storage, Seen(storage, requests.append)).upkeep.collect(TOMORROW)
    assert plan.report.chunks_deleted == plan.apply().chunks_deleted == 1
    reads = Counter(what.partition("/")[0] for what in requests)
    assert (reads["get snapshots"], reads["get manifests"]) == (7, 6)


def test_an_unknown_engine_is_refused_with_the_known_names() -> None:
    repo = frazil.Repository.create(MemoryStorage())
    with pytest.raises(frazil.errors.InvalidInputError, match=r"'inline'.*'processes'.*'spark'") as error:
        repo.upkeep.collect(TOMORROW, engine="fast")  # type: ignore[arg-type]
    assert error.value.kind == frazil.errors.ErrorKind.UNKNOWN_CHOICE
