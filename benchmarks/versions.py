"""A repository with many versions, each of which adds one manifest, as an append to a long array does.

It is written with encoders alone, because a thousand commits of the public methods take minutes.

``loose``   every reference has a chunk file of its own. Only the files of the first manifests exist, and as
            many files that no version needs, because a million files would measure the file system.
``packed``  the references of a version are ranges of one pack, and all packs exist, with checksums.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from frazil import Repository, local_filesystem_storage
from frazil.format.chunk_table import ChunkTable
from frazil.format.chunk_trailer import crc32c, encode_trailer
from frazil.format.columns import Ragged
from frazil.format.ids import chunk_key, manifest_key, snapshot_key, transaction_key
from frazil.format.manifest import Manifest, encode_manifest
from frazil.format.nodes import ArrayData, Node, NodeTable
from frazil.format.repo_info import (
    OpsEntry,
    OpsLog,
    SnapshotEntry,
    SnapshotTable,
    UpdateKind,
    decode_repo_info,
    encode_repo_info,
)
from frazil.format.snapshot import ManifestFiles, Snapshot, encode_snapshot, initial_snapshot
from frazil.format.transaction_log import TransactionLog, empty_log, encode_transaction_log

MINUTE = 60_000_000  # times are in microseconds
NODE = b"node-001"
CHUNK_BYTES = 4


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers of versions and of references. ``chunk_files`` is the number of the files that exist."""

    versions: int
    references: int
    chunk_files: int

    @property
    def of_a_version(self) -> int:
        return self.references // self.versions


def loose(folder: Path, sizes: Sizes) -> None:
    """Make a repository whose references have chunk files of their own."""
    _write(folder, sizes, _loose_chunks(folder, sizes))
    for _ in range(sizes.chunk_files // 2):
        (folder / chunk_key(os.urandom(12))).write_bytes(b"data")


def packed(folder: Path, sizes: Sizes) -> None:
    """Make a repository with one pack for each version."""
    _write(folder, sizes, _packs(folder, sizes))


def _loose_chunks(folder: Path, sizes: Sizes) -> Iterator[ChunkTable]:
    each = sizes.of_a_version
    for number in range(sizes.versions):
        ids = np.frombuffer(os.urandom(12 * each), np.uint8).reshape(-1, 12)
        if number * each < sizes.chunk_files // 2:
            for id_ in ids[: sizes.chunk_files // 2]:
                (folder / chunk_key(id_.tobytes())).write_bytes(b"data")
        yield ChunkTable.from_native(_index(number, each), ids, np.arange(each), 0, CHUNK_BYTES)


def _packs(folder: Path, sizes: Sizes) -> Iterator[ChunkTable]:
    each = sizes.of_a_version
    for number in range(sizes.versions):
        id_, data = os.urandom(12), os.urandom(CHUNK_BYTES * each)
        crcs = [crc32c(data[at : at + CHUNK_BYTES]) for at in range(0, len(data), CHUNK_BYTES)]
        trailer = encode_trailer(id_, [CHUNK_BYTES] * each, crcs)
        (folder / chunk_key(id_)).write_bytes(data + trailer)
        ids = np.frombuffer(id_, np.uint8).reshape(1, 12)
        offsets = np.arange(each) * CHUNK_BYTES
        yield ChunkTable.from_native(_index(number, each), ids, np.zeros(each, int), offsets, CHUNK_BYTES)


def _index(number: int, each: int) -> np.ndarray:
    return np.arange(number * each, (number + 1) * each).reshape(-1, 1)


def _write(folder: Path, sizes: Sizes, tables: Iterator[ChunkTable]) -> None:
    """Write the files of all versions, and the repo info. ``tables`` are the references of each version."""
    Repository.create(local_filesystem_storage(str(folder)))
    for name in ("chunks", "manifests", "snapshots", "transactions"):
        (folder / name).mkdir(exist_ok=True)
    file = folder / "repo"
    info = decode_repo_info(file.read_bytes(), "repo")
    start = info.table.entry(0).flushed_at - (sizes.versions + 1) * MINUTE
    first = initial_snapshot(start)
    (folder / snapshot_key(first.id)).write_bytes(encode_snapshot(first))
    entries = [replace(info.table.entry(0), flushed_at=start)]
    nodes = _nodes(sizes)
    ids, file_sizes = np.zeros((0, 12), np.uint8), np.zeros(0, np.uint64)
    for number, table in enumerate(tables):
        manifest = os.urandom(12)
        encoded = encode_manifest(Manifest(manifest, {NODE: table}))
        (folder / manifest_key(manifest)).write_bytes(encoded)
        ids = np.concatenate([ids, np.frombuffer(manifest, np.uint8).reshape(1, 12)])
        file_sizes = np.append(file_sizes, np.uint64(len(encoded)))
        time, parent = start + (number + 1) * MINUTE, entries[-1].id
        entry = SnapshotEntry(os.urandom(12), parent, time, f"update {number}", {})
        files = ManifestFiles(ids, file_sizes, np.full(len(ids), len(table), np.uint32)).sorted()
        snapshot = Snapshot(entry.id, time, entry.message, {}, _with_manifests(nodes, ids, len(table)), files)
        (folder / snapshot_key(entry.id)).write_bytes(encode_snapshot(snapshot))
        log = _log(entry.id, nodes if not number else None, table)
        (folder / transaction_key(entry.id)).write_bytes(encode_transaction_log(log))
        entries.append(entry)
    tip = entries[-1]
    ops = OpsLog.of(
        [
            OpsEntry(UpdateKind.NEW_COMMIT, tip.flushed_at + 1, name="main", new_snapshot=tip.id),
            OpsEntry(UpdateKind.REPO_INITIALIZED, start + 1),
        ]
    )
    info = replace(info, snapshots=SnapshotTable.of(entries), branches={"main": tip.id}, ops=ops)
    file.write_bytes(encode_repo_info(info))


def _log(snapshot: bytes, new_nodes: NodeTable | None, table: ChunkTable) -> TransactionLog:
    """Return the transaction log of a version with new references, and perhaps with new nodes."""
    log = replace(empty_log(snapshot), updated_chunks={NODE: table.index})
    return (
        log if new_nodes is None else replace(log, new_groups=new_nodes.ids[:1], new_arrays=new_nodes.ids[1:])
    )


def _nodes(sizes: Sizes) -> NodeTable:
    group = json.dumps({"zarr_format": 3, "node_type": "group"}).encode()
    array = ArrayData((sizes.references,), (sizes.references,), None)
    return NodeTable.from_nodes(
        [Node(b"node-000", "/", group, None), Node(NODE, "/a", _document(sizes.references), array)]
    )


def _with_manifests(nodes: NodeTable, ids: np.ndarray, each: int) -> NodeTable:
    """Return the nodes. The array has these manifests, in the order of its chunks."""
    cuts = np.arange(len(ids) + 1, dtype=np.uint32) * each
    boxes = np.stack([cuts[:-1], cuts[1:]], axis=1)
    return replace(
        nodes,
        manifests=Ragged.from_lengths(ids.reshape(-1).view("V12"), np.array([0, len(ids)])),
        extents=Ragged.from_lengths(boxes.reshape(-1), np.array([0, boxes.size])),
    )


def _document(chunks: int) -> bytes:
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
