"""Squash: the versions of a range are one version, and nothing of them is lost."""

from __future__ import annotations

from typing import Any

import pytest
import zarr

import frazil
from frazil import ErrorKind, InvalidInputError
from frazil.repository.catalog.repo_changes import MAIN
from frazil.repository.clock import to_datetime
from frazil.storage.memory import MemoryStorage


def commits(count: int = 5, **options: Any) -> tuple[frazil.Repository, list[str]]:
    repo = frazil.Repository.create(MemoryStorage(), **options)
    ids = [repo.lookup_branch(MAIN)]
    for number in range(count):
        with repo.transaction(MAIN, message=str(number), metadata={"n": number}) as store:
            zarr.create_group(store, path=f"g{number}")
        ids.append(repo.lookup_branch(MAIN))
    return repo, ids


def messages(repo: frazil.Repository, branch: str = MAIN) -> list[str]:
    return [commit.message for commit in repo.ancestry(branch=branch)][:-1]


def groups(repo: frazil.Repository) -> list[str]:
    return sorted(zarr.open_group(repo.readonly_session(MAIN).store, mode="r").group_keys())


def test_the_middle_of_a_history() -> None:
    repo, ids = commits()
    whole = repo.diff(from_snapshot_id=ids[1], to_snapshot_id=ids[4])
    assert repo.upkeep.squash(MAIN, ids[1], ids[4]).apply() == ids[4]
    assert messages(repo) == ["4", "3", "0"]
    assert repo.diff(from_snapshot_id=ids[1], to_snapshot_id=ids[4]).new_groups == whole.new_groups
    assert groups(repo) == [f"g{number}" for number in range(5)]
    with pytest.raises(frazil.SnapshotNotFoundError):
        repo.readonly_session(snapshot_id=ids[2])
    assert repo.upkeep.verify("checksum").ok


def test_a_new_message() -> None:
    repo, ids = commits()
    tip = repo.upkeep.squash(MAIN, ids[1][:8], message="one to four", metadata={"by": "me"}).apply()
    assert tip == repo.lookup_branch(MAIN) != ids[-1]
    assert messages(repo) == ["one to four", "0"]
    assert next(iter(repo.ancestry(branch=MAIN))).metadata == {"n": 4, "by": "me"}
    created = repo.diff(from_snapshot_id=ids[1], to_branch=MAIN).new_groups
    assert created == {f"/g{number}" for number in range(1, 5)}
    repo.garbage_collect(to_datetime(2**52))
    assert repo.diff(from_snapshot_id=ids[1], to_branch=MAIN).new_groups == created
    assert groups(repo) == [f"g{number}" for number in range(5)]
    assert repo.upkeep.verify("checksum").ok


def test_refs_into_the_range_stay() -> None:
    repo, ids = commits()
    repo.create_tag("two", ids[2])
    repo.create_branch("dev", ids[3])
    repo.create_tag("tip", ids[-1])
    repo.upkeep.squash(MAIN, ids[0], message="new").apply()
    assert messages(repo) == ["new"]
    assert messages(repo, "dev") == ["2", "1", "0"]
    assert repo.lookup_tag("two") == ids[2]
    assert [commit.message for commit in repo.ancestry(tag="tip")][:-1] == ["4", "3", "2", "1", "0"]
    assert repo.upkeep.verify().ok


def test_a_session_rebases_over_a_squash() -> None:
    repo, ids = commits()
    session = repo.writable_session(MAIN)
    zarr.create_group(session.store, path="late")
    with repo.transaction(MAIN, message="other") as store:
        zarr.create_group(store, path="other")
    repo.upkeep.squash(MAIN, ids[-1], message="renamed").apply()
    session.commit("late", rebase_with=frazil.ConflictDetector())
    assert {"late", "other"} < set(groups(repo))


@pytest.mark.parametrize(
    ("since", "until", "options", "text"),
    [
        (3, 1, {}, "since must be older than until"),
        (2, 2, {}, "since must be older than until"),
        (1, 3, {"message": "x"}, "until must be the tip"),
        ("dev", None, {}, "since must be a version in the history"),
        (1, "dev", {}, "until must be a version in the history"),
    ],
)
def test_ranges_that_are_refused(since: Any, until: Any, options: Any, text: str) -> None:
    repo, ids = commits()
    repo.create_branch("dev", ids[1])
    with repo.transaction("dev", message="dev") as store:
        zarr.create_group(store, path="dev")
    names: dict[Any, Any] = dict(enumerate(ids)) | {"dev": repo.lookup_branch("dev"), None: None}
    with pytest.raises(InvalidInputError, match=text) as error:
        repo.upkeep.squash(MAIN, names[since], names[until], **options).apply()
    assert error.value.kind == ErrorKind.NOT_ALLOWED
    assert messages(repo) == ["4", "3", "2", "1", "0"]


def test_metadata_need_a_message() -> None:
    repo, ids = commits(1)
    with pytest.raises(ValueError, match="metadata needs a message"):
        repo.upkeep.squash(MAIN, ids[0], metadata={"a": 1}).apply()


def test_spec_version_1_is_refused() -> None:
    repo, ids = commits(1, spec_version=1)
    with pytest.raises(frazil.FormatError) as error:
        repo.upkeep.squash(MAIN, ids[0]).apply()
    assert error.value.kind == ErrorKind.UNSUPPORTED_SPEC_VERSION


def test_a_collection_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the new tip are stored, and a collection deletes them before the update."""
    repo, ids = commits()
    storage = repo.storage
    put = type(storage).put
    collected: list[str] = []

    def put_and_collect(self: Any, key: str, data: Any, *args: Any) -> Any:
        answer = put(self, key, data, *args)
        if key.startswith("snapshots/") and not collected:
            collected.append(key)
            frazil.Repository.open(self).garbage_collect(to_datetime(2**52))
        return answer

    monkeypatch.setattr(type(storage), "put", put_and_collect)
    repo.upkeep.squash(MAIN, ids[0], message="new").apply()
    assert collected
    assert messages(frazil.Repository.open(storage)) == ["new"]
    assert repo.upkeep.verify("checksum").ok
