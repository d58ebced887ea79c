"""A lost or damaged ``repo`` comes back from a backup, and after it the versions that came later."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr
from tests.maintenance.schedules import Interrupted, Schedule
from tests.maintenance.test_in_use import opened_by_two
from tests.repository.version_1 import copy_of
from tests.support.errors import of_kind

import frazil
from frazil.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    FormatError,
    InvalidInputError,
    RepositoryNotFoundError,
    SnapshotNotFoundError,
    StorageError,
)
from frazil.format.envelope import FileType, open_envelope, seal
from frazil.storage.memory import MemoryStorage

REPO = frazil.Repository


def commit(repo: Any, n: int, branch: str = "main") -> str:
    session = repo.writable_session(branch)
    if n == 0:
        zarr.create_array(session.store, name="x", shape=(16,), chunks=(1,), dtype="i4", compressors=None)
    else:
        zarr.open_array(session.store, path="x")[n] = n
    id_: str = session.commit(str(n))
    return id_


def repository(storage: Any, commits: int = 3) -> frazil.Repository:
    repo = REPO.create(storage)
    for n in range(commits):
        commit(repo, n)
    return repo


def messages(storage: Any, branch: str = "main") -> list[str]:
    return [entry.message for entry in REPO.open(storage).ancestry(branch=branch)]


def damage(storage: MemoryStorage, how: str) -> None:
    data = bytes(storage.get("repo"))
    storage.delete(["repo"])
    if how == "cut":
        storage.put("repo", data[: len(data) // 2])
    if how == "empty":
        storage.put("repo", b"")
    if how == "flipped":
        storage.put("repo", data[:-9] + bytes([data[-9] ^ 16]) + data[-8:])


@pytest.mark.parametrize("how", ["lost", "cut", "empty", "flipped"])
def test_restore_and_undo(how: str) -> None:
    storage = MemoryStorage()
    handle = repository(storage)
    tip = handle.lookup_branch("main")
    damage(storage, how)
    newest = REPO.upkeep.backups(storage)[0].name
    for use in (lambda: REPO.open(storage), handle.list_branches, lambda: commit(handle, 5)):
        with pytest.raises((FormatError, RepositoryNotFoundError)) as error:
            use()
        assert newest in str(error.value)
        assert "frazil.Repository.upkeep.restore(storage).apply()" in str(error.value)
    before = copy_of(storage)
    plan = REPO.upkeep.restore(storage)
    planned = plan.report
    assert json.loads(json.dumps(plan.as_dict()))["unlisted"][0]["id"] == tip
    assert {info.key: bytes(storage.get(info.key)) for info in storage.list("")} == {
        info.key: bytes(before.get(info.key)) for info in before.list("")
    }
    done = REPO.upkeep.restore(storage).apply()
    assert planned == done
    assert [entry.id for entry in done.unlisted] == [tip]
    assert (done.missing, done.backup) == ((), newest)
    assert messages(storage) == ["1", "0", "Repository initialized"]
    if how != "lost":  # what was there is kept
        assert any(not _can_be_read(storage, each.name) for each in REPO.upkeep.backups(storage))
    # The lost commit, on the branch where it was.
    repo = REPO.open(storage)
    assert repo.upkeep.recover(tip, "main") == tip
    assert messages(storage) == ["2", "1", "0", "Repository initialized"]
    commit(repo, 4)
    assert frazil.read(repo.readonly_session("main"), "x")[:5].tolist() == [0, 1, 2, 0, 4]
    kinds = [type(update.kind).__name__ for update in repo.ops_log()]
    assert kinds[:4] == ["NewCommit", "NewCommit", "BranchReset", "NewCommit"]
    assert kinds[-1] == "RepoInitialized"


def _can_be_read(storage: MemoryStorage, name: str) -> bool:
    try:
        assert REPO.upkeep.restore(storage, name).report
    except FormatError:
        return False
    return True


def test_as_a_new_branch() -> None:
    storage = MemoryStorage()
    repository(storage)
    report = REPO.upkeep.restore(storage, REPO.upkeep.backups(storage)[1].name, overwrite=True).apply()
    assert messages(storage) == ["0", "Repository initialized"]
    repo = REPO.open(storage)
    assert [entry.message for entry in report.unlisted] == ["1", "2"]
    for entry in report.unlisted:
        repo.upkeep.recover(entry.id, "found")
    assert messages(storage, "found") == ["2", "1", "0", "Repository initialized"]
    with pytest.raises(AlreadyExistsError):
        repo.upkeep.recover(report.unlisted[0].id, "again")
    with pytest.raises(SnapshotNotFoundError):
        repo.upkeep.recover("0" * 20, "again")


def test_a_whole_repository_is_not_replaced() -> None:
    storage = MemoryStorage()
    repository(storage)
    with pytest.raises(AlreadyExistsError, match="overwrite=True"):
        REPO.upkeep.restore(storage).apply()
    assert len(messages(storage)) == 4


@pytest.mark.parametrize("place", ["header", "field"])
def test_a_later_format_is_no_damage(place: str) -> None:
    """Its chunk files may have another layout, so only ``repo`` is read. The error says what to do."""
    storage = MemoryStorage()
    repo = repository(storage)
    data = bytearray(storage.get("repo"))
    if place == "header":
        data[36] = 3
    else:
        payload = bytearray(open_envelope(bytes(data), FileType.REPO_INFO)[1])
        table = int.from_bytes(payload[:4], "little")
        vtable = table - int.from_bytes(payload[table : table + 4], "little", signed=True)
        field = table + int.from_bytes(payload[vtable + 4 : vtable + 6], "little")
        assert payload[field] == 2
        payload[field] = 3
        data = bytearray(seal([bytes(payload)], FileType.REPO_INFO, spec_version=2))
    storage.put("repo", bytes(data))
    assert REPO.exists(storage)
    acts: list[Callable[[MemoryStorage], object]] = [
        REPO.open,
        REPO.open_or_create,
        REPO.fetch_config,
        lambda storage: REPO.open_session(storage, "main"),
        lambda storage: REPO.upkeep.restore(storage).apply(),
        lambda storage: repo.upkeep.doctor(),
        lambda storage: repo.readonly_session("main"),
        lambda storage: repo.create_tag("new", repo.lookup_branch("main")),
    ]
    for act in acts if place == "field" else [REPO.fetch_spec_version, *acts]:
        with pytest.raises(FormatError, match=r"spec version 3.*1 and 2: update Frazil") as error:
            act(storage)
        assert error.value.kind == ErrorKind.UNSUPPORTED_SPEC_VERSION
        assert "restore" not in str(error.value)
    assert not repo.upkeep.verify().ok


def test_nothing_to_restore_from() -> None:
    storage = MemoryStorage()
    with pytest.raises(RepositoryNotFoundError):
        REPO.upkeep.restore(storage).apply()
    REPO.create(storage)
    damage(storage, "cut")
    with pytest.raises(FormatError) as error:
        REPO.open(storage)
    assert "restore" not in str(error.value)
    with pytest.raises(RepositoryNotFoundError):
        REPO.upkeep.restore(storage).apply()
    with pytest.raises(StorageError, check=of_kind(ErrorKind.OBJECT_NOT_FOUND)):
        REPO.upkeep.restore(storage, "repo.1.A").apply()


def test_the_newest_backups_are_damaged_too() -> None:
    storage = MemoryStorage()
    repository(storage, 12)
    names = [each.name for each in REPO.upkeep.backups(storage)]
    for name in names[:9]:
        storage.put(f"overwritten/{name}", b"damaged")
    damage(storage, "lost")
    assert REPO.upkeep.restore(storage).apply().backup == names[9]
    assert messages(storage)[0] == "1"


def test_backups_of_a_writer_whose_clock_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names sort by clocks; the latest state is what the ops logs say."""
    storage = MemoryStorage()
    repo = repository(storage, 2)
    for info in list(storage.list("overwritten")):  # the first update was made by a clock an hour ahead
        folder, start, random = info.key.split(".")
        if "1CECHNKREP0F1RSTCMT0" not in info.key and len(list(repo.ops_log())) == 3:
            storage.put(f"{folder}.{int(start) - 3_600_000:014d}.{random}", bytes(storage.get(info.key)))
            storage.delete([info.key])
            break
    damage(storage, "lost")
    REPO.upkeep.restore(storage).apply()
    assert messages(storage)[0] == "0"


