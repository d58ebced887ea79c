"""Rules for the files that a writer wrote. Each one reports what breaks it.

The docstring of a rule is the sentence of the specification, or "silent": then readers, the reference first,
need the rule. The headers and the orders of lists are those of the tables and of the schema there.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import zstandard
from flatbuffers import flexbuffers  # type: ignore[import-untyped]

from icechunk_kit.files import FILE_TYPES, FOLDERS, MAGIC, ROOT_ID, Box, State, changes, encode_id, is_inside
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
            pattern = "repo" if kind == "Repo" else "*"
            names = [path.name for path in (self.folder / folder).glob(pattern)]
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
        return file.document if file else None

    def is_first_of_version_1(self, info: Document) -> bool:
        file = self.files["Snapshot"].get(encode_id(info["id"]))
        return file is not None and file.header[36] == 1 and "parent_id" not in file.document

    def snapshots(self) -> Iterator[tuple[str, Document, Document]]:
        """Yield the name, the document and the entry of each snapshot that has a file of version 2."""
        for info in self.infos:
            file = self.files["Snapshot"].get(encode_id(info["id"]))
            if file is not None and file.header[36] == 2:
                yield file.name, file.document, info

    def arrays(self) -> Iterator[tuple[Document, Document, Document]]:
        """Yield each array: the snapshot, the node and the data of the array."""
        for _, snapshot, _ in self.snapshots():
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

    def manifests(self) -> Iterator[tuple[str, Document, File | None]]:
        """Yield each entry of a manifest in a snapshot, and its file."""
        for _, snapshot, _ in self.snapshots():
            for info in snapshot.get("manifest_files_v2", []):
                name = encode_id(info["id"])
                yield name, info, self.files["Manifest"].get(name)

    def stored(self) -> Iterator[tuple[str, Document, Document, Files]]:
        """Yield each reference of each array."""
        for snapshot, node, array in self.arrays():
            for index, reference in self.references(snapshot, node).items():
                yield f"{node['path']} {index}", reference, array, self

    @cached_property
    def amended(self) -> set[bytes]:
        updates = [update["update_type"] for update in self.repo["latest_updates"]]
        return {fields["new_snap_id"] for kind, fields in updates if kind == "CommitAmendedUpdate"}

    def states(self, snapshot: Document, grids: Mapping[bytes, Box]) -> dict[bytes, State]:
        """The nodes of a snapshot. A reference outside of the grid is no chunk."""
        result = {}
        for node in snapshot["nodes"]:
            kind = node["node_data"][0].removesuffix("NodeData").lower()
            references = self.references(snapshot, node)
            inside = {at: references[at] for at in references if is_inside(at, grids.get(node["id"], []))}
            result[node["id"]] = State(node["path"], kind, node["user_data"], inside)
        return result

    def changes(self) -> Iterator[tuple[bytes, Document, Document]]:
        """Yield the log of each commit, and what it must have."""
        for _, new, info in self.snapshots():
            old = self.document("Snapshot", info["parent"]) if info["parent"] else None
            log = self.document("TransactionLog", info["id"])
            shapes = {node["id"]: node["node_data"][1].get("shape_v2", []) for node in new["nodes"]}
            grids = {id: [(0, axis["num_chunks"]) for axis in shape] for id, shape in shapes.items()}
            if old is not None and log is not None and not info.get("pruned_ancestor_tx_logs"):
                yield info["id"], log, changes(self.states(old, grids), self.states(new, grids))


def load(path: Path, kind: str) -> File:
    data = path.read_bytes()
    body = zstandard.ZstdDecompressor().decompressobj().decompress(data[39:]) if data[38] else data[39:]
    return File(kind, path.name, data[:39], body, unpack(kind, body), len(data))


def check(folder: Path, rules: Iterable[str] | None = None) -> list[str]:
    """Return what breaks the rules, by default all but those of `STRICT`: texts that begin with the rule."""
    files = Files(folder)
    names = [name for name in RULES if name not in STRICT] if rules is None else rules
    return [f"{name}: {text}" for name in names for text in RULES[name](files)]


DECODERS = {"flexbuffers": flexbuffers.Loads, "messagepack": msgpack.unpackb}


def fields(folder: Path, kind: str, name: str, path: str) -> list[Any]:
    """Return the values of a field in a file, or in all files of a kind, as values of JSON.

    Args:
        name: The name of a file. Empty: all files of this kind.
        path: Leads from the root to the field: members and positions with dots, `*` for all of a list, and a
            name of `DECODERS`.
    """
    files = Files(folder).files[kind].values()
    values: list[Any] = [file.document for file in files if name in ("", file.name)]
    for key in path.split("."):
        if key == "*":
            values = [each for value in values for each in value or []]
        elif key in DECODERS:
            values = [DECODERS[key](value) for value in values]
        else:
            values = [value.get(key) if isinstance(value, dict) else value[int(key)] for value in values]
    return [_as_json(value) for value in values]


def _as_json(value: Any) -> Any:
    """Return a value with text in the place of bytes: an id as it is in names of files, or hexadecimal."""
    if isinstance(value, bytes):
        return encode_id(value) if len(value) in (8, 12) else value.hex()
    if isinstance(value, dict):
        return {key: _as_json(each) for key, each in value.items()}
    return [_as_json(each) for each in value] if isinstance(value, (list, tuple)) else value


type Rule = Callable[[Files], Iterable[str]]
RULES: dict[str, Rule] = {}


def rule(name: str, each: Callable[..., Iterable[tuple[Any, ...]]] | None = None) -> Callable[..., Any]:
    """Register a function as a rule, whose sentence is its docstring.

    The function yields what breaks the rule. With `each` it returns whether one thing is right: a method of
    `Files` yields the name of the thing and the arguments.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def broken(files: Files) -> Iterator[str]:
            assert each is not None
            for place, *arguments in each(files):
                if not function(*arguments):
                    yield place

        RULES[name] = function if each is None else broken
        return function

    return register


