"""Versions of a repository: the logs of expired versions are read once, and for versions that stay."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
import zarr

import frazil
from frazil.format.ids import id_to_text
from frazil.handle.repository import context_of
from frazil.storage.memory import MemoryStorage


@pytest.fixture(scope="module")
def repo() -> frazil.Repository:
    """Branches and a version without a branch, and expired versions that all of them have."""
    repo = frazil.Repository.create(MemoryStorage(), frazil.RepositoryConfig(inline_chunk_threshold_bytes=0))
    with repo.transaction("main", message="array") as store:
        zarr.create_array(store, name="a", shape=(8,), chunks=(1,), dtype="i4")
    for number in range(2):
        write(repo, "main", number)
    tip = repo.lookup_branch("main")
    for branch in ("b", "d"):
        repo.create_branch(branch, tip)
        write(repo, branch, 6)
    limit = datetime.now(UTC)
    for branch in ("main", "b", "d"):
        write(repo, branch, 7)
    repo.reset_branch("d", tip)
    repo.expire_snapshots(limit + timedelta(microseconds=1))
    return repo


def write(repo: frazil.Repository, branch: str, place: int) -> None:
    with repo.transaction(branch, message=f"number {place}") as store:
        zarr.open_array(store, path="a")[place] = place + 1


def expired_ids(repo: frazil.Repository) -> list[bytes]:
    """Return the ids of the expired versions whose logs other versions need."""
    pruned = context_of(repo).catalog.repo_info().table.pruned()
    assert pruned.lengths.sum() > len(np.unique(pruned.compact().values))
    ids: list[bytes] = np.unique(pruned.compact().values).tolist()
    return ids


def test_each_log_of_an_expired_version_is_read_once(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: Counter[str] = Counter()
    get = MemoryStorage.get

    def counted(storage: MemoryStorage, key: str, *args: Any) -> Any:
        requests[key] += 1
        return get(storage, key, *args)

    monkeypatch.setattr(MemoryStorage, "get", counted)
    assert repo.upkeep.verify().ok
    stays = repo.lookup_branch("d")  # expired in the other branches: read as the log of a version, too
    logs = [f"transactions/{id_to_text(id_)}" for id_ in expired_ids(repo)]
    assert [requests[key] for key in logs] == [1 + key.endswith(stays) for key in logs]


def test_damage_of_the_log_of_an_expired_version_is_a_finding(repo: frazil.Repository) -> None:
    for id_ in expired_ids(repo)[::4]:
        key = f"transactions/{id_to_text(id_)}"
        content = bytes(repo.storage.get(key))
        repo.storage.put(key, b"damage")
        assert {finding.key for finding in repo.upkeep.verify().problems} == {key}
        repo.storage.put(key, content)
