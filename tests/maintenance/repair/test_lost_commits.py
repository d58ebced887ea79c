"""Chunks that are lost for good: the plan says which, and a commit without them is made only on demand."""

from __future__ import annotations

from typing import Any

import pytest
import zarr
from tests.maintenance.test_verification import small

import frazil
from frazil.errors import InvalidInputError
from frazil.format.ids import id_to_text
from frazil.format.manifest import NativeRef

repair = frazil.Repository.repair


def chunk_of(repo: frazil.Repository, path: str, coords: tuple[int, ...]) -> str:
    ref = repo.readonly_session("main").workspace.chunks.ref(path, coords)
    assert isinstance(ref, NativeRef)
    return f"chunks/{id_to_text(ref.chunk_id)}"


def values(repo: frazil.Repository, **version: Any) -> list[int]:
    session = repo.readonly_session(**version) if version else repo.readonly_session("main")
    array: list[int] = zarr.open_array(session.store, path="a", mode="r")[:].tolist()  # type: ignore[union-attr]
    return array


def damaged() -> tuple[frazil.Repository, str]:
    """A repository whose chunk (1,) of array `a` is lost in its newest version."""
    repo = small()
    key = chunk_of(repo, "/a", (1,))
    repo.storage.delete([key])
    return repo, key


def test_the_plan_describes_lost_chunks() -> None:
    repo, key = damaged()
    plan = repair(repo.storage)
    (row,) = plan.lost_rows()
    assert row == {
        "key": key,
        "path": "/a",
        "coordinates": [1],
        "versions": [repo.lookup_branch("main")],
        "previous": repo.lookup_tag("v2"),
    }
    assert not plan.steps
    assert "1 chunk of /a" in str(plan)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("choice", "expected"), [("fill", [30, 31, 0, 0]), ("previous", [30, 31, 22, 23])])
def test_a_commit_without_the_lost_chunk(choice: Any, expected: list[int]) -> None:
    repo, key = damaged()
    before = repo.lookup_branch("main")
    plan = repair(repo.storage, lost=choice)
    assert [(each.action, each.keys) for each in plan.steps] == [("commit", (key,))]
    assert repo.lookup_branch("main") == before
    plan.apply()
    repo = frazil.Repository.open(repo.storage)
    assert values(repo) == expected
    (commit, parent, *_) = repo.ancestry(branch="main")
    assert parent.id == before
    assert commit.metadata["__frazil"] == {"repair": {"lost": [key]}}
    assert not repair(repo.storage, lost=choice).steps
    # The older version still has the damage.
    assert [each.key for each in repo.verify("exists").findings] == [key]


def test_a_branch_that_moves_meanwhile() -> None:
    repo, _ = damaged()
    plan = repair(repo.storage, lost="fill")
    with repo.transaction("main", message="other") as store:
        zarr.open_array(store, path="a")[2:] = 5
    plan.apply()  # the chunk is not lost at the new tip
    assert values(frazil.Repository.open(repo.storage)) == [30, 31, 5, 5]
    assert next(iter(repo.ancestry(branch="main"))).message == "other"


@pytest.mark.deep
def test_without_an_older_version_nothing_is_taken() -> None:
    repo = small()
    keys = [each.key for each in repo.storage.list("chunks")]
    repo.storage.delete(keys)
    plan = repair(repo.storage, lost="previous")
    assert not plan.steps
    assert {row["previous"] for row in plan.lost_rows()} == {None}
    filled = repair(repo.storage, lost="fill", dry_run=False)
    assert [each.action for each in filled.steps] == ["commit"]
    assert values(frazil.Repository.open(repo.storage)) == [0, 0, 0, 0]


def test_another_choice_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="keep, fill or previous"):
        repair(small().storage, lost="guess")  # type: ignore[arg-type]
