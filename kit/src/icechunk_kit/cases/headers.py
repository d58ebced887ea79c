"""The header of a metadata file, and the layout of the FlatBuffer inside it."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import zstandard

from icechunk_kit.case import ERROR, Step, case, read
from icechunk_kit.files import Document, Edit, Node, Repository, inline
from icechunk_kit.schema import TABLES

# A case is a paragraph, not a column of arguments.
# fmt: off

NODE = Node("/a", shape=[2], chunks=[1], refs={(0,): inline(b"\1\2")})
VALUE = read("/a", {(0,): b"\1\2", (1,): None})
KINDS = ("Repo", "Snapshot", "Manifest")
REST = random.Random(1).randbytes(400_000)

def write(folder: Path, kinds: tuple[str, ...], edit: Edit | None = None, **header: Any) -> None:
    """Write a repository with one array. The edit and the header are those of some kinds of files."""
    repository = Repository(folder)
    repository.commit(
        [NODE],
        header=dict.fromkeys(kinds, header),
        edit={kind: edit for kind in kinds if edit},
    )
    repository.write(*([edit] if "Repo" in kinds else []), **(header if "Repo" in kinds else {}))

def streamed(body: bytes) -> bytes:
    """Return a frame with a checksum and without the size of its content."""
    stream = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compressobj()
    return bytes(stream.compress(body) + stream.flush())

def frames(body: bytes) -> bytes:
    return b"".join(streamed(body[start : start + 50]) for start in range(0, len(body), 50))

def vtable_after(body: bytes) -> bytes:
    """Move the vtable of the root behind the table."""
    root = struct.unpack_from("<I", body)[0]
    vtable = root - struct.unpack_from("<i", body, root)[0]
    size = struct.unpack_from("<H", body, vtable)[0]
    data = bytearray(body + bytes(-len(body) % 4))
    struct.pack_into("<i", data, root, root - len(data))
    return bytes(data + body[vtable : vtable + size])

MAGIC = "The UTF-8 encoding of ICE🧊CHUNK (49 43 45 F0 9F A7 8A 43 48 55 4E 4B)."
WRITER = "A left-aligned, right-space-padded UTF-8 string identifying the writing client."
VERSION = "1 for spec version 1, 2 for spec version 2."
TYPE = "1 = Snapshot, 2 = Manifest, 4 = TransactionLog, 6 = RepoInfo."
COMPRESSION = "0 = none, 1 = zstd."
ENVELOPE = "Each file consists of a binary header followed by a zstd-compressed flatbuffers payload."
LIBRARY = "Another writer's files cannot be read, though they are right."
CONFUSED = "A reader takes the bytes of something else for metadata."
#: Identifier, the header, whether the files are right, the rule, and why.
HEADERS: tuple[tuple[str, Document, bool, str, str], ...] = (
    ("writer.unknown", {"writer": "someone else 9.9"}, True, WRITER, LIBRARY),
    ("writer.full", {"writer": "écrivain-à-24-octets!"}, True, WRITER, LIBRARY),
    ("writer.empty", {"writer": ""}, True, WRITER, LIBRARY),
    ("magic.other", {"magic": b"ICE\xf0\x9f\xa7\x8aCHUNX"}, False, MAGIC, CONFUSED),
    ("magic.case", {"magic": "ice🧊chunk".encode()}, False, MAGIC, CONFUSED),
    ("version.zero", {"version": 0}, False, VERSION, CONFUSED),
    ("version.later", {"version": 3}, False, VERSION, "An old reader shows wrong data of a newer format."),
    ("version.high", {"version": 255}, False, VERSION, CONFUSED),
    ("type.other", {"file_type": 4}, False, TYPE, CONFUSED),
    ("type.unknown", {"file_type": 77}, False, TYPE, CONFUSED),
    ("type.zero", {"file_type": 0}, False, TYPE, CONFUSED),
    ("compression.none", {"compression": 0}, True, COMPRESSION, LIBRARY),
    ("compression.unknown", {"compression": 2, "compress": zstandard.compress}, False, COMPRESSION, CONFUSED),
    ("compression.lie", {"compression": 1, "compress": bytes}, False, COMPRESSION, CONFUSED),
    ("frames.several", {"compress": frames}, True, "silent", "Writers that compress a stream give frames."),
    ("frames.unsized", {"compress": streamed}, True, ENVELOPE,
        "Writers that stream know no size: 0.2 to 1.1."),
    ("frames.checksum", {"compress": lambda b: streamed(b)[:-1] + b"\0"}, False, ENVELOPE, CONFUSED),
    ("frames.high-level", {"compress": lambda b: zstandard.compress(b, 19)}, True, ENVELOPE, LIBRARY),
    ("frames.cut", {"compress": lambda b: streamed(b + REST)[:-9]}, False, ENVELOPE, CONFUSED),
    ("file.empty", {"file": lambda file: b""}, False, ENVELOPE, "An upload that broke off."),
    ("file.short", {"file": lambda file: file[:38]}, False, ENVELOPE, "An upload that broke off."),
    ("file.no-body", {"file": lambda file: file[:39]}, False, ENVELOPE, "An upload that broke off."),
    ("file.html", {"file": lambda file: b"<html>" + b"404 " * 99}, False, MAGIC,
        "Servers answer with pages."),
    ("identifier.absent", {"body": lambda b: b[:4] + bytes(4) + b[8:]}, True, "silent", LIBRARY),
    ("vtable.behind", {"body": vtable_after}, True, "each type of file is encoded using flatbuffers",
        LIBRARY),
    ("body.longer", {"body": lambda b: b + bytes(64)}, True, "silent", "Builders may leave room at the end."),
)

for _id, _header, _right, _rule, _why in HEADERS:

    @case(f"header.{_id}", "reader", "2.0", _rule, _why)
    def _(folder: Path, header: Document = _header, right: bool = _right) -> list[Step]:
        if right:
            write(folder, KINDS, **header)
            return [VALUE]
        for kind in KINDS:
            write(folder / kind, (kind,), **header)
        return [VALUE | {"at": kind, "expect": ERROR} for kind in KINDS]

def extra(document: Document) -> None:
    """Fill each field `extra`, and add fields of a later schema."""
    later = [("string", "later"), ("u64", 2**63), ("[ObjectId12]", [bytes(12)])]
    document |= {"extra": b"\1\2\3", "later": later}
    for each in (*document.get("nodes", ()), *document.get("arrays", ())):
        each |= {"extra": b"\4", "later": later}
    for each in document.get("manifest_files_v2", ()):
        each |= {"extra": b"\5", "later": later}
    for array in document.get("arrays", ()):
        for reference in array["refs"]:
            reference |= {"extra": b"\6", "later": later}
    for each in (*document.get("snapshots", ()), *document.get("branches", ())):
        each["later"] = later

EXTRA = ("It allows small, optional features (e.g. precomputed storage statistics) to be added without "
    "requiring a new spec version.")
for _kind in KINDS:

    @case(f"extra.{_kind.lower()}", "reader", "2.1", EXTRA, "A reader of today stops with files of tomorrow.")
    def _(folder: Path, kind: str = _kind) -> list[Step]:
        write(folder, (kind,), extra)
        return [VALUE]

def declaration(table: str, name: str) -> str:
    """Return the line of the schema that says that a field is required."""
    type_ = next(type_ for field, type_, _ in TABLES[table] if field == name)
    return f"{name}: {type_.replace('u8', 'uint8')} (required)"

#: The fields whose absence makes a file invalid, by the kind of the file.
REQUIRED = {
    "Repo": ("branches", "tags", "deleted_tags", "snapshots", "status", "latest_updates"),
    "Snapshot": ("id", "nodes", "message", "metadata", "manifest_files"),
    "Manifest": ("id", "arrays"),
}
for _kind, _names in REQUIRED.items():
    for _name in _names:

        @case(f"required.{_kind.lower()}.{_name}", "reader", "2.0", declaration(_kind, _name), CONFUSED)
        def _(folder: Path, kind: str = _kind, name: str = _name) -> list[Step]:
            write(folder, (kind,), lambda document: document.pop(name))
            return [VALUE | {"expect": ERROR}]

#: Fields of the tables inside the root, and the way to these tables.
INNER = (
    ("Repo", "branches", "Ref", "name"),
    ("Repo", "snapshots", "SnapshotInfo", "id"),
    ("Repo", "snapshots", "SnapshotInfo", "message"),
    ("Snapshot", "nodes", "NodeSnapshot", "id"),
    ("Snapshot", "nodes", "NodeSnapshot", "path"),
    ("Snapshot", "nodes", "NodeSnapshot", "user_data"),
    ("Snapshot", "nodes", "NodeSnapshot", "node_data"),
    ("Manifest", "arrays", "ArrayManifest", "node_id"),
    ("Manifest", "arrays", "ArrayManifest", "refs"),
)
for _kind, _list, _table, _name in INNER:

    @case(f"required.{_kind.lower()}.{_list}.{_name}", "reader", "2.0", declaration(_table, _name), CONFUSED)
    def _(folder: Path, kind: str = _kind, list_: str = _list, name: str = _name) -> list[Step]:
        write(folder, (kind,), lambda document: [each.pop(name) for each in document[list_]])
        return [VALUE | {"expect": ERROR}]

@case("required.manifest.index", "reader", "2.0", "index: [uint32] (required)", CONFUSED)
def _index(folder: Path) -> list[Step]:
    write(folder, ("Manifest",), lambda document: document["arrays"][0]["refs"][0].pop("index"))
    return [VALUE | {"expect": ERROR}]
