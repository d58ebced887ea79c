"""Upkeep of repositories of spec version 1: of two copies, both implementations leave the same."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import icechunk
import pytest
import zarr
from tests.interop.both import Side, sides

pytestmark = [pytest.mark.deep, pytest.mark.interop]

FOLDERS = ("snapshots", "transactions", "manifests", "chunks", "refs")
FIELDS = [name for name in dir(icechunk.GCSummary) if not name.startswith("_")]


def story(side: Side) -> list[datetime]:
    """Six commits, a tag on the second, branches on the third and fourth, the latter one goes on; times
    between the commits.
    """
    config = side.config(inline_chunk_threshold_bytes=0)
    repo = side.package.Repository.create(side.storage(), config, spec_version=1)
    times = [datetime.now(UTC)]
    for number in range(6):
        with repo.transaction("main", message=str(number)) as store:
            array = zarr.create_array(
                store, name="x", shape=(4,), chunks=(2,), dtype="i4", overwrite=True, compressors=None
            )
            array[:] = number
        times.append(datetime.now(UTC))
        tip = repo.lookup_branch("main")
        if number == 1:
            repo.create_tag("t", tip)
            repo.create_tag("gone", tip)
            repo.delete_tag("gone")
        if number in (2, 3):
            repo.create_branch(f"b{number}", tip)
    with repo.transaction("b3", message="more") as store:
        zarr.create_group(store, path="g")
    return times


def histories(repo: Any) -> Any:
    return (
        {name: [commit.id for commit in repo.ancestry(branch=name)] for name in repo.list_branches()},
        {name: [commit.id for commit in repo.ancestry(tag=name)] for name in repo.list_tags()},
    )


def files(path: Path) -> list[str]:
    """All objects. Locks, whose names end in ``#0``, are no objects."""
    existing = (file for name in FOLDERS for file in (path / name).rglob("*") if file.is_file())
    return sorted(str(file.relative_to(path)) for file in existing if not file.name.endswith("#0"))


@pytest.mark.sample(7, 7)
@pytest.mark.parametrize("writer", ["frazil", "icechunk"])
@pytest.mark.parametrize("deletes", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("at", [0, 3, 6])
def test_both_do_the_same(writer: str, deletes: tuple[bool, bool], at: int, tmp_path: Path) -> None:
    pairs = [sides(tmp_path / name) for name in ("frazil", "icechunk")]
    times = story(pairs[0][0] if writer == "frazil" else pairs[0][1])
    shutil.copytree(pairs[0][0].path, pairs[1][0].path)
    outcomes = []
    for side, reader in (pairs[0], pairs[1][::-1]):
        repo = side.open().repo
        expired = repo.expire_snapshots(
            times[at], delete_expired_branches=deletes[0], delete_expired_tags=deletes[1]
        )
        statistics = repo.chunk_storage_stats()
        limit = datetime.now(UTC) + timedelta(days=1)
        preview = repo.garbage_collect(limit, dry_run=True)
        summary = side.open().repo.garbage_collect(limit)
        counts = [
            [getattr(each, name) for name in FIELDS if name != "bytes_deleted"] for each in (preview, summary)
        ]
        # The reference counts one of several chunks in a pack.
        size = statistics.native_bytes if writer == "icechunk" else None
        outcomes.append((expired, histories(side.open().repo), counts, size, files(side.path)))
        seen = reader.open().repo
        assert histories(seen) == outcomes[-1][1]
        for name in seen.list_branches():
            zarr.open_array(seen.readonly_session(name).store, path="x", mode="r")[:]
    assert outcomes[0] == outcomes[1]
