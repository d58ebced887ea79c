"""Branches, tags, time travel, differences, and amended commits.

Run it:  python examples/how_to/version_control.py
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import zarr

import frazil


def main() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())

    # A session sees one version and its own changes. A commit publishes the changes as the next version.
    session = repo.writable_session("main")
    rain = zarr.create_array(
        session.store, name="rain", shape=(12, 4), chunks=(1, 4), dtype="f4", fill_value=0
    )
    rain[:] = 1
    first = session.commit("A year of rain", metadata={"author": "Ada", "source": "gauges"})
    noon = datetime.now(UTC)
    with repo.transaction("main", message="A wet June") as store:
        zarr.open_array(store, path="rain")[5] = 3
    repo.create_tag("published", snapshot_id=repo.lookup_branch("main"))

    # A branch moves to the new version with each commit. A tag stays at one version.
    repo.create_branch("corrections", snapshot_id=repo.lookup_tag("published"))
    fix = repo.writable_session("corrections")
    zarr.open_array(fix.store, path="rain")[5:7] = 2
    print(fix.status())
    fix.commit("June and July were read wrongly")

    def june(session: frazil.Session) -> float:
        return float(np.asarray(zarr.open_array(session.store, path="rain", mode="r")[5, 0]))

    print("main:       ", june(repo.readonly_session("main")))
    print("corrections:", june(repo.readonly_session("corrections")))
    print("at the tag: ", june(repo.readonly_session(tag="published")))
    print("first:      ", june(repo.readonly_session(snapshot_id=first)))
    print("at noon:    ", june(repo.readonly_session("main", as_of=noon)))

    # A diff lists the changed nodes, and the coordinates of the changed chunks.
    tip = repo.lookup_branch("corrections")
    changed = repo.diff(from_tag="published", to_branch="corrections")
    print("changed:", {path: len(chunks) for path, chunks in changed.updated_chunks.items()})
    for snapshot in repo.ancestry(snapshot_id=tip):
        print(f"  {snapshot.message:35} {snapshot.metadata.get('author', '')}".rstrip())

    # Move main to the corrections. With from_snapshot_id, this fails if others have moved main since.
    repo.reset_branch("main", tip, from_snapshot_id=repo.lookup_tag("published"))
    repo.delete_branch("corrections")
    print("main, reset:", june(repo.readonly_session("main")))

    # Replace the last commit of the branch by one with more changes and another message.
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="rain").attrs["units"] = "mm"
    session.amend("June and July were read wrongly; units")
    print("after amend:", [snapshot.message for snapshot in repo.ancestry(branch="main")][:2])

    # The operations log has all changes of the repository, newest first, including resets and amended
    # commits.
    print("log:", [type(update.kind).__name__ for update in repo.ops_log()][:4])


if __name__ == "__main__":
    main()
