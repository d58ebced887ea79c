"""Rules for the files that a writer wrote. Each one reports what breaks it.

A rule is the name of a function here, with the sentence of the specification. "silent" marks a rule without a
sentence: readers, the reference first, need it.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import zstandard
from flatbuffers import flexbuffers  # type: ignore[import-untyped]

from icechunk_kit.files import FILE_TYPES, FOLDERS, MAGIC, ROOT_ID, encode_id
from icechunk_kit.schema import Document, unpack

#: 3000-01-01 in milliseconds: the name of a backup counts down from there.
LATEST = 32_503_680_000_000
DAY = 86_400_000
NAME = re.compile("[0-9A-HJKMNP-TV-Z]{20}")


@dataclass(frozen=True, slots=True)
class File:
    """A metadata file: its header, its body without compression, and its document."""

    kind: str
    name: str
    header: bytes
    body: bytes
    document: Document
    size: int


@dataclass
class Files:
    """The files of a repository of version 2."""

    folder: Path
    files: dict[str, dict[str, File]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind, folder in {**FOLDERS, "Repo": ""}.items():
            names = ["repo"] if kind == "Repo" else [path.name for path in (self.folder / folder).glob("*")]
            self.files[kind] = {name: load(self.folder / folder / name, kind) for name in sorted(names)}

    @cached_property
    def repo(self) -> Document:
        return self.files["Repo"]["repo"].document

    @cached_property
    def infos(self) -> list[Document]:
        """The entries of the snapshots in `repo`, with the id of the parent."""
        entries: list[Document] = self.repo["snapshots"]
        parents = [entry["parent_offset"] for entry in entries]
        return [
            {**entry, "parent": entries[at]["id"] if 0 <= at < len(entries) else None}
            for entry, at in zip(entries, parents, strict=True)
        ]

    def all(self) -> Iterator[File]:
        for files in self.files.values():
            yield from files.values()

    def document(self, kind: str, id: bytes) -> Document | None:
        file = self.files[kind].get(encode_id(id))
        return file and file.document

    def snapshots(self) -> Iterator[tuple[Document, Document]]:
        """Yield the entry and the document of each snapshot that has a file."""
        for info in self.infos:
            document = self.document("Snapshot", info["id"])
            if document is not None:
                yield info, document

    def arrays(self) -> Iterator[tuple[Document, Document, Document]]:
        """Yield each array: the snapshot, the node and the data of the array."""
        for _, snapshot in self.snapshots():
            for node in snapshot["nodes"]:
                if node["node_data"][0] == "ArrayNodeData":
                    yield snapshot, node, node["node_data"][1]

    def references(self, snapshot: Document, node: Document) -> dict[tuple[int, ...], Document]:
        """The references of an array by their coordinates."""
        references = {}
        for part in node["node_data"][1].get("manifests", []):
            manifest = self.document("Manifest", part["object_id"]) or {"arrays": []}
            for array in manifest["arrays"]:
                if array["node_id"] == node["id"]:
                    references.update({tuple(each["index"]): each for each in array["refs"]})
        return references

    @cached_property
    def amended(self) -> set[bytes]:
        updates = [update["update_type"] for update in self.repo["latest_updates"]]
        return {fields["new_snap_id"] for kind, fields in updates if kind == "CommitAmendedUpdate"}

    def changes(self) -> Iterator[tuple[bytes, Document, Document, Document]]:
        """Yield the log of each commit, with the snapshot before it and its own."""
        for info, new in self.snapshots():
            old = self.document("Snapshot", info["parent"]) if info["parent"] else None
            log = self.document("TransactionLog", info["id"])
            if old is not None and log is not None and not info.get("pruned_ancestor_tx_logs"):
                yield info["id"], log, old, new


def load(path: Path, kind: str) -> File:
    data = path.read_bytes()
    body = zstandard.ZstdDecompressor().decompressobj().decompress(data[39:]) if data[38] else data[39:]
    return File(kind, path.name, data[:39], body, unpack(kind, body), len(data))


def check(folder: Path, rules: Iterable[str] | None = None) -> list[str]:
    """Return what breaks the rules, by default all of them: texts that begin with the name of the rule."""
    files = Files(folder)
    return [
        f"{name}: {text}"
        for name, (_, rule) in RULES.items()
        if rules is None or name in rules
        for text in rule(files)
    ]


type Rule = Callable[[Files], Iterable[str]]
RULES: dict[str, tuple[str, Rule]] = {}


def rule(name: str, sentence: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES[name] = (sentence, function)
        return function

    return register


def per_file(name: str, sentence: str, breaks: Callable[[File], object]) -> None:
    rule(name, sentence)(lambda files: [f"{each.kind} {each.name}" for each in files.all() if breaks(each)])


def is_writer(text: bytes) -> bool:
    return bool(text.decode("utf-8", "replace").strip()) and not re.search(rb"[\0\t\n]|^ ", text)


per_file("header.magic", "The UTF-8 encoding of ICE🧊CHUNK.", lambda file: file.header[:12] != MAGIC)
per_file(
    "header.writer",
    "A left-aligned, right-space-padded UTF-8 string identifying the writing client.",
    lambda file: not is_writer(file.header[12:36]),
)
per_file("header.version", "2 for spec version 2.", lambda file: file.header[36] not in (1, 2))
per_file(
    "header.type",
    "1 = Snapshot, 2 = Manifest, 4 = TransactionLog, 6 = RepoInfo.",
    lambda file: file.header[37] != FILE_TYPES[file.kind],
)
per_file("header.compression", "silent", lambda file: file.header[38] != 1)
per_file(
    "id.name",
    "The file name is the Crockford base 32 encoding of the snapshot's 12-byte id.",
    lambda file: file.kind != "Repo" and file.name != encode_id(file.document["id"]),
)


def order(values: Iterable[Any]) -> bool:
    """Whether values ascend without a repetition."""
    values = list(values)
    return all(a < b for a, b in zip(values, values[1:], strict=False))


#: The lists that ascend: rule, sentence, kind of file, and the lists of keys in its document.
ORDERS: Sequence[tuple[str, str, str, Callable[[Document], Iterable[Iterable[Any]]]]] = (
    (
        "order.nodes",  # by the bytes of the whole path: the reference finds a node by bisection
        "All nodes in this snapshot. MUST be sorted by path.",
        "Snapshot",
        lambda document: [[node["path"].encode() for node in document["nodes"]]],
    ),
    (
        "order.manifest_files",
        "MUST be sorted in ascending byte order of ManifestFileInfoV2.id.",
        "Snapshot",
        lambda document: [[each["id"] for each in document.get("manifest_files_v2", [])]],
    ),
    (
        "order.properties",
        "MUST be sorted in ascending UTF-8 byte order of MetadataItem.name.",
        "Snapshot",
        lambda document: [[each["name"].encode() for each in document["metadata"]]],
    ),
    (
        "order.arrays",
        "MUST be sorted in ascending byte order of ArrayManifest.node_id.",
        "Manifest",
        lambda document: [[each["node_id"] for each in document["arrays"]]],
    ),
    (
        "order.references",
        "MUST be sorted in ascending lexicographic order of ChunkRef.index.",
        "Manifest",
        lambda document: [[ref["index"] for ref in each["refs"]] for each in document["arrays"]],
    ),
    (
        "order.log",
        "All ObjectId8 lists below MUST be sorted in ascending byte order.",
        "TransactionLog",
        lambda document: [document[f"{what}_{kind}"] for what in WHAT for kind in ("groups", "arrays")],
    ),
    (
        "order.updated_chunks",
        "MUST be sorted in ascending byte order of node_id.",
        "TransactionLog",
        lambda document: [[each["node_id"] for each in document["updated_chunks"]]],
    ),
    (
        "order.coordinates",
        "MUST be sorted in ascending lexicographic order (compare first element, break ties with second element).",
        "TransactionLog",
        lambda document: [[at["coords"] for at in each["chunks"]] for each in document["updated_chunks"]],
    ),
    (
        "order.moves",
        "MUST be sorted by the `to` field.",
        "TransactionLog",
        lambda document: [[each["to"].split("/") for each in document.get("moved_nodes", [])]],
    ),
    (
        "order.tags",
        "All tags. MUST be sorted in ascending UTF-8 byte order of Ref.name.",
        "Repo",
        lambda document: [[each["name"].encode() for each in document["tags"]]],
    ),
    (
        "order.branches",
        "All branches. MUST be sorted in ascending UTF-8 byte order of Ref.name.",
        "Repo",
        lambda document: [[each["name"].encode() for each in document["branches"]]],
    ),
    (
        "order.deleted_tags",
        "Names of deleted tags. MUST be sorted in ascending UTF-8 byte order.",
        "Repo",
        lambda document: [[each.encode() for each in document["deleted_tags"]]],
    ),
    (
        "order.snapshots",
        "MUST be sorted in ascending byte order of SnapshotInfo.id.",
        "Repo",
        lambda document: [[each["id"] for each in document["snapshots"]]],
    ),
    (
        "order.updates",
        "silent",
        "Repo",
        lambda document: [[-each["updated_at"] for each in document["latest_updates"]]],
    ),
)
WHAT = ("new", "deleted", "updated")


def _ordered(kind: str, lists: Callable[[Document], Iterable[Iterable[Any]]]) -> Rule:
    return lambda files: [
        f"{kind} {file.name}"
        for file in files.files[kind].values()
        if not all(order(each) for each in lists(file.document))
    ]


for _name, _sentence, _kind, _lists in ORDERS:
    rule(_name, _sentence)(_ordered(_kind, _lists))


@rule("layout", "All data and metadata files MUST be stored using the following directory structure.")
def _layout(files: Files) -> Iterator[str]:
    for path in files.folder.rglob("*"):
        folder = path.parent.relative_to(files.folder).as_posix()
        known = {*FOLDERS.values(), "overwritten"}  # an implementation may have files of its own elsewhere
        if path.is_file() and path.read_bytes()[:12] == MAGIC and folder not in known and path.name != "repo":
            yield f"{path.name} in {folder}"


@rule(
    "name.encoding",
    "Object ids MUST be encoded using Crockford Base32, uppercase, with no padding characters.",
)
def _encoding(files: Files) -> Iterator[str]:
    for folder in (*FOLDERS.values(), "chunks"):
        yield from (path.name for path in (files.folder / folder).glob("*") if not NAME.fullmatch(path.name))


@rule("snapshot.parent", "In V2 snapshots: MUST be empty (parent tracking moved to RepoInfo).")
def _parent(files: Files) -> Iterator[str]:
    for name, file in files.files["Snapshot"].items():
        if file.header[36] == 2 and "parent_id" in file.document:
            yield name


@rule("snapshot.manifest_files", "MUST be empty in V2 snapshots (use manifest_files_v2 instead).")
def _manifest_files(files: Files) -> Iterator[str]:
    for name, file in files.files["Snapshot"].items():
        if file.header[36] == 2 and (
            file.document["manifest_files"] or "manifest_files_v2" not in file.document
        ):
            yield name


@rule("snapshot.manifests", "The list of all manifest files this snapshot points to.")
def _manifests(files: Files) -> Iterator[str]:
    for info, snapshot in files.snapshots():
        nodes = [node["node_data"][1] for node in snapshot["nodes"]]
        used = {part["object_id"] for data in nodes for part in data.get("manifests", [])}
        if used != {each["id"] for each in snapshot.get("manifest_files_v2", [])}:
            yield encode_id(info["id"])


def _manifest_infos(files: Files) -> Iterator[tuple[Document, File | None]]:
    for _, snapshot in files.snapshots():
        for info in snapshot.get("manifest_files_v2", []):
            yield info, files.files["Manifest"].get(encode_id(info["id"]))


@rule("manifest.size", "Total serialized size of the manifest in bytes.")
def _size(files: Files) -> Iterator[str]:
    for info, file in _manifest_infos(files):
        if file is None or file.size != info["size_bytes"]:
            yield f"{encode_id(info['id'])}: {info['size_bytes']}"


@rule("manifest.count", "Total number of chunk references in the manifest.")
def _count(files: Files) -> Iterator[str]:
    for info, file in _manifest_infos(files):
        if file and info["num_chunk_refs"] != sum(len(each["refs"]) for each in file.document["arrays"]):
            yield f"{encode_id(info['id'])}: {info['num_chunk_refs']}"


@rule("reference.kind", "Exactly one of these three sets MUST be populated.")
def _reference_kind(files: Files) -> Iterator[str]:
    for name, file in files.files["Manifest"].items():
        for array in file.document["arrays"]:
            for ref in array["refs"]:
                kinds = (
                    ("inline" in ref)
                    + ("chunk_id" in ref)
                    + bool({"location", "compressed_location"} & ref.keys())
                )
                if kinds != 1:
                    yield f"{name} {ref['index']}"


@rule("reference.chunk", "Native refs: the id of the chunk file in the repository's storage.")
def _reference_chunk(files: Files) -> Iterator[str]:
    for snapshot, node, _ in files.arrays():
        for index, ref in files.references(snapshot, node).items():
            if "chunk_id" in ref:
                path = files.folder / "chunks" / encode_id(ref["chunk_id"])
                if not path.is_file() or path.stat().st_size < ref["offset"] + ref["length"]:
                    yield f"{node['path']} {index}"


@rule("reference.index", "0-based chunk coordinates, one per array dimension.")
def _reference_index(files: Files) -> Iterator[str]:
    for snapshot, node, array in files.arrays():
        for index in files.references(snapshot, node):
            if len(index) != len(array.get("shape_v2", [])):
                yield f"{node['path']} {index}"


@rule("chunk.header", "Chunk files have their encoding defined by the Zarr specification.")
def _chunk_header(files: Files) -> Iterator[str]:
    yield from (path.name for path in (files.folder / "chunks").glob("*") if path.read_bytes()[:12] == MAGIC)


def _inside(index: Sequence[int], box: Sequence[tuple[int, int]]) -> bool:
    return len(index) == len(box) and all(
        low <= at < high for at, (low, high) in zip(index, box, strict=True)
    )


@rule("extents.cover", "Defines which chunk coordinates this manifest covers.")
def _cover(files: Files) -> Iterator[str]:
    for snapshot, node, array in files.arrays():
        boxes = [part["extents"] for part in array["manifests"]]
        for index in files.references(snapshot, node):
            if not any(_inside(index, box) for box in boxes):
                yield f"{node['path']} {index}"


@rule("extents.overlap", "For a given array, manifest extents MUST NOT overlap.")
def _overlap(files: Files) -> Iterator[str]:
    for _, node, array in files.arrays():
        boxes = [part["extents"] for part in array["manifests"]]
        for number, box in enumerate(boxes):
            for other in boxes[:number]:
                if all(a < d and c < b for (a, b), (c, d) in zip(box, other, strict=True)):
                    yield f"{node['path']} {box} {other}"


@rule("array.shape", "In V2 snapshots this MUST be an empty list (use shape_v2 instead).")
def _shape(files: Files) -> Iterator[str]:
    for _, node, array in files.arrays():
        document = json.loads(node["user_data"])
        grid = document["chunk_grid"]
        expected = [(size, None) for size in document["shape"]]
        if grid["name"] == "regular":
            sizes = zip(document["shape"], grid["configuration"]["chunk_shape"], strict=True)
            expected = [(size, -(-size // max(chunk, 1))) for size, chunk in sizes]
        actual = [(each["array_length"], each["num_chunks"]) for each in array.get("shape_v2", [])]
        if (
            array["shape"]
            or [(a, None if e[1] is None else b) for (a, b), e in zip(actual, expected, strict=False)]
            != expected
        ):
            yield node["path"]


@rule("node.path", "MUST be in canonical form (no `.`, `..`, or empty segments).")
def _path(files: Files) -> Iterator[str]:
    for _, snapshot in files.snapshots():
        for path in (node["path"] for node in snapshot["nodes"]):
            parts = path.split("/")
            if path != "/" and (parts[0] or {"", ".", ".."} & set(parts[1:])):
                yield path


@rule("node.parent", "Formally a repository can be any valid Zarr hierarchy.")
def _node_parent(files: Files) -> Iterator[str]:
    for _, snapshot in files.snapshots():
        groups = {node["path"] for node in snapshot["nodes"] if node["node_data"][0] == "GroupNodeData"}
        paths = [node["path"] for node in snapshot["nodes"] if node["path"] != "/"]
        yield from (path for path in paths if (path.rpartition("/")[0] or "/") not in groups)


@rule("node.id", "Stable across snapshots — a node keeps its id for its lifetime.")
def _node_id(files: Files) -> Iterator[str]:
    for _, snapshot in files.snapshots():
        if len({node["id"] for node in snapshot["nodes"]}) < len(snapshot["nodes"]):
            yield encode_id(snapshot["id"])


@rule("log.file", "Each snapshot MUST have a corresponding transaction log file stored at transactions/{id}.")
def _log_file(files: Files) -> Iterator[str]:
    for info in files.infos:
        for id in (info["id"], *info.get("pruned_ancestor_tx_logs", [])):
            if files.document("TransactionLog", id) is None:
                yield encode_id(id)


@rule("log.initial", "The initial snapshot's transaction log MUST have all lists empty.")
def _log_initial(files: Files) -> Iterator[str]:
    log = files.document("TransactionLog", ROOT_ID) or {}
    yield from (key for key, value in log.items() if key not in ("id", "extra") and value)


@rule("log.disjoint", "A group's node id MUST NOT appear in more than one of the lists.")
def _disjoint(files: Files) -> Iterator[str]:
    for id, log, _, _ in files.changes():
        for kind in ("groups", "arrays"):
            ids = [each for what in WHAT for each in log[f"{what}_{kind}"]]
            if id not in files.amended and len(set(ids)) < len(ids):
                yield encode_id(id)


@rule("log.nodes", "A transaction log file records which nodes and chunks were modified in a given commit.")
def _log_nodes(files: Files) -> Iterator[str]:
    for id, log, old_snapshot, new_snapshot in files.changes():
        for kind, table in (("groups", "GroupNodeData"), ("arrays", "ArrayNodeData")):
            old, new = (
                {node["id"]: node["user_data"] for node in each["nodes"] if node["node_data"][0] == table}
                for each in (old_snapshot, new_snapshot)
            )
            expected = {
                "new": new.keys() - old.keys(),
                "deleted": old.keys() - new.keys(),
                "updated": {each for each in old.keys() & new.keys() if old[each] != new[each]},
            }
            for what, ids in expected.items():
                logged = set(log[f"{what}_{kind}"])
                # an amended log may have more; the same document written again may be an update
                if ids - logged or (what != "updated" and id not in files.amended and logged - ids):
                    yield f"{encode_id(id)} {what}_{kind}"


@rule("log.chunks", "The coordinates of all chunk references that were added, overwritten, or deleted.")
def _log_chunks(files: Files) -> Iterator[str]:
    for id, log, old_snapshot, new_snapshot in files.changes():
        logged = {
            each["node_id"]: {tuple(at["coords"]) for at in each["chunks"]} for each in log["updated_chunks"]
        }
        before = {node["id"]: node for node in old_snapshot["nodes"]}
        for node in new_snapshot["nodes"]:
            if node["node_data"][0] == "ArrayNodeData":
                grid = [(0, each["num_chunks"]) for each in node["node_data"][1].get("shape_v2", [])]
                new = files.references(new_snapshot, node)
                old = files.references(old_snapshot, before[node["id"]]) if node["id"] in before else {}
                changed = {
                    at for at in new.keys() | old.keys() if new.get(at) != old.get(at) and _inside(at, grid)
                }
                if changed - logged.get(node["id"], set()):
                    yield f"{encode_id(id)} {node['path']} {sorted(changed)}"


@rule("log.moves", "Every moved node MUST have its own entry.")
def _log_moves(files: Files) -> Iterator[str]:
    for id, log, old_snapshot, new_snapshot in files.changes():
        old = {node["id"]: node["path"] for node in old_snapshot["nodes"]}
        expected = {
            (old[node["id"]], node["path"], node["id"], int(node["node_data"][0] == "ArrayNodeData"))
            for node in new_snapshot["nodes"]
            if node["id"] in old and old[node["id"]] != node["path"]
        }
        keys = ("from", "to", "node_id", "node_type")
        if {tuple(each.get(key) for key in keys) for each in log.get("moved_nodes", [])} != expected:
            yield encode_id(id)


@rule("repo.main", "A repository MUST always have a main branch.")
def _main(files: Files) -> Iterator[str]:
    if not any(each["name"] == "main" for each in files.repo["branches"]):
        yield "no main"


@rule("repo.index", "The snapshot_index is an index into the Repo.snapshots list.")
def _index(files: Files) -> Iterator[str]:
    count = len(files.repo["snapshots"])
    refs = files.repo["branches"] + files.repo["tags"]
    yield from (each["name"] for each in refs if each["snapshot_index"] >= count)


@rule("repo.parent", "-1 means no parent (the initial snapshot).")
def _repo_parent(files: Files) -> Iterator[str]:
    entries = files.repo["snapshots"]
    for entry in entries:
        steps, at = 0, entry
        while steps <= len(entries) and 0 <= at["parent_offset"] < len(entries):
            steps, at = steps + 1, entries[at["parent_offset"]]
        if at["parent_offset"] != -1 or at["id"] != ROOT_ID:
            yield encode_id(entry["id"])


@rule("repo.deleted_tags", "A new tag with the name of a deleted one MUST NOT be created.")
def _deleted(files: Files) -> Iterable[str]:
    return {each["name"] for each in files.repo["tags"]} & set(files.repo["deleted_tags"])


@rule(
    "repo.snapshot", "It provides enough information to locate and identify the snapshot without fetching it."
)
def _repo_snapshot(files: Files) -> Iterator[str]:
    for info in files.infos:
        file = files.files["Snapshot"].get(encode_id(info["id"]))
        # two creators at the same time write the first snapshot twice
        keys = ("message",) if info["id"] == ROOT_ID else ("message", "flushed_at")
        same = file and all(info[key] == file.document[key] for key in keys)
        if not file or not same or (file.header[36] == 2 and _values(info) != _values(file.document)):
            yield encode_id(info["id"])


def _values(document: Document) -> Document:
    return {item["name"]: flexbuffers.Loads(item["value"]) for item in document.get("metadata", [])}


@rule("repo.time", "silent")
def _time(files: Files) -> Iterator[str]:
    times = {info["id"]: info["flushed_at"] for info in files.infos}
    for info in files.infos:
        if info["parent"] and info["flushed_at"] <= times[info["parent"]]:
            yield encode_id(info["id"])


@rule("repo.strings", "silent")
def _strings(files: Files) -> Iterator[str]:
    body = files.files["Repo"]["repo"].body
    names = [each["name"] for each in files.repo["branches"] + files.repo["tags"]]
    for text in {*names, *files.repo["deleted_tags"], *(each["message"] for each in files.repo["snapshots"])}:
        data = struct.pack("<I", len(text.encode())) + text.encode()
        if text and data + b"\0" not in body:
            yield f"{text!r} has no zero at its end"


@rule(
    "backup.name",
    "The copy MUST be stored with a path composed of the literal, the time and 12 random bytes.",
)
def _backup_name(files: Files) -> Iterator[str]:
    for path in (files.folder / "overwritten").glob("*"):
        parts = path.name.split(".")
        right = len(parts) == 3 and parts[0] == "repo" and len(parts[1]) == 14 and NAME.fullmatch(parts[2])
        times = [update["updated_at"] // 1000 for update in files.repo["latest_updates"]]
        if not right or not min(times) - DAY <= LATEST - int(parts[1]) <= max(times) + DAY:
            yield path.name


@rule(
    "backup.path",
    "Before a client attempts to overwrite it they MUST copy it to the overwritten prefix in the repo.",
)
def _backup_path(files: Files) -> Iterator[str]:
    updates = files.repo["latest_updates"]
    if updates and updates[0].get("backup_path"):
        yield "the newest update has a backup"
    for update in updates[1:]:
        path = files.folder / "overwritten" / update.get("backup_path", "missing")
        if not path.is_file():
            yield f"{update['update_type'][0]}: {path.name}"
            continue
        # not a file that was written again in place: its newest update is this one
        newest = load(path, "Repo").document["latest_updates"][0]
        if (newest["update_type"], newest["updated_at"]) != (update["update_type"], update["updated_at"]):
            yield f"{path.name} is not the file before the next update"
