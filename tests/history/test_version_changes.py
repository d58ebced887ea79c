"""One pass over the changes of a history, compared with the difference of each pair of versions."""

from __future__ import annotations

from typing import Any

import pytest
import zarr

import frazil
from frazil.format.ids import id_to_text
from frazil.handle.repository import context_of
from frazil.history.versions import version_changes
from frazil.repository.catalog import presentation


def a_history() -> frazil.Repository:
    """Nodes that were created, written, moved with their group, deleted, and created again."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="create") as store:
        zarr.create_array(store, name="g/t", shape=(4,), chunks=(2,), dtype="i4")[:] = 1
        zarr.create_array(store, name="g/u", shape=(2,), dtype="i4")
    with repo.transaction("main", message="write") as store:
        zarr.open_array(store, path="g/t")[3] = 5
    session = repo.rearrange_session("main")
    session.move("/g", "/h")
    session.commit("move")
    with repo.transaction("main", message="delete and create") as store:
        zarr.open_group(store, path="h").__delitem__("u")
        zarr.create_array(store, name="g/t", shape=(1,), dtype="i1")
    with repo.transaction("main", message="write both") as store:
        zarr.open_array(store, path="h/t")[0] = 7
        zarr.open_array(store, path="g/t")[0] = 7
    return repo


def compared(repo: frazil.Repository) -> list[tuple[str, str, str]]:
    """For each version: its id, and its differences by both methods, as text."""
    context = context_of(repo)
    info = context.catalog.repo_info()
    rows = []
    for entry, changes in version_changes(context, info, info.branches["main"]):
        if entry.parent is None:
            assert changes is None
            continue
        assert changes is not None
        ids = {"from_snapshot_id": id_to_text(entry.parent), "to_snapshot_id": id_to_text(entry.id)}
        rows.append((entry.message, str(presentation.diff(changes)), str(repo.diff(**ids))))
    return rows


def test_changes_are_differences() -> None:
    repo = a_history()
    rows = compared(repo)
    assert [message for message, *_ in rows] == ["write both", "delete and create", "move", "write", "create"]
    for message, changes, difference in rows:
        assert changes == difference, message
    assert "/h/u" in rows[1][1]


def test_expired_ancestors_belong_to_the_next_version() -> None:
    repo = a_history()
    moment = next(each.written_at for each in repo.ancestry(branch="main") if each.message == "move")
    repo.expire_snapshots(moment)
    rows = compared(repo)
    assert len(rows) < 5
    for message, changes, difference in rows:
        assert changes == difference, message


def test_commits_without_moves_need_one_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="create") as store:
        zarr.create_array(store, name="t", shape=(4,), chunks=(1,), dtype="i4")
    for value in range(4):
        with repo.transaction("main", message="write") as store:
            zarr.open_array(store, path="t")[value] = value
    repo = repo.reopen()
    context = context_of(repo)
    info = context.catalog.repo_info()
    reads: list[str] = []
    get = type(context.storage).get

    def noted(self: Any, key: str) -> Any:
        reads.append(key.split("/")[0])
        return get(self, key)

    monkeypatch.setattr(type(context.storage), "get", noted)
    assert len(list(version_changes(context, info, info.branches["main"]))) == 6
    assert reads.count("snapshots") == 1
