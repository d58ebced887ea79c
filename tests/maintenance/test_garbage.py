"""Garbage collection that is killed, refused, throttled, or finds damage; backups of `repo`; the ops log."""

from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Buffer, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import zarr
from tests.maintenance.schedules import Killed, Schedule, Seen, killing
from tests.maintenance.test_in_use import CONFIG, TOMORROW, opened_by, opened_by_two, read_everything, values
from tests.repository.version_1 import copy_of
from tests.support.errors import of_kind

import frazil
from frazil import OpsLogRetention
from frazil.errors import (
    ConflictError,
    ErrorKind,
    FormatError,
    InvalidInputError,
    OutcomeUnknownError,
    StorageError,
)
from frazil.format.ids import backup_key
from frazil.format.repo_info import decode_repo_info
from frazil.maintenance import backups as backups_module
from frazil.maintenance import collection
from frazil.maintenance import collection as deletion
from frazil.maintenance.collection import DeleteLimits, Sweeper
from frazil.maintenance.plan import GarbageFiles
from frazil.ops import GarbageReason, UpdateType
from frazil.pipeline import Progress
from frazil.repository.catalog.backup_rules import RECENT
from frazil.repository.catalog.collection_guard import Lease
from frazil.repository.catalog.repo_update import ops_log
from frazil.repository.clock import now_us
from frazil.storage.base import ALWAYS, Condition, Refused, Stored, Version
from frazil.storage.memory import MemoryStorage
from frazil.storage.settings import StorageSettings

FOLDERS = ("snapshots", "transactions", "manifests", "chunks")


def littered(version: int = 2) -> MemoryStorage:
    """A branch and a tag; versions that expired, one that is on no branch; chunks of no version."""
    return copy_of(_littered(version))


@cache
def _littered(version: int) -> MemoryStorage:
    storage = MemoryStorage()
    repo = frazil.Repository.create(storage, CONFIG, spec_version=version)
    for number in range(5):
        with repo.transaction("main", message=str(number)) as store:
            array = zarr.create_array(
                store, name="x", shape=(4,), chunks=(2,), dtype="i4", compressors=None, overwrite=True
            )
            array[:] = number
        if number == 1:
            repo.create_tag("t", repo.lookup_branch("main"))
    repo.expire_snapshots(datetime.now(UTC))
    for lost in (False, True):
        session = repo.writable_session("main")
        zarr.open_array(session.store, path="x")[:] = 9
        if lost:
            session.workspace.writer.flush()
        else:
            session.flush("on no branch")
    for lease in repo.upkeep.leases():
        repo.upkeep.break_lease(lease.id)  # that of the flush
    return storage


def files(storage: Any) -> list[str]:
    return sorted(info.key for name in FOLDERS for info in storage.list(name))


@pytest.mark.sample(1, 1)
@pytest.mark.deep
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_request(after: bool, version: int) -> None:
    """What is left can be read, and another run ends like one that was not killed."""
    whole = littered(version)
    frazil.Repository.open(whole, CONFIG).garbage_collect(TOMORROW)
    expected = [name.partition("/")[0] for name in files(whole)]
    for deadly in range(100):
        storage = littered(version)
        survived = False
        try:
            opened_by(storage, killing(storage, deadly, after=after)).garbage_collect(TOMORROW)
            survived = True
        except Killed:
            pass
        repo = frazil.Repository.open(storage, CONFIG)
        repo.garbage_collect(TOMORROW)  # it restores nothing that the first run deleted
        assert values(repo) == [4] * 4
        read_everything(repo)
        assert [name.partition("/")[0] for name in files(storage)] == expected
        if survived:
            break
    assert deadly > 15


