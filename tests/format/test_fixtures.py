"""Files that the reference wrote, from its oldest flatbuffers on.

Each file must say what ``expected.json`` says, and still say it after we wrote it again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures import fixture_folders, fixture_path

from frazil.format.ids import id_from_text, id_to_text
from frazil.format.manifest import (
    InlineRef,
    Manifest,
    NativeRef,
    VirtualRef,
    decode_manifest,
    encode_manifest,
)
from frazil.format.repo_info import (
    Availability,
    OpsEntry,
    RepoInfo,
    UpdateKind,
    decode_repo_info,
    encode_repo_info,
)
from frazil.format.snapshot import ArrayData, Snapshot, decode_entry, decode_snapshot, encode_snapshot
from frazil.format.transaction_log import ID_LISTS, decode_transaction_log, encode_transaction_log

V1 = fixture_folders("v1-*/*")
V2 = fixture_folders("v2-*/*")


def name(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


def expected(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "expected.json").read_text())
    return content


def test_fixtures_exist() -> None:
    fixture_path("v2-2.3.0", "basic", "repo", "repo")
    assert len(V1) >= 9
    assert len(V2) >= 10


@pytest.mark.parametrize("folder", V1 + V2, ids=name)
def test_every_snapshot(folder: Path) -> None:
    snapshots = expected(folder)["snapshots"]
    assert sorted(snapshots) == sorted(path.name for path in (folder / "repo/snapshots").iterdir())
    for id_, content in snapshots.items():
        read = decode_snapshot((folder / "repo/snapshots" / id_).read_bytes(), id_)
        again = decode_snapshot(encode_snapshot(read), id_)
        assert read.spec_version == content["raw"]["header"]["spec"]
        assert again.spec_version == read.spec_version
        parent = content["raw"]["parent_id"]
        assert read.parent_id == again.parent_id or parent
        assert (read.parent_id and id_to_text(read.parent_id)) == parent
        for snapshot in (read, again):
            check_snapshot(snapshot, content)
        if read.spec_version == 1:
            entry = decode_entry((folder / "repo/snapshots" / id_).read_bytes(), id_)
            assert (entry.id, entry.parent, entry.flushed_at) == (read.id, read.parent_id, read.flushed_at)
            assert (entry.message, entry.metadata) == (read.message, read.metadata)


def check_snapshot(snapshot: Snapshot, content: dict[str, Any]) -> None:
    raw = content["raw"]
    assert id_to_text(snapshot.id) == raw["id"]
    assert (snapshot.flushed_at, snapshot.message) == (raw["flushed_at"], raw["message"])
    assert snapshot.metadata == {item["name"]: item["value"] for item in raw["metadata"]}
    files = raw["manifest_files"] or raw["manifest_files_v2"] or []
    ids = [id_to_text(row.tobytes()) for row in snapshot.manifests.ids]
    sizes, counts = snapshot.manifests.size_bytes.tolist(), snapshot.manifests.num_chunk_refs.tolist()
    assert sorted(zip(ids, sizes, counts, strict=True)) == sorted(
        (file["id"], file["size_bytes"], file["num_chunk_refs"]) for file in files
    )
    for row, id_ in enumerate(snapshot.manifests.ids):
        assert snapshot.manifests.size_of(id_.tobytes()) == sizes[row]
    if "nodes" not in content:
        return
    nodes = content["nodes"]
    paths = snapshot.nodes.paths_list()
    assert paths == sorted((node["path"] for node in nodes), key=str.encode)
    for node in nodes:
        row = snapshot.nodes.find_node(node["path"])
        assert paths[row] == node["path"]
        check_node(snapshot, row, node)
        parent, _, last = node["path"].rpartition("/")
        assert not last or last in snapshot.nodes.children(parent or "/")


def check_node(snapshot: Snapshot, row: int, node: dict[str, Any]) -> None:
    actual = snapshot.nodes.node(row)
    assert id_to_text(actual.id) == node["node_id"]
    assert json.loads(actual.user_data) == node["zarr_json"]
    if node["type"] == "group":
        assert actual.array is None
        return
    assert actual.array is not None
    names = node["dimension_names"]
    assert actual.array.dimension_names == (names if names is None else tuple(names))
    manifests = [(id_to_text(ref.id), ref.extents.tolist()) for ref in actual.array.manifests]
    assert manifests == [(ref["id"], ref["extents"]) for ref in node["manifests"]]
    check_grid(actual.array, node)


def check_grid(array: ArrayData, node: dict[str, Any]) -> None:
    if node["shape_v2"] is not None:
        pairs = zip(array.shape, array.num_chunks, strict=True)
        assert list(map(list, pairs)) == node["shape_v2"]
        return
    grid = node["zarr_json"]["chunk_grid"]["configuration"]["chunk_shape"]
    assert list(array.shape) == node["zarr_json"]["shape"]
    assert list(array.num_chunks) == [
        -(-length // chunk) for length, chunk in zip(array.shape, grid, strict=True)
    ]


def test_a_false_chunk_length_is_not_believed() -> None:
    """2.3.0 writes version 1 with chunk lengths computed back from their number: 9 in 4s becomes 3."""
    folder = fixture_path("v1-by-2.3.0", "basic")
    lies = 0
    for id_, content in expected(folder)["snapshots"].items():
        snapshot = decode_snapshot((folder / "repo/snapshots" / id_).read_bytes(), id_)
        for node in content["nodes"]:
            if node["type"] == "array":
                grid = node["zarr_json"]["chunk_grid"]["configuration"]["chunk_shape"]
                lies += grid != [chunk for _, chunk in node["shape_v1"]]
                exact = snapshot.nodes.exact()
                row = snapshot.nodes.find_node(node["path"])
                assert exact.node(row) == snapshot.nodes.node(row)
    assert lies


@pytest.mark.parametrize("kind", ["v1-1.0.0/order", "v2-2.3.0/component-order-handpatched"])
def test_component_order_hides_no_node(kind: str) -> None:
    folder = fixture_path(*kind.split("/"))
    content = expected(folder)["snapshots"]
    unsorted = 0
    for id_, each in content.items():
        paths = [node["path"] for node in each["nodes"]]
        unsorted += paths != sorted(paths)
        table = decode_snapshot((folder / "repo/snapshots" / id_).read_bytes(), id_).nodes
        assert [table.node(table.find_node(path)).path for path in paths] == paths
    assert unsorted == 1


@pytest.mark.parametrize("folder", V2, ids=name)
def test_every_repo_info(folder: Path) -> None:
    content = expected(folder)
    read = decode_repo_info((folder / "repo/repo").read_bytes(), "repo")
    again = decode_repo_info(encode_repo_info(read), "repo")
    for info in (read, again):
        check_repo_info(info, content["repo_info_raw"])
        texts = {name: id_to_text(id_) for name, id_ in info.branches.items()}
        assert texts == content["refs"]["branches"]
        assert {name: id_to_text(id_) for name, id_ in info.tags.items()} == content["refs"]["tags"]
        for tip, chain in content["ancestry"].items():
            kind, _, ref = tip.partition(":")
            id_ = info.branches[ref] if kind == "branch" else info.tags[ref]
            rows = info.snapshots.chain(info.snapshots.find_snapshot(id_)).tolist()
            ids = [id_to_text(info.snapshots.id_of(row)) for row in rows]
            assert ids == [each["id"] for each in chain]


def test_every_repo_info_of_every_backup() -> None:
    fixture_path("v2-2.3.0")
    seen = set()
    for folder in V2:
        for path in (folder / "repo/overwritten").glob("repo.*"):
            info = decode_repo_info(path.read_bytes(), path.name)
            again = decode_repo_info(encode_repo_info(info), path.name)
            assert entries(info) == entries(again)
            seen |= {entry.kind for entry in entries(info)}
    assert seen >= {UpdateKind.BRANCH_DELETED, UpdateKind.TAG_DELETED, UpdateKind.GC_RAN}


def entries(info: RepoInfo) -> list[OpsEntry]:
    return [info.ops.entry(row) for row in range(len(info.ops))]


def check_repo_info(info: RepoInfo, raw: dict[str, Any]) -> None:
    ids = [id_to_text(row.tobytes()) for row in info.snapshots.ids()]
    assert [
        {"name": n, "snapshot_index": ids.index(id_to_text(i))} for n, i in sorted(info.tags.items())
    ] == raw["tags"]
    assert sorted(info.deleted_tags) == raw["deleted_tags"]
    assert info.spec_version == raw["spec_version"]
    assert info.config == raw["config"]
    assert sorted(info.enabled_flags) == (raw["enabled_feature_flags"] or [])
    assert sorted(info.disabled_flags) == (raw["disabled_feature_flags"] or [])
    assert info.metadata == {item["name"]: item["value"] for item in raw["metadata"]}
    assert info.repo_before_updates == raw["repo_before_updates"]
    check_status(info.status, raw["status"])
    assert len(info.snapshots) == len(raw["snapshots"])
    for row, snapshot in enumerate(raw["snapshots"]):
        entry = info.snapshots.entry(row)
        assert id_to_text(entry.id) == snapshot["id"]
        assert int(info.snapshots.parents()[row]) == snapshot["parent_offset"]
        assert (entry.flushed_at, entry.message) == (snapshot["flushed_at"], snapshot["message"])
        assert entry.metadata == {item["name"]: item["value"] for item in snapshot["metadata"]}
        pruned = list(map(id_to_text, entry.pruned_ancestor_tx_logs))
        assert pruned == (snapshot["pruned_ancestor_tx_logs"] or [])
    assert len(info.ops) == len(raw["latest_updates"])
    for row, update in enumerate(raw["latest_updates"]):
        check_update(info.ops.entry(row), update)


def check_status(status: Any, raw: dict[str, Any]) -> None:
    assert (status.availability, status.set_at, status.reason) == (
        Availability(raw["availability"]),
        raw["set_at"],
        raw["reason"],
    )


def check_update(entry: OpsEntry, raw: dict[str, Any]) -> None:
    assert entry.kind.name.replace("_", "") == raw["type"].upper()
    assert (entry.updated_at, entry.backup_path) == (raw["updated_at"], raw["backup_path"])
    assert entry.name == raw.get("branch", raw.get("name"))
    assert (entry.previous_snapshot and id_to_text(entry.previous_snapshot)) == raw.get("previous_snap_id")
    assert (entry.new_snapshot and id_to_text(entry.new_snapshot)) == raw.get("new_snap_id")
    if "is_set" in raw:
        assert entry.flag == (raw["id"], bool(raw["new_value"]), bool(raw["is_set"]))
    if "status" in raw:
        check_status(entry.status, raw["status"])
    if entry.kind is UpdateKind.REPO_MIGRATED:
        assert entry.versions == (raw["from_version"], raw["to_version"])


@pytest.mark.parametrize("kind", ["basic", "meta", "expired", "vcc"])
def test_recorded_gives_the_log_of_the_reference(kind: str) -> None:
    """From the first backup on: our log with each new entry on top equals the next backup's."""
    folder = fixture_path("v2-2.3.0", kind, "repo")
    files = list((folder / "overwritten").glob("repo.*"))
    infos = {path.name: decode_repo_info(path.read_bytes(), path.name) for path in files}
    order = sorted(infos, key=lambda name: len(infos[name].ops))
    last = decode_repo_info((folder / "repo").read_bytes(), "repo")
    states = [*(infos[name] for name in order), last]
    assert len(states) == len(last.ops)
    for name_, before, after in zip(order, states, states[1:], strict=False):
        info = before.recorded(after.ops.entry(0), backup=name_, keep=1000)
        assert entries(info) == entries(after)
        assert info.repo_before_updates is None


