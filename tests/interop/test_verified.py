"""What the reference has written, amended, moved, expired and collected has no findings."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import icechunk
import pytest
import zarr

import frazil


@pytest.mark.sample(1)
@pytest.mark.parametrize("spec_version", [1, 2])
def test_repositories_of_the_reference_are_whole(tmp_path: Path, spec_version: int) -> None:
    storage = icechunk.local_filesystem_storage(str(tmp_path))
    repo = icechunk.Repository.create(storage, spec_version=spec_version)
    for name in ("a", "b", "c"):
        write(repo, name).commit(name)
    if spec_version > 1:
        write(repo, "amended").amend("amended")
        session = repo.rearrange_session("main")
        session.move("/a", "/moved")
        session.commit("moved")
        write(repo, "detached").flush("detached")
    repo.rewrite_manifests("rewritten", branch="main")
    late, first = repo.writable_session("main"), repo.writable_session("main")
    zarr.open_array(late.store, path="b")[0] = 3
    zarr.open_array(first.store, path="c")[0] = 3
    first.commit("first")
    late.rebase(icechunk.ConflictDetector())
    late.commit("late")
    assert is_whole(tmp_path)
    repo.expire_snapshots(datetime.now(UTC))
    assert is_whole(tmp_path)
    write(repo, "d").commit("d")
    repo.garbage_collect(datetime.now(UTC))
    write(repo, "e").commit("e")
    assert is_whole(tmp_path)


@pytest.mark.parametrize("last", ["array", "group", "nothing"])
@pytest.mark.parametrize("first", ["array", "group"])
def test_nodes_that_an_amendment_of_the_reference_replaces(tmp_path: Path, first: str, last: str) -> None:
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path)))
    write(repo, "other").commit("other")
    place(repo, first).commit("first")
    place(repo, last).amend("amended")
    assert is_whole(tmp_path)


def place(repo: Any, what: str) -> Any:
    session = repo.writable_session("main")
    group = zarr.open_group(session.store, mode="a")
    if "x" in group:
        del group["x"]
    if what == "array":
        group.create_array("x", shape=(4,), chunks=(1,), dtype="f8")[:] = 1
    elif what == "group":
        group.create_group("x")
    return session


def write(repo: Any, name: str) -> Any:
    session = repo.writable_session("main")
    group = zarr.open_group(session.store, mode="a")
    group.create_array(name, shape=(4,), chunks=(1,), dtype="f8", overwrite=True)[:] = 1
    return session


def is_whole(place: Path) -> bool:
    report = frazil.Repository.open(frazil.local_filesystem_storage(str(place))).upkeep.verify("checksum")
    assert report.ok, report
    return report.snapshots > 1
