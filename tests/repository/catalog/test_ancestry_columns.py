"""The history as columns: the same values as the history as objects."""

from __future__ import annotations

from datetime import UTC
from functools import partial

import numpy as np
import pytest
from tests.counting import python_steps

import frazil
from frazil.errors import RefNotFoundError


def repository(commits: int, spec_version: int) -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage(), spec_version=spec_version)
    for number in range(commits):
        repo.writable_session("main").commit(f"commit {number} \u2744", allow_empty=True)
    return repo


@pytest.mark.parametrize("spec_version", [1, 2])
def test_as_objects(spec_version: int) -> None:
    repo = repository(30, spec_version)
    middle = list(repo.ancestry(branch="main"))[10].id
    repo.create_tag("middle", middle)
    for version in ({"branch": "main"}, {"tag": "middle"}, {"snapshot_id": middle}):
        infos = list(repo.ancestry(**version))
        table = repo.history.log(**version)
        assert list(table) == ["id", "parent_id", "written_at", "message"]
        assert table["id"].tolist() == [info.id for info in infos]
        assert [each or None for each in table["parent_id"].tolist()] == [info.parent_id for info in infos]
        times = [time.replace(tzinfo=UTC) for time in table["written_at"].tolist()]
        assert times == [info.written_at for info in infos]
        assert table["message"].tolist() == [info.message for info in infos]


def test_wrong_arguments() -> None:
    repo = repository(1, 2)
    with pytest.raises(RefNotFoundError):
        repo.history.log(branch="absent")
    with pytest.raises(ValueError, match="branch"):
        repo.history.log()


def test_no_step_for_a_commit() -> None:
    few, many = (repository(commits, 2) for commits in (20, 200))
    steps = [python_steps(partial(repo.history.log, branch="main")) for repo in (few, many)]
    assert steps[1] < 1.5 * steps[0] + 50
    assert np.unique(many.history.log(branch="main")["id"]).size == 201