def is_writer(text: bytes) -> bool:
    return bool(text.decode("utf-8", "replace").strip()) and not re.search(rb"[\0\t\n]|^ ", text)


#: Rules of one file: the header, and the id in its name.
FILE_RULES: dict[str, Callable[[File], bool]] = {
    "header.magic": lambda file: file.header[:12] == MAGIC,
    "header.writer": lambda file: is_writer(file.header[12:36]),
    "header.version": lambda file: file.header[36] in (1, 2),
    "header.type": lambda file: file.header[37] == FILE_TYPES[file.kind],
    "header.compression": lambda file: file.header[38] in (0, 1),
    "id.name": lambda file: file.kind == "Repo" or file.name == encode_id(file.document["id"]),
    "repo.version": lambda file: file.kind != "Repo" or file.document["spec_version"] == file.header[36] == 2,
}
#: Rules that only a case with their name applies.
STRICT = ("order.components",)
WHAT = ("new", "deleted", "updated")
LISTS = [f"{what}_{kind}" for what in WHAT for kind in ("groups", "arrays")]
#: Lists that ascend: the lists of each file of a kind, and by which member.
ORDERS = {
    "order.components": ("Snapshot", "nodes path"),
    "order.manifest_files": ("Snapshot", "manifest_files_v2 id"),
    "order.properties": ("Snapshot", "metadata name"),
    "order.arrays": ("Manifest", "arrays node_id"),
    "order.references": ("Manifest", "arrays refs index"),
    "order.log": ("TransactionLog", *LISTS),
    "order.updated_chunks": ("TransactionLog", "updated_chunks node_id"),
    "order.coordinates": ("TransactionLog", "updated_chunks chunks coords"),
    "order.moves": ("TransactionLog", "moved_nodes to"),
    "order.tags": ("Repo", "tags name"),
    "order.branches": ("Repo", "branches name"),
    "order.deleted_tags": ("Repo", "deleted_tags"),
    "order.flags": ("Repo", "enabled_feature_flags", "disabled_feature_flags"),
    "order.snapshots": ("Repo", "snapshots id"),
    "order.updates": ("Repo", "latest_updates updated_at"),
}


