"""Upkeep of a repository with many versions and references: time and memory of each operation.

Each version adds a manifest, as an append to a long array does. Chunk files exist only as garbage and for
the first manifests, because a million files would measure the file system.

Every operation runs in a process of its own on a copy of the repository, so that its peak of memory is its
own.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from measure import Measured, peak_mib, scratch

SECOND = 1_000_000  # times are in microseconds
TOMORROW = datetime.now(UTC) + timedelta(days=1)
NODE = b"node-001"


def operations(implementation: str, versions: int, references: int, chunk_files: int) -> Measured:
    """Measure each operation."""
    out = Measured()
    with scratch() as folder:
        in_process(make, f"{folder}/source", versions, references, chunk_files)
        for name in OPERATIONS:
            if implementation == "frazil" or name in BOTH:
                out |= operation(implementation, name, folder)
    return out


def operation(implementation: str, name: str, folder: str) -> dict[str, float]:
    """Measure one operation on a copy of the repository."""
    root = f"{folder}/copy"
    shutil.copytree(f"{folder}/source", root)
    for step in name.split(", then "):
        seconds, used, peak = in_process(measured, implementation, step, root)
    shutil.rmtree(root)
    return {f"{name}, s": seconds, f"{name}, processor s": used, f"{name}, peak MiB": peak}


def in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def measured(implementation: str, name: str, root: str) -> tuple[float, float, float]:
    """Return the seconds and processor seconds of an operation, and the peak of memory in MiB."""
    package = importlib.import_module(implementation)
    repo = package.Repository.open(package.local_filesystem_storage(root))
    start, start_of_use = time.perf_counter(), time.process_time()
    OPERATIONS[name.removesuffix(" again")](repo)
    return time.perf_counter() - start, time.process_time() - start_of_use, peak_mib()


def expire(repo: Any) -> None:
    """Expire half of the versions."""
    times = [each.written_at for each in repo.ancestry(branch="main")]
    assert len(repo.expire_snapshots(times[len(times) // 2])) > len(times) // 3


def collect(repo: Any) -> None:
    """Collect garbage."""
    repo.garbage_collect(TOMORROW)


def retain(repo: Any) -> None:
    """Keep one version of each minute."""
    frazil = importlib.import_module("frazil")
    assert len(repo.apply_retention(frazil.Retention(last=10, hourly="all")).removed)


#: Each operation by name. "A, then B" measures only B.
OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "expire": expire,
    "collect": collect,
    "collect, then collect again": collect,
    "statistics": lambda repo: repo.chunk_storage_stats(),
    "rewrite manifests": lambda repo: repo.rewrite_manifests("again", branch="main"),
    "retention": retain,
    "verify": lambda repo: repo.verify(),
}
BOTH = ("expire", "collect", "collect, then collect again", "statistics", "rewrite manifests")


def make(root: str, versions: int, references: int, chunk_files: int) -> None:
    """Make the repository."""
    from frazil import Repository, local_filesystem_storage
    from frazil.format.chunk_table import ChunkKind, ChunkTable
    from frazil.format.keys import chunk_key, manifest_key, snapshot_key, transaction_key
    from frazil.format.manifest import Manifest, encode_manifest
    from frazil.format.nodes import ArrayData, ManifestRef, Node, NodeTable
    from frazil.format.repo_info import SnapshotEntry, SnapshotTable, decode_repo_info, encode_repo_info
    from frazil.format.snapshot import ManifestFiles, Snapshot, encode_snapshot
    from frazil.format.transaction_log import empty_log, encode_transaction_log

    storage = local_filesystem_storage(root)
    Repository.create(storage)
    file = Path(root) / "repo"
    info = decode_repo_info(file.read_bytes(), "repo")
    first = info.snapshots.entry(0)
    each = references // versions
    start = first.flushed_at - (versions + 1) * SECOND * 60
    entries = [replace(first, flushed_at=start)]
    refs: list[ManifestRef] = []
    files = ManifestFiles.empty()
    document = array_document(versions * each)
    empty = ChunkTable.from_inline([[0]], [b""])
    group = Node(b"node-000", "/", json.dumps({"zarr_format": 3, "node_type": "group"}).encode(), None)
    for number in range(versions):
        ids = np.frombuffer(os.urandom(12 * each), np.uint8).reshape(-1, 12)
        index = np.arange(number * each, (number + 1) * each, dtype=np.uint32).reshape(-1, 1)
        table = replace(
            empty,
            index=index,
            kind=np.full(each, ChunkKind.NATIVE, np.uint8),
            source=np.arange(each, dtype=np.uint32),
            offset=np.zeros(each, np.uint64),
            length=np.full(each, 4, np.uint64),
            chunk_ids=ids,
            inline=type(empty.inline).empty(),
        )
        manifest, snapshot = os.urandom(12), os.urandom(12)
        encoded = encode_manifest(Manifest(manifest, {NODE: table}))
        storage.put(manifest_key(manifest), encoded)
        if number * each < chunk_files // 2:
            for id_ in ids[: chunk_files // 2]:
                storage.put(chunk_key(id_.tobytes()), b"data")
        refs.append(ManifestRef(manifest, np.array([[index[0, 0], index[-1, 0] + 1]], np.uint32)))
        files = ManifestFiles(
            np.concatenate([files.ids, np.frombuffer(manifest, np.uint8).reshape(1, 12)]),
            np.append(files.size_bytes, np.uint64(len(encoded))),
            np.append(files.num_chunk_refs, np.uint32(each)),
        ).sorted()
        data = ArrayData((versions * each,), (versions * each,), None, tuple(refs))
        nodes = NodeTable.from_nodes([group, Node(NODE, "/a", document, data)])
        flushed = start + (number + 1) * SECOND * 60
        storage.put(
            snapshot_key(snapshot),
            encode_snapshot(Snapshot(snapshot, flushed, str(number), {}, nodes, files)),
        )
        storage.put(transaction_key(snapshot), encode_transaction_log(empty_log(snapshot)))
        entries.append(SnapshotEntry(snapshot, entries[-1].id, flushed, f"update {number}", {}))
    for _ in range(chunk_files // 2):
        storage.put(chunk_key(os.urandom(12)), b"data")
    info = replace(info, snapshots=SnapshotTable.of(entries), branches={"main": entries[-1].id})
    file.write_bytes(encode_repo_info(info))


def array_document(chunks: int) -> bytes:
    """Return the metadata of the array."""
    return json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [chunks],
            "data_type": "int32",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "attributes": {},
        }
    ).encode()


if __name__ == "__main__":
    with scratch() as place:
        in_process(make, f"{place}/source", *map(int, sys.argv[1:]))
        for each in OPERATIONS:
            for package in ("frazil", "icechunk") if each in BOTH else ("frazil",):
                values = operation(package, each, place).values()
                print(f"{each:30} {package:10}", *(f"{value:8.2f}" for value in values), flush=True)