def test_another_writer_is_first() -> None:
    for step in range(1, 40):
        storage = MemoryStorage()
        repository(storage)
        damage(storage, "cut")

        def act() -> None:
            REPO.upkeep.restore(storage).apply()  # noqa: B023  # used in here
            commit(REPO.open(storage), 5)  # noqa: B023

        seen = Interrupted(storage, step, act)
        try:
            REPO.upkeep.restore(seen).apply()
        except (ConflictError, AlreadyExistsError):
            assert messages(storage)[0] == "5"
        else:
            assert messages(storage)[0] in {"1", "5"}
        if seen.count < step:
            break
        assert messages(storage)[0] == "5"


def test_a_parent_that_is_not_clear() -> None:
    """Two tips from which the lost commit can come."""
    storage = MemoryStorage()
    repo = repository(storage)
    repo.create_branch("dev", repo.lookup_branch("main"))
    other = commit(repo, 3, "dev")
    main = repo.lookup_branch("main")
    lost = commit(repo, 3)
    report = REPO.upkeep.restore(storage, overwrite=True).apply()
    assert [entry.id for entry in report.unlisted] == [lost]
    repo = REPO.open(storage)
    with pytest.raises(InvalidInputError, match="several tips"):
        repo.upkeep.recover(lost, "found")
    repo.upkeep.recover(lost, "found", parent=main)
    assert messages(storage, "found")[1] == "2"
    assert other == repo.lookup_branch("dev")


