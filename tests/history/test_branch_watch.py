"""A watch: each version exactly once, from any cursor; requests; lost cursors."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import zarr

import frazil
from frazil.snapshots import BranchVersion

AT_ONCE = timedelta(0)


@pytest.fixture
def repo() -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    return repo.reopen(frazil.RepositoryConfig(num_updates_per_repo_info_file=3))


def commit(repo: frazil.Repository, path: str, branch: str = "main") -> str:
    session = repo.writable_session(branch)
    zarr.create_group(session.store, path=path)
    return session.commit(path)


def story(repo: frazil.Repository) -> list[tuple[str, str | None]]:
    """Do all that can happen to a branch. Return the kinds and snapshots of its versions."""
    out: list[tuple[str, str | None]] = []
    repo.create_branch("dev", "main")
    out.append(("created", repo.lookup_branch("dev")))
    for path in "ab":
        out.append(("commit", commit(repo, path, "dev")))
        commit(repo, path, "main")
    session = repo.writable_session("dev")
    zarr.create_group(session.store, path="c")
    out.append(("amend", session.amend("amended")))
    repo.set_metadata({"a": 1})
    repo.reset_branch("dev", "main")
    out.append(("reset", repo.lookup_branch("main")))
    out.append(("commit", commit(repo, "d", "dev")))
    repo.history.undo().apply()
    out.append(("reset", repo.lookup_branch("main")))
    repo.delete_branch("dev")
    out.append(("deleted", None))
    repo.create_branch("dev", "main")
    out.append(("created", repo.lookup_branch("main")))
    return out


def shown(versions: list[BranchVersion]) -> list[tuple[str, str | None]]:
    return [(version.kind, version.snapshot_id) for version in versions]


def test_every_version_comes_once_from_any_cursor(repo: frazil.Repository) -> None:
    start = repo.history.watch("main").cursor
    expected = story(repo)
    versions = list(repo.history.watch("dev", cursor=start, timeout=AT_ONCE))
    assert shown(versions) == expected
    assert len({version.cursor for version in versions}) == len(versions)
    for number, version in enumerate(versions, 1):
        rest = repo.history.watch("dev", cursor=version.cursor)
        assert shown(rest.poll()) == expected[number:]
        assert rest.poll() == []
        assert rest.cursor == versions[-1].cursor


@pytest.mark.parametrize("has_etags", [True, False])
def test_a_poll_makes_one_request_while_nothing_changes(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch, *, has_etags: bool
) -> None:
    if has_etags:  # as object stores do
        storage = type(repo.storage)
        head, get = storage.head, storage.get_versioned

        def head_with_etag(self: Any, key: str) -> Any:
            found: Any = head(self, key)
            return dataclasses.replace(found, etag=get(self, key)[1].etag)

        monkeypatch.setattr(storage, "head", head_with_etag)
    watch = repo.history.watch("main")
    watch.poll()
    requests: list[str] = []
    for name in ("get", "get_versioned", "head", "list"):
        original = getattr(type(repo.storage), name)

        def counting(self: Any, *args: Any, name: str = name, original: Any = original) -> Any:
            requests.append(name)
            return original(self, *args)

        monkeypatch.setattr(type(repo.storage), name, counting)
    for _ in range(3):
        assert watch.poll() == []
    assert requests == ["head" if has_etags else "get"] * 3
    commit(repo, "a")
    requests.clear()
    assert len(watch.poll()) == 1
    assert requests == (["head", "get"] if has_etags else ["get"])


def test_a_lost_cursor_is_an_error(repo: frazil.Repository) -> None:
    first = repo.history.watch("main").cursor
    commit(repo, "a")
    later = repo.history.watch("main").cursor
    for _ in range(3):
        commit(repo, "b" * (1 + len(list(repo.ops_log()))))
    between = str(int(later) - 1)
    with pytest.raises(frazil.SessionStateError, match="may be missing") as error:
        repo.history.watch("main", cursor=between).poll()
    assert error.value.kind == "cursor-lost"
    assert len(repo.history.watch("main", cursor=first).poll()) == 4
    oldest = list(repo.ops_log())[-1]
    for backup in repo.upkeep.backups(repo.storage):
        repo.storage.delete([f"overwritten/{backup.name}"])
    with pytest.raises(frazil.SessionStateError, match="may be missing"):
        repo.history.watch("main", cursor=str(int(oldest.updated_at.timestamp() * 1e6) + 1)).poll()


def test_snapshots_that_expired_since(repo: frazil.Repository) -> None:
    start = repo.history.watch("main").cursor
    ids = [commit(repo, path) for path in "abc"]
    repo.expire_snapshots(datetime.now(UTC))
    repo.garbage_collect(datetime.now(UTC) + timedelta(days=1))
    assert [version.snapshot_id for version in repo.history.watch("main", cursor=start).poll()] == ids


def test_wrong_arguments(repo: frazil.Repository) -> None:
    with pytest.raises(frazil.RefNotFoundError):
        repo.history.watch("nothing")
    with pytest.raises(frazil.InvalidInputError, match="cursor must be"):
        repo.history.watch("main", cursor="abc")
    with pytest.raises(frazil.InvalidInputError, match="must not be negative"):
        repo.history.watch("main", interval=timedelta(seconds=-1))
    with pytest.raises(frazil.FormatError, match="version 2"):
        frazil.Repository.create(frazil.in_memory_storage(), spec_version=1).history.watch()
