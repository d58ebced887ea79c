"""Arrays with the same chunk files share a manifest, which both implementations read, change and collect."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.support.judge import reference, reference_storage, same_by_reference

import frazil

NAMES = ("a", "b", "c")
AFTER_NOW = timedelta(days=1)


def write(repo: Any, names: tuple[str, ...], row: int, value: int) -> None:
    session = repo.writable_session("main")
    for name in names:
        zarr.open_array(session.store, path=name)[row] = value
    session.commit(f"{value}")


@pytest.mark.parametrize("by_reference", [True, False])
def test_changes_of_one_array_of_a_shared_manifest(by_reference: bool, tmp_path: Path) -> None:
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path)))
    with repo.transaction("main", message="first") as store:
        for name in NAMES:
            zarr.create_array(
                store, name=name, shape=(6, 1000), chunks=(1, 1000), dtype="i8", compressors=None
            )
    for row in range(3):
        write(repo, NAMES, row, row + 1)
    assert len(list((tmp_path / "manifests").iterdir())) == 3
    assert len(list((tmp_path / "chunks").iterdir())) == 3
    same_by_reference(tmp_path, repo)

    other: Any = reference().Repository.open(reference_storage(tmp_path)) if by_reference else repo
    write(other, ("a",), 0, 20)
    session = other.writable_session("main")
    del zarr.open_group(session.store)["b"]
    session.commit("without b")
    for each in (other, repo):
        each.expire_snapshots(datetime.now(UTC))
        each.garbage_collect(datetime.now(UTC) + AFTER_NOW)
    same_by_reference(tmp_path, repo)
    write(repo, ("a", "c"), 4, 30)
    session = repo.readonly_session("main")
    assert frazil.read(session, "a")[:, 0].tolist() == [20, 2, 3, 0, 30, 0]
    assert frazil.read(session, "c")[:, 0].tolist() == [1, 2, 3, 0, 30, 0]
    same_by_reference(tmp_path, repo)
    assert repo.upkeep.verify(level="checksum").ok

    secrets = np.array([20, 1, 2, 3, 30]).astype("<i8").tobytes()
    assert repo.upkeep.forget(["a", "c"]).apply().ok
    same_by_reference(tmp_path, repo)
    data = b"".join(each.read_bytes() for each in tmp_path.rglob("chunks/*"))
    assert not any(secrets[at : at + 8] * 4 in data for at in range(0, len(secrets), 8))
    assert not np.any(frazil.read(repo.readonly_session("main"), "c"))
