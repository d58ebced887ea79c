"""Backups of ``repo``: garbage collection deletes those that neither the ops log nor a recovery needs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from tests.maintenance.schedules import Schedule, Seen
from tests.maintenance.test_in_use import opened_by

import frazil
from frazil.format.ids import backup_key
from frazil.format.repo_info import decode_repo_info
from frazil.maintenance.backups import RECENT
from frazil.repository.catalog.collection_guard import Lease
from frazil.repository.catalog.repo_update import ops_log
from frazil.repository.clock import now_us
from frazil.storage.memory import MemoryStorage

TOMORROW = datetime.now(UTC) + timedelta(days=1)


def config(keep: int) -> frazil.RepositoryConfig:
    return frazil.RepositoryConfig(num_updates_per_repo_info_file=keep)


def updated(storage: Any, updates: int, keep: int) -> frazil.Repository:
    """A repository with so many updates, of which ``repo`` lists ``keep``."""
    repo = frazil.Repository.create(storage, config(keep))
    for number in range(updates):
        repo.create_tag(f"t{number}", repo.lookup_branch("main"))
    return repo


def backups(storage: Any) -> dict[str, int]:
    return {info.key: info.size for info in storage.list("overwritten")}


def log(storage: Any) -> list[Any]:
    return list(ops_log(storage, decode_repo_info(bytes(storage.get("repo")), "repo")))


def test_leases_of_copies_protect_backups() -> None:
    """A copy has read a `repo` whose log continues in the backups. A session with forks needs none."""
    storage = MemoryStorage()
    repo = updated(storage, 40, 10)
    before = backups(storage)
    assert repo.garbage_collect(datetime.now(UTC) - timedelta(hours=1)).backups_deleted == 0
    repo.writable_session("main").fork()
    copy = Lease.take(storage, 0, now_us() + 3_600_000_000, purpose="copy")
    assert repo.garbage_collect(TOMORROW).backups_deleted == 0
    assert before.keys() <= backups(storage).keys()
    copy.give_back(storage)
    assert repo.garbage_collect(TOMORROW).backups_deleted > 0


@pytest.mark.deep
def test_what_stays_is_what_the_log_needs_and_the_newest() -> None:
    storage = MemoryStorage()
    repo = updated(storage, 300, 1000)
    size = sum(backups(storage).values())
    summary = repo.garbage_collect(TOMORROW)
    left = backups(storage)
    assert summary.backup_bytes_deleted > 0.9 * size
    assert summary.bytes_deleted == 0
    assert len(left) <= 2 * RECENT + 2
    newest = [str(entry.backup_path) for entry in log(storage)[1 : 1 + RECENT]]
    assert set(map(backup_key, newest)) <= left.keys()
    last = backup_key(newest[0])  # whoever restores it finds the whole log
    assert len(list(ops_log(storage, decode_repo_info(bytes(storage.get(last)), last)))) == 301


def test_other_objects_stay() -> None:
    storage = MemoryStorage()
    repo = updated(storage, 20, 5)
    others = ["overwritten/mine", "overwritten/repo.1.X", "overwritten/below/repo.txt"]
    for key in others:
        storage.put(key, b"x")
    repo.garbage_collect(TOMORROW)
    assert set(others) <= backups(storage).keys()


def test_a_damaged_backup_keeps_all() -> None:
    storage = MemoryStorage()
    repo = updated(storage, 20, 3)
    before = backups(storage)
    name = decode_repo_info(bytes(storage.get("repo")), "repo").repo_before_updates
    assert name is not None
    storage.put(backup_key(name), b"damaged")
    summary = repo.garbage_collect(TOMORROW)
    assert summary.backups_deleted == 0
    assert "no backup was deleted" in summary.delete_errors[0]
    assert before.keys() <= backups(storage).keys()


def scheduled(storage: MemoryStorage, schedule: Schedule, actor: int) -> frazil.Repository:
    return opened_by(storage, Seen(storage, lambda what: schedule.request(actor, what)), config(3))


def tag_twice(repo: frazil.Repository) -> list[str]:
    for name in ("a", "b"):
        repo.create_tag(name, repo.lookup_branch("main"))
    return ["a", "b"]


@pytest.mark.sample(1, 1)
@pytest.mark.deep
@pytest.mark.parametrize("first", [0, 1])
def test_updates_at_the_same_time(first: int) -> None:
    """Whatever the order of requests, no backup that the log names is deleted."""
    for cut in range(0, 100, 2):
        storage = MemoryStorage()
        updated(storage, 12, 3)
        count = len(log(storage))
        schedule = Schedule([first] * cut + [1 - first] * 100)
        one, other = (scheduled(storage, schedule, actor) for actor in (0, 1))
        ends = schedule.run(partial(tag_twice, one), partial(other.garbage_collect, TOMORROW))
        assert isinstance(ends[0], list), ends
        assert isinstance(ends[1], frazil.GCSummary), ends
        assert len(log(storage)) == count + 3
        repo = frazil.Repository.open(storage, config(3))
        for number in range(8):
            repo.create_branch(f"b{number}", repo.lookup_branch("main"))
            assert len(log(storage)) == count + 4 + number
        if [actor for actor, _ in schedule.requests].count(first) <= cut:
            break
    assert cut > 3
