"""Each rule for written files reports a repository that breaks it, and no right one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from icechunk_kit.checks import LATEST, RULES, check
from icechunk_kit.files import (
    FIRST_TIME,
    MAGIC,
    ROOT_ID,
    Node,
    Repository,
    encode_id,
    envelope,
    identifier,
    inline,
    native,
    read_file,
)
from icechunk_kit.schema import Document, pack

type Edit = Callable[[Document], Any]
type References = dict[tuple[int, ...], Document]
BACKUP = f"repo.{LATEST - FIRST_TIME // 1000:014}.{encode_id(identifier('backup'))}"
TABLES = ("Snapshot", "Manifest", "TransactionLog")


def chunks(*nodes: Node) -> list[Document]:
    """Return the list of all chunks for a transaction log."""
    rows = [{"node_id": node.id, "chunks": [{"coords": at} for at in sorted(node.refs)]} for node in nodes]
    return sorted(rows, key=lambda row: row["node_id"])


def build(folder: Path, repo: Edit | None = None, header: Document | None = None, **edits: Edit) -> None:
    """Write a right repository of two commits. The second one moves an array. The edits change its files."""
    repository = Repository(folder)
    grid: References = {(x, y): inline(bytes([x, y])) for x in range(2) for y in range(2)}
    line: References = {(0,): inline(b"\1\2"), (1,): native(b"\3\4")}
    root, a = Node("/"), Node("/a", [4], [2], refs=line)
    b = Node("/b", [4, 4], [2, 2], refs=grid, split=[[(0, 1), (0, 2)], [(1, 2), (0, 2)]])
    arrays = sorted([a.id, b.id])
    log = {"new_groups": [root.id], "new_arrays": arrays, "updated_chunks": chunks(a, b)}
    first = repository.commit([root, a, b], log=log)
    c = Node("/c", [4, 4], [2, 2], refs=grid, split=b.split, edit=lambda node: node.update(id=b.id))
    edited = Node("/a", [4], [2], refs=line | {(0,): inline(b"\5\6")}, attributes={"x": 1})
    d, e = Node("/d", [2], [2]), Node("/e")
    moved = [{"from": "/b", "to": "/c", "node_id": b.id, "node_type": 1}]
    log = {"new_arrays": [d.id], "new_groups": [e.id], "updated_arrays": [a.id], "moved_nodes": moved}
    log["updated_chunks"] = chunks(edited)
    # the chunks of the moved array have the id of its first place
    new_edit = {table: edits[table] for table in TABLES if table in edits}
    manifest = new_edit.pop("Manifest", None)

    def keep_id(document: Document) -> None:
        for array in document["arrays"]:
            array["node_id"] = b.id if array["node_id"] == c.id else array["node_id"]
        if manifest:
            manifest(document)

    heads = {table: header or {} for table in ("TransactionLog",)}
    repository.commit(
        [root, edited, c, d, e],
        log=log,
        edit={**new_edit, "Manifest": keep_id},
        header=heads,
        metadata={"a": 1, "b": 2},
    )
    repository.tags |= {"v": first, "w": first}
    repository.branches["dev"] = first
    repository.updates = [repository.updates[0], {**repository.updates[1], "backup_path": BACKUP}]

    def edit(document: Document) -> None:
        old = {**document, "latest_updates": [{**document["latest_updates"][1], "backup_path": None}]}
        repository.put(f"overwritten/{BACKUP}", envelope("Repo", pack("Repo", old)))
        document["deleted_tags"] = ["x", "y"]
        if repo:
            repo(document)

    repository.write(edit)


def turn(*path: str) -> Edit:
    """Return an edit that turns the last list of a path around."""

    def edit(document: Any) -> None:
        for name in path[:-1]:
            document = max(document[name], key=lambda each: len(each.get(path[-1], [])))
        document[path[-1]] = document[path[-1]][::-1]

    return edit


def put(**fields: Any) -> Edit:
    return lambda document: document.update(fields)


def repeat(name: str) -> Edit:
    return lambda document: document[name].append(document[name][0])


def data(document: Document, path: str) -> Document:
    """Return the data of an array."""
    return dict(next(node["node_data"] for node in document["nodes"] if node["path"] == path)[1])


def boxes(box: list[tuple[int, int]]) -> Edit:
    """Return an edit that gives all manifests of an array the same box."""
    return lambda document: [part.update(extents=box) for part in data(document, "/c")["manifests"]]


def node(name: str, **fields: Any) -> Edit:
    return lambda document: next(each for each in document["nodes"] if each["path"] == name).update(fields)


def reference(**fields: Any) -> Edit:
    return lambda document: document["arrays"][0]["refs"][-1].update(fields)


def wide(document: Document) -> None:
    document["arrays"][0]["refs"][0]["index"] = [0, 0, 0]


def info(**fields: Any) -> Edit:
    return lambda document: document["snapshots"][-1].update(fields)


def files(change: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return a way to break a right repository by a change of its files."""

    def broken(folder: Path) -> None:
        build(folder)
        change(folder)

    return broken


def first(folder: Path, name: str) -> Path:
    return min((folder / name).iterdir())


def rename(name: str, target: str) -> Callable[[Path], object]:
    return lambda folder: first(folder, name).rename(folder / target)


