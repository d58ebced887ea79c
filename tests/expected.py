"""Comparing a repository, as Frazil reads it, with an ``expected.json``.

That file says what another implementation found in the repository: refs, history, ops log, and for every
snapshot its nodes, chunk references and array contents (``sha256`` of the bytes in C order, little-endian).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import zarr

import frazil
from frazil.format.ids import id_from_text, id_to_text
from frazil.format.manifest import ChunkRef, InlineRef, NativeRef, VirtualRef
from frazil.format.nodes import Node
from frazil.repository.session.workspace import Workspace

Expected = dict[str, Any]
#: What an array that the other implementation could not read is compared with: None, or its values.
Unread = Callable[[str, Expected], Any]

LISTS = ("new_groups", "new_arrays", "deleted_groups", "deleted_arrays", "updated_arrays", "updated_groups")
KINDS = {"native": 1, "virtual": 2, "inline": 3}


# Refs, history, and what concerns the repository as a whole


def refs_of(repo: Any) -> Expected:
    return {
        "branches": {name: repo.lookup_branch(name) for name in repo.list_branches()},
        "tags": {name: repo.lookup_tag(name) for name in repo.list_tags()},
    }


def ancestry_of(repo: Any, **ref: str) -> list[Expected]:
    return [
        {
            "id": entry.id,
            "parent_id": entry.parent_id,
            "message": entry.message,
            "written_at": entry.written_at.isoformat(),
            "metadata": entry.metadata,
        }
        for entry in repo.ancestry(**ref)
    ]


def history_of(repo: Any) -> Expected:
    """The ancestry of every branch and tag."""
    out = {f"branch:{name}": ancestry_of(repo, branch=name) for name in repo.list_branches()}
    return out | {f"tag:{name}": ancestry_of(repo, tag=name) for name in repo.list_tags()}


def ops_of(repo: Any) -> list[Expected]:
    return [
        {
            "kind": kind_text(update.kind),
            "updated_at": update.updated_at.isoformat(),
            "backup_path": update.backup_path,
        }
        for update in repo.ops_log()
    ]


def kind_text(kind: object) -> str:
    """``NewCommit(branch="main", new_snap_id="...")``; the two print a status in different ways."""
    text = str(kind).rpartition("ops.UpdateType.")[2]
    match = _STATUS.fullmatch(text)
    if match is None:
        return text
    when = datetime.fromisoformat(match["when"]) if "T" in match["when"] else _literal_time(match["when"])
    reason = re.sub(r"^Some\((.*)\)$", r"\1", match["reason"]).strip("\"'")
    return f"RepoStatusChanged({match['availability']}, {when.isoformat()}, {reason})"


_STATUS = re.compile(
    r"RepoStatusChanged\(status=RepoStatus\(availability=(?P<availability>\w+), set_at=(?P<when>.*?), "
    r"limited_availability_reason=(?P<reason>.*)\)\)"
)


def _literal_time(text: str) -> datetime:
    year, month, day, hour, minute, second, micros = map(int, re.findall(r"\d+", text)[:7])
    return datetime(year, month, day, hour, minute, second, micros, UTC)


def diff_text(diff: Any) -> Expected:
    """What changed, sorted."""
    chunks = {path: sorted(map(list, at)) for path, at in diff.updated_chunks.items()}
    moved = sorted(map(list, diff.moved_nodes))
    return {name: sorted(getattr(diff, name)) for name in LISTS} | {"chunks": chunks, "moved": moved}


def flags_of(repo: Any) -> list[Expected]:
    fields = ("id", "name", "default_enabled", "setting", "enabled")
    flags = [{name: getattr(flag, name) for name in fields} for flag in repo.feature_flags()]
    return sorted(flags, key=lambda flag: flag["id"])


def status_text(status: object) -> str:
    return str(status).partition("\n")[2]


def check_repository(repo: frazil.Repository, expected: Expected) -> None:
    """All but the snapshots."""
    wanted = expected["refs"]
    assert refs_of(repo) == {name: wanted[name] for name in ("branches", "tags")}
    assert sorted(repo._info().deleted_tags) == wanted["deleted_tags"]
    assert history_of(repo) == expected["ancestry"]
    assert repo.spec_version.value == expected["spec_version"]
    for name, log in expected["tx_logs"].items():
        check_log(repo, name, log)
    if expected["spec_version"] == 1:
        return
    assert ops_of(repo) == [{**op, "kind": kind_text(op["kind"])} for op in expected["ops_log"]]
    assert repo.get_metadata() == expected["repo_metadata"]
    assert status_text(repo.get_status()) == status_text(expected["status"])
    assert flags_of(repo) == sorted(expected["feature_flags"], key=lambda flag: flag["id"])


def check_log(repo: frazil.Repository, name: str, expected: Expected) -> None:
    log = repo._context.assets.transaction_log(id_from_text(name))
    actual: Expected = {field: sorted(map(id_text, getattr(log, field))) for field in LISTS}
    actual["updated_chunks"] = {id_to_text(node): at.tolist() for node, at in log.updated_chunks.items()}
    actual["moved_nodes"] = [
        {"from": m.source, "to": m.target, "node_id": id_to_text(m.node_id), "node_type": int(m.is_array)}
        for m in log.moves
    ]
    wanted: Expected = {field: sorted(expected[field]) for field in LISTS}
    wanted["updated_chunks"] = {
        entry["node_id"]: sorted(entry["chunks"]) for entry in expected["updated_chunks"]
    }
    wanted["moved_nodes"] = expected["moved_nodes"] or []
    assert actual == wanted, f"transaction log {name}"


def id_text(row: Any) -> str:
    return id_to_text(row.tobytes())


# One snapshot


def check_snapshot(
    session: frazil.Session, expected: Expected, unread: Unread = lambda path, node: None
) -> int:
    """Nodes, references and array contents of a session; how many arrays were compared by content."""
    workspace = session.workspace
    raw = expected["raw"]
    snapshot = workspace.snapshot
    assert id_to_text(snapshot.id) == raw["id"]
    assert (snapshot.flushed_at, snapshot.message) == (raw["flushed_at"], raw["message"])
    assert snapshot.metadata == {item["name"]: item["value"] for item in raw["metadata"]}
    files = snapshot.manifests
    assert [
        {"id": id_text(id_), "size_bytes": size, "num_chunk_refs": count}
        for id_, size, count in zip(
            files.ids, files.size_bytes.tolist(), files.num_chunk_refs.tolist(), strict=True
        )
    ] == sorted(
        [
            {name: file[name] for name in ("id", "size_bytes", "num_chunk_refs")}
            for file in raw["manifest_files_v2"] or raw.get("manifest_files") or []
        ],
        key=lambda file: id_from_text(file["id"]),
    )
    if "nodes" not in expected:  # the other implementation could not open it
        return 0
    by_path = sorted(expected["nodes"], key=lambda node: node["path"].encode())
    assert workspace.node_table().paths_list() == [node["path"] for node in by_path]
    assert sorted(keys_of(session)) == expected["store_keys"]
    return sum(check_node(session, node, unread) for node in by_path)


def keys_of(session: Any) -> list[str]:
    async def collect() -> list[str]:
        return [key async for key in session.store.list()]

    return asyncio.run(collect())


def check_node(session: frazil.Session, expected: Expected, unread: Unread) -> bool:
    workspace, path = session.workspace, expected["path"]
    node = workspace.require_node(path)
    assert id_to_text(node.id) == expected["node_id"] == session.get_node_id(path)
    assert json.loads(node.user_data) == expected["zarr_json"], path
    assert (node.array is not None) == (expected["type"] == "array")
    if node.array is None:
        return False
    names = node.array.dimension_names
    assert (None if names is None else list(names)) == expected["dimension_names"]
    assert list(node.array.shape) == expected["zarr_json"]["shape"]
    if expected["shape_v2"] is not None:
        assert [list(pair) for pair in zip(node.array.shape, node.array.num_chunks, strict=True)] == expected[
            "shape_v2"
        ]
    assert [
        {"id": id_to_text(ref.id), "extents": ref.extents.tolist()} for ref in node.array.manifests
    ] == expected["manifests"]
    check_chunks(session, node, expected)
    return check_values(session, expected, unread)


def check_chunks(session: frazil.Session, node: Node, expected: Expected) -> None:
    path = expected["path"]
    wanted = [
        {name: value for name, value in chunk.items() if name != "compressed_location"}
        for chunk in expected["chunks"]
    ]
    assert chunks_of(session.workspace, node) == wanted, path
    for chunk in wanted:
        assert session.chunk_type(path, chunk["index"]).value == KINDS[chunk["kind"]]
        ref = session.workspace.ref(path, tuple(chunk["index"]))
        assert described(ref).items() <= chunk.items()


def chunks_of(workspace: Workspace, node: Node) -> list[Expected]:
    table = workspace.ref_table(node.path)
    return [
        {"index": index, "manifest": _manifest_of(node, index), **described(table.ref(row))}
        for row, index in enumerate(table.index.tolist())
    ]


def _manifest_of(node: Node, index: list[int]) -> str:
    assert node.array is not None
    return next(
        id_to_text(ref.id)
        for ref in node.array.manifests
        if all(low <= at < high for at, (low, high) in zip(index, ref.extents.tolist(), strict=True))
    )


def described(ref: ChunkRef | None) -> Expected:
    """A reference in the words of ``expected.json``."""
    assert ref is not None
    match ref:
        case InlineRef(data):
            return {"kind": "inline", "inline": bytes(data).hex()}
        case NativeRef(chunk_id, offset, length):
            return {"kind": "native", "chunk_id": id_to_text(chunk_id), "offset": offset, "length": length}
        case VirtualRef(location, offset, length, etag, modified):
            checksum = {"etag": etag, "last_modified": modified}
            present = {name: value for name, value in checksum.items() if value is not None}
            return {"kind": "virtual", "location": location, "offset": offset, "length": length, **present}


def check_values(session: Any, expected: Expected, unread: Unread) -> bool:
    """Whether there was something to compare."""
    wanted, path = expected.get("array"), expected["path"]
    if wanted is None:
        return False
    if "error" in wanted:
        values = unread(path, expected)
        if values is None:
            return False
        assert array_at(session, path)[...].tolist() == values, path
        return True
    digest = digest_of(array_at(session, path))
    assert digest == {name: value for name, value in wanted.items() if name in digest}, path
    return True


def array_at(session: Any, path: str) -> Any:
    return zarr.open_array(session.store, path=path.strip("/"), mode="r")


def digest_of(array: Any) -> Expected:
    """Shape, type and hash of the content."""
    values = np.asarray(array[...])
    out: Expected = {"shape": list(values.shape)}
    if values.dtype.kind in "OT":
        text = json.dumps(values.tolist(), ensure_ascii=False)
        return out | {"sha256_json": hashlib.sha256(text.encode()).hexdigest()}
    data = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"))).tobytes()
    return out | {"dtype": str(values.dtype.newbyteorder("=")), "sha256": hashlib.sha256(data).hexdigest()}