def lists(document: Document, words: Sequence[str]) -> Iterator[list[Any]]:
    """Yield the lists that a path of names leads to."""
    rows = document.get(words[0], [])
    if len(words) == 3:
        for row in rows:
            yield from lists(row, words[1:])
    elif words[-1] in ("to", "path"):  # compared part by part
        yield [row[words[-1]].split("/") for row in rows]
    elif words[-1] == "updated_at":
        yield [-row["updated_at"] for row in rows]
    else:
        yield [row[words[1]] for row in rows] if len(words) == 2 else rows


def _ascend(kind: str, *paths: str) -> Rule:
    return lambda files: [
        f"{kind} {file.name}"
        for file in files.files[kind].values()
        for path in paths
        for values in lists(file.document, path.split())
        if any(a >= b for a, b in pairwise(values))
    ]


def _per_file(is_right: Callable[[File], bool]) -> Rule:
    return lambda files: [f"{each.kind} {each.name}" for each in files.all() if not is_right(each)]


RULES |= {name: _per_file(is_right) for name, is_right in FILE_RULES.items()}
RULES |= {name: _ascend(*lists_of) for name, lists_of in ORDERS.items()}


@rule("order.nodes", Files.snapshots)
def _nodes(snapshot: Document, *_: Any) -> bool:
    """MUST be sorted by path. Also the order of bytes is accepted: `order.components` is the text."""
    paths = [node["path"] for node in snapshot["nodes"]]
    return paths in (sorted(set(paths), key=key) for key in (str.encode, lambda path: path.split("/")))


@rule("layout")
def _layout(files: Files) -> Iterator[str]:
    """All data and metadata files MUST be stored within a root directory."""
    for path in files.folder.rglob("*"):
        folder = path.parent.relative_to(files.folder).as_posix()
        rooms = {*FOLDERS.values(), "overwritten"}  # an implementation may have files of its own elsewhere
        if path.is_file() and path.read_bytes()[:12] == MAGIC and folder not in rooms and path.name != "repo":
            yield f"{path.name} in {folder}"


@rule("name.encoding")
def _encoding(files: Files) -> Iterator[str]:
    """Object ids MUST be encoded using Crockford Base32, uppercase, with no padding characters."""
    for folder in (*FOLDERS.values(), "chunks"):
        yield from (path.name for path in (files.folder / folder).glob("*") if not NAME.fullmatch(path.name))


@rule("snapshot.parent", Files.snapshots)
def _parent(snapshot: Document, *_: Any) -> bool:
    """In V2 snapshots: MUST be empty (parent tracking moved to RepoInfo)."""
    return "parent_id" not in snapshot


@rule("snapshot.manifest_files", Files.snapshots)
def _manifest_files(snapshot: Document, *_: Any) -> bool:
    """MUST be empty in V2 snapshots (use manifest_files_v2 instead)."""
    return not snapshot["manifest_files"] and "manifest_files_v2" in snapshot


@rule("snapshot.manifests", Files.snapshots)
def _manifests(snapshot: Document, *_: Any) -> bool:
    """The list of all manifest files this snapshot points to."""
    nodes = [node["node_data"][1] for node in snapshot["nodes"]]
    used = {part["object_id"] for data in nodes for part in data.get("manifests", [])}
    return used == {each["id"] for each in snapshot.get("manifest_files_v2", [])}


@rule("manifest.size", Files.manifests)
def _size(info: Document, file: File | None) -> bool:
    """Total serialized size of the manifest in bytes."""
    return file is not None and file.size == info["size_bytes"]


