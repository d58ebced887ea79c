"""A file is put aside before it is replaced, and another writer's file is never overwritten."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.errors import ConflictError, ErrorKind
from frazil.maintenance.repair.storages import Quarantine
from frazil.storage.base import ALWAYS, Condition
from frazil.storage.memory import MemoryStorage
from frazil.testing import Fault, FaultyStorage


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
