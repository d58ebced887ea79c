"""The reference reads, extends and counts chunk files with checksums. `turns` collects them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr

import frazil
from frazil.format.chunk_trailer import check_file
from frazil.format.ids import id_from_text

pytestmark = pytest.mark.interop

CHUNK = 1 << 16
SETTINGS = {
    "packs": frazil.RepositoryConfig(),
    "files": frazil.RepositoryConfig(packing=frazil.PackingConfig(enabled=False)),
    "deduplicated": frazil.RepositoryConfig(
        packing=frazil.PackingConfig(enabled=False), chunks=frazil.ChunksConfig(deduplicate=True)
    ),
}


@pytest.fixture(params=SETTINGS)
def repo(request: pytest.FixtureRequest, tmp_path: Path) -> frazil.Repository:
    config = SETTINGS[request.param]
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path)), config)
    repo.save_config()
    with repo.transaction("main", message="first") as store:
        zarr.create_array(store, name="a", shape=(4 * CHUNK,), chunks=(CHUNK,), dtype="u1", compressors=None)
    write(repo, 1)
    return repo


def write(repo: Any, first: int, stop: int | None = None) -> None:
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a")[:stop] = values(first)[:stop]
    session.commit(f"{first}")


def values(first: int) -> np.ndarray[Any, Any]:
    return (np.arange(4 * CHUNK) // CHUNK + first).astype("u1")


def of_reference(path: Path) -> Any:
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)))


def chunk_files(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in (path / "chunks").iterdir()}


def checked(path: Path) -> dict[str, bool]:
    """Whether each chunk file has a trailer. All of them are whole."""
    checks = {name: check_file(id_from_text(name), data) for name, data in chunk_files(path).items()}
    assert all(check.ok for check in checks.values())
    return {name: check.trailer is not None for name, check in checks.items()}


@pytest.mark.sample(1)
def test_the_reference_reads_counts_and_extends(repo: frazil.Repository, tmp_path: Path) -> None:
    assert all(checked(tmp_path).values())
    theirs = of_reference(tmp_path)
    array = zarr.open_array(theirs.readonly_session("main").store, path="a", mode="r")
    np.testing.assert_array_equal(array[:], values(1))
    assert repo.chunk_storage_stats().native_bytes == 4 * CHUNK
    # The reference counts one chunk of each file, with the length that its reference has.
    assert theirs.chunk_storage_stats().native_bytes == len(chunk_files(tmp_path)) * CHUNK
    assert sum(map(len, chunk_files(tmp_path).values())) > 4 * CHUNK

    write(theirs, 7, CHUNK)
    theirs.rewrite_manifests("rewritten", branch="main")
    assert sorted(checked(tmp_path).values()).count(False) == 1  # the one file of the reference
    repo = frazil.Repository.open(repo.storage)
    array = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    np.testing.assert_array_equal(array[:], [*values(7)[:CHUNK], *values(1)[CHUNK:]])
    report = repo.upkeep.verify("checksum")
    assert report.ok
    assert (report.native_chunks, report.compared_chunks) == (12, 10)  # in three manifests