def test_files_of_a_lost_version_are_gone() -> None:
    storage = MemoryStorage()
    repo = repository(storage)
    lost = commit(repo, 3)
    manifest = repo.list_manifest_files(lost)[0].id
    REPO.upkeep.restore(storage, overwrite=True).apply()
    storage.delete([f"manifests/{manifest}"])
    with pytest.raises(StorageError, match="has lost 1 files"):
        REPO.open(storage).upkeep.recover(lost, "main")


def test_refs_whose_snapshots_are_gone_are_reported() -> None:
    storage = MemoryStorage()
    repo = repository(storage)
    repo.create_tag("v1", repo.lookup_branch("main"))
    tagged = repo.lookup_tag("v1")
    damage(storage, "lost")
    storage.delete([f"snapshots/{tagged}"])
    assert REPO.upkeep.restore(storage).apply().missing == ("main",)


TOMORROW = datetime.now(UTC) + timedelta(days=1)


def restored_after_a_collection(number: int) -> tuple[MemoryStorage, frazil.Repository]:
    """A repository whose ops log takes several files, back at one of the backups that a collection left."""
    storage = MemoryStorage()
    repo = REPO.create(storage, frazil.RepositoryConfig(num_updates_per_repo_info_file=3))
    repo.save_config()
    for n in range(12):
        commit(repo, n)
    repo.garbage_collect(TOMORROW)
    REPO.upkeep.restore(storage, REPO.upkeep.backups(storage)[number].name, overwrite=True).apply()
    return storage, REPO.open(storage)


@pytest.mark.sample(9, 9)
@pytest.mark.deep
@pytest.mark.parametrize("number", range(11))
def test_the_ops_log_after_a_collection_and_a_restore(number: int) -> None:
    """The collection has deleted most backups. Whatever the restored one needs, later updates and collections
    do not need others.
    """
    _, repo = restored_after_a_collection(number)
    before = list(repo.ops_log())
    assert type(before[0].kind).__name__ == "BranchReset"
    assert type(before[-1].kind).__name__ == "RepoInitialized" or len(before) == 4
    times = [update.updated_at for update in before]
    for n in range(4):
        repo.set_metadata({"n": n})
        assert [update.updated_at for update in repo.ops_log()][n + 1 :] == times
    repo.garbage_collect(TOMORROW)
    assert [update.updated_at for update in repo.ops_log()][5:] == times


