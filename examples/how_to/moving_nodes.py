"""Move arrays and groups without copying a chunk.

Run it:  python examples/how_to/moving_nodes.py
"""

from __future__ import annotations

import zarr

import frazil


def tree(repo: frazil.Repository) -> list[str]:
    root = zarr.open_group(repo.readonly_session("main").store, mode="r")
    return sorted(path for path, _ in root.members(max_depth=None))


def main() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="As it came") as store:
        root = zarr.create_group(store)
        for name in ("tmp", "precip"):
            array = root.create_array(f"incoming/{name}", shape=(8,), chunks=(2,), dtype="f4")
            array[:] = range(8)
        root.create_group("archive")
    print(tree(repo))

    # A session of its own kind: it moves, and changes nothing else.
    session = repo.rearrange_session("main")
    session.move("/incoming/tmp", "/archive/temperature")
    session.move("/incoming", "/archive/rest")
    print(session.status())
    session.commit("Tidied up")
    print(tree(repo))

    # The array is the same, with its history: its id stays, and no chunk was touched.
    before, after = [snapshot.id for snapshot in repo.ancestry(branch="main")][1::-1]
    moved = repo.diff(from_snapshot_id=before, to_snapshot_id=after)
    print("moved:", moved.moved_nodes, " chunks:", moved.updated_chunks)
    store = repo.readonly_session("main").store
    print("values:", zarr.open_array(store, path="archive/temperature", mode="r")[:3])
    for wrong in (("/archive", "/archive/inside"), ("/nothing", "/else")):
        try:
            repo.rearrange_session("main").move(*wrong)
        except frazil.IcechunkError as error:
            print(f"{error.kind}")


if __name__ == "__main__":
    main()
