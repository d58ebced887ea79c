"""Combine branches: merge, cherry-pick, revert.

Run it:  python examples/how_to/merging.py
"""

from __future__ import annotations

import numpy as np
import zarr

import frazil
from frazil.conflicts import BasicConflictSolver, VersionSelection


def write(repo: frazil.Repository, branch: str, message: str, values: dict[int, int]) -> str:
    with repo.transaction(branch, message=message) as store:
        array = zarr.open_array(store, path="a")
        for at, value in values.items():
            array[at] = value
    return repo.lookup_branch(branch)


def values(repo: frazil.Repository) -> list[int]:
    array = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    values: list[int] = np.asarray(array[:]).tolist()
    return values


def main() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="An array") as store:
        zarr.create_array(store, name="a", shape=(6,), chunks=(1,), dtype="i4")[:] = 0
    repo.create_branch("dev", repo.lookup_branch("main"))

    # Both branches get new commits. They change different chunks, so they do not conflict.
    write(repo, "main", "A value", {0: 1})
    fix = write(repo, "dev", "A correction", {1: 2})
    write(repo, "dev", "An idea", {2: 3})

    # Apply one commit of dev, without the others.
    repo.cherry_pick(fix)
    print("picked:  ", values(repo))

    # Merge all of dev. Changes that main already has do not conflict.
    merged = repo.merge("dev", message="The idea, too")
    print("merged:  ", values(repo))
    parents = repo.lookup_snapshot(merged).metadata["__frazil"]["parents"]
    print("parents: ", parents[1] == repo.lookup_branch("dev"))

    # Undo one commit, but not the later ones. The history keeps the commit, and the commit that undoes it.
    write(repo, "main", "More", {3: 4})
    repo.revert(merged)
    print("reverted:", values(repo))

    # Both branches wrote the same chunk: nothing is merged, and the error names the chunk.
    write(repo, "main", "Five", {4: 5})
    write(repo, "dev", "Six", {4: 6, 5: 6})
    try:
        repo.merge("dev")
    except frazil.RebaseFailedError as error:
        for conflict in error.conflicts:
            print("conflict:", conflict.conflict_type.name, conflict.path, conflict.conflicted_chunks)

    # A solver decides. In a merge, "ours" is the side that is merged, and "theirs" is the target branch.
    repo.merge("dev", solver=BasicConflictSolver(on_chunk_conflict=VersionSelection.UseTheirs))
    print("decided: ", values(repo))
    print([snapshot.message for snapshot in repo.ancestry(branch="main")])


if __name__ == "__main__":
    main()
