"""A small writer of repositories: what a case puts on disk, right or wrong on purpose.

A case describes nodes and references; `Repository` writes the files of version 1 or 2 in the form that the
reference gives them. An `edit` changes a document before it is packed, so that a case breaks one rule only.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]
import zstandard
from flatbuffers import flexbuffers  # type: ignore[import-untyped]

from icechunk_kit.schema import Document as Document
from icechunk_kit.schema import pack

flexbuffers.Key.__str__ = lambda key: key.Bytes.decode()  # the library decodes keys as ASCII
MAGIC = "ICE🧊CHUNK".encode()
FILE_TYPES = {"Snapshot": 1, "Manifest": 2, "TransactionLog": 4, "Repo": 6}
FOLDERS = {"Snapshot": "snapshots", "Manifest": "manifests", "TransactionLog": "transactions"}
DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ROOT_ID = bytes.fromhex("0b1cc8d6787580f0e33a6534")
#: The time of the first commit: 2026-01-01. Each later one is a minute later.
FIRST_TIME = 1_767_225_600_000_000
MINUTE = 60_000_000

type Box = Sequence[tuple[int, int]]
type Edit = Callable[[Document], object]
type Change = Callable[[bytes], bytes]


def encode_id(identifier: bytes) -> str:
    """Return Crockford base 32 without padding: the name of an object."""
    bits = "".join(f"{byte:08b}" for byte in identifier)
    bits += "0" * (-len(bits) % 5)
    return "".join(DIGITS[int(bits[start : start + 5], 2)] for start in range(0, len(bits), 5))


def identifier(seed: str, size: int = 12) -> bytes:
    """Return an id that depends on the seed only, so that each run of a case gives the same files."""
    return hashlib.sha256(seed.encode()).digest()[:size]


def envelope(
    kind: str,
    buffer: bytes,
    *,
    version: int = 2,
    magic: bytes = MAGIC,
    writer: str = "icechunk-kit",
    file_type: int | None = None,
    compression: int = 1,
    compress: Change | None = None,
    body: Change = bytes,
    file: Change = bytes,
) -> bytes:
    """Return a metadata file: a header of 39 bytes, and the buffer, compressed if the header says so.

    Args:
        kind: The root table.
        buffer: The FlatBuffer.
        version, magic, writer, file_type, compression: The fields of the header.
        compress: Replaces the compression.
        body, file: Change the buffer before it is compressed, and the whole file.
    """
    file_type = FILE_TYPES[kind] if file_type is None else file_type
    compress = compress or (partial(zstandard.compress, level=3) if compression == 1 else bytes)
    header = (
        magic + writer.encode("utf-8", "surrogateescape").ljust(24) + bytes([version, file_type, compression])
    )
    return file(header + compress(body(buffer)))


def is_inside(index: Sequence[int], box: Box) -> bool:
    pairs = zip(index, box, strict=False)
    return len(index) == len(box) and all(low <= at < high for at, (low, high) in pairs)


def edit(path: str, /, *absent: str, **fields: Any) -> Edit:
    """Return an edit that sets fields of tables, and removes others.

    Args:
        path: Leads from the root to these tables: members and positions with dots, `*` for all of a list.
        absent: The fields that are removed.
        fields: The new values of fields, or functions of the old ones.
    """

    def change(document: Document) -> None:
        tables: list[Any] = [document]
        for key in filter(None, path.split(".")):
            if key == "*":
                tables = [each for table in tables for each in table]
            else:
                tables = [table[key if isinstance(table, dict) else int(key)] for table in tables]
        for table in tables:
            table |= {key: each(table[key]) if callable(each) else each for key, each in fields.items()}
            for name in absent:
                del table[name]

    return change


def edits(*parts: Edit) -> Edit:
    """Return an edit that makes several edits, one after the other."""

    def change(document: Document) -> None:
        for part in parts:
            part(document)

    return change


def inline(data: bytes) -> Document:
    return {"inline": data}


def native(data: bytes, start: int = 0, stop: int | None = None) -> Document:
    """Return a reference to the bytes from `start` to `stop` of a chunk file."""
    return {"data": data, "offset": start, "length": (len(data) if stop is None else stop) - start}


def flexbuffer(value: Any) -> bytes:
    """Return a value in the form of metadata in version 2."""

    def encoded(part: Any) -> Any:
        if isinstance(part, dict):  # the library takes text of ASCII and any bytes as a key
            return {key.encode(): encoded(each) for key, each in part.items()}
        return [encoded(each) for each in part] if isinstance(part, list) else part

    return bytes(flexbuffers.Dumps(encoded(value)))


class State(NamedTuple):
    """What a transaction log compares of a node. The kind is `group` or `array`."""

    path: str
    kind: str
    document: object
    references: Mapping[tuple[int, ...], Document]


@dataclass(slots=True)
class Node:
    """A group, or an array without codecs. Each key of `refs` is the coordinates of a chunk."""

    path: str
    shape: Sequence[int] | None = None
    chunks: Sequence[int] = ()
    refs: Mapping[Any, Document] = field(default_factory=dict)
    names: Sequence[str | None] | None = None
    attributes: Document = field(default_factory=dict)
    #: A box of chunks for each manifest of the array: (start, stop) for each dimension. Empty: one manifest.
    split: Sequence[Box] = ()
    #: Replaces members of `zarr.json`.
    metadata: Document = field(default_factory=dict)
    #: The first path of a node that moved: its id depends on it.
    origin: str = ""

    @property
    def id(self) -> bytes:
        return identifier(f"node {self.origin or self.path}", 8)

    @property
    def zarr_json(self) -> Document:
        document: Document = {"zarr_format": 3, "node_type": "group", "attributes": self.attributes}
        if self.shape is not None:
            document |= {
                "node_type": "array",
                "shape": list(self.shape),
                "data_type": "uint8",
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(self.chunks)}},
                "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
                "fill_value": 0,
                "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            }
            if self.names is not None:
                document["dimension_names"] = list(self.names)
        return document | self.metadata

    @property
    def state(self) -> State:
        return State(self.path, "group" if self.shape is None else "array", self.zarr_json, self.refs)


def changes(before: Mapping[bytes, State], after: Mapping[bytes, State]) -> Document:
    """Return the lists of a transaction log: what differs between the nodes of two snapshots, by id."""
    both = before.keys() & after.keys()
    states = {
        "new": after.keys() - both,
        "deleted": before.keys() - both,
        "updated": {id for id in both if before[id].document != after[id].document},
    }
    nodes = {**before, **after}
    log: Document = {
        f"{what}_{kind}s": sorted(id for id in ids if nodes[id].kind == kind)
        for (what, ids), kind in product(states.items(), ("group", "array"))
    }
    log["updated_chunks"] = []
    for id, node in sorted(after.items()):
        old = before[id].references if id in before else {}
        places = sorted(at for at in {*old, *node.references} if old.get(at) != node.references.get(at))
        if places:
            log["updated_chunks"].append({"node_id": id, "chunks": [{"coords": list(at)} for at in places]})
    moves = [
        {"from": before[id].path, "to": node.path, "node_id": id, "node_type": int(node.kind == "array")}
        for id, node in sorted(after.items(), key=lambda item: item[1].path.split("/"))
        if id in both and before[id].path != node.path
    ]
    return log | ({"moved_nodes": moves} if moves else {})


def metadata_items(values: Mapping[str, Any], version: int) -> list[Document]:
    dumps = flexbuffer if version == 2 else msgpack.packb
    return [{"name": name, "value": dumps(value)} for name, value in sorted(values.items())]


class Repository:
    """Writes one repository. `write` comes last: it writes what names the other files."""

    def __init__(self, folder: Path, version: int = 2) -> None:
        self.folder, self.version = folder, version
        self.snapshots: list[Document] = []
        self.states: dict[bytes | None, dict[bytes, State]] = {}
        self.branches: dict[str, bytes] = {}
        self.tags: dict[str, bytes] = {}
        self.config: Document | None = None
        self.updates = [{"update_type": ("RepoInitializedUpdate", {}), "updated_at": FIRST_TIME}]
        mark = {"__icechunk": {"is_root": True}} if version == 2 else {"__root": True}
        self.commit([], message="Repository initialized", id=ROOT_ID, metadata=mark)

    def put(self, key: str, data: bytes) -> int:
        """Write a file, and return its size."""
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.write_bytes(data)

    def put_document(
        self, kind: str, id: bytes, document: Document, edit: Edit | None = None, **header: Any
    ) -> int:
        """Write a metadata file, and return its size."""
        if edit:
            edit(document)
        data = envelope(kind, pack(kind, document), **{"version": self.version, **header})
        return self.put(f"{FOLDERS[kind]}/{encode_id(id)}" if id else "repo", data)

    def commit(
        self,
        nodes: Sequence[Node],
        *,
        message: str = "commit",
        branch: str | None = "main",
        parent: bytes | None = None,
        id: bytes | None = None,
        metadata: Mapping[str, Any] | None = None,
        time: int | None = None,
        shared: bool = False,
        edit: Mapping[str, Edit] | None = None,
        header: Mapping[str, Document] | None = None,
    ) -> bytes:
        """Write the files of one snapshot, and return its id.

        Args:
            nodes: Everything in the snapshot. The root group is added, except to the first snapshot.
            branch: Moves to the snapshot. None: a snapshot without a branch.
            parent: By default the tip of the branch.
            time: In microseconds. By default a minute after the snapshot before.
            shared: One manifest for all arrays.
            edit, header: Changes of a document or a header, by the kind of the file.
        """
        number = len(self.snapshots)
        id = identifier(f"snapshot {number}") if id is None else id
        time = FIRST_TIME + number * MINUTE if time is None else time
        parent = self.branches.get(branch or "main") if parent is None else parent
        if number and not any(node.path == "/" for node in nodes):
            nodes = [Node("/"), *nodes]
        nodes = sorted(nodes, key=lambda node: node.path.encode())
        self.states[id] = {node.id: node.state for node in nodes}

        def put(kind: str, id: bytes, document: Document) -> int:
            return self.put_document(
                kind, id, document, (edit or {}).get(kind), **(header or {}).get(kind, {})
            )

        boxes, infos = self._manifests(nodes, id, put, shared)
        document = {
            "id": id,
            "nodes": [self._node(node, boxes[node.path]) for node in nodes],
            "flushed_at": time,
            "message": message,
            "metadata": metadata_items(metadata or {}, self.version),
            "manifest_files": [] if self.version == 2 else [tuple(info.values()) for info in infos],
            "manifest_files_v2": infos if self.version == 2 else None,
        }
        if self.version == 1 and parent is not None:
            document["parent_id"] = parent
        put("Snapshot", id, document)
        if number or self.version == 2:  # writers of version 1 give the initial snapshot no log
            put("TransactionLog", id, {"id": id, **changes(self.states.get(parent, {}), self.states[id])})
        self.snapshots.append(
            {"id": id, "parent": parent, "flushed_at": time, "message": message, "metadata": metadata or {}}
        )
        if branch is not None:
            self.branches[branch] = id
            if number:
                self.log("NewCommitUpdate", branch=branch, new_snap_id=id)
        return id

    def log(self, kind: str, **fields: Any) -> None:
        time = FIRST_TIME + len(self.snapshots) * MINUTE + len(self.updates)
        self.updates.insert(0, {"update_type": (kind, fields), "updated_at": time})

    def _manifests(
        self, nodes: Sequence[Node], id: bytes, put: Callable[..., int], shared: bool
    ) -> tuple[Mapping[str, list[tuple[bytes, Box]]], list[Document]]:
        """Write the manifests. Return for each path the manifests with their boxes, and the infos of all."""
        arrays: dict[bytes, list[Document]] = defaultdict(list)
        boxes: dict[str, list[tuple[bytes, Box]]] = defaultdict(list)
        for node in nodes:
            references = {at: self._chunk(at, node.refs[at]) for at in sorted(node.refs)}
            tight = [(min(axis), max(axis) + 1) for axis in zip(*references, strict=True)]
            for number, box in enumerate(node.split or [tight]):
                inside = [ref for at, ref in references.items() if is_inside(at, box)]
                manifest = identifier(f"manifest {encode_id(id)} {'' if shared else f'{node.path} {number}'}")
                if inside:
                    arrays[manifest].append({"node_id": node.id, "refs": inside})
                    boxes[node.path].append((manifest, box))
        infos = []
        for manifest, rows in sorted(arrays.items()):
            count = sum(len(row["refs"]) for row in rows)
            document: Document = {"id": manifest, "arrays": sorted(rows, key=lambda row: row["node_id"])}
            if self.version == 2:
                document["compression_algorithm"] = 0
            size = put("Manifest", manifest, document)
            infos.append({"id": manifest, "size_bytes": size, "num_chunk_refs": count})
        return boxes, infos

    def _chunk(self, coordinates: tuple[int, ...], reference: Document) -> Document:
        reference = {"index": list(coordinates), **reference}
        if "data" in reference:
            data = reference.pop("data")
            reference["chunk_id"] = identifier(f"chunk {hashlib.sha256(data).hexdigest()}")
            self.put(f"chunks/{encode_id(reference['chunk_id'])}", data)
        return reference

    def _node(self, node: Node, manifests: Sequence[tuple[bytes, Box]]) -> Document:
        document: Document = {"id": node.id, "path": node.path, "node_data": ("GroupNodeData", {})}
        document["user_data"] = json.dumps(node.zarr_json).encode()
        if node.shape is not None:
            array: Document = {"shape": []}
            array["manifests"] = [{"object_id": manifest, "extents": box} for manifest, box in manifests]
            sizes = list(zip(node.shape, node.chunks, strict=True))
            if self.version == 2:
                array["shape_v2"] = [
                    {"array_length": size, "num_chunks": -(-size // chunk) if chunk else 0}
                    for size, chunk in sizes
                ]
            else:
                array["shape"] = sizes
            if node.names is not None:
                array["dimension_names"] = [{} if name is None else {"name": name} for name in node.names]
            document["node_data"] = ("ArrayNodeData", array)
        return document

    def write(self, edit: Edit | None = None, **header: Any) -> None:
        """Write the references to snapshots: `repo` in version 2, a file for each of them in version 1."""
        if self.version == 1:
            for kind, refs in (("branch", self.branches), ("tag", self.tags)):
                for name, id in refs.items():
                    self.put(f"refs/{kind}.{name}/ref.json", json.dumps({"snapshot": encode_id(id)}).encode())
            return
        order = sorted(self.snapshots, key=lambda each: each["id"])
        index = {each["id"]: number for number, each in enumerate(order)}
        document: Document = {
            "spec_version": 2,
            "deleted_tags": [],
            "snapshots": [
                {
                    "id": each["id"],
                    "parent_offset": index.get(each["parent"], -1),
                    "flushed_at": each["flushed_at"],
                    "message": each["message"],
                    "metadata": metadata_items(each["metadata"], 2),
                    **each.get("info", {}),
                }
                for each in order
            ],
            "status": {"availability": 0, "set_at": FIRST_TIME},
            "latest_updates": self.updates,
        }
        for key, refs in (("tags", self.tags), ("branches", self.branches)):
            names = sorted(refs, key=str.encode)
            document[key] = [{"name": name, "snapshot_index": index[refs[name]]} for name in names]
        if self.config is not None:
            document["config"] = flexbuffer(self.config)
        self.put_document("Repo", b"", document, edit, **header)
