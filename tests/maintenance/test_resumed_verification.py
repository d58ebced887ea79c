"""Verifications that continue an earlier one, and their progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import frazil
from frazil.errors import InvalidInputError
from frazil.maintenance.verification import pieces
from frazil.storage.memory import MemoryStorage


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


def test_damage_is_seen_again_in_a_second_run() -> None:
    repo, state = small(), frazil.VerificationState()
    lost = min(each.key for each in repo.storage.list("chunks"))
    data = repo.storage.get(lost)
    repo.storage.delete([lost])
    for _ in range(2):
        assert [each.key for each in repo.upkeep.verify("checksum", state=state).problems] == [lost]
    repo.storage.put(lost, data)
    assert repo.upkeep.verify("checksum", state=state).ok


def test_files_that_are_lost_later_are_seen_by_a_second_run() -> None:
    repo, state = small(), frazil.VerificationState()
    assert repo.upkeep.verify("decode", state=state).ok
    lost, short, *_ = sorted(each.key for each in repo.storage.list("chunks"))
    repo.storage.delete([lost])
    repo.storage.put(short, b"")
    seen = {(each.check, each.key) for each in repo.upkeep.verify("decode", state=state).problems}
    assert seen == {("missing", lost), ("short", short)}


def test_other_storages_and_levels_are_other_pieces(tmp_path: Path) -> None:
    state = frazil.VerificationState(tmp_path / "state")
    repo = small()
    assert repo.upkeep.verify("exists", state=state).ok
    assert repo.upkeep.verify("checksum", state=state).bytes_read == 3 * 16


def test_an_interrupted_run_continues(monkeypatch: pytest.MonkeyPatch, reads: list[str]) -> None:
    repo, state = small(), frazil.VerificationState()
    read_rows, calls = pieces.read_rows, []

    def interrupted(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return read_rows(*args)

    monkeypatch.setattr(pieces, "read_rows", interrupted)
    monkeypatch.setattr(pieces, "_ITEMS", 1)
    with pytest.raises(KeyboardInterrupt):
        repo.upkeep.verify("checksum", state=state)
    monkeypatch.setattr(pieces, "read_rows", read_rows)
    done = len(set(of_folder(reads, "chunks/")))
    reads.clear()
    assert repo.upkeep.verify("checksum", state=state).ok
    assert len(set(of_folder(reads, "chunks/"))) == 6 - done < 6


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "state"
    place.write_bytes(b"this is another file" * 200)
    with pytest.raises(InvalidInputError, match="state must be a new file") as caught:
        small().upkeep.verify(state=place)
    assert caught.value.kind == "invalid-argument"


def test_a_damaged_result_is_computed_again() -> None:
    repo, state = small(), frazil.VerificationState()
    assert repo.upkeep.verify("exists", state=state).ok
    state._database.execute("UPDATE pieces SET result = x'00'")
    assert repo.upkeep.verify("exists", state=state).ok
    state.close()


class Bar:
    def __init__(self) -> None:
        self.total = self.done = 0

    def expect(self, tasks: int) -> None:
        self.total += tasks

    def advance(self) -> None:
        self.done += 1


def test_progress_counts_all_tasks() -> None:
    repo, bar, state = small(), Bar(), frazil.VerificationState()
    assert repo.upkeep.verify("checksum", progress=bar, state=state).ok
    assert bar.done == bar.total > 4
    again = Bar()
    repo.upkeep.verify("checksum", progress=again, state=state)
    assert 0 < again.done == again.total < bar.total


def test_chunk_files_that_change_are_read_again() -> None:
    repo, state = small(), frazil.VerificationState()
    assert repo.upkeep.verify("checksum", state=state).ok
    key = min(each.key for each in repo.storage.list("chunks"))
    data = bytes(repo.storage.get(key))
    repo.storage.put(key, bytes([data[0] ^ 1]) + data[1:])
    assert [each.key for each in repo.upkeep.verify("checksum", state=state).problems] == [key]
