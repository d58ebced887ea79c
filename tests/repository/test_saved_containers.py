"""Containers of virtual chunks that a repository has saved, whoever wrote them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import frazil
import frazil.credentials
from frazil.repository.catalog import repo_changes
from frazil.repository.settings.config_document import to_document


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
    repo._context.catalog.update_repo_info(repo_changes.save_config(_saved("file")))
    again = frazil.Repository.open(repo.storage)
    assert set(again.config.virtual_chunk_containers or {}) == {"file"}


def test_the_callers_container_has_to_be_valid() -> None:
    storage = frazil.Repository.create(frazil.in_memory_storage()).storage
    container = frazil.VirtualChunkContainer("file", frazil.local_filesystem_store("/data"))
    config = frazil.RepositoryConfig(virtual_chunk_containers={"file": container})
    with pytest.raises(frazil.InvalidInputError):
        frazil.Repository.open(storage, config)


def test_a_path_of_local_files_counts_only_if_the_user_gave_it(tmp_path: Path) -> None:
    """One that the repository brings along could lead anywhere; what was authorised is the prefix."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "data").write_bytes(bytes(range(8)))
    prefix, access = "file:///trusted/and/gone/", frazil.credentials.LocalFileSystemAccess
    config = frazil.RepositoryConfig()
    store = frazil.local_filesystem_store(str(tmp_path / "elsewhere"))
    config.set_virtual_chunk_container(frazil.VirtualChunkContainer(prefix, store))
    storage = frazil.in_memory_storage()
    mine = frazil.Repository.create(storage, config, {prefix: access})
    with mine.transaction("main", message="a reference") as changed:
        zarr.create_array(changed, name="x", shape=(8,), chunks=(8,), dtype="u1", compressors=None)
        changed.set_virtual_ref("x/c/0", f"{prefix}data", offset=0, length=8)

    def read(repo: frazil.Repository) -> Any:
        return np.asarray(
            zarr.open_array(repo.readonly_session("main").store, path="x", mode="r")[:]
        ).tolist()

    assert read(mine) == list(range(8))
    assert read(mine.reopen()) == list(range(8))
    assert read(pickle.loads(pickle.dumps(mine))) == list(range(8))
    theirs = frazil.Repository.open(storage, None, {prefix: access})
    for repo in (theirs, theirs.reopen()):
        with pytest.raises(frazil.StorageError) as error:
            read(repo)
        assert error.value.kind == "virtual-chunk-fetch"