def built(**edits: Any) -> Callable[[Path], None]:
    return lambda folder: build(folder, **edits)


def manifest_info(**fields: Any) -> Edit:
    return lambda document: document["manifest_files_v2"][0].update(fields)


def initial_log(folder: Path) -> None:
    path = folder / "transactions" / encode_id(ROOT_ID)
    log = read_file(path, "TransactionLog") | {"new_groups": [bytes(8)]}
    path.write_bytes(envelope("TransactionLog", pack("TransactionLog", log)))


def strings(folder: Path) -> None:
    data = (folder / "repo").read_bytes()
    body = zstandard.ZstdDecompressor().decompress(data[39:])
    (folder / "repo").write_bytes(envelope("Repo", body.replace(b"main\0", b"main\1")))


def in_place(folder: Path) -> None:
    first(folder, "overwritten").write_bytes((folder / "repo").read_bytes())


BROKEN: dict[str, Callable[[Path], None]] = {
    "header.magic": built(header={"magic": MAGIC[::-1]}),
    "header.writer": built(header={"writer": "\0" * 24}),
    "header.version": built(header={"version": 3}),
    "header.type": built(header={"file_type": 3}),
    "header.compression": built(header={"compression": 0}),
    "id.name": built(TransactionLog=put(id=bytes(12))),
    "order.nodes": built(Snapshot=turn("nodes")),
    "order.manifest_files": built(Snapshot=turn("manifest_files_v2")),
    "order.properties": built(Snapshot=turn("metadata")),
    "order.arrays": built(Manifest=repeat("arrays")),
    "order.references": built(Manifest=turn("arrays", "refs")),
    "order.log": built(TransactionLog=lambda document: document["new_arrays"].append(bytes(8))),
    "order.updated_chunks": built(TransactionLog=lambda document: document["updated_chunks"].append(
        {"node_id": bytes(8), "chunks": []})),
    "order.coordinates": built(TransactionLog=turn("updated_chunks", "chunks")),
    "order.moves": built(TransactionLog=repeat("moved_nodes")),
    "order.tags": built(repo=turn("tags")),
    "order.branches": built(repo=turn("branches")),
    "order.deleted_tags": built(repo=turn("deleted_tags")),
    "order.snapshots": built(repo=turn("snapshots")),
    "order.updates": built(repo=turn("latest_updates")),
    "layout": files(rename("snapshots", "config")),
    "name.encoding": files(rename("chunks", "chunks/lower")),
    "snapshot.parent": built(Snapshot=put(parent_id=bytes(12))),
    "snapshot.manifest_files": built(Snapshot=put(manifest_files=[(bytes(12), 1, 1)])),
    "snapshot.manifests": built(Snapshot=lambda document: document["manifest_files_v2"].pop()),
    "manifest.size": built(Snapshot=manifest_info(size_bytes=1)),
    "manifest.count": built(Snapshot=manifest_info(num_chunk_refs=9)),
    "reference.kind": built(Manifest=reference(inline=b"\1", chunk_id=bytes(12))),
    "reference.chunk": files(lambda folder: first(folder, "chunks").unlink()),
    "reference.index": built(Manifest=wide),
    "chunk.header": files(lambda folder: first(folder, "chunks").write_bytes(MAGIC)),
    "extents.cover": built(Snapshot=boxes([(0, 1), (0, 1)])),
    "extents.overlap": built(Snapshot=boxes([(0, 2), (0, 2)])),
    "array.shape": built(Snapshot=lambda document: data(document, "/a")["shape_v2"][0].update(num_chunks=3)),
    "node.path": built(Snapshot=node("/e", path="/e/")),
    "node.parent": built(Snapshot=node("/e", path="/e/f")),
    "node.id": built(Snapshot=node("/e", id=identifier("node /a", 8))),
    "log.file": files(lambda folder: first(folder, "transactions").unlink()),
    "log.initial": files(initial_log),
    "log.disjoint": built(TransactionLog=lambda log: log["deleted_arrays"].extend(log["new_arrays"])),
    "log.nodes": built(TransactionLog=put(new_groups=[])),
    "log.chunks": built(TransactionLog=put(updated_chunks=[])),
    "log.moves": built(TransactionLog=put(moved_nodes=[])),
    "repo.main": built(repo=lambda document: document["branches"].pop()),
    "repo.index": built(repo=lambda document: document["branches"][0].update(snapshot_index=9)),
    "repo.parent": built(repo=info(parent_offset=-1)),
    "repo.deleted_tags": built(repo=put(deleted_tags=["v"])),
    "repo.snapshot": built(repo=info(message="another")),
    "repo.time": built(repo=info(flushed_at=1)),
    "repo.strings": files(strings),
    "backup.name": files(rename("overwritten", "overwritten/repo.1.A")),
    "backup.path": files(in_place),
}  # fmt: skip


def test_a_right_repository_breaks_no_rule(tmp_path: Path) -> None:
    build(tmp_path)
    assert check(tmp_path) == []


@pytest.mark.parametrize("name", RULES)
def test_a_rule_reports_a_repository_that_breaks_it(name: str, tmp_path: Path) -> None:
    BROKEN[name](tmp_path)
    assert any(text.startswith(f"{name}: ") for text in check(tmp_path))
