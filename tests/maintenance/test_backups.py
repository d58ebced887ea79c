"""x"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.maintenance.schedules import Schedule, Seen, killing
from tests.maintenance.test_in_use import opened_by, opened_by_two

import frazil
from frazil import OpsLogRetention
from frazil.errors import ErrorKind, InvalidInputError, OutcomeUnknownError
from frazil.format.ids import backup_key
from frazil.format.repo_info import decode_repo_info
from frazil.maintenance import backups as backups_module
from frazil.maintenance.backups import RECENT
from frazil.ops import UpdateType
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
        one, other = opened_by_two(storage, schedule, config(3))
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


@pytest.fixture(autouse=True)
def _no_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of the last hour always stay. Here, all entries are of the last minute."""
    monkeypatch.setattr(backups_module, "_HOUR_US", 0)


def entries(storage: Any) -> list[Any]:
    return [replace(entry, backup_path=None) for entry in log(storage)]


@pytest.mark.sample(1, 5)
@pytest.mark.parametrize("keep", [3, 10, 1000])
@pytest.mark.parametrize("last", [1, 5, 12, 39, 100])
def test_the_newest_entries_stay(last: int, keep: int) -> None:
    storage = MemoryStorage()
    repo = updated(storage, 40, keep)
    before = entries(storage)
    for round_ in range(3):
        policy = OpsLogRetention(last=last)
        preview = repo.garbage_collect(TOMORROW, keep_ops=policy, dry_run=True)
        assert entries(storage) == before
        summary = repo.garbage_collect(TOMORROW, keep_ops=policy)
        after = entries(storage)
        # The collection has an entry, too; the entry before it and one more always stay.
        expected = before[: max(last, 3) - 1]
        assert after[1:] == expected
        assert (summary.backups_deleted, summary.delete_errors) == (preview.backups_deleted, [])
        assert len(backups(storage)) <= 2 * RECENT + 3
        shown = list(repo.ops_log())
        assert isinstance(shown[-1].kind, UpdateType.LogStart) == (
            len(expected) < len(before) or round_ > 0 < 41 - last
        )
        before = after
        for number in range(7):
            repo.create_branch(f"b{round_}.{number}", repo.lookup_branch("main"))
            assert entries(storage)[number + 1 :] == before
        before = entries(storage)
    assert repo.upkeep.verify("checksum").ok


def test_the_marker_has_the_time_of_the_newest_removed_entry() -> None:
    storage = MemoryStorage()
    repo = updated(storage, 10, 1000)
    times = [update.updated_at for update in repo.ops_log()]
    repo.garbage_collect(TOMORROW, keep_ops=OpsLogRetention(last=5))
    *rest, start = repo.ops_log()
    assert start.kind == UpdateType.LogStart()
    assert start.updated_at == times[4]
    assert [update.updated_at for update in rest][1:] == times[:4]
    repo.garbage_collect(TOMORROW)  # without a policy nothing more is removed
    assert list(repo.ops_log())[-1] == start


def test_ages(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    repo = updated(storage, 10, 1000)
    before = entries(storage)
    limit = datetime.now(UTC) - timedelta(hours=2)
    repo.garbage_collect(TOMORROW, keep_ops=OpsLogRetention(newer_than=limit))
    assert entries(storage)[1:] == before
    middle = before[4].updated_at
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=middle)
    repo.garbage_collect(TOMORROW, keep_ops=OpsLogRetention(newer_than=moment))
    assert entries(storage)[2:] == before[:5]
    monkeypatch.setattr(backups_module, "_HOUR_US", 3600 * 1_000_000)
    repo.garbage_collect(TOMORROW, keep_ops=OpsLogRetention(last=1))
    assert entries(storage)[3:] == before[:5]  # all of them are of the last hour