def test_versions_without_files_are_reported() -> None:
    """They were expired and collected after the backup: only an expiration gets rid of them again."""
    storage = MemoryStorage()
    repo = repository(storage, 5)
    ids = [each.id for each in repo.ancestry(branch="main")]
    before = REPO.upkeep.backups(storage)[0].name
    repo.create_tag("now", ids[0])
    repo.expire_snapshots(TOMORROW)
    repo.garbage_collect(TOMORROW)
    backup = REPO.upkeep.backups(storage)[1]
    assert backup.name != before
    report = REPO.upkeep.restore(storage, backup.name, overwrite=True).apply()
    assert report.missing == ()
    assert set(report.missing_snapshots) == set(ids[1:-1])
    back = REPO.open(storage)
    with pytest.raises(StorageError):
        back.garbage_collect(TOMORROW)
    assert back.expire_snapshots(TOMORROW) == set(ids[1:-1])
    back.garbage_collect(TOMORROW)
    assert [each.id for each in back.ancestry(branch="main")] == [ids[0], ids[-1]]


@pytest.mark.interop
@pytest.mark.parametrize("writer", ["frazil", "icechunk"])
def test_the_reference_goes_on(writer: str, tmp_path: Path) -> None:
    path = str(tmp_path / "repo")
    package: Any = {"frazil": frazil, "icechunk": icechunk}[writer]
    first = package.Repository.create(package.local_filesystem_storage(path))
    for n in range(3):
        commit(first, n)
    tip = first.lookup_branch("main")
    (tmp_path / "repo" / "repo").unlink()
    storage = frazil.local_filesystem_storage(path)
    report = REPO.upkeep.restore(storage).apply()
    REPO.open(storage).upkeep.recover(tip, "main")
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(path))
    assert [entry.message for entry in theirs.ancestry(branch="main")][:3] == ["2", "1", "0"]
    commit(theirs, 5)
    assert messages(storage)[0] == "5"
    assert len(list(theirs.ops_log())) == len(list(REPO.open(storage).ops_log())) >= 5
    assert report.unlisted[0].id == tip


def recovered(order: list[int]) -> tuple[Schedule, Any]:
    """A snapshot is recovered while garbage is collected, with no limit; what became of it."""
    storage = MemoryStorage()
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = REPO.create(storage, config)
    for n in range(3):
        commit(repo, n)
    lost = repo.lookup_branch("main")
    damage(storage, "lost")
    REPO.upkeep.restore(storage).apply()
    schedule = Schedule(order)
    one, other = opened_by_two(storage, schedule, config)
    done, collected = schedule.run(
        lambda: one.upkeep.recover(lost, "main"), lambda: other.garbage_collect(TOMORROW)
    )
    assert isinstance(collected, frazil.GCSummary), collected
    store = REPO.open(storage, config).readonly_session("main").store
    array = zarr.open_array(store, path="x", mode="r")
    assert np.asarray(array[:4]).tolist() == [0, 1, 2 if done == lost else 0, 0]
    return schedule, done


@pytest.mark.deep
@pytest.mark.parametrize("first", [0, 1])
def test_a_snapshot_is_recovered_between_any_two_requests_of_a_collection(first: int) -> None:
    ends = set()
    for cut in range(200):
        schedule, done = recovered([first] * cut + [1 - first] * 200)
        ends.add(getattr(done, "kind", "recovered"))
        if [actor for actor, _ in schedule.requests].count(first) <= cut:
            break
    allowed = {
        "recovered",
        ErrorKind.GARBAGE_COLLECTION_RUNNING,
        ErrorKind.SNAPSHOT_NOT_FOUND,
        ErrorKind.OBJECT_NOT_FOUND,
    }
    assert "recovered" in ends <= allowed
