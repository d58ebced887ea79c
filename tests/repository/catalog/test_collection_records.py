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
    (killed, _, _), (ended, now, _) = announce(storage), announce(storage)
    ended.end(storage, leaves_mark=True)
    delete_killed_records(storage, now, with_marks=with_marks)
    assert {info.key for info in storage.list(COLLECTIONS)} == {killed.key, ended.key}
    delete_killed_records(storage, now + _LATER_US, with_marks=with_marks)
    left = {info.key for info in storage.list(COLLECTIONS)}
    assert left == (set() if with_marks else {ended.key})
