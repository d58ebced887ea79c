"""A collection reads what is new, and only that; and it never depends on what earlier collections stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import zarr
from tests.maintenance.test_in_use import CONFIG, TOMORROW, requests_of
from tests.repository.version_1 import copy_of

import frazil
from frazil.storage.memory import MemoryStorage


def commit(repo: frazil.Repository, number: int) -> None:
    with repo.transaction("main", message=str(number)) as store:
        array = zarr.create_array(
            store,
            name=f"a{number % 4}",
            shape=(4,),
            chunks=(2,),
            dtype="i4",
            compressors=None,
            overwrite=True,
        )
        array[:] = number + 1


def litter(repo: frazil.Repository) -> None:
    """Chunks of no version."""
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a0")[:] = 9
    session.workspace.writer.flush()


def commits(count: int, version: int = 2) -> MemoryStorage:
    storage = MemoryStorage()
    repo = frazil.Repository.create(storage, CONFIG, spec_version=version)
    for number in range(count):
        commit(repo, number)
    litter(repo)
    return storage


def counted(storage: MemoryStorage, act: Callable[[frazil.Repository], Any]) -> Counter[str]:
    """How often each folder is read by ``act``."""
    requests = requests_of(frazil.Repository.open(storage, CONFIG), act)
    return Counter(what[4:].partition("/")[0] for what in requests if what.startswith("get "))


def collect(repo: frazil.Repository) -> frazil.GCSummary:
    return repo.garbage_collect(TOMORROW)


@pytest.mark.sample(1)
@pytest.mark.parametrize("version", [1, 2])
def test_a_second_collection_reads_only_what_is_new(version: int) -> None:
    storage = commits(6, version)
    first = counted(storage, collect)
    assert (first["manifests"], first["walks"]) == (6, 0)
    if version == 2:  # version 1 reads snapshots for the history, too
        assert first["snapshots"] == 7
    repo = frazil.Repository.open(storage, CONFIG)
    commit(repo, 6)
    litter(repo)
    second = counted(storage, collect)
    assert (second["manifests"], second["walks"]) == (1, 1)
    if version == 2:
        assert second["snapshots"] == 1
    litter(repo)
    third = counted(storage, collect)
    assert (third["manifests"], third["walks"]) == (0, 1)
    if version == 2:
        assert third["snapshots"] == 0
    assert repo.upkeep.verify("checksum").ok


def test_a_dry_run_reads_and_stores_nothing() -> None:
    storage = commits(4)
    for _ in range(2):
        reads = counted(storage, lambda repo: repo.garbage_collect(TOMORROW, dry_run=True))
        assert (reads["snapshots"], reads["manifests"]) == (5, 4)
    assert not list(storage.list("walks"))
    counted(storage, collect)
    litter(frazil.Repository.open(storage, CONFIG))
    reads = counted(storage, lambda repo: repo.garbage_collect(TOMORROW, dry_run=True))
    assert (reads["snapshots"], reads["manifests"], reads["walks"]) == (0, 0, 1)


def test_versions_that_are_gone_are_forgotten() -> None:
    """Their chunks are deleted, and the object gets smaller."""
    storage = commits(8)
    repo = frazil.Repository.open(storage, CONFIG)
    collect(repo)
    (large,) = storage.list("walks")
    repo.upkeep.retain(frazil.Retention(last=1)).apply()
    assert collect(repo).chunks_deleted == 4
    (small,) = storage.list("walks")
    assert small.size < large.size
    assert repo.upkeep.verify("checksum").ok


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "damage", [b"", b"FRAZWLK1", bytes(300), None], ids=["empty", "magic", "zeros", "half"]
)
def test_a_damaged_object_changes_nothing(damage: bytes | None) -> None:
    """Half of the object, too: a result that lacks files would make their chunks garbage."""
    storage = commits(6)
    collect(frazil.Repository.open(storage, CONFIG))
    repo = frazil.Repository.open(storage, CONFIG)
    commit(repo, 6)
    litter(repo)
    (walk,) = storage.list("walks")
    whole = bytes(storage.get(walk.key))
    storage.put(walk.key, whole[: len(whole) // 2] if damage is None else damage)
    clean = copy_of(storage)
    clean.delete([walk.key])
    summaries = [collect(frazil.Repository.open(each, CONFIG)) for each in (storage, clean)]
    assert summaries[0] == summaries[1]
    assert summaries[0].chunks_deleted == 1
    assert repo.upkeep.verify("checksum").ok
    assert len(list(storage.list("walks"))) == 1


def test_a_storage_that_fails_to_store_it(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = commits(3)
    put = MemoryStorage.put

    def refusing(self: Any, key: str, *args: Any) -> Any:
        if key.startswith("walks/"):
            raise frazil.StorageError("no")
        return put(self, key, *args)

    monkeypatch.setattr(MemoryStorage, "put", refusing)
    assert collect(frazil.Repository.open(storage, CONFIG)).chunks_deleted == 1
    assert not list(storage.list("walks"))
