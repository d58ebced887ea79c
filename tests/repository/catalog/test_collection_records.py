"""Records of collections that were killed, and marks, do not stay for ever."""

from __future__ import annotations

import pytest

from frazil.repository.catalog.collection_guard import COLLECTIONS, announce, delete_killed_records
from frazil.storage.memory import MemoryStorage

_LATER_US = 30 * 24 * 3600 * 1_000_000


@pytest.mark.parametrize("with_marks", [False, True])
def test_old_records_are_deleted(with_marks: bool) -> None:
    """A mark of spec version 1 stays, until a collection of spec version 2 finds it after an upgrade."""
    storage = MemoryStorage()
    killed, ended = announce(storage), announce(storage)
    ended.record.end(storage, leaves_mark=True)
    delete_killed_records(storage, ended.now, with_marks=with_marks)
    assert {info.key for info in storage.list(COLLECTIONS)} == {killed.record.key, ended.record.key}
    delete_killed_records(storage, ended.now + _LATER_US, with_marks=with_marks)
    left = {info.key for info in storage.list(COLLECTIONS)}
    assert left == (set() if with_marks else {ended.record.key})
