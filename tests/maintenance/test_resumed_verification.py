"""Verifications that continue an earlier one, and their progress."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import frazil
from frazil.pipeline import Progress
from frazil.storage.memory import MemoryStorage
from frazil.survey import survey


def small() -> frazil.Repository:
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0, packing=frazil.PackingConfig(enabled=False)
    )
    repo = frazil.Repository.create(frazil.in_memory_storage(), config)
    for value in range(3):
        with repo.transaction("main", message=f"{value}") as store:
            if not value:
                zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4", compressors=None)
            zarr.open_array(store, path="t")[:] = value + np.arange(4)
    return repo


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    requested: list[str] = []
    get = MemoryStorage.get

    def counted(storage: MemoryStorage, key: str, *args: Any) -> Any:
        requested.append(key)
        return get(storage, key, *args)

    monkeypatch.setattr(MemoryStorage, "get", counted)
    return requested


def of_folder(reads: list[str], *folders: str) -> list[str]:
    return [key for key in reads if key.startswith(folders)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("level", ["metadata", "exists", "checksum", "decode"])
def test_a_second_run_reads_only_new_files(level: Any, reads: list[str], tmp_path: Path) -> None:
    repo = small()
    place = tmp_path / "state"
    first = repo.upkeep.verify(level, state=place)
    assert first.ok
    assert first.resumed == 0
    reads.clear()
    again = repo.upkeep.verify(level, state=str(place))
    assert again.resumed == len(frazil.VerificationState(place)) > 0
    assert not of_folder(reads, "manifests/", "chunks/")
    assert (again.bytes_read, again.references) == (first.bytes_read, first.references)
    with repo.transaction("main", message="more") as store:
        zarr.open_array(store, path="t")[:] = 9
    reads.clear()
    assert repo.upkeep.verify(level, state=place).ok
    new = {"metadata": 0, "exists": 0, "checksum": 2, "decode": 2}[level]
    assert len(set(of_folder(reads, "chunks/"))) == new
    # The manifest before is read for the comparison with the log.
    assert len(set(of_folder(reads, "manifests/"))) == 2


def test_other_storages_and_levels_are_other_pieces(tmp_path: Path) -> None:
    state = frazil.VerificationState(tmp_path / "state")
    repo = small()
    assert repo.upkeep.verify("exists", state=state).ok
    assert repo.upkeep.verify("checksum", state=state).bytes_read == 3 * 16


def test_an_interrupted_run_continues(monkeypatch: pytest.MonkeyPatch, reads: list[str]) -> None:
    repo, state = small(), frazil.VerificationState()
    get = MemoryStorage.get

    def interrupted(storage: MemoryStorage, key: str, *args: Any) -> Any:
        if len(set(of_folder(reads, "chunks/"))) == 3:
            raise KeyboardInterrupt
        return get(storage, key, *args)

    monkeypatch.setattr(MemoryStorage, "get", interrupted)
    monkeypatch.setattr(survey, "_ITEMS", 1)
    with pytest.raises(KeyboardInterrupt):
        repo.upkeep.verify("checksum", state=state)
    monkeypatch.setattr(MemoryStorage, "get", get)
    reads.clear()
    assert repo.upkeep.verify("checksum", state=state).ok
    assert 0 < len(set(of_folder(reads, "chunks/"))) < 6


def test_a_damaged_result_is_computed_again() -> None:
    repo, state = small(), frazil.VerificationState()
    assert repo.upkeep.verify("exists", state=state).ok
    state._database.execute("UPDATE pieces SET result = x'00'")
    assert repo.upkeep.verify("exists", state=state).ok
    state.close()


def test_progress_counts_all_tasks() -> None:
    bar, again = (Progress("verify", 0, io.StringIO()) for _ in range(2))
    repo, state = small(), frazil.VerificationState()
    assert repo.upkeep.verify("checksum", progress=bar, state=state).ok
    assert bar.done == bar.total > 4
    repo.upkeep.verify("checksum", progress=again, state=state)
    assert 0 < again.done == again.total < bar.total


def test_damage_is_seen_by_each_later_run() -> None:
    repo, state = small(), frazil.VerificationState()
    assert repo.upkeep.verify("checksum", state=state).ok
    files = {each.key: bytes(repo.storage.get(each.key)) for each in repo.storage.list("chunks")}
    lost, short, changed, *_ = sorted(files)
    repo.storage.delete([lost])
    repo.storage.put(short, b"")
    repo.storage.put(changed, bytes([files[changed][0] ^ 1]) + files[changed][1:])
    for _ in range(2):
        seen = {(each.check, each.key) for each in repo.upkeep.verify("checksum", state=state).problems}
        assert seen == {("missing", lost), ("short", short), ("checksum", changed)}
    for key in (lost, short, changed):
        repo.storage.put(key, files[key])
    assert repo.upkeep.verify("checksum", state=state).ok