@pytest.mark.parametrize("folder", ["manifests", "snapshots"])
@pytest.mark.parametrize("damage", [b"", b"ICE", bytes(200)])
def test_damage_stops_it_before_anything_is_deleted(folder: str, damage: bytes) -> None:
    storage = littered()
    repo = frazil.Repository.open(storage, CONFIG)
    name = repo.lookup_tag("t")
    name = name if folder == "snapshots" else repo.list_manifest_files(name)[0].id
    whole = bytes(storage.get(f"{folder}/{name}"))
    storage.put(f"{folder}/{name}", damage or whole[: len(whole) // 2])
    before = files(storage)
    repo = frazil.Repository.open(storage, CONFIG)
    for dry_run in (True, False):
        with pytest.raises(FormatError, match=name):
            repo.garbage_collect(TOMORROW, dry_run=dry_run)
    assert files(storage) == before
    assert not isinstance(next(iter(repo.ops_log())).kind, frazil.UpdateType.GCRan)
    storage.put(f"{folder}/{name}", whole)
    repo.garbage_collect(TOMORROW)
    read_everything(repo)


def refusing(storage: Any, folder: str, kind: ErrorKind = ErrorKind.OBJECT_STORE, times: int = 10**9) -> Seen:
    left = times

    def meet(what: str) -> None:
        nonlocal left
        if what == f"delete {folder}" and left > 0:
            left -= 1
            raise StorageError("injected", kind)

    return Seen(storage, meet)


@pytest.mark.parametrize(
    ("folder", "skipped"),
    [
        ("snapshots", ["transaction_logs", "statistics", "manifests", "chunks"]),
        ("transactions", ["statistics", "manifests", "chunks"]),
        ("manifests", ["chunks"]),
        ("chunks", []),
    ],
)
def test_what_cannot_be_deleted_keeps_what_it_refers_to(folder: str, skipped: list[str]) -> None:
    storage = littered()
    before = files(storage)
    repo = opened_by(storage, refusing(storage, folder))
    summary = repo.garbage_collect(TOMORROW)
    assert summary.skipped_phases == skipped
    assert summary.objects_failed_to_delete == len(summary.delete_errors) > 0
    assert all(folder in error for error in summary.delete_errors)
    undeletable = {name for name in before if name.startswith(folder)}
    assert undeletable <= set(files(storage))
    again = frazil.Repository.open(storage, CONFIG).garbage_collect(TOMORROW)
    assert (again.skipped_phases, again.objects_failed_to_delete) == ([], 0)
    whole = littered()
    frazil.Repository.open(whole, CONFIG).garbage_collect(TOMORROW)
    assert len(files(storage)) == len(files(whole))


def test_it_gives_up() -> None:
    storage = littered()
    repo = opened_by(storage, refusing(storage, "snapshots"))
    with pytest.raises(ConflictError, match="injected", check=of_kind(ErrorKind.GC_DELETES_FAILING)):
        repo.garbage_collect(TOMORROW, max_consecutive_delete_failures=2)
    read_everything(frazil.Repository.open(storage, CONFIG))
    frazil.Repository.open(storage, CONFIG).garbage_collect(TOMORROW)


def test_throttling_is_waited_out() -> None:
    storage = littered()
    paused: list[float] = []
    old = collection.candidate_files(storage, 2**62, 2**62, 4)
    seen = refusing(storage, "chunks", ErrorKind.THROTTLED, 3)
    done = Sweeper(seen, DeleteLimits(4, 2), paused.append).sweep(old.files["chunks"])
    assert (done.objects, done.failed, done.throttled) == (len(old.files["chunks"]), 0, 3)
    assert len(paused) == 3
    assert sorted(paused) == paused
    endless = refusing(storage, "manifests", ErrorKind.THROTTLED)
    with pytest.raises(ConflictError):
        Sweeper(endless, DeleteLimits(4, 2), paused.append).sweep(old.files["manifests"])
    assert max(paused) <= deletion._LONGEST_PAUSE_S


@pytest.mark.parametrize(
    "limit",
    [
        "max_snapshots_in_memory",
        "max_compressed_manifest_mem_bytes",
        "max_decoded_manifest_mem_bytes",
        "max_concurrent_manifest_fetches",
        "max_concurrent_deletes",
        "max_consecutive_delete_failures",
        "max_concurrent_listings",
    ],
)
def test_limits(limit: str) -> None:
    storage = littered()
    repo = frazil.Repository.open(storage, CONFIG)
    none, one = {limit: 0}, {limit: 1}
    collect: Callable[..., frazil.GCSummary] = partial(repo.garbage_collect, TOMORROW)
    with pytest.raises(InvalidInputError, match=limit):
        collect(**none)
    assert collect(**one).snapshots_deleted == 4
    assert values(repo) == [4] * 4


class FullStorage(MemoryStorage):
    """A storage with a limited number of bytes."""

    limit: int = 1 << 40

    def used(self) -> int:
        return sum(len(each.data) for each in self._contents.objects.values())

    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        if self.used() + memoryview(data).nbytes > self.limit:
            raise StorageError("no space left", ErrorKind.STORAGE_FULL)
        return super().put(key, data, condition)

    def backup(self, key: str, version: Version, data: Buffer, to: str) -> None:
        self.put(to, data)

    def with_settings(self, settings: StorageSettings) -> FullStorage:
        return self


def test_a_full_storage_can_be_collected() -> None:
    """Backups that the collection would delete last make room for its record and the new `repo`."""
    storage = FullStorage()
    repo = frazil.Repository.create(storage, frazil.RepositoryConfig(inline_chunk_threshold_bytes=0))
    for number in range(30):
        with repo.transaction("main", message=str(number)) as store:
            zarr.create_array(store, name="x", shape=(400,), dtype="i8", compressors=None, overwrite=True)[
                :
            ] = number + 1
    log = [each.updated_at for each in repo.ops_log()]
    time.sleep(0.01)
    repo.expire_snapshots(datetime.now(UTC))
    storage.limit = storage.used()
    with pytest.raises(StorageError, match="no space"), repo.transaction("main", message="late") as store:
        zarr.create_group(store, path="g")
    summary = repo.garbage_collect(datetime.now(UTC) + timedelta(days=1))
    assert summary.chunks_deleted == 29
    assert summary.backups_deleted > 20
    assert summary.backup_bytes_deleted > 0
    repo = frazil.Repository.open(storage)
    assert repo.upkeep.verify("checksum").ok
    assert [each.updated_at for each in repo.ops_log()][2:] == log
    assert zarr.open_array(repo.readonly_session("main").store, path="x", mode="r")[0] == 30


def removed_versions() -> MemoryStorage:
    """Versions that expired, that lost their branch, and that never were."""
    storage = MemoryStorage()
    repo = frazil.Repository.create(storage, CONFIG)
    for number in range(5):
        with repo.transaction("main", message=str(number)) as store:
            array = zarr.create_array(
                store, name="x", shape=(4,), chunks=(2,), dtype="i4", compressors=None, overwrite=True
            )
            array[:] = number + 1
    repo.upkeep.retain(frazil.Retention(last=2)).apply()
    repo.create_branch("dev", repo.lookup_branch("main"))
    with repo.transaction("dev", message="dev") as store:
        zarr.open_array(store, path="x")[:2] = 7
    repo.delete_branch("dev")
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="x")[:] = 9
    session.workspace.writer.flush()
    return storage


def test_the_list_is_what_is_deleted() -> None:
    storage = removed_versions()
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    assert frazil.Repository.open(storage, CONFIG).garbage_collect(hour_ago).bytes_deleted == 0
    before = {info.key for info in storage.list("")}
    files = frazil.Repository.open(storage, CONFIG).garbage_collect(TOMORROW, dry_run=True).files
    assert {info.key for info in storage.list("")} == before
    summary = frazil.Repository.open(storage, CONFIG).garbage_collect(TOMORROW)
    assert before - {info.key for info in storage.list("")} == {file.key for file in files}
    assert len(summary.files) == 0
    assert sum(file.size_bytes for file in files if file.kind != "backups") == summary.bytes_deleted
    assert files[0] == next(iter(files))
    assert files[-1] == list(files)[-1] == files[len(files) - 1 :][0]
    with pytest.raises(IndexError):
        files[len(files)]


def test_reasons() -> None:
    repo = frazil.Repository.open(removed_versions(), CONFIG)
    files = repo.garbage_collect(TOMORROW, dry_run=True).files
    reasons = Counter((file.kind, file.reason) for file in files if file.kind != "backups")
    expired, dev, lost = GarbageReason.EXPIRED, GarbageReason.UNREACHABLE, GarbageReason.UNREFERENCED
    assert reasons == {
        ("snapshots", expired): 3,
        ("snapshots", dev): 1,
        ("transaction_logs", dev): 1,
        ("manifests", expired): 3,
        ("manifests", dev): 1,
        ("chunks", expired): 3,
        ("chunks", dev): 1,
        ("chunks", lost): 1,
    }
    assert isinstance(files, GarbageFiles)
    assert files.count_by_reason()[expired] == 9
    assert "files: <" in repr(repo.garbage_collect(TOMORROW, dry_run=True))


@pytest.mark.parametrize("folder", ["snapshots", "manifests"])
def test_garbage_that_is_damaged_is_listed(folder: str) -> None:
    storage = removed_versions()
    whole = frazil.Repository.open(storage, CONFIG).garbage_collect(TOMORROW, dry_run=True).files
    for file in whole:
        if file.kind == folder:
            storage.put(file.key, b"damaged")
    damaged = copy_of(storage)
    files = frazil.Repository.open(damaged, CONFIG).garbage_collect(TOMORROW, dry_run=True).files
    assert {file.key for file in files} >= {file.key for file in whole if file.kind != "backups"}


def test_progress_counts_all_steps_and_bytes() -> None:
    progress = Progress("collect", 0, io.StringIO())
    summary = frazil.Repository.open(removed_versions(), CONFIG).garbage_collect(TOMORROW, progress=progress)
    assert progress.total == progress.done > 8
    assert progress.bytes == summary.bytes_deleted + summary.backup_bytes_deleted


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


@pytest.mark.parametrize(
    ("options", "error"),
    [
        *((each, InvalidInputError) for each in ({}, {"last": 0}, {"last": -1})),
        *(({"last": each}, TypeError) for each in (True, "3")),
        *(({"newer_than": each}, TypeError) for each in (3, datetime(2020, 1, 1))),
    ],
)
def test_wrong_values(options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
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
