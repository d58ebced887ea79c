"""Files that the reference wrote, from its oldest flatbuffers on: written again, they say the same.

What they say is compared with the reference in ``tests/interop/test_fixtures.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures import fixture_folders

from frazil.format.manifest import Manifest, decode_manifest, encode_manifest
from frazil.format.repo_info import RepoInfo, decode_repo_info, encode_repo_info
from frazil.format.snapshot import Snapshot, decode_entry, decode_snapshot, encode_snapshot
from frazil.format.transaction_log import (
    ID_LISTS,
    TransactionLog,
    decode_transaction_log,
    encode_transaction_log,
)

FOLDERS = fixture_folders("v1-*/*") + fixture_folders("v2-*/*")
KINDS: dict[str, tuple[Callable[..., Any], Callable[..., bytes]]] = {
    "repo": (decode_repo_info, encode_repo_info),
    "overwritten/repo.*": (decode_repo_info, encode_repo_info),
    "snapshots/*": (decode_snapshot, encode_snapshot),
    "manifests/*": (decode_manifest, encode_manifest),
    "transactions/*": (decode_transaction_log, encode_transaction_log),
}


def content(value: RepoInfo | Snapshot | Manifest | TransactionLog) -> Any:
    match value:
        case RepoInfo(snapshots=snapshots, ops=ops):
            others = [name for name in RepoInfo.__dataclass_fields__ if name not in ("snapshots", "ops")]
            entries = [each.entry(row) for each in (value.table, ops) for row in range(len(each))]
            return [getattr(value, name) for name in others], len(snapshots), entries
        case Snapshot(nodes=nodes, manifests=files):
            own = [getattr(value, name) for name in ("id", "parent_id", "flushed_at", "message", "metadata")]
            columns = [each.tolist() for each in (files.ids, files.size_bytes, files.num_chunk_refs)]
            return own, value.spec_version, columns, [nodes.node(row) for row in range(len(nodes))]
        case Manifest(arrays=arrays):
            tables = arrays.items()
            return value.id, {
                node: (each.index.tolist(), list(map(each.ref, range(len(each))))) for node, each in tables
            }
    chunks = {node: index.tolist() for node, index in value.updated_chunks.items()}
    return value.id, chunks, value.moves, [getattr(value, name).tolist() for name in ID_LISTS]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_rewritten_files_say_the_same(folder: Path) -> None:
    for pattern, (decode, encode) in KINDS.items():
        for file in sorted((folder / "repo").glob(pattern)):
            read = decode(file.read_bytes(), file.name)
            assert content(decode(encode(read), file.name)) == content(read)
            if isinstance(read, Snapshot) and read.spec_version == 1:
                entry = decode_entry(file.read_bytes(), file.name)
                assert (entry.id, entry.parent, entry.flushed_at) == (
                    read.id,
                    read.parent_id,
                    read.flushed_at,
                )
                assert (entry.message, entry.metadata) == (read.message, read.metadata)
