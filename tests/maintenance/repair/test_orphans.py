"""Files that no version needs are moved, never deleted, and only on demand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import zarr
from tests.maintenance.test_verification import keys, small

import frazil

LATER = datetime.now(UTC) + timedelta(days=1)
repair = frazil.Repository.upkeep.repair


def test_orphans_are_moved() -> None:
    repo = small()
    storage = repo.storage
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a")[:] = 9
    session.flush("detached")
    before = {each.key: bytes(storage.get(each.key)) for each in storage.list("")}
    assert repair(storage).ok
    plan = repair(storage, orphans_older_than=LATER)
    (step,) = plan.steps
    assert step.action == "orphans"
    assert len([key for key in step.keys if key.startswith("chunks/")]) == 2
    assert set(step.keys) <= before.keys()
    applied = plan.apply()
    for key in step.keys:
        assert storage.head(key) is None
        assert bytes(storage.get(f"{applied.quarantine}/{key}")) == before[key]
    assert frazil.Repository.open(storage).upkeep.verify("checksum").ok
    assert repair(storage, orphans_older_than=LATER).ok


def test_young_files_and_needed_files_stay() -> None:
    repo = small()
    assert repair(repo.storage, orphans_older_than=datetime.now(UTC) - timedelta(days=1)).ok
    assert repair(repo.storage, orphans_older_than=LATER).ok


def test_damage_hides_orphans() -> None:
    repo = small()
    repo.storage.delete(keys(repo.storage, "manifests")[:1])
    plan = repair(repo.storage, orphans_older_than=LATER)
    assert not plan.steps
    assert plan.findings
