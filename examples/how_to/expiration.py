"""Delete old versions and free their space.

Expiration removes old snapshots from the history, and deletes no files. Garbage collection deletes files that
no version uses.

Run it:  python examples/how_to/expiration.py
"""

from __future__ import annotations

import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import zarr

import frazil


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) // 1000


def main(folder: Path) -> None:
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(folder)))
    with repo.transaction("main", message="An array") as store:
        zarr.create_array(store, name="a", shape=(100_000,), chunks=(10_000,), dtype="f8")
    for day in range(5):
        with repo.transaction("main", message=f"Day {day}") as store:
            zarr.open_array(store, path="a")[:] = np.random.default_rng(day).random(100_000)
        if day == 1:
            repo.create_tag("release", snapshot_id=repo.lookup_branch("main"))
        if day == 2:
            time.sleep(0.01)
            limit = datetime.now(UTC)
    print("before:", len(list(repo.ancestry(branch="main"))), "versions,", size(folder), "kB")

    # Remove snapshots older than the limit. Tips of branches, tags and the first snapshot stay.
    expired = repo.expire_snapshots(older_than=limit)
    print("expired:", len(expired))
    print("history:", [snapshot.message for snapshot in repo.ancestry(branch="main")])
    print("the tag:", zarr.open_array(repo.readonly_session(tag="release").store, path="a", mode="r").shape)

    # Make a dry run first. In a real program, use a cut-off that is older than the longest session (24 hours
    # by default), because the files of a running session are not in any version yet.
    tomorrow = datetime.now(UTC) + timedelta(days=1)  # this example has no open sessions
    dry_run = repo.garbage_collect(tomorrow, dry_run=True)
    print("would delete:", dry_run.chunks_deleted, "chunk files,", dry_run.snapshots_deleted, "snapshots")
    print("still used:", size(folder), "kB")
    done = repo.garbage_collect(tomorrow)
    print("deleted:", done.chunks_deleted, "chunk files,", done.bytes_deleted // 1000, "kB")
    print("after:", size(folder), "kB")
    values = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")[:]
    print("equal:", np.array_equal(values, np.random.default_rng(4).random(100_000)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory) / "repo")