@pytest.mark.deep
def test_a_soak_with_a_collection_now_and_then() -> None:
    """Without a policy, too: the chain of backups does not grow with the number of collections."""
    storage = MemoryStorage()
    repo = updated(storage, 5, 10)
    counts = []
    for round_ in range(40):
        for number in range(4):
            repo.create_branch(f"b{round_}.{number}", repo.lookup_branch("main"))
            repo.delete_branch(f"b{round_}.{number}")
        repo.garbage_collect(TOMORROW)
        counts.append(len(backups(storage)))
    assert max(counts) < 2 * RECENT + 3 + 17
    assert len(entries(storage)) == 6 + 40 * 9


@pytest.mark.sample(1)
@pytest.mark.parametrize("deadly", [0, 1, 2])
def test_a_collection_that_dies_leaves_a_log(deadly: int) -> None:
    storage = MemoryStorage()
    repo = updated(storage, 30, 4)
    before = entries(storage)
    policy = OpsLogRetention(last=6)
    with suppress(KeyboardInterrupt):
        dying = killing(storage, deadly, KeyboardInterrupt, prefix="put overwritten/")
        opened_by(storage, dying, config(4)).garbage_collect(TOMORROW, keep_ops=policy)
    left = entries(storage)
    assert left in (before, [left[0], *before], [left[0], *before[:5]])
    assert repo.upkeep.verify("checksum").ok
    repo.garbage_collect(TOMORROW, keep_ops=policy)
    assert len(entries(storage)) == 6
    assert repo.upkeep.verify("checksum").ok


def test_a_lost_answer_behind_a_removed_part_is_unknown() -> None:
    """The log does not tell whether the update took effect, so nobody claims that it did not."""
    storage = MemoryStorage()
    repo = updated(storage, 20, 3)
    lost: list[str] = []

    @contextmanager
    def meet(what: str) -> Iterator[None]:
        yield
        if what == "put repo" and not lost:
            lost.append(what)
            for number in range(10):
                repo.create_branch(f"b{number}", repo.lookup_branch("main"))
            repo.garbage_collect(TOMORROW, keep_ops=OpsLogRetention(last=3))
            raise frazil.StorageError("no answer", ErrorKind.OBJECT_STORE)

    tagger = opened_by(storage, Seen(storage, meet), config(3))
    with pytest.raises(OutcomeUnknownError, match="ops log"):
        tagger.create_tag("once", repo.lookup_branch("main"))
    assert "once" in repo.list_tags()


@pytest.mark.parametrize("options", [{}, {"last": 0}, {"last": -1}])
def test_wrong_values(options: Any) -> None:
    with pytest.raises(InvalidInputError):
        OpsLogRetention(**options)


@pytest.mark.parametrize(
    "options", [{"last": True}, {"last": "3"}, {"newer_than": 3}, {"newer_than": datetime(2020, 1, 1)}]
)
def test_wrong_types(options: Any) -> None:
    with pytest.raises(TypeError):
        OpsLogRetention(**options)


@pytest.mark.sample(1)
@pytest.mark.interop
@pytest.mark.parametrize("keep", [4, 1000])
def test_the_reference_reads_and_continues_the_log(keep: int, tmp_path: Path) -> None:
    icechunk = pytest.importorskip("icechunk")
    repo = updated(frazil.local_filesystem_storage(str(tmp_path)), 40, keep)
    settings = icechunk.RepositoryConfig(num_updates_per_repo_info_file=keep)

    def theirs() -> Any:
        return icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path)), settings)

    def times(log: Any) -> list[Any]:
        return [update.updated_at for update in log if type(update.kind).__name__ != "LogStart"]

    before = times(repo.ops_log())
    for round_ in range(3):
        repo.garbage_collect(TOMORROW, keep_ops=OpsLogRetention(last=10))
        assert times(theirs().ops_log()) == times(repo.ops_log())
        assert times(repo.ops_log())[1:] == before[:9]
        for number in range(6):
            theirs().create_branch(f"b{round_}.{number}", theirs().lookup_branch("main"))
            assert times(theirs().ops_log()) == times(repo.ops_log())
        before = times(repo.ops_log())
    assert decode_repo_info((tmp_path / "repo").read_bytes(), "repo").metadata == {}
    assert repo.upkeep.verify("checksum").ok
