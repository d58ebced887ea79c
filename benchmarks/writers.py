"""Many writers that commit to one branch at once, over a network with latency.

Each writer is a process, with disjoint regions of the same arrays. The references are virtual, so only
metadata are written. A writer commits as users do, with a rebase. The last writers can amend instead.
"""

from __future__ import annotations

import importlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from measure import Measured
from slow_network import SlowNetwork, loopback_storage
from workload import FRAZIL

# The tests use the same server.
sys.path.append(str(Path(__file__).resolve().parents[1]))

#: No client looks for credentials on the network.
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

URL = "s3://data/"
FOLDERS = ("manifests", "snapshots", "transactions")
SECONDS = 600


def contending(
    implementation: str,
    writers: int,
    arrays: int,
    references: int,
    latency_ms: int,
    split: bool = False,
    amending: int = 0,
) -> Measured:
    """Measure the commits of many writers.

    Args:
        implementation: The package.
        writers: The number of processes. Each commits once.
        arrays: The number of arrays in which each writer sets references.
        references: The number of references of a writer in each array.
        latency_ms: The delay of each answer of the object store.
        split: Whether the manifests are split so that each writer has its own.
        amending: The number of writers that amend the last commit, instead of committing.

    Returns:
        The measurements.
    """
    from tests.support.servers import ministack

    out = Measured()
    with ministack() as server, SlowNetwork(server.port, latency_ms / 1000) as network:
        bucket = f"bucket-{secrets.token_hex(8)}"
        server.make_bucket(bucket)
        sizes = {"writers": writers, "arrays": arrays, "references": references, "split": split}
        near: dict[str, Any] = {
            "implementation": implementation,
            "bucket": bucket,
            "port": server.port,
            **sizes,
        }
        _create(**near)
        far = {**near, "port": network.port}
        roles = ["commit"] * (writers - amending) + ["amend"] * amending
        tasks = [json.dumps({**far, "number": number, "role": role}) for number, role in enumerate(roles)]
        with _processes(tasks) as workers:
            network.requests.clear()
            with out.seconds("all commits"):
                for worker in workers:
                    assert worker.stdin is not None
                    worker.stdin.write("go\n")
                    worker.stdin.flush()
                answers = [json.loads(worker.communicate(timeout=SECONDS)[0]) for worker in workers]
        _add_answers(out, answers)
        _add_files(out, network.requests, writers * (arrays + len(FOLDERS) - 1 + 2))
        out["lost, references"] = _lost(near, answers)
    return out


@contextmanager
def _processes(tasks: list[str]) -> Iterator[list[subprocess.Popen[str]]]:
    """Start the writers, and wait until all of them are ready to commit."""
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for task in tasks
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _add_answers(out: Measured, answers: list[dict[str, Any]]) -> None:
    seconds = [answer["seconds"] for answer in answers]
    attempts = [answer["attempts"] for answer in answers]
    out["a commit, median, s"] = float(np.median(seconds))
    out["writers, processor s"] = sum(answer["processor"] for answer in answers)
    out["attempts, median"] = float(np.median(attempts))
    out["attempts, 99th percentile"] = float(np.percentile(attempts, 99, method="higher"))
    out["writers that gave up"] = sum(answer["error"] is not None for answer in answers)
    for error, count in Counter(answer["error"] for answer in answers if answer["error"]).items():
        print(f"{count} writers: {error}", file=sys.stderr)


def _add_files(out: Measured, requests: Counter[tuple[str, str]], least: int) -> None:
    """Add the numbers of files. ``least`` is the number without conflicts, with ``repo`` and its backups."""
    puts = {folder: count for (method, folder), count in requests.items() if method == "PUT"}
    print(dict(requests), file=sys.stderr)
    out["written files, of the least number"] = sum(puts.values()) / least
    out["requests"] = sum(requests.values())


def _lost(task: dict[str, Any], answers: list[dict[str, Any]]) -> int:
    """Return how many references of commits that were reported as done are not in the branch."""
    repo = _open(task)
    session = repo.readonly_session("main")
    names = session.all_virtual_chunk_locations()
    count = Counter(int(name.removeprefix(URL).partition("/")[0]) for name in names)
    done = [number for number, answer in enumerate(answers) if answer["error"] is None]
    return sum(max(0, task["arrays"] * task["references"] - count[number]) for number in done)


def _open(task: dict[str, Any]) -> Any:
    icechunk = importlib.import_module(task["implementation"])
    return icechunk.Repository.open(loopback_storage(icechunk, task["bucket"], task["port"]))


def _create(
    implementation: str, bucket: str, port: int, writers: int, arrays: int, references: int, split: bool
) -> None:
    """Make a repository with empty arrays."""
    icechunk = importlib.import_module(implementation)
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(URL, icechunk.s3_store(region="us-east-1"))
    )
    if split:
        sizes = {
            icechunk.ManifestSplitCondition.AnyArray(): {
                icechunk.ManifestSplitDimCondition.Axis(0): references
            }
        }
        config.manifest = icechunk.ManifestConfig(splitting=icechunk.ManifestSplittingConfig.from_dict(sizes))
    repo = icechunk.Repository.create(loopback_storage(icechunk, bucket, port), config)
    repo.save_config()
    session = repo.writable_session("main")
    root = zarr.create_group(session.store)
    for number in range(arrays):
        root.create_array(f"v{number}", shape=(writers * references,), chunks=(1,), dtype="f4")
    session.commit("arrays")


def work(task: dict[str, Any]) -> None:
    """Run one of the writers, and report how its commit went."""
    icechunk = importlib.import_module(task["implementation"])
    repo = _open(task)
    session = repo.writable_session("main")
    number, references = task["number"], task["references"]
    offsets = np.arange(references, dtype="u8") * 4
    lengths = np.full(references, 4, "u8")
    for array in range(task["arrays"]):
        names = [f"{URL}{number}/{array}.nc"] * references
        session.store.set_virtual_refs_arr(
            f"v{array}", (references,), names, offsets, lengths, arr_offset=(number * references,)
        )
    print("ready", flush=True)
    sys.stdin.readline()
    answer: dict[str, Any] = {"attempts": 0, "error": None}
    start, processor = time.perf_counter(), time.process_time()
    try:
        for attempts in _attempts(icechunk, session, task["role"], f"writer {number}"):
            answer["attempts"] = attempts
    except icechunk.IcechunkError as error:
        answer["error"] = f"{type(error).__name__}: {error!s:.300}"
    answer["seconds"] = time.perf_counter() - start
    answer["processor"] = time.process_time() - processor
    if answer["error"] is None:
        metadata = repo.lookup_snapshot(session.snapshot_id).metadata
        answer["attempts"] += metadata.get("__icechunk", {}).get("rebase_attempts", 0)
    print(json.dumps(answer))


def _attempts(icechunk: Any, session: Any, role: str, message: str) -> Iterator[int]:
    """Commit, or amend as the documentation of both libraries says. Yield the number of the attempt."""
    solver = icechunk.BasicConflictSolver()
    if role == "commit":
        session.commit(message, rebase_with=solver)
        yield 1
        return
    if icechunk.__name__ == FRAZIL:
        session.amend(message, rebase_with=solver)
        yield 1
        return
    for attempt in range(1, 1001):
        yield attempt
        try:
            session.amend(message)
        except icechunk.ConflictError:
            session.rebase(solver)
        else:
            return


if __name__ == "__main__":
    work(json.loads(sys.argv[1]))
