"""A small writer of repositories: what a case puts on disk, right or wrong on purpose.

A case describes nodes and references; `Repository` writes the files of version 1 or 2 in the form that the
reference gives them. An `edit` changes a document before it is packed, so that a case breaks one rule only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import zstandard
from flatbuffers import flexbuffers  # type: ignore[import-untyped]

from icechunk_kit.schema import Document as Document
from icechunk_kit.schema import pack, unpack

MAGIC = "ICE🧊CHUNK".encode()
FILE_TYPES = {"Snapshot": 1, "Manifest": 2, "TransactionLog": 4, "Repo": 6}
FOLDERS = {"Snapshot": "snapshots", "Manifest": "manifests", "TransactionLog": "transactions"}
DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ROOT_ID = bytes.fromhex("0b1cc8d6787580f0e33a6534")
#: The time of the first commit: 2026-01-01. Each later one is a minute later.
FIRST_TIME = 1_767_225_600_000_000
MINUTE = 60_000_000

type Edit = Callable[[Document], object]
type Change = Callable[[bytes], bytes]


def encode_id(identifier: bytes) -> str:
    """Return Crockford base 32 without padding: the name of an object."""
    bits = "".join(f"{byte:08b}" for byte in identifier)
    bits += "0" * (-len(bits) % 5)
    return "".join(DIGITS[int(bits[start : start + 5], 2)] for start in range(0, len(bits), 5))


def decode_id(text: str, size: int = 12) -> bytes:
    bits = "".join(f"{DIGITS.index(each):05b}" for each in text)
    return bytes(int(bits[start : start + 8], 2) for start in range(0, 8 * size, 8))


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
    header = magic + writer.encode().ljust(24) + bytes([version, file_type, compression])
    return file(header + compress(body(buffer)))


def read_file(path: Path, kind: str) -> Document:
    """Return the document of a metadata file that follows the specification."""
    data = path.read_bytes()
    body = zstandard.ZstdDecompressor().decompressobj().decompress(data[39:]) if data[38] else data[39:]
    return unpack(kind, body)


def inline(data: bytes) -> Document:
    return {"inline": data}


def native(data: bytes, *, before: bytes = b"", after: bytes = b"") -> Document:
    """Return a reference to a chunk file, in which other bytes may stand before and after the chunk."""
    return {"data": before + data + after, "offset": len(before), "length": len(data)}


def virtual(location: str, offset: int, length: int, **checksum: Any) -> Document:
    return {"location": location, "offset": offset, "length": length, **checksum}


@dataclass(slots=True)
class Node:
    """A group, or an array without codecs. Each key of `refs` is the coordinates of a chunk."""

    path: str
    shape: Sequence[int] | None = None
    chunks: Sequence[int] = ()
    dtype: str = "uint8"
    refs: Mapping[Any, Document] = field(default_factory=dict)
    names: Sequence[str | None] | None = None
    attributes: Document = field(default_factory=dict)
    #: One box of chunks for each manifest of the array: (start, stop) for each dimension. None: one manifest.
    split: Sequence[Sequence[tuple[int, int]]] | None = None
    #: Replaces members of `zarr.json`.
    metadata: Document = field(default_factory=dict)
    edit: Edit | None = None

    @property
    def id(self) -> bytes:
        return identifier(f"node {self.path}", 8)

    @property
    def grid(self) -> list[int]:
        """The number of chunks in each dimension."""
        return [
            -(-size // chunk) if chunk else 0
            for size, chunk in zip(self.shape or (), self.chunks, strict=True)
        ]

    @property
    def zarr_json(self) -> Document:
        document: Document = {"zarr_format": 3, "node_type": "group", "attributes": self.attributes}
        if self.shape is not None:
            document |= {
                "node_type": "array",
                "shape": list(self.shape),
                "data_type": self.dtype,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(self.chunks)}},
                "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
                "fill_value": 0,
                "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            }
            if self.names is not None:
                document["dimension_names"] = list(self.names)
        return document | self.metadata


def metadata_items(values: Mapping[str, Any], version: int) -> list[Document]:
    dumps = flexbuffers.Dumps if version == 2 else msgpack.packb
    return [{"name": name, "value": bytes(dumps(value))} for name, value in sorted(values.items())]


class Repository:
    """Writes one repository. `write` comes last: it writes what names the other files."""

    def __init__(self, folder: Path, version: int = 2) -> None:
        self.folder, self.version = folder, version
        self.snapshots: list[Document] = []
        self.branches: dict[str, bytes] = {}
        self.tags: dict[str, bytes] = {}
        self.config: Document | None = None
        self.updates: list[Document] = [
            {"update_type": ("RepoInitializedUpdate", {}), "updated_at": FIRST_TIME}
        ]
        self.commit(
            [], message="Repository initialized", id=ROOT_ID, metadata={"__icechunk": {"is_root": True}}
        )

    def put(self, key: str, data: bytes) -> Path:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def put_document(
        self, kind: str, id: bytes, document: Document, edit: Edit | None = None, **header: Any
    ) -> int:
        """Write a metadata file, and return its size."""
        if edit:
            edit(document)
        data = envelope(kind, pack(kind, document), **{"version": self.version, **header})
        self.put(f"{FOLDERS[kind]}/{encode_id(id)}", data)
        return len(data)

    def commit(
        self,
        nodes: Sequence[Node],
        *,
        message: str = "commit",
        branch: str | None = "main",
        parent: bytes | None = None,
        id: bytes | None = None,
        metadata: Mapping[str, Any] | None = None,
        log: Document | None = None,
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
            log: The lists of the transaction log. By default they are empty.
            time: In microseconds. By default a minute after the snapshot before.
            shared: One manifest for all arrays.
            edit, header: Changes of a document or a header, by the kind of the file.
        """
        edit, header = edit or {}, header or {}
        number = len(self.snapshots)
        id = identifier(f"snapshot {number}") if id is None else id
        time = FIRST_TIME + number * MINUTE if time is None else time
        parent = self.branches.get(branch or "main") if parent is None else parent
        if number and not any(node.path == "/" for node in nodes):
            nodes = [Node("/"), *nodes]
        nodes = sorted(nodes, key=lambda node: node.path.encode())
        manifests = self._manifests(nodes, id, shared, edit.get("Manifest"), header.get("Manifest", {}))
        infos = sorted(
            {info["id"]: info for boxes in manifests.values() for info, _ in boxes}.values(),
            key=lambda i: i["id"],
        )
        old, new = ([], infos) if self.version == 2 else ([tuple(info.values()) for info in infos], None)
        document = {
            "id": id,
            "nodes": [self._node(node, manifests.get(node.path, [])) for node in nodes],
            "flushed_at": time,
            "message": message,
            "metadata": metadata_items(metadata or {}, self.version),
            "manifest_files": old,
            "manifest_files_v2": new,
        }
        if self.version == 1 and parent is not None:
            document["parent_id"] = parent
        self.put_document("Snapshot", id, document, edit.get("Snapshot"), **header.get("Snapshot", {}))
        lists = [f"{what}_{kind}" for what in ("new", "deleted", "updated") for kind in ("groups", "arrays")]
        transaction = {"id": id, **{key: [] for key in lists}, "updated_chunks": [], **(log or {})}
        self.put_document(
            "TransactionLog", id, transaction, edit.get("TransactionLog"), **header.get("TransactionLog", {})
        )
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
        self, nodes: Sequence[Node], id: bytes, shared: bool, edit: Edit | None, header: Document
    ) -> dict[str, list[tuple[Document, list[tuple[int, int]]]]]:
        """Write the manifests, and return for each array their infos with the box that each one covers."""
        parts: dict[str, list[tuple[Node, list[tuple[int, int]], list[Document]]]] = {}
        for node in nodes:
            references = {
                coordinates: self._chunk(node, coordinates, ref)
                for coordinates, ref in sorted(node.refs.items())
            }
            for number, box in enumerate(
                node.split or [[(min(axis), max(axis) + 1) for axis in zip(*references, strict=True)]]
            ):
                inside = [
                    ref
                    for coordinates, ref in references.items()
                    if all(low <= at < high for at, (low, high) in zip(coordinates, box, strict=True))
                ]
                if inside:
                    parts.setdefault("" if shared else f"{node.path} {number}", []).append(
                        (node, list(box), inside)
                    )
        result: dict[str, list[tuple[Document, list[tuple[int, int]]]]] = {}
        for name, members in parts.items():
            manifest = identifier(f"manifest {encode_id(id)} {name}")
            arrays = [{"node_id": node.id, "refs": refs} for node, _, refs in members]
            document: Document = {"id": manifest, "arrays": sorted(arrays, key=lambda each: each["node_id"])}
            if self.version == 2:
                document["compression_algorithm"] = 0
            size = self.put_document("Manifest", manifest, document, edit, **header)
            info: Document = {
                "id": manifest,
                "size_bytes": size,
                "num_chunk_refs": sum(len(refs) for _, _, refs in members),
            }
            for node, box, _ in members:
                result.setdefault(node.path, []).append((info, box))
        return result

    def _chunk(self, node: Node, coordinates: tuple[int, ...], reference: Document) -> Document:
        reference = {"index": list(coordinates), **reference}
        if "data" in reference:
            data = reference.pop("data")
            chunk = identifier(f"chunk {hashlib.sha256(data).hexdigest()}")
            self.put(f"chunks/{encode_id(chunk)}", data)
            reference.setdefault("chunk_id", chunk)
        return reference

    def _node(self, node: Node, manifests: Sequence[tuple[Document, list[tuple[int, int]]]]) -> Document:
        document: Document = {
            "id": node.id,
            "path": node.path,
            "user_data": json.dumps(node.zarr_json).encode(),
        }
        document["node_data"] = ("GroupNodeData", {})
        if node.shape is not None:
            array: Document = {
                "shape": [],
                "manifests": [{"object_id": info["id"], "extents": box} for info, box in manifests],
            }
            if self.version == 2:
                sizes = zip(node.shape, node.grid, strict=True)
                array["shape_v2"] = [{"array_length": size, "num_chunks": count} for size, count in sizes]
            else:
                array["shape"] = list(zip(node.shape, node.chunks, strict=True))
            if node.names is not None:
                array["dimension_names"] = [{} if name is None else {"name": name} for name in node.names]
            document["node_data"] = ("ArrayNodeData", array)
        if node.edit:
            node.edit(document)
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
            document[key] = [
                {"name": name, "snapshot_index": index[refs[name]]} for name in sorted(refs, key=str.encode)
            ]
        if self.config is not None:
            document["config"] = bytes(flexbuffers.Dumps(self.config))
        if edit:
            edit(document)
        self.put("repo", envelope("Repo", pack("Repo", document), **{"version": 2, **header}))
