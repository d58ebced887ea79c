"""Updates keep few backups of ``repo``, and the log, undo, copies and lost answers do not suffer from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import frazil
from frazil.errors import SessionStateError, StorageError
from frazil.format.columns import Ragged
from frazil.format.ids import OVERWRITTEN, REPO
from frazil.repository.catalog import backup_rules, collection_guard
from frazil.repository.catalog.collection_guard import COPY, Lease
from frazil.repository.catalog.repo_update import _has_unnamed
from frazil.repository.clock import DAY_US, now_us
from frazil.storage.base import ALWAYS, IfVersion
from frazil.storage.memory import MemoryStorage

CONFIG = frazil.RepositoryConfig(num_updates_per_repo_info_file=64)


def update(repo: Any, first: int, count: int) -> None:
    for number in range(first, first + count):
        repo.set_metadata({"n": number})


def backups(storage: Any) -> dict[str, int]:
    return {each.key: each.size for each in storage.list(OVERWRITTEN)}


@pytest.fixture(autouse=True)
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_rules, "_LARGE_REPO", 1)


@pytest.fixture
def repo() -> frazil.Repository:
    return frazil.Repository.create(frazil.in_memory_storage(), CONFIG)


def test_a_small_repository_keeps_all_backups_until_it_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_rules, "_LARGE_REPO", 1 << 30)
    repo = frazil.Repository.create(frazil.in_memory_storage(), CONFIG)
    update(repo, 0, 300)
    assert len(backups(repo.storage)) == 300
    for number in range(100):
        repo.history.undo().apply()
        assert repo.get_metadata()["n"] == 298 - number
    monkeypatch.setattr(backup_rules, "_LARGE_REPO", 1)
    update(repo, 0, 130)
    assert len(backups(repo.storage)) <= 64
    assert len(list(repo.ops_log())) == 531
    assert repo.upkeep.verify("checksum").ok


def test_there_are_few_backups_and_the_log_is_whole(repo: frazil.Repository) -> None:
    most, newest = backup_rules.MOST, backup_rules.NEWEST
    counts = []
    for number in range(330):
        repo.set_metadata({"n": number})
        counts.append(len(backups(repo.storage)))
    assert max(counts) <= most + newest + 2 <= 64
    times = [each.updated_at for each in repo.ops_log()]
    assert len(times) == 331
    assert times == sorted(times, reverse=True)
    entries = [each.backup_path for each in repo.ops_log()]
    assert {f"{OVERWRITTEN}/{name}" for name in entries[1 : newest + 1]} <= backups(repo.storage).keys()
    assert repo.upkeep.verify("checksum").ok
    repo.garbage_collect(datetime.now(UTC) + timedelta(days=1))
    assert len(backups(repo.storage)) <= backup_rules.RECENT + 3
    assert len(list(repo.ops_log())) == 332


def test_undo_reaches_the_newest_updates_and_refuses_others(repo: frazil.Repository) -> None:
    newest = backup_rules.NEWEST
    update(repo, 0, 150)
    for number in range(newest // 2 - 1):
        repo.history.undo().apply()
        assert repo.get_metadata() == {"n": 148 - number}
    middle = next(each for each in list(repo.ops_log())[90:] if each.backup_path is not None)
    old = list(repo.ops_log())[60].updated_at
    assert middle.updated_at != old
    before = repo.get_metadata()
    with pytest.raises(SessionStateError, match="has deleted its backup"):
        repo.history.undo(update=old).apply()
    assert repo.get_metadata() == before


def lose_one_answer(monkeypatch: pytest.MonkeyPatch, others: Callable[[], None]) -> None:
    """Let the next update of ``repo`` take effect without an answer. Then ``others`` change it."""
    put = MemoryStorage.put
    waiting = [others]

    def losing(self: MemoryStorage, key: str, data: Any, condition: Any = ALWAYS) -> Any:
        answer = put(self, key, data, condition)
        if key == REPO and waiting and isinstance(condition, IfVersion):
            waiting.pop()()
            raise StorageError("the answer was lost")
        return answer

    monkeypatch.setattr(MemoryStorage, "put", losing)


@pytest.mark.parametrize("count", [30, 62, 200])
def test_an_update_finds_its_entry_after_its_backup_was_given_up(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = MemoryStorage()
    repo = frazil.Repository.create(storage, CONFIG)
    other = frazil.Repository.open(storage, CONFIG)
    update(repo, 0, 3)
    lose_one_answer(monkeypatch, lambda: update(other, 3, count))
    repo.create_branch("once", "main")  # a second attempt would say that the branch exists
    assert "once" in repo.list_branches()
    assert len(list(repo.ops_log())) == count + 5


def test_an_entry_of_another_writer_is_not_that_of_the_update() -> None:
    storage = MemoryStorage()
    repo = frazil.Repository.create(storage, CONFIG)
    update(repo, 0, 2)
    log = repo._context.catalog.repo_info().ops
    assert not _has_unnamed(log, log)  # the entry before names the backup of another update
    unnamed = replace(log, backups=Ragged.empty(len(log)))
    assert _has_unnamed(unnamed, log)
    assert not _has_unnamed(unnamed, replace(log, kinds=log.kinds[::-1]))


def test_a_copy_keeps_the_backups(repo: frazil.Repository) -> None:
    lease = Lease.take(repo.storage, 0, now_us() + DAY_US, purpose=COPY, name="copy")
    assert collection_guard.is_copied(repo.storage)
    update(repo, 0, 100)
    assert len(backups(repo.storage)) == 100
    lease.give_back(repo.storage)
    update(repo, 0, 30)
    assert len(backups(repo.storage)) <= 130  # a collection deletes those that no update names
    assert len(list(repo.ops_log())) == 131


def test_a_failed_deletion_has_no_consequences(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, keys: object) -> None:
        raise StorageError("not allowed")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStorage, "delete", refuse)
        update(repo, 0, 140)
    assert len(list(repo.ops_log())) == 141


def test_a_lost_part_of_the_log_stops_no_update(repo: frazil.Repository) -> None:
    update(repo, 0, 70)
    name = repo._context.catalog.repo_info().repo_before_updates
    assert name is not None
    repo.storage.put(f"{OVERWRITTEN}/{name}", b"damaged")
    update(repo, 70, 70)
    assert repo.get_metadata() == {"n": 139}
    assert len(repo._context.catalog.repo_info().ops) > 64  # the log stays in ``repo``


def test_the_reference_takes_turns(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    icechunk = pytest.importorskip("icechunk")
    monkeypatch.setattr(backup_rules, "_LARGE_REPO", 1)
    ours = frazil.Repository.create(frazil.local_filesystem_storage(tmp_path, flush=False), CONFIG)
    config = icechunk.RepositoryConfig(num_updates_per_repo_info_file=64)
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path)), config)
    number = 1
    for first, second in ((50, 5), (30, 70), (3, 1), (70, 3)):
        for repo, count in ((ours, first), (theirs, second)):
            update(repo, number, count)
            number += count
            for handle in (ours, theirs):
                assert len(list(handle.ops_log())) == number
    assert ours.upkeep.verify("checksum").ok
