"""Small commits of one process, and of many processes at once."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from typing import Any

from commit_peers import connection, insert, messages, module_and_storage
from measure import Measured, scratch
from zarr.core.buffer import default_buffer_prototype

DOCUMENT = '{"zarr_format": 3, "node_type": "group", "attributes": {"count": %d}}'


def group(count: int) -> Any:
    return default_buffer_prototype().buffer.from_bytes((DOCUMENT % count).encode())


def alone(implementation: str, commits: int) -> Measured:
    """Measure one process that repeatedly changes the attributes of a group and commits."""
    from zarr.core.sync import sync

    out = Measured()
    with scratch() as root:
        if (database := connection(implementation, root)) is not None:
            with out.milliseconds_each("a commit", commits):
                for count in range(commits):
                    insert(database, f"commit {count}", DOCUMENT.encode())
            assert len(messages(database)) == commits
            return out
        icechunk, storage = module_and_storage(implementation, root)
        repo = icechunk.Repository.create(storage)
        with out.milliseconds_each("a commit", commits):
            for count in range(commits):
                session = repo.writable_session("main")
                sync(session.store.set("zarr.json", group(count)))
                session.commit(f"commit {count}")
        assert len(list(repo.ancestry(branch="main"))) == commits + 1
    return out


def contending(implementation: str, processes: int, commits: int) -> Measured:
    """Measure processes that commit to one branch. Each retries until its commit is reported as done."""
    out = Measured()
    with scratch() as root:
        database = connection(implementation, root)
        if database is None:
            icechunk, storage = module_and_storage(implementation, root)
            icechunk.Repository.create(storage)
        command = [sys.executable, __file__, implementation, root]
        workers = [
            subprocess.Popen(
                [*command, str(number), str(commits)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for number in range(processes)
        ]
        try:
            for worker in workers:
                assert worker.stdout is not None
                assert worker.stdout.readline() == "ready\n"
            with out.milliseconds_each("a commit", processes * commits):
                for worker in workers:  # all at once: ``communicate`` waits for the end of each worker
                    assert worker.stdin is not None
                    worker.stdin.write("go\n")
                    worker.stdin.flush()
                answers = [worker.communicate(timeout=600)[0] for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        acknowledged = {message for answer in answers for message in json.loads(answer)}
        if database is None:
            repo = icechunk.Repository.open(storage)
            known = [commit.message for commit in repo.ancestry(branch="main")]
        else:
            known = messages(database)
        out["acknowledged and lost, commits"] = len(acknowledged - set(known))
        out["a commit in the history, ms"] = (
            out["a commit, ms"] * processes * commits / len(acknowledged & set(known))
        )
        out["not acknowledged, commits"] = processes * commits - len(acknowledged)
    return out


def insert_all(database: sqlite3.Connection, number: str, commits: int) -> None:
    """Run one of the processes with SQLite, which waits for its turn in `insert`."""
    print("ready", flush=True)
    sys.stdin.readline()
    done = [f"{number}/{count}" for count in range(commits)]
    for message in done:
        insert(database, message, DOCUMENT.encode())
    print(json.dumps(done))


def work(implementation: str, root: str, number: str, commits: str) -> None:
    """Run one of the processes, and report the commits that it saw as done."""
    if (database := connection(implementation, root)) is not None:
        insert_all(database, number, int(commits))
        return
    from zarr.core.sync import sync

    icechunk, storage = module_and_storage(implementation, root)
    repo = icechunk.Repository.open(storage)
    print("ready", flush=True)
    sys.stdin.readline()
    done: list[str] = []
    tries = 0
    while len(done) < int(commits) and tries < 100 * int(commits):
        tries += 1
        message = f"{number}/{len(done)}"
        try:
            session = repo.writable_session("main")
            sync(session.store.set(f"worker{number}/zarr.json", group(len(done))))
            session.commit(message)
        except icechunk.IcechunkError:
            continue  # a conflict, or a file that another process has not finished writing
        done.append(message)
    print(json.dumps(done))


if __name__ == "__main__":
    work(*sys.argv[1:])
