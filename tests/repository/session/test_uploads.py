"""Files of a commit, on their way together."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from tests.support.faulty_storage import Fault, FaultyStorage
from tests.support.patience import patience

import frazil
from frazil.errors import StorageError
from frazil.repository.session import commit_files as uploads
from frazil.repository.session.commit_files import uploading
from frazil.storage.memory import MemoryStorage


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
