"""Many programs that commit to one branch, with and without cooperation.

*Cooperative*: one program has the session, workers write to forks of it, and one commit publishes all
changes. *Independent*: each program has its own session, and late commits without conflicts are rebased.

Run it:  python examples/how_to/transactions.py
"""

from __future__ import annotations

import pickle
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import numpy as np
import zarr

import frazil


def written(session: frazil.Session, part: int, value: int) -> None:
    zarr.open_array(session.store, path="a")[10 * part : 10 * part + 10] = value


def cooperative(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")

    def work(part: int) -> bytes:  # this can run on another machine
        fork = pickle.loads(sent)
        written(fork, part, 1)
        return pickle.dumps(fork)

    sent = pickle.dumps(session.fork())
    with ThreadPoolExecutor(4) as pool:
        session.merge(*map(pickle.loads, pool.map(work, range(8))))
    session.commit("Eight workers, one commit")


def on_its_own(storage: frazil.Storage, part: int) -> str:
    """A program that does not know the other programs."""
    # A late commit is rebased and retried until this time-out expires, unless it conflicts.
    patient = frazil.RepositoryConfig(fast_forward_timeout=timedelta(seconds=60))
    session = frazil.Repository.open(storage, patient).writable_session("main")
    written(session, part, 2)
    return session.commit(f"Program {part}")


def main(folder: Path) -> None:
    storage = frazil.local_filesystem_storage(str(folder))
    repo = frazil.Repository.create(storage)
    with repo.transaction("main", message="An array") as store:
        zarr.create_array(store, name="a", shape=(80,), chunks=(10,), dtype="i4")

    cooperative(repo)
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(on_its_own, [storage] * 8, range(8)))
    print("committed:", len(set(ids)))
    history = [snapshot.message for snapshot in repo.ancestry(branch="main")]
    print("history:", len(history), sorted(history)[2:5])
    values = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")[::10]
    print("values:", values)

    # Two writes to the same chunk conflict, and fast_forward_timeout cannot solve this. Read and write again.
    patient = frazil.RepositoryConfig(fast_forward_timeout=timedelta(seconds=60))
    repo = frazil.Repository.open(storage, patient)
    one, two = repo.writable_session("main"), repo.writable_session("main")
    written(one, 0, 3)
    written(two, 0, 4)
    one.commit("first")
    try:
        two.commit("second")
    except frazil.RebaseFailedError as error:
        print(error.kind, error.conflicts[0].path, error.conflicts[0].conflicted_chunks)
    again = repo.writable_session("main")
    current = int(np.asarray(zarr.open_array(again.store, path="a")[0]))
    written(again, 0, current + 1)
    again.commit("second, on what the first wrote")
    print("now:", np.asarray(zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")[0]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory) / "repo")
