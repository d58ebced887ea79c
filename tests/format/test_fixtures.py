"""Files written by the published icechunk decode to what its own readers said they hold."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from frazil.format.ids import id_from_text, id_to_text
from frazil.format.manifest import (
    InlineRef,
    Manifest,
    NativeRef,
    VirtualRef,
    decode_manifest,
    encode_manifest,
)
from frazil.format.snapshot import decode_entry, decode_snapshot, encode_snapshot
from frazil.format.transaction_log import decode_transaction_log, encode_transaction_log

_BESIDE = Path(__file__).parents[2] / ".." / "shared" / "fixtures"
FIXTURES = Path(os.environ.get("FRAZIL_FIXTURES", _BESIDE))
REPOS = sorted(path.parent for path in FIXTURES.glob("v[12]-*/*/expected.json"))

if not REPOS:
    pytest.skip(f"no fixture repositories in {FIXTURES} (set FRAZIL_FIXTURES)", allow_module_level=True)

pytestmark = pytest.mark.parametrize("repo", REPOS, ids=lambda repo: f"{repo.parent.name}/{repo.name}")


def _expected(repo: Path) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads((repo / "expected.json").read_text())
    return expected


def _manifests(repo: Path) -> dict[str, Manifest]:
    paths = sorted((repo / "repo" / "manifests").glob("*"))
    return {path.name: decode_manifest(path.read_bytes(), path.name) for path in paths}


def _chunk(index: list[int], ref: Any, manifest: str) -> dict[str, Any]:
    """A reference in the words of expected.json."""
    match ref:
        case InlineRef(data):
            return {"index": index, "kind": "inline", "manifest": manifest, "inline": data.hex()}
        case NativeRef(chunk_id, offset, length):
            fields = {"chunk_id": id_to_text(chunk_id), "offset": offset, "length": length}
            return {"index": index, "kind": "native", "manifest": manifest, **fields}
        case VirtualRef(location, offset, length, etag, modified):
            fields = {"location": location, "offset": offset, "length": length}
            checksum = {"etag": etag, "last_modified": modified}
            present = {name: value for name, value in checksum.items() if value is not None}
            return {"index": index, "kind": "virtual", "manifest": manifest, **fields, **present}
    raise AssertionError(ref)


def _array_chunks(manifests: dict[str, Manifest], node: dict[str, Any]) -> list[dict[str, Any]]:
    node_id = id_from_text(node["node_id"], 8)
    chunks = []
    for info in node["manifests"]:
        table = manifests[info["id"]].arrays[node_id]
        rows = zip(table.index.tolist(), map(table.ref, range(len(table))), strict=True)
        low, high = zip(*info["extents"], strict=True) if info["extents"] else ((), ())
        chunks += [
            _chunk(index, ref, info["id"])
            for index, ref in rows
            if all(a <= at < b for a, at, b in zip(low, index, high, strict=True))
        ]
    return sorted(chunks, key=lambda chunk: chunk["index"])


def test_chunk_references(repo: Path) -> None:
    manifests = _manifests(repo)
    rewritten = {
        name: decode_manifest(encode_manifest(manifest), name) for name, manifest in manifests.items()
    }
    seen = 0
    for snapshot in _expected(repo)["snapshots"].values():
        for node in snapshot.get("nodes", []):
            if node["type"] == "array":
                wanted = [
                    {name: value for name, value in chunk.items() if name != "compressed_location"}
                    for chunk in node["chunks"]
                ]
                assert _array_chunks(manifests, node) == wanted
                assert _array_chunks(rewritten, node) == wanted
                seen += len(wanted)
    assert seen or not manifests


def test_manifest_ids(repo: Path) -> None:
    assert all(id_to_text(manifest.id) == name for name, manifest in _manifests(repo).items())


_LISTS = ("new_groups", "new_arrays", "deleted_groups", "deleted_arrays", "updated_arrays", "updated_groups")


def test_transaction_logs(repo: Path) -> None:
    for name, expected in _expected(repo)["tx_logs"].items():
        log = decode_transaction_log((repo / "repo" / "transactions" / name).read_bytes(), name)
        for turn in (log, decode_transaction_log(encode_transaction_log(log), name)):
            assert id_to_text(turn.id) == name
            for field in _LISTS:
                ids = [id_to_text(row.tobytes()) for row in getattr(turn, field)]
                assert ids == expected[field], field
            chunks = {id_to_text(node): index.tolist() for node, index in turn.updated_chunks.items()}
            # Version 1.0.0 did not sort them.
            wanted = {entry["node_id"]: sorted(entry["chunks"]) for entry in expected["updated_chunks"]}
            assert chunks == wanted
            moves = [
                {
                    "from": m.source,
                    "to": m.target,
                    "node_id": id_to_text(m.node_id),
                    "node_type": int(m.is_array),
                }
                for m in turn.moves
            ]
            assert moves == (expected["moved_nodes"] or [])


def test_snapshots_keep_their_spec_version(repo: Path) -> None:
    for path in sorted((repo / "repo" / "snapshots").glob("*")):
        data = path.read_bytes()
        snapshot = decode_snapshot(data, path.name)
        again = decode_snapshot(encode_snapshot(snapshot), path.name)
        for name in ("id", "parent_id", "flushed_at", "message", "metadata", "spec_version"):
            assert getattr(again, name) == getattr(snapshot, name), name
        for name in ("ids", "size_bytes", "num_chunk_refs"):
            assert getattr(again.manifests, name).tolist() == getattr(snapshot.manifests, name).tolist()
        assert again.nodes.paths_list() == snapshot.nodes.paths_list()
        for row in range(len(snapshot.nodes)):
            assert str(again.nodes.node(row)) == str(snapshot.nodes.node(row))
        if snapshot.spec_version == 1:
            entry = decode_entry(data, path.name)
            expected = (
                snapshot.id,
                snapshot.parent_id,
                snapshot.flushed_at,
                snapshot.message,
                snapshot.metadata,
            )
            assert (entry.id, entry.parent, entry.flushed_at, entry.message, entry.metadata) == expected
