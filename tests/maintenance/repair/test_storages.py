"""An overlay answers as the storage would after the writes. A file is put aside before it is replaced."""

from __future__ import annotations

from typing import Any, override

import pytest
from tests.support.faulty_storage import Fault, FaultyStorage

from frazil.errors import ConflictError, ErrorKind, StorageError
from frazil.maintenance.repair.storages import Overlay, Quarantine
from frazil.storage.base import ALWAYS, Condition
from frazil.storage.memory import MemoryStorage
from frazil.testing.storage_suite import StorageSuite


class TestContract(StorageSuite):
    @override
    @pytest.fixture
    def storage(self) -> Any:
        return Overlay(MemoryStorage())


def test_writes_links_and_deletions() -> None:
    base, other = MemoryStorage(), MemoryStorage()
    for name in ("a", "b", "c"):
        base.put(f"d/{name}", b"base")
    other.put("far", b"other")
    overlay = Overlay(base)
    overlay.put("d/a", b"new")
    overlay.link("d/b", other, "far")
    overlay.delete(["d/c"])
    assert {each.key: bytes(overlay.get(each.key)) for each in overlay.list("d")} == {
        "d/a": b"new",
        "d/b": b"other",
    }
    assert overlay.head("d/c") is None
    with pytest.raises(StorageError):
        overlay.get("d/c")
    assert {bytes(base.get(each.key)) for each in base.list("")} == {b"base"}
    assert len(list(base.list(""))) == 3


def storage_with(data: bytes) -> MemoryStorage:
    storage = MemoryStorage()
    storage.put("chunks/A", data)
    return storage


def test_a_file_that_changes_meanwhile_is_not_overwritten() -> None:
    inner = storage_with(b"bad")

    class Racing(FaultyStorage):
        def put(self, key: str, data: Any, condition: Condition = ALWAYS) -> Any:
            if key == "chunks/A":
                inner.put(key, b"another writer")
            return super().put(key, data, condition)

    with pytest.raises(ConflictError) as error:
        Quarantine.new().replace_file(Racing(inner, lambda key, condition: None), "chunks/A", b"good")
    assert error.value.kind == ErrorKind.REPO_INFO_UPDATED
    assert bytes(inner.get("chunks/A")) == b"another writer"


def test_a_write_that_met_itself_is_done() -> None:
    inner = storage_with(b"bad")
    storage = FaultyStorage(inner, lambda key, condition: Fault.MET_ITSELF)
    assert Quarantine("quarantine/t").replace_file(storage, "chunks/A", b"good")
    assert bytes(inner.get("chunks/A")) == b"good"
