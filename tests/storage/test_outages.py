"""A request that fails for a moment, and an answer that is cut off, are no damage: nothing is repaired."""

from __future__ import annotations

from collections.abc import Buffer
from functools import cache
from typing import Any, override

import pytest
import zarr
from tests.repository.version_1 import copy_of
from tests.support.faulty_storage import FaultyStorage

import frazil
from frazil.errors import ErrorKind, StorageError
from frazil.maintenance.repair.storages import read_present
from frazil.storage.base import Version
from frazil.storage.checks import is_outage
from frazil.storage.memory import MemoryStorage

repair = frazil.Repository.upkeep.repair


class Outage(FaultyStorage):
    """A storage that does not answer reads of some keys. With ``short``, it returns half of their bytes."""

    def __init__(self, inner: MemoryStorage, prefix: str, *, short: bool = False) -> None:
        super().__init__(inner, lambda key, condition: None)
        self.prefix, self.short = prefix, short

    def _answer(self, key: str, data: Buffer) -> Buffer:
        if not key.startswith(self.prefix):
            return data
        if not self.short:
            raise StorageError(f"slow down: {key}", ErrorKind.THROTTLED)
        return memoryview(data)[: memoryview(data).nbytes // 2]

    @override
    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        return self._answer(key, super().get(key, start, stop))

    @override
    def get_versioned(self, key: str) -> tuple[Buffer, Version]:
        data, version = super().get_versioned(key)
        return self._answer(key, data), version


@cache
def original() -> MemoryStorage:
    storage = MemoryStorage()
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0, packing=frazil.PackingConfig(enabled=False)
    )
    repo = frazil.Repository.create(storage, config)
    for number in range(3):
        with repo.transaction("main", message=str(number)) as store:
            if number == 0:
                zarr.create_array(store, name="a", shape=(3,), chunks=(1,), dtype="i4", compressors=None)
            zarr.open_array(store, path="a")[number] = 5
    return storage


def objects(storage: Any) -> dict[str, bytes]:
    return {each.key: bytes(storage.get(each.key)) for each in storage.list("")}


@pytest.mark.sample(4)
@pytest.mark.parametrize("short", [False, True], ids=["no answer", "a short answer"])
@pytest.mark.parametrize("folder", ["snapshots", "manifests", "transactions", "chunks"])
def test_a_file_that_is_not_read_stays(folder: str, short: bool) -> None:
    inner = copy_of(original())
    key = max(each.key for each in inner.list(folder) if not each.key.endswith("1CECHNKREP0F1RSTCMT0"))
    storage = Outage(inner, key, short=short)
    before = objects(inner)
    plan = repair(storage, copies=[original()], level="checksum", lost="fill").apply()
    assert not plan.steps
    assert not plan.lost
    assert not plan.complete
    checks = {each.check for each in plan.findings}
    assert "unavailable" in checks
    assert checks <= {"unavailable", "checksum"}
    assert objects(inner) == before
    assert repair(inner, level="checksum").ok


@pytest.mark.parametrize("short", [False, True], ids=["no answer", "a short answer"])
def test_repo_is_not_restored(short: bool) -> None:
    inner = copy_of(original())
    before = objects(inner)
    storage = Outage(inner, "repo", short=short)
    for call in (
        lambda: repair(storage).apply(),
        lambda: frazil.Repository.upkeep.restore(storage).apply(),
        lambda: read_present(storage, "repo"),
        lambda: frazil.Repository.open(storage),
    ):
        with pytest.raises(StorageError) as error:
            call()
        assert is_outage(error.value)
    assert objects(inner) == before


@pytest.mark.parametrize("short", [False, True], ids=["no answer", "a short answer"])
def test_the_newest_backup_is_not_passed_over(short: bool) -> None:
    inner = copy_of(original())
    inner.delete(["repo"])
    newest = min(each.key for each in inner.list("overwritten"))
    before = objects(inner)
    for call in (frazil.Repository.upkeep.restore, repair):
        with pytest.raises(StorageError, match=r"slow down|has .* bytes"):
            call(Outage(inner, newest, short=short)).apply()
    assert objects(inner) == before


def test_a_lost_commit_waits_for_an_answer() -> None:
    inner = copy_of(original())
    inner.delete(["repo"])
    with pytest.raises(StorageError, match="slow down"):
        repair(Outage(inner, "transactions")).apply()
    assert [each.action for each in repair(inner).steps] == ["restore", "relist"]


def test_a_verification_says_what_the_storage_did_not_return() -> None:
    inner = copy_of(original())
    report = frazil.Repository.open(inner).upkeep.verify("checksum")
    assert report.ok
    storage = Outage(inner, "chunks")
    report = frazil.Repository.open(storage).upkeep.verify("checksum")
    assert {(each.check, each.severity.value) for each in report.findings} == {("unavailable", "warning")}
    assert not report.ok
