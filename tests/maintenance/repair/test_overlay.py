"""An overlay answers as the storage would after the writes, and the storage below never changes."""

from __future__ import annotations

from typing import Any, override

import pytest

from frazil.errors import StorageError
from frazil.maintenance.repair.storages import Overlay
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
