"""Containers of virtual chunks that a repository has saved, whoever wrote them."""

from __future__ import annotations

from typing import Any

import pytest

import frazil
from frazil.repository import mutations
from frazil.repository.config_document import to_document


def _saved(prefix: str) -> dict[str, Any]:
    document = to_document(frazil.RepositoryConfig())
    store = {"local_file_system": "/data"}
    return {
        **document,
        "virtual_chunk_containers": {prefix: {"name": None, "url_prefix": prefix, "store": store}},
    }


def test_a_saved_container_need_not_be_valid() -> None:
    """Early versions of the format saved schemes, ``file``; such a repository opens, also migrated."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    repo._context.update(mutations.save_config(_saved("file")))
    again = frazil.Repository.open(repo.storage)
    assert set(again.config.virtual_chunk_containers or {}) == {"file"}


def test_the_callers_container_has_to_be_valid() -> None:
    storage = frazil.Repository.create(frazil.in_memory_storage()).storage
    container = frazil.VirtualChunkContainer("file", frazil.local_filesystem_store("/data"))
    config = frazil.RepositoryConfig(virtual_chunk_containers={"file": container})
    with pytest.raises(frazil.InvalidInputError):
        frazil.Repository.open(storage, config)
