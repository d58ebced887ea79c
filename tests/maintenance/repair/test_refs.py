"""Refs and the configuration of spec version 1, each with a file of its own."""

from __future__ import annotations

from typing import Any

import pytest
from tests.maintenance.test_verification import small
from tests.repository.version_1 import copy_of

import frazil
from frazil.storage.memory import MemoryStorage

repair = frazil.Repository.upkeep.repair
MAIN = "refs/branch.main/ref.json"


def repository() -> MemoryStorage:
    storage = small(1).storage
    assert isinstance(storage, MemoryStorage)
    return storage


def tip(storage: Any, branch: str = "main") -> str:
    return frazil.Repository.open(storage).lookup_branch(branch)


def test_a_tag_comes_from_a_copy_only() -> None:
    storage = repository()
    copy = copy_of(storage)
    key = "refs/tag.v1/ref.json"
    storage.put(key, b"")
    assert not repair(storage).steps
    assert [each.key for each in repair(storage).findings] == [key]
    plan = repair(storage, copies=[copy]).apply()
    assert [each.certainty for each in plan.steps] == ["proved"]
    opened = [frazil.Repository.open(each) for each in (storage, copy)]
    assert opened[0].lookup_tag("v1") == opened[1].lookup_tag("v1")


def test_deleted_refs_stay_deleted() -> None:
    storage = repository()
    repo = frazil.Repository.open(storage)
    repo.create_branch("dev", repo.lookup_branch("main"))
    copy = copy_of(storage)
    repo.delete_branch("dev")
    repo.delete_tag("v1")
    assert repair(storage, copies=[copy]).ok


@pytest.mark.parametrize("folder", ["snapshots", "manifests", "chunks", "transactions"])
def test_other_files_of_version_1(folder: str) -> None:
    storage = repository()
    copy = copy_of(storage)
    key = max(each.key for each in storage.list(folder))
    data = bytes(storage.get(key))
    storage.put(key, b"")
    plan = repair(storage, copies=[] if folder == "transactions" else [copy]).apply()
    assert [each.action for each in plan.steps] == ["rebuild" if folder == "transactions" else "copy"]
    assert bytes(storage.get(key)) == data
    assert repair(storage).ok