@rule("manifest.count", Files.manifests)
def _count(info: Document, file: File | None) -> bool:
    """Total number of chunk references in the manifest."""
    arrays = file.document["arrays"] if file else []
    return bool(info["num_chunk_refs"] == sum(len(each["refs"]) for each in arrays))


@rule("reference.kind", Files.stored)
def _reference_kind(reference: Document, *_: Any) -> bool:
    """Exactly one of these three sets MUST be populated."""
    virtual = bool({"location", "compressed_location"} & reference.keys())
    return ("inline" in reference) + ("chunk_id" in reference) + virtual == 1


@rule("reference.chunk", Files.stored)
def _reference_chunk(reference: Document, _: Document, files: Files) -> bool:
    """Native refs: the id of the chunk file in the repository's storage."""
    if "chunk_id" not in reference:
        return True
    path = files.folder / "chunks" / encode_id(reference["chunk_id"])
    return path.is_file() and path.stat().st_size >= reference["offset"] + reference["length"]


@rule("reference.index", Files.stored)
def _reference_index(reference: Document, array: Document, _: Files) -> bool:
    """0-based chunk coordinates, one per array dimension."""
    return len(reference["index"]) == len(array.get("shape_v2", []))


@rule("chunk.header")
def _chunk_header(files: Files) -> Iterator[str]:
    """Chunk files have their encoding defined by the Zarr specification."""
    yield from (path.name for path in (files.folder / "chunks").glob("*") if path.read_bytes()[:12] == MAGIC)


@rule("extents.cover", Files.stored)
def _cover(reference: Document, array: Document, _: Files) -> bool:
    """Defines which chunk coordinates this manifest covers."""
    return any(is_inside(reference["index"], part["extents"]) for part in array["manifests"])


@rule("extents.overlap")
def _overlap(files: Files) -> Iterator[str]:
    """For a given array, manifest extents MUST NOT overlap."""
    for _, node, array in files.arrays():
        for one, other in combinations([part["extents"] for part in array["manifests"]], 2):
            if all(a < d and c < b for (a, b), (c, d) in zip(one, other, strict=True)):
                yield f"{node['path']} {one} {other}"


