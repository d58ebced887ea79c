"""What a commit stores, in which order, and what it need not read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.support.faulty_storage import Fault, FaultyStorage

import frazil
from frazil.errors import StorageError
from frazil.handle.repository import Repository
from frazil.storage.memory import MemoryStorage


def repository() -> Any:
    """A repository with an array of eight chunks, one of them there; and its storage."""
    storage = FaultyStorage(MemoryStorage(), lambda key, condition: None)
    repo = Repository.create(storage)
    session = repo.writable_session("main")
    array = zarr.create_array(
        session.store, name="a", shape=(8000,), chunks=(1000,), dtype="i4", compressors=None
    )
    array[:1000] = 1
    session.commit("one chunk")
    return repo, storage


def write(session: frazil.Session, start: int, value: int) -> None:
    zarr.open_array(session.store, path="a")[start : start + 1000] = value


@pytest.mark.parametrize("folder", ["chunks/", "manifests/", "snapshots/", "transactions/"])
def test_nothing_is_committed_while_a_file_is_missing(folder: Path) -> None:
    repo, storage = repository()
    before = repo.lookup_branch("main")
    session = repo.writable_session("main")
    write(session, 1000, 2)
    storage.puts.clear()
    storage.choose = lambda key, condition: Fault.LOST if key.startswith(folder) else None
    with pytest.raises(StorageError, match="injected"):
        session.commit("not to be")
    assert "repo" not in storage.puts
    assert repo.lookup_branch("main") == before
    storage.choose = lambda key, condition: None
    session.commit("now")
    fresh = zarr.open_array(Repository.open(storage).readonly_session("main").store, path="a")
    assert fresh[1000] == 2


def test_a_new_manifest_is_not_read() -> None:
    repo, storage = repository()
    for number in range(1, 8):
        session = repo.writable_session("main")
        write(session, number * 1000, number + 1)
        storage.gets.clear()
        session.commit(f"chunk {number}")
        assert not [key for key in storage.gets if key.startswith("manifests/")]
    stored = Repository.open(storage)
    for reader in (repo, stored):
        array = zarr.open_array(reader.readonly_session("main").store, path="a")
        assert np.array_equal(array[:], np.repeat(np.arange(1, 9), 1000))
