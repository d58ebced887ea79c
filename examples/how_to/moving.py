"""Move arrays, groups, and the chunks of an array, without a copy.

Run it:  python examples/how_to/moving.py
"""

from __future__ import annotations

import zarr

import frazil


def tree(repo: frazil.Repository) -> list[str]:
    root = zarr.open_group(repo.readonly_session("main").store, mode="r")
    return sorted(path for path, _ in root.members(max_depth=None))


def chunks(repo: frazil.Repository) -> None:
    """A moving window of time: new chunks are added at the end, and old chunks are removed at the start."""
    session = repo.writable_session("main")
    session.shift_array("/archive/temperature", [-1])
    array = zarr.open_array(session.store, path="archive/temperature")
    print("shifted: ", array[:])
    array[6:] = [8, 9]
    session.commit("Move the window by one chunk")

    # For any other order, pass a function from the old to the new coordinates of a chunk.
    session = repo.writable_session("main")
    session.reindex_array("/archive/temperature", lambda at: [3 - at[0]])
    print("reversed:", zarr.open_array(session.store, path="archive/temperature")[:])
    session.commit("Reverse the order of the chunks")


def main() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="Incoming data") as store:
        root = zarr.create_group(store)
        for name in ("tmp", "precip"):
            array = root.create_array(f"incoming/{name}", shape=(8,), chunks=(2,), dtype="f4")
            array[:] = range(8)
        root.create_group("archive")
    print(tree(repo))

    # A rearrange session can move nodes, and nothing else.
    session = repo.rearrange_session("main")
    session.move("/incoming/tmp", "/archive/temperature")
    session.move("/incoming", "/archive/rest")
    print(session.status())
    session.commit("Move nodes to the archive")
    print(tree(repo))

    # The array keeps its id and its history, and no chunk changes.
    before, after = [snapshot.id for snapshot in repo.ancestry(branch="main")][1::-1]
    moved = repo.diff(from_snapshot_id=before, to_snapshot_id=after)
    print("moved:", moved.moved_nodes, " chunks:", moved.updated_chunks)
    store = repo.readonly_session("main").store
    print("values:", zarr.open_array(store, path="archive/temperature", mode="r")[:3])
    chunks(repo)
    for wrong in (("/archive", "/archive/inside"), ("/nothing", "/else")):
        try:
            repo.rearrange_session("main").move(*wrong)
        except frazil.IcechunkError as error:
            print(f"{error.kind}")


if __name__ == "__main__":
    main()