@rule("array.shape")
def _shape(files: Files) -> Iterator[str]:
    """In V2 snapshots this MUST be an empty list (use shape_v2 instead)."""
    for _, node, array in files.arrays():
        document = json.loads(node["user_data"])
        actual = [(each["array_length"], each["num_chunks"]) for each in array.get("shape_v2", [])]
        expected = [(size, count) for size, (_, count) in zip(document["shape"], actual, strict=False)]
        if document["chunk_grid"]["name"] == "regular":
            sizes = zip(
                document["shape"], document["chunk_grid"]["configuration"]["chunk_shape"], strict=True
            )
            expected = [(size, -(-size // max(chunk, 1))) for size, chunk in sizes]
        if array["shape"] or actual != expected or len(actual) != len(document["shape"]):
            yield node["path"]


@rule("node.path", Files.snapshots)
def _path(snapshot: Document, *_: Any) -> bool:
    """MUST be in canonical form (no `.`, `..`, or empty segments)."""
    parts = [node["path"].split("/") for node in snapshot["nodes"] if node["path"] != "/"]
    return not any(first or {"", ".", ".."} & set(rest) for first, *rest in parts)


@rule("node.parent", Files.snapshots)
def _node_parent(snapshot: Document, *_: Any) -> bool:
    """Formally a repository can be any valid Zarr hierarchy."""
    groups = {node["path"] for node in snapshot["nodes"] if node["node_data"][0] == "GroupNodeData"}
    paths = {node["path"] for node in snapshot["nodes"]} - {"/"}
    return all((path.rpartition("/")[0] or "/") in groups for path in paths)


@rule("node.id", Files.snapshots)
def _node_id(snapshot: Document, *_: Any) -> bool:
    """Stable across snapshots — a node keeps its id for its lifetime."""
    return len({node["id"] for node in snapshot["nodes"]}) == len(snapshot["nodes"])


@rule("log.file")
def _log_file(files: Files) -> Iterator[str]:
    """Each snapshot MUST have a corresponding transaction log file stored at transactions/{id}."""
    for info in files.infos:
        for id in (info["id"], *info.get("pruned_ancestor_tx_logs", [])):
            # writers of version 1 give the initial snapshot no log
            if files.document("TransactionLog", id) is None and not files.is_first_of_version_1(info):
                yield encode_id(id)


@rule("log.initial")
def _log_initial(files: Files) -> Iterator[str]:
    """The initial snapshot's transaction log MUST have all lists empty."""
    log = files.document("TransactionLog", ROOT_ID) or {}
    yield from (key for key, value in log.items() if key not in ("id", "extra") and value)


@rule("log.disjoint")
def _disjoint(files: Files) -> Iterator[str]:
    """A group's node id MUST NOT appear in more than one of new_groups, deleted_groups, or updated_groups."""
    for id, log, _ in files.changes():
        for kind in ("groups", "arrays"):
            ids = [each for what in WHAT for each in log[f"{what}_{kind}"]]
            if id not in files.amended and len(set(ids)) < len(ids):
                yield encode_id(id)


@rule("log.nodes")
def _log_nodes(files: Files) -> Iterator[str]:
    """A transaction log file records which nodes and chunks were modified in a given commit."""
    for id, log, expected in files.changes():
        for key in LISTS:
            # an amended log may have more; the same document written again may be an update
            is_exact = id not in files.amended and not key.startswith("updated")
            if set(expected[key]) - set(log[key]) or (is_exact and set(log[key]) - set(expected[key])):
                yield f"{encode_id(id)} {key}"


@rule("log.chunks")
def _log_chunks(files: Files) -> Iterator[str]:
    """The coordinates of all chunk references that were added, overwritten, or deleted."""
    for id, log, expected in files.changes():
        places, logged = (
            {(row["node_id"], *at["coords"]) for row in lists["updated_chunks"] for at in row["chunks"]}
            for lists in (expected, log)
        )
        if places - logged:
            yield f"{encode_id(id)} {sorted(places - logged)}"


@rule("log.moves")
def _log_moves(files: Files) -> Iterator[str]:
    """Every moved node MUST have its own entry."""
    for id, log, expected in files.changes():
        if log.get("moved_nodes", []) != expected.get("moved_nodes", []):
            yield encode_id(id)


@rule("repo.main")
def _main(files: Files) -> Iterator[str]:
    """A repository MUST always have a main branch."""
    if not any(each["name"] == "main" for each in files.repo["branches"]):
        yield "no main"


@rule("repo.index")
def _index(files: Files) -> Iterator[str]:
    """The snapshot_index is an index into the Repo.snapshots list."""
    count = len(files.repo["snapshots"])
    refs = files.repo["branches"] + files.repo["tags"]
    yield from (each["name"] for each in refs if each["snapshot_index"] >= count)


@rule("repo.parent")
def _repo_parent(files: Files) -> Iterator[str]:
    """-1 means no parent (the initial snapshot)."""
    entries = files.repo["snapshots"]
    for entry in entries:
        steps, at = 0, entry
        while steps <= len(entries) and 0 <= at["parent_offset"] < len(entries):
            steps, at = steps + 1, entries[at["parent_offset"]]
        is_first = at["id"] == ROOT_ID or files.is_first_of_version_1(at)
        if at["parent_offset"] != -1 or not is_first:
            yield encode_id(entry["id"])


@rule("repo.deleted_tags")
def _deleted(files: Files) -> set[str]:
    """A new tag with the name of a deleted one MUST NOT be created."""
    return {each["name"] for each in files.repo["tags"]} & set(files.repo["deleted_tags"])


@rule("repo.snapshot")
def _repo_snapshot(files: Files) -> Iterator[str]:
    """It provides enough information to locate and identify the snapshot without fetching it."""
    for info in files.infos:
        file = files.files["Snapshot"].get(encode_id(info["id"]))
        # two creators at the same time write the first snapshot twice
        keys = ("message",) if info["id"] == ROOT_ID else ("message", "flushed_at")
        same = file and all(info[key] == file.document[key] for key in keys)
        if not file or not same or (file.header[36] == 2 and _values(info) != _values(file.document)):
            yield encode_id(info["id"])


def _values(document: Document) -> Document:
    return {item["name"]: flexbuffers.Loads(item["value"]) for item in document.get("metadata", [])}


@rule("repo.time")
def _time(files: Files) -> Iterator[str]:
    """silent"""
    times = {info["id"]: info["flushed_at"] for info in files.infos}
    for info in files.infos:
        if info["parent"] and info["flushed_at"] <= times[info["parent"]]:
            yield encode_id(info["id"])


@rule("time.clock")
def _clock(files: Files) -> Iterator[str]:
    """Non-leap microseconds since Jan 1, 1970 UTC."""
    for file in (*files.files["Snapshot"].values(), *files.files["Repo"].values()):
        times = [
            file.document.get("flushed_at"),
            *(u["updated_at"] for u in file.document.get("latest_updates", [])),
        ]
        modified = (files.folder / FOLDERS.get(file.kind, "") / file.name).stat().st_mtime
        is_by_kit = file.header[36] == 1 or file.header[12:].startswith(b"icechunk-kit")
        if not is_by_kit and abs(next(filter(None, times), 0) / 1e6 - modified) > 600:
            yield f"{file.kind} {file.name}"


@rule("repo.strings")
def _strings(files: Files) -> Iterator[str]:
    """silent"""
    body = files.files["Repo"]["repo"].body
    names = [each["name"] for each in files.repo["branches"] + files.repo["tags"]]
    for text in {*names, *files.repo["deleted_tags"], *(each["message"] for each in files.repo["snapshots"])}:
        data = struct.pack("<I", len(text.encode())) + text.encode()
        if text and data + b"\0" not in body:
            yield f"{text!r} has no zero at its end"


@rule("backup.name")
def _backup_name(files: Files) -> Iterator[str]:
    """The copy MUST be stored with a path composed of."""
    for path in (files.folder / "overwritten").glob("*"):
        parts = path.name.split(".")
        right = len(parts) == 3 and parts[0] == "repo" and len(parts[1]) == 14 and NAME.fullmatch(parts[2])
        times = [update["updated_at"] // 1000 for update in files.repo["latest_updates"]]
        if not right or not min(times) - DAY <= LATEST - int(parts[1]) <= max(times) + DAY:
            yield path.name


@rule("backup.path")
def _backup_path(files: Files) -> Iterator[str]:
    """Before a client attempts to overwrite it they MUST copy it to the overwritten prefix in the repo."""
    updates = files.repo["latest_updates"]
    if updates and updates[0].get("backup_path"):
        yield "the newest update has a backup"
    kinds = [update["update_type"][0] for update in updates]
    # an upgrade writes updates of the past, which had no file
    real = kinds.index("RepoMigratedUpdate") + 1 if "RepoMigratedUpdate" in kinds else len(kinds)
    for update in updates[1:real]:
        path = files.folder / "overwritten" / update.get("backup_path", "missing")
        if not path.is_file():
            yield f"{update['update_type'][0]}: {path.name}"
            continue
        # not a file that was written again in place: its newest update is this one
        newest = load(path, "Repo").document["latest_updates"][0]
        if (newest["update_type"], newest["updated_at"]) != (update["update_type"], update["updated_at"]):
            yield f"{path.name} is not the file before the next update"
