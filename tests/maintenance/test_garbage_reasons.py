"""What a dry run lists: every file that a collection would delete, with the reason."""

from __future__ import annotations

import io
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
import zarr
from tests.maintenance.test_in_use import CONFIG, TOMORROW
from tests.repository.version_1 import copy_of

import frazil
from frazil.maintenance.plan import GarbageFiles
from frazil.ops import GarbageReason
from frazil.pipeline import Progress
from frazil.storage.memory import MemoryStorage


def littered() -> MemoryStorage:
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
    storage = littered()
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
    repo = frazil.Repository.open(littered(), CONFIG)
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
    storage = littered()
    whole = frazil.Repository.open(storage, CONFIG).garbage_collect(TOMORROW, dry_run=True).files
    for file in whole:
        if file.kind == folder:
            storage.put(file.key, b"damaged")
    damaged = copy_of(storage)
    files = frazil.Repository.open(damaged, CONFIG).garbage_collect(TOMORROW, dry_run=True).files
    assert {file.key for file in files} >= {file.key for file in whole if file.kind != "backups"}


def test_progress_counts_all_steps_and_bytes() -> None:
    progress = Progress("collect", 0, io.StringIO())
    summary = frazil.Repository.open(littered(), CONFIG).garbage_collect(TOMORROW, progress=progress)
    assert progress.total == progress.done > 8
    assert progress.bytes == summary.bytes_deleted + summary.backup_bytes_deleted