def manifests_of(folder: Path) -> dict[str, Manifest]:
    paths = sorted((folder / "repo/manifests").glob("*"))
    return {path.name: decode_manifest(path.read_bytes(), path.name) for path in paths}


def chunk(index: list[int], ref: Any, manifest: str) -> dict[str, Any]:
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
            present = {key: value for key, value in checksum.items() if value is not None}
            return {"index": index, "kind": "virtual", "manifest": manifest, **fields, **present}
    raise AssertionError(ref)


def chunks_of(manifests: dict[str, Manifest], node: dict[str, Any]) -> list[dict[str, Any]]:
    node_id = id_from_text(node["node_id"], 8)
    chunks = []
    for info in node["manifests"]:
        table = manifests[info["id"]].arrays[node_id]
        rows = zip(table.index.tolist(), map(table.ref, range(len(table))), strict=True)
        low, high = zip(*info["extents"], strict=True) if info["extents"] else ((), ())
        chunks += [
            chunk(index, ref, info["id"])
            for index, ref in rows
            if all(a <= at < b for a, at, b in zip(low, index, high, strict=True))
        ]
    return sorted(chunks, key=lambda each: each["index"])


@pytest.mark.parametrize("folder", V1 + V2, ids=name)
def test_chunk_references(folder: Path) -> None:
    manifests = manifests_of(folder)
    assert all(id_to_text(manifest.id) == key for key, manifest in manifests.items())
    rewritten = {key: decode_manifest(encode_manifest(manifest), key) for key, manifest in manifests.items()}
    seen = 0
    for snapshot in expected(folder)["snapshots"].values():
        for node in snapshot.get("nodes", []):
            if node["type"] == "array":
                wanted = [
                    {key: value for key, value in each.items() if key != "compressed_location"}
                    for each in node["chunks"]
                ]
                assert chunks_of(manifests, node) == wanted
                assert chunks_of(rewritten, node) == wanted
                seen += len(wanted)
    assert seen or not manifests


@pytest.mark.parametrize("folder", V1 + V2, ids=name)
def test_transaction_logs(folder: Path) -> None:
    for key, content in expected(folder)["tx_logs"].items():
        log = decode_transaction_log((folder / "repo/transactions" / key).read_bytes(), key)
        for turn in (log, decode_transaction_log(encode_transaction_log(log), key)):
            assert id_to_text(turn.id) == key
            for field in ID_LISTS:
                ids = [id_to_text(row.tobytes()) for row in getattr(turn, field)]
                assert ids == content[field], field
            chunks = {id_to_text(node): index.tolist() for node, index in turn.updated_chunks.items()}
            # Version 1.0.0 did not sort them.
            wanted = {entry["node_id"]: sorted(entry["chunks"]) for entry in content["updated_chunks"]}
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
            assert moves == (content["moved_nodes"] or [])
