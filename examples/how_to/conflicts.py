"""Two sessions change one branch: rebase the second one, and solve conflicts.

Run it:  python examples/how_to/conflicts.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import zarr

import frazil
from frazil.conflicts import BasicConflictSolver, Conflict, ConflictDetector, ConflictSolver, VersionSelection


def prepared() -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="An array") as store:
        codecs: dict[str, Any] = {"compressors": None}  # the solver below reads the bytes as numbers
        zarr.create_array(store, name="a", shape=(4,), chunks=(1,), dtype="<i4", **codecs)[:] = 0
    return repo


def write(session: frazil.Session, values: dict[int, Any]) -> None:
    array = zarr.open_array(session.store, path="a")
    for at, value in values.items():
        array[at] = value


def values(repo: frazil.Repository) -> list[int]:
    array = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    numbers: list[int] = np.asarray(array[:]).tolist()
    return numbers


class Sum(ConflictSolver):
    """A custom solver for counters: it adds the increments of both sides."""

    def solve(self, conflicts: Sequence[Conflict]) -> list[Any]:
        return [self.added(conflict) for conflict in conflicts]

    def added(self, conflict: Conflict) -> Any:
        if conflict.conflict_type.name != "ChunkDoubleUpdate" or conflict.chunks is None:
            return VersionSelection.Fail
        # Each chunk holds one number without compression, so its bytes are the number.
        sides = [side.read(conflict.chunks) for side in (conflict.ours, conflict.theirs, conflict.base)]
        ours, theirs, base = (np.frombuffer(b"".join(filter(None, side)), "<i4") for side in sides)
        return [number.tobytes() for number in ours + theirs - base]


def main() -> None:
    # Different chunks do not conflict. The second commit is rebased onto the first.
    repo = prepared()
    one, two = repo.writable_session("main"), repo.writable_session("main")
    write(one, {0: 1})
    write(two, {1: 2})
    one.commit("one")
    two.commit("two", rebase_with=ConflictDetector())
    print("aligned:", values(repo), [snapshot.message for snapshot in repo.ancestry(branch="main")][:2])

    # The same chunk conflicts. ConflictDetector solves nothing, and reports the conflicts. The session keeps
    # its changes.
    one, two = repo.writable_session("main"), repo.writable_session("main")
    write(one, {0: 10, 2: 10})
    write(two, {0: 20, 3: 20})
    one.commit("tens")
    try:
        two.rebase(ConflictDetector())
    except frazil.RebaseFailedError as error:
        for conflict in error.conflicts:
            print("conflict:", conflict.conflict_type.name, conflict.path, conflict.conflicted_chunks)

    # Use their version of each chunk that both sides wrote.
    two.rebase(BasicConflictSolver(on_chunk_conflict=VersionSelection.UseTheirs))
    two.commit("twenties")
    print("theirs:", values(repo))

    # A custom solver can use the bytes of both sides.
    one, two = repo.writable_session("main"), repo.writable_session("main")
    write(one, {0: 11})  # one writer adds 1
    write(two, {0: 15})  # the other writer adds 5
    one.commit("one more")
    two.commit("five more", rebase_with=Sum())
    print("sum:", values(repo))

    # A session that tracks its reads refuses a commit if others changed the read data. Read and write again.
    one, two = (repo.writable_session("main", track_reads=True) for _ in range(2))
    write(one, {1: 7})
    write(two, {3: np.add(zarr.open_array(two.store, path="a")[1], 1)})
    one.commit("seven")
    try:
        two.commit("one more than the neighbour", rebase_with=ConflictDetector())
    except frazil.StaleReadError as error:
        print("stale:", *[read.path for read in error.reads])
    two = repo.writable_session("main", track_reads=True)
    write(two, {3: np.add(zarr.open_array(two.store, path="a")[1], 1)})
    two.commit("one more than the neighbour")
    print("read again:", values(repo))


if __name__ == "__main__":
    main()
