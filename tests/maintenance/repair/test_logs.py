"""A rebuilt transaction log has the bytes that the commit wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zarr
from tests.maintenance.test_verification import keys

import frazil
from frazil.format.ids import id_from_text
from frazil.handle.repository import context_of
from frazil.maintenance.repair.copies import rebuilt_log
from frazil.storage.memory import MemoryStorage


def repository() -> frazil.Repository:
    """Commits of every kind: nodes and chunks, created, updated, deleted, moved, resized."""
    storage = MemoryStorage()
    config = frazil.RepositoryConfig(packing=frazil.PackingConfig(enabled=False))
    repo = frazil.Repository.create(storage, config)

    def create(store: Any) -> None:
        root = zarr.create_group(store)
        for name in ("a", "g/b", "g/h/c"):
            array = root.create_array(name, shape=(6, 4), chunks=(2, 2), dtype="i8")
            array[:] = np.arange(24).reshape(6, 4)

    def change_values(store: Any) -> None:
        zarr.open_array(store, path="a")[1:3, :2] = 77

    def change_metadata(store: Any) -> None:
        zarr.open_array(store, path="g/b").attrs["units"] = "K"
        zarr.open_group(store, path="g").attrs["n"] = 1

    def resize(store: Any) -> None:
        zarr.open_array(store, path="a").resize((8, 4))
        zarr.open_array(store, path="g/b").resize((2, 4))

    def delete(store: Any) -> None:
        del zarr.open_group(store)["g/h"]

    for number, act in enumerate((create, change_values, change_metadata, resize, delete)):
        with repo.transaction("main", message=str(number)) as store:
            act(store)
    session = repo.rearrange_session("main")
    session.move("/g/b", "/b")
    session.commit("move")
    return repo


@pytest.fixture(scope="module")
def repo() -> frazil.Repository:
    return repository()


def logs(repo: frazil.Repository) -> Iterator[tuple[bytes, bytes | None]]:
    for info in repo.ancestry(branch="main"):
        yield id_from_text(info.id), None if info.parent_id is None else id_from_text(info.parent_id)


def test_the_bytes_are_those_of_the_commit(repo: frazil.Repository) -> None:
    context = context_of(repo)
    number = 0
    for id_, parent in logs(repo):
        name = next(name for name in keys(repo.storage, "transactions") if id_ == id_from_text(name[13:]))
        assert rebuilt_log(context, id_, parent) == bytes(repo.storage.get(name)), name
        number += 1
    assert number == 7
