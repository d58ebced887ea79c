"""What a commit stores, in which order, and on its way together; what it need not read again."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.support.patience import patience

import frazil
from frazil.errors import StorageError
from frazil.handle.repository import Repository
from frazil.repository.session import commit_files as uploads
from frazil.repository.session.commit_files import uploading
from frazil.storage.memory import MemoryStorage
from frazil.testing import Fault, FaultyStorage


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


@pytest.fixture(params=[True, False], ids=["local", "remote"])
def storage(request: pytest.FixtureRequest) -> frazil.Storage:
    storage = MemoryStorage()
    storage.is_local = request.param
    return storage


def stored(storage: frazil.Storage) -> dict[str, Any]:
    return {info.key: bytes(storage.get(info.key)) for info in storage.list("")}


@pytest.mark.parametrize("count", [1, 2, 9])
def test_all_is_stored_at_the_end_of_the_block(
    storage: frazil.Storage, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "_TOGETHER", 20)
    done = []
    files = {f"f/{n}": b"%d" % n * 7 for n in range(count)}
    with uploading(storage) as block:
        block.run(lambda: done.append(1))
        assert block.put([(key, partial(bytes, data)) for key, data in files.items()]) == [7] * count
        assert block.put([("last", lambda: b"last")]) == [4]
        block.run(lambda: done.append(2))
    assert sorted(done) == [1, 2]
    assert stored(storage) == files | {"last": b"last"}


def test_many_files_are_encoded_side_by_side(storage: frazil.Storage) -> None:
    together = threading.Barrier(3)

    def encode() -> bytes:
        together.wait(patience(10))
        return b"x"

    with uploading(storage) as block:
        assert block.put([(str(n), encode) for n in range(3)]) == [1, 1, 1]


@pytest.mark.parametrize("count", [1, 5])
def test_the_error_of_encoding_is_raised(storage: frazil.Storage, count: int) -> None:
    def fail() -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), uploading(storage) as block:
        block.put([(str(n), fail) for n in range(count)])
    assert stored(storage) == {}


def test_errors_of_actions_and_of_the_storage_are_raised(storage: frazil.Storage) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), uploading(storage) as block:
        block.run(fail)
    faulty = FaultyStorage(storage, lambda key, _: Fault.LOST if key == "b" else None)
    with pytest.raises(StorageError, match="put `b` was lost"), uploading(faulty) as block:
        block.put([(key, key.encode) for key in "abc"])
